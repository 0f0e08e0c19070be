"""A certificate of a run, and its checker: it finds what was lost, doubled or altered anywhere, and nothing else."""

import datetime as dt
import json
import random
import re
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from typer.testing import CliRunner

from skewless.errors import QualityError, SkewlessError
from skewless.run.directory import RunDirectory
from skewless_cli import check_certificate
from skewless_cli.certify import certificate_of
from skewless_cli.main import app
from skewless_spark.entries.pipeline import run_pipeline
from skewless_spark.prepare.prepare import prepare
from skewless_spark.result import merge
from skewless_spark.stage import routes
from skewless_spark.states.job_columns import hash_of_row
from tests.spark.scenario import DATE, run_job, spec_of, write_input

AGGREGATES = {
    "clicks": "count",
    "ms": {"function": "sum", "column": "ms"},
    "mean": {"function": "avg", "column": "price"},
    "last": {"function": "max", "column": "at"},
    "visitors": {"function": "approx_count_distinct", "column": "visitor"},
}
COLUMNS = ("ms", "price", "at", "visitor")


def rows_of(number: int, seed: int = 7) -> pa.Table:
    chance = np.random.default_rng(seed)
    keys = [None if key > 40 else f"page {key} {'of a long name ' * (key % 4)}" for key in chance.zipf(1.5, number)]
    none = chance.random(number) < 0.1
    return pa.table({
        "page": pa.array(keys, pa.string()),
        "ms": pa.array(chance.integers(-(10**9), 10**9, number), pa.int32(), mask=none),
        "price": pa.array([Decimal(int(one)) / 100 for one in chance.integers(0, 10**7, number)], pa.decimal128(12, 2)),
        "at": pa.array(chance.integers(0, 2 * 10**15, number), pa.timestamp("us", "UTC"), mask=none),
        "visitor": pa.array(chance.random(number), pa.float64(), mask=~none),
    })  # fmt: skip


def audited(certificate: str, keys: int = 8) -> list[str]:
    return check_certificate.Audit(certificate, keys, 0).lines


def certified(spark: SparkSession, folder: Path, rows: pa.Table, **fields: Any) -> RunDirectory:
    source = write_input(folder / "in", rows, 4)
    run, _, _ = run_job(spark, spec_of(source, "page", AGGREGATES, **fields), folder / "run")
    return run


def test_a_row_has_the_hash_that_spark_gives_it(spark: SparkSession, tmp_path: Path) -> None:
    rows = rows_of(500).append_column("flag", pa.array([True, None] * 250))
    rows = rows.append_column("day", pa.array([1, None] * 250, pa.date32()))
    odd = [0.0, -0.0, float("nan"), float("inf"), None]
    more = {"wide": pa.float64(), "small": pa.float32()}
    for name, kind in more.items():
        rows = rows.append_column(name, pa.array(odd * 100, kind))
    rows = rows.append_column("raw", pa.array([bytes(range(n)) for n in range(100)] * 5, pa.binary()))
    for at in range(30):
        rows = rows.append_column(f"n{at}", pa.array([at, None] * 250, pa.int8()))
    pq.write_table(rows, tmp_path / "rows.parquet")
    frame = spark.read.parquet(str(tmp_path / "rows.parquet")).selectExpr(f"{hash_of_row(rows.column_names)} AS h")
    (batch,) = rows.combine_chunks().to_batches()
    assert [check_certificate.hash_of(batch.slice(at, 1)) for at in range(len(rows))] == [
        row.h % 2**32 for row in frame.collect()
    ]
    assert check_certificate.hash_of(batch) == sum(row.h for row in frame.collect()) % 2**32


@pytest.mark.parametrize(
    "fields",
    [
        {"engine": "combine"},
        {"engine": "bypass"},
        {"engine": "staged", "routing": {"waves": [1, 1, 1], "budget": 1.0, "stage_overhead": 0, "reducers": 3}},
        {"engine": "combine", "map": {"select": ["page", *COLUMNS], "where": "ms > 0 OR ms IS NULL"}},
    ],
    ids=["combine", "bypass", "staged", "mapped"],
)
def test_a_certificate_holds_whatever_the_engine(spark: SparkSession, tmp_path: Path, fields: dict[str, Any]) -> None:
    run = certified(spark, tmp_path, rows_of(2000), **fields)
    lines = audited(certificate_of(run).sealed())
    assert [line for line in lines if not line.startswith("good: ")] == []
    assert sum("computed anew" in line for line in lines) == len(AGGREGATES)


