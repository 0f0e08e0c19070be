from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from skewless.documents.commit import CommittedFile
from skewless.documents.job import Job
from skewless.documents.window import JobWindow, WindowPart, WindowSpan
from skewless.spec import Map
from skewless_spark.session.class_archive import GIVEN_UP_SECONDS, KEPT_SECONDS, SETTING, WRITTEN_SECONDS, java_options
from skewless_spark.session.session import QUICK_BYTES, QUICK_LINES, QUICK_ROWS, QUICK_ROWS_MAPPED, is_small
from tests.unit import synthetic

NOW = 1_800_000_000.0


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the archives of a user who has set nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in (SETTING, "SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "skewless"


def written(cache: Path, at: float) -> Path:
    """The archive that a JVM has just written, at a moment."""
    (draft,) = cache.glob("*.draft")
    draft.write_bytes(b"classes")
    os.utime(draft, (at, at))
    return draft.with_name(f"{draft.stem}-7.jsa")


def test_the_first_jvm_writes_the_archive_and_those_after_it_use_it(cache: Path) -> None:
    draft = f"{cache}/spark-"
    assert java_options(NOW)[1].startswith(f"-XX:ArchiveClassesAtExit={draft}")
    assert java_options(NOW + 5) == [], "one JVM writes it"
    archive = written(cache, NOW + 30)
    assert java_options(NOW + 31) == [], "it may still be written"
    used = java_options(NOW + 30 + WRITTEN_SECONDS)
    assert used == ["-Xlog:disable", f"-XX:SharedArchiveFile={archive}"]
    assert java_options(NOW + 9999) == used
    assert [archive] == list(cache.iterdir())
    assert (cache.stat().st_mode & 0o777, archive.stat().st_mode & 0o077) == (0o700, 0)


def test_an_archive_that_was_cut_is_removed_and_another_one_is_made(cache: Path) -> None:
    java_options(NOW)
    archive = written(cache, NOW)
    later = NOW + WRITTEN_SECONDS
    assert java_options(later)[1] == f"-XX:SharedArchiveFile={archive}"
    archive.write_bytes(b"class")
    assert java_options(later)[1].startswith("-XX:ArchiveClassesAtExit=")
    assert not archive.exists()


@pytest.mark.usefixtures("cache")
def test_a_jvm_that_was_killed_before_it_wrote_is_not_waited_for_forever() -> None:
    java_options(NOW)
    assert java_options(NOW + GIVEN_UP_SECONDS - 1) == []
    assert "ArchiveClassesAtExit" in java_options(NOW + GIVEN_UP_SECONDS)[1]


def test_an_archive_of_another_spark_is_removed_when_nobody_has_used_it_for_long(cache: Path) -> None:
    cache.mkdir()
    for name, age in (("spark-old.jsa", KEPT_SECONDS + 1), ("spark-used.jsa", KEPT_SECONDS - 1)):
        (cache / name).write_bytes(b"classes")
        os.utime(cache / name, (NOW - age, NOW - age))
    java_options(NOW)
    assert [path.name for path in cache.glob("*.jsa")] == ["spark-used.jsa"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (SETTING, "off"), ("JAVA_HOME", "/nowhere"), ("XDG_CACHE_HOME", "/proc/cannot be written"),
        ("SPARK_SUBMIT_OPTS", "-XX:SharedArchiveFile=mine.jsa"), ("JDK_JAVA_OPTIONS", "-Xshare:off"),
        ("JAVA_TOOL_OPTIONS", "-XX:ArchiveClassesAtExit=mine.jsa"),
    ],
)  # fmt: skip
def test_nothing_is_done_where_it_is_not_wanted_or_not_possible(
    cache: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    assert java_options(NOW) == []
    assert not cache.exists()


_SESSION = """
import datetime, json, sys
from pathlib import Path
from pyspark.sql import SparkSession
from skewless.spec.reading import parse_spec
from skewless_spark.prepare.freezing import freeze
spec = "{name: archive, input: {path: '%s', format: text}, map: {select: [value AS k]}, key: k, "
spec = parse_spec(spec % json.__file__ + "aggregates: {n: count}, output: {path: out}}")
freeze(spec, datetime.date(2026, 1, 1), "/", "spec", master="local[1]")
spark = SparkSession.getActiveSession()
spark.range(9).groupBy("id").count().collect()
gateway = spark.sparkContext._gateway
maps = Path(f"/proc/{gateway.proc.pid}/maps").read_text()
quick = "-XX:TieredStopAtLevel=1" in Path(f"/proc/{gateway.proc.pid}/cmdline").read_text()
print(json.dumps({"mapped": ".jsa" in maps.replace("classes.jsa", ""), "path": sys.argv[1] in maps, "quick": quick}))
spark.stop(), gateway.shutdown()
gateway.proc.stdin.close()
gateway.proc.wait()
"""


@pytest.mark.long
def test_a_real_jvm_writes_the_archive_at_its_end_and_the_next_one_maps_it(cache: Path) -> None:
    def session() -> dict[str, bool]:
        done = subprocess.run([sys.executable, "-c", _SESSION, str(cache)], capture_output=True, text=True, check=True)
        assert "archive" not in done.stderr.lower()
        return dict(json.loads(done.stdout))

    assert session() == {"mapped": False, "path": False, "quick": True}
    (draft,) = cache.glob("*.draft")
    assert draft.stat().st_size > 10 << 20
    earlier = time.time() - WRITTEN_SECONDS
    os.utime(draft, (earlier, earlier))
    assert session() == {"mapped": True, "path": True, "quick": True}

    # One that was cut would crash a JVM: it is removed, in use or before, and another one is made.
    (archive,) = cache.glob("*.jsa")
    archive.write_bytes(cut := archive.read_bytes()[: 100 << 20])
    assert java_options()[1].startswith("-XX:ArchiveClassesAtExit=")
    assert [draft] == list(cache.iterdir())
    draft.write_bytes(cut)
    os.utime(draft, (earlier, earlier))
    assert java_options()[1].startswith("-XX:ArchiveClassesAtExit=")
    assert [(draft, 0)] == [(file, file.stat().st_size) for file in cache.iterdir()]


def test_a_jvm_is_to_compile_quickly_for_little_input_alone() -> None:
    def job(rows: int, mapped: Map | None = None, **unit: Any) -> Job:
        found = synthetic.job([rows])
        units = tuple(one.model_copy(update=unit) for one in found.units)
        return found.model_copy(update={"spec": found.spec.model_copy(update={"map": mapped}), "units": units})

    assert [is_small(job(rows, counted=False)) for rows in (QUICK_LINES, QUICK_LINES + 1)] == [True, False]
    one, many, python = Map(select=("x",)), Map(select=("x", "Explode(y) AS z")), Map(mapper="tokens")
    for most, given in ((QUICK_ROWS, None), (QUICK_LINES, one), (QUICK_ROWS_MAPPED, many), (QUICK_ROWS_MAPPED, python)):
        assert [is_small(job(rows, given)) for rows in (most, most + 1)] == [True, False]
    assert not is_small(job(1, size_bytes=QUICK_BYTES + 1))
    for rows, size in ((QUICK_ROWS, 1), (1, QUICK_BYTES)):  # the states of other runs are read as well
        states = CommittedFile(kind="native", path="a", rows=rows, size_bytes=size, checksum="0" * 64)
        part = WindowPart(name="2026-11-20", place=0, base_states=(states,))
        window = JobWindow(store="", fingerprint="", shapes={}, parts=(part,), windows=(WindowSpan(length=2),))
        assert not is_small(job(1).model_copy(update={"window": window}))