def test_a_certificate_knows_one_zero_and_sums_that_overflow(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table({"page": [-0.0, -0.0, np.nan], "try_sum": [1 << 62, 1 << 62, 1], "count_if": [None, None, True]})
    calls = {name: {"function": name, "column": name} for name in rows.column_names[1:]}
    run, _, _ = run_job(spark, spec_of(write_input(tmp_path / "in", rows, 1), "page", calls), tmp_path / "run")
    assert [line for line in audited(certificate_of(run).sealed()) if not line.startswith("good: ")] == []


def test_keys_that_python_has_no_date_for_are_not_drawn(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table({"page": pa.array([1, 4_000_000], pa.date32()), "ms": [1, 2]})
    run, _, _ = run_job(spark, spec_of(write_input(tmp_path / "in", rows, 1), "page", {"n": "count"}), tmp_path / "run")
    odd = [line for line in audited(certificate_of(run).sealed()) if not line.startswith("good: ")]
    assert odd == ["not checked: keys that were drawn: date value out of range"]


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_a_certificate_holds_of_kept_states_and_of_tables(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    output = {"path": str(tmp_path / "out"), "format": kind}
    spec = spec_of(tmp_path / "in" / "{date}", "page", AGGREGATES, window=3, engine="combine", output=output)
    days = [DATE - dt.timedelta(days=before) for before in (3, 2, 1, 0)]
    for seed, day in enumerate(days):
        write_input(tmp_path / "in" / str(day), rows_of(300, seed), 2)
    for day in days[2:]:  # the second goes on from states, and a file has come late
        run = RunDirectory(str(tmp_path / f"run-{day}"))
        prepare(run, spec, day, str(tmp_path))
        run_pipeline(spark, run)
        pq.write_table(rows_of(50, 9), tmp_path / "in" / str(days[1]) / "late.parquet")
    lines = audited(certificate_of(run).sealed())
    assert [line for line in lines if not line.startswith("good: ")] == []
    assert "good: the rows of window 3: 950" in lines
    assert sum("computed anew" in line for line in lines) == len(AGGREGATES)


def test_an_auditor_needs_one_file_and_neither_spark_nor_skewless(spark: SparkSession, tmp_path: Path) -> None:
    run = certified(spark, tmp_path, rows_of(300), engine="combine")
    path, checker = tmp_path / "certificate.json", tmp_path / "check.py"
    command = ["certify", str(run), "--into", str(path), "--checker", str(checker)]
    assert CliRunner().invoke(app, command).exit_code == 0
    source = checker.read_text()
    assert len(source.splitlines()) <= 200
    imported = {name.split(".")[0] for name in re.findall(r"^ *(?:from|import) (\S+)", source, re.MULTILINE)}
    assert imported - sys.stdlib_module_names == {"duckdb", "numpy", "pyarrow"}
    told = subprocess.run([sys.executable, "-I", str(checker), str(path)], capture_output=True, text=True, check=False)
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout == "\n".join([*audited(path.read_text(), 20), ""])
    told = subprocess.run([sys.executable, "-I", str(checker)], capture_output=True, text=True, check=False)
    assert told.stderr.startswith("Check a certificate of Skewless:")
    run_job(spark, run.job().spec, tmp_path / "again")
    with pytest.raises(SkewlessError, match="was not published by"):
        certificate_of(run)


#: One row for another, and a value for another: of each no count is wrong.
SHUFFLED: dict[str, Callable[[DataFrame], DataFrame]] = {
    "altered": lambda rows: rows.withColumn("c1", F.expr("IF(c1 = 17, 18, c1)")),
    "one lost, one doubled": lambda rows: rows.where("c1 != 17 OR c1 IS NULL").unionByName(rows.where("c1 = 23")),
}


@pytest.mark.parametrize("fault", SHUFFLED)
@pytest.mark.parametrize("engine", ["combine", "bypass", "staged"])
def test_rows_that_change_in_a_stage_are_certified_by_nobody(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, fault: str
) -> None:
    wave = routes._wave
    monkeypatch.setattr(routes, "_wave", lambda *args, **named: SHUFFLED[fault](wave(*args, **named)))
    rows = pa.table({"page": ["a", "b"] * 50, "ms": pa.array(range(100), pa.int64())})
    source = write_input(tmp_path / "in", rows, 4)
    aggregates = {"clicks": "count", "most": {"function": "max", "column": "ms"}}
    run, done, _ = run_job(spark, spec_of(source, "page", aggregates, engine=engine), tmp_path / "run")
    assert done.quality.ledger.balanced
    with pytest.raises(SkewlessError, match="the rows of the input: they do not balance"):
        certificate_of(run)


def test_states_that_are_lost_for_others_stop_the_publication(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = merge._states

    def doubled(*args: Any) -> DataFrame:
        found = states(*args)
        return found.where("c0 != 'a'").unionByName(found.where("c0 = 'b'"))

    monkeypatch.setattr(merge, "_states", doubled)
    rows = pa.table({"page": ["a", "b", "c", "d"] * 25, "ms": pa.array(range(100), pa.int64())})
    spec = spec_of(
        write_input(tmp_path / "in", rows, 4), "page", {"clicks": "count"},
        routing={"waves": [1, 1], "stage_overhead": 0, "reducers": 2},
    )  # fmt: skip
    with pytest.raises(QualityError, match="hashes"):
        run_job(spark, spec, tmp_path / "run")


class Faults:
    """A published run, in which something is lost, doubled or altered, and made good again."""

    def __init__(self, run: RunDirectory) -> None:
        self.run, self.text = run, certificate_of(run).sealed()
        told = json.loads(self.text)
        self.files = {side: [Path(file["path"]) for file in told[side]["files"]] for side in ("input", "result")}
        listed = [file for step in ("stages/0000", "result") for file in run.committed(step).files]
        written = [Path(run.path(file.path)) for file in listed]
        self.files["states"] = [path for path in written if path.suffix == ".parquet"]
        self.files["commits"] = [path for path in written if path.suffix == ".json"]
        self.files["commits"] += [
            Path(run.path(f"{step}/COMMIT.json")) for step in ("stages/0000", "result", "quality")
        ]

    def found(self, chance: random.Random) -> bool:
        place = chance.choice(["input", "result", "states", "commits", "certificate"])
        if place == "certificate":
            digits = [at for at, sign in enumerate(self.text) if sign.isdigit()]
            at = chance.choice(digits)
            return bool(_wrong(self.text[:at] + str((int(self.text[at]) + 1) % 10) + self.text[at + 1 :]))
        path = chance.choice(self.files[place])
        before = path.read_bytes()
        try:
            if place == "commits":
                at = chance.randrange(len(before))
                path.write_bytes(before[:at] + bytes([before[at] ^ 1 << chance.randrange(8)]) + before[at + 1 :])
            else:
                pq.write_table(_changed(pq.read_table(path, partitioning=None), chance), path)
            if place in {"commits", "states"}:
                with pytest.raises(SkewlessError):
                    certificate_of(self.run)
                return True
            return any(not line.startswith("WRONG: bytes") for line in _wrong(self.text))
        finally:
            path.write_bytes(before)


def _wrong(certificate: str) -> list[str]:
    return [line for line in audited(certificate, 2) if line.startswith("WRONG")]


def _changed(rows: pa.Table, chance: random.Random) -> pa.Table:
    doubled = rows.slice(chance.randrange(len(rows)), 1)
    at = chance.randrange(len(rows))
    less = pa.concat_tables([rows.slice(0, at), rows.slice(at + 1)])
    way = chance.choice(["lost", "doubled", "altered", "exchanged"])
    if way == "lost":
        return less
    if way == "doubled":
        return pa.concat_tables([rows, doubled])
    if way == "exchanged" and not rows.slice(at, 1).equals(doubled):
        return pa.concat_tables([less, doubled])
    names = [name for name in rows.column_names if name != "ms" or rows["ms"][at].is_valid]
    name = chance.choice(names)
    values = rows[name].to_pylist()
    values[at] = _another(values[at], rows.schema.field(name).type)
    return rows.set_column(rows.column_names.index(name), name, pa.array(values, rows.schema.field(name).type))


def _another(value: Any, kind: pa.DataType) -> Any:
    if kind in {pa.string(), pa.binary()}:
        more = "!" if kind == pa.string() else b"!"
        return more if value is None else value + more
    if kind == pa.bool_():
        return not value
    if value is None:
        return Decimal(1) if pa.types.is_decimal(kind) else pa.scalar(1, pa.int64()).cast(kind).as_py()
    return value + (dt.timedelta(microseconds=1) if isinstance(value, dt.datetime) else type(value)(1))


@pytest.fixture(scope="module")
def faults(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Faults:
    return Faults(certified(spark, tmp_path_factory.mktemp("faults"), rows_of(400), engine="bypass"))


def test_each_of_60_faults_is_found(faults: Faults) -> None:
    _find(faults, 60)


@pytest.mark.long
def test_each_of_a_thousand_faults_is_found(faults: Faults) -> None:
    _find(faults, 1_000)


def _find(faults: Faults, number: int) -> None:
    assert _wrong(faults.text) == []
    assert [seed for seed in range(number) if not faults.found(random.Random(seed))] == []
    assert certificate_of(faults.run).sealed() == faults.text
