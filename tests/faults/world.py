"""The small world that faults happen in: an input, a run over it, what was published before, the right result."""

from __future__ import annotations

import ctypes
import os
import random
import re
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from skewless.documents.ledger import balance
from skewless.run.directory import RESULT_STEP, RunDirectory
from skewless.run.publication.records import PUBLISHED

DAY, DAY_BEFORE = "date=2026-11-20", "date=2026-11-19"
#: The world's own disk, where one may be mounted: large enough for everything but a fault.
DISK_BYTES = 48 << 20
_BESIDE = ".published.skewless"
_KEYS, _FILES = 120, 8
_NEW_MOUNTS, _PRIVATE, _RECURSIVE, _DETACHED = 0x20000, 1 << 18, 1 << 14, 2


class World:
    """A folder with all that a run has to do with."""

    #: The stages of the run without faults.
    stages: tuple[str, ...] = ("stage-0", "stage-1", "stage-2")
    #: The rows that it reads.
    rows = 2_000

    def __init__(self, place: Path, *, own_disk: bool = False) -> None:
        self.root, self._templates = place / "world", place / "templates"
        self.logs = place / "logs"
        for folder in (self.root, self._templates, self.logs):
            folder.mkdir(parents=True, exist_ok=True)
        self.has_disk = own_disk and _mounted(self.root)
        self.input, self.out = self.root / "input", self.root / "published"
        self.beside = self.root / _BESIDE
        self.folder = self.root / "runs" / "scenario" / "r1"
        self.spec = self.root / "spec.yaml"
        if (self._templates / "input").exists():
            shutil.rmtree(self.input, ignore_errors=True)
            shutil.copytree(self._templates / "input", self.input)
        else:
            self.write_input()
            shutil.copytree(self.input, self._templates / "input")
        self.expected = _expected(self.input)
        self.spec.write_text(yaml.safe_dump(self.spec_fields(), sort_keys=False), encoding="utf-8")
        for day in (DAY, DAY_BEFORE):
            shutil.rmtree(self.out / day, ignore_errors=True)
            (self.out / day).mkdir(parents=True)
            (self.out / day / "part-00000.parquet").write_text(f"what was published before for {day}")
        self.before = self.published(DAY)

    def write_input(self) -> None:
        self.input.mkdir()
        table, step = some_rows(self.rows, 6), self.rows // _FILES
        for number in range(_FILES):
            pq.write_table(table.slice(number * step, step), self.input / f"part-{number:03d}.parquet")

    def spec_fields(self) -> dict[str, Any]:
        return _spec()

    def close(self) -> None:
        if self.has_disk:
            ctypes.CDLL(None).umount2(os.fsencode(self.root), _DETACHED)

    @property
    def run(self) -> RunDirectory:
        return RunDirectory(str(self.folder))

    def keep(self, name: str) -> None:
        for part in ("runs", "published", _BESIDE):
            if (self.root / part).exists():
                shutil.copytree(self.root / part, self._templates / name / part)

    def restore(self, name: str) -> None:
        for path in self.root.iterdir():
            if path.name not in {"input", "spec.yaml"}:
                _remove(path)
        for part in (self._templates / name).iterdir():
            shutil.copytree(part, self.root / part.name)

    def restore_input(self) -> None:
        shutil.rmtree(self.input)
        shutil.copytree(self._templates / "input", self.input)

    def keep_input(self) -> None:
        """Remember the input as it is, which has changed for good."""
        shutil.rmtree(self._templates / "input")
        shutil.copytree(self.input, self._templates / "input")
        self.expected = _expected(self.input)

    def fill_disk(self, left_bytes: int) -> Path:
        """Leave only so much of the world's disk; gone with the file that is returned."""
        assert self.has_disk
        ballast, disk = self.root / "ballast", os.statvfs(self.root)
        ballast.write_bytes(bytes(max(0, disk.f_bavail * disk.f_frsize - left_bytes)))
        return ballast

    def settled(self, name: str = "") -> dict[str, bytes]:
        """The files of the run directory outside of attempts: those that readers look for by name."""
        folder = self._templates / name / self.folder.relative_to(self.root) if name else self.folder
        found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
        # Leases say who is at work, and each attempt is somebody else.
        return {
            # A turn that was drawn, and not written down, is not drawn again.
            name: re.sub(rb'"turn":\d+,"checksum":"[0-9a-f]{64}"', b'"turn":"its own"', path.read_bytes())
            for name, path in sorted(found.items())
            if not re.search(r"attempts/|/owner/|/leases/|\.draft$|^failures/", name)
        }

    def published(self, day: str = DAY) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self._files(day)}

    def _files(self, day: str) -> list[Path]:
        return [path for path in sorted((self.out / day).iterdir()) if path.name[0] not in "._"]

    def check_published(self, *, new: bool | None = None) -> None:
        """Readers see a day whole, as it was before or as it has to be, and nothing else."""
        visible = sorted(path.name for path in self.out.iterdir())
        assert visible == [DAY_BEFORE, DAY], f"published: {visible}"
        assert self.published(DAY_BEFORE) == {
            "part-00000.parquet": f"what was published before for {DAY_BEFORE}".encode()
        }
        old = self.published() == self.before
        if new is not None:
            assert old != new, "the published result is the one before" if old else "the published result was replaced"
        if not old:
            rows = [row for path in self._files(DAY) for row in pq.ParquetFile(path).read().to_pylist()]
            assert _as_rows(rows) == self.expected, "another result was published"

    def check_result(self) -> None:
        run = self.run
        commit = run.committed(RESULT_STEP)
        rows = [
            row for file in commit.of_kind("result") for row in pq.ParquetFile(run.path(file.path)).read().to_pylist()
        ]
        assert _as_rows(rows) == self.expected, "another result"
        ledger = balance(run.job(), run.reports(), commit.counts["rows"], run.part_lines())
        assert ledger.balanced, "; ".join(ledger.problems)
        assert ledger.input_rows == self.rows

    def check_end(self) -> None:
        """The run has ended well: published what is right, validated, recorded."""
        self.check_result()
        quality = self.run.quality()
        assert quality is not None, "no verdict"
        assert quality.success, "validation failed"
        assert self.run.exists(PUBLISHED), "no record of the publication"
        self.check_published(new=True)
        leftovers = [path.name for path in (self.beside / "drafts").glob("*/*")]
        assert not leftovers, f"left beside what was published: {leftovers}"


def _remove(path: Path) -> None:
    """Remove a file or a folder, also if a job that was cancelled just now writes a last file into it."""
    deadline = time.monotonic() + 10
    while path.exists():
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
        assert time.monotonic() < deadline, f"{path} is written to for ever"


def _spec() -> dict[str, Any]:
    return {
        "name": "scenario",
        "input": {"path": "input"},
        "key": "key",
        "aggregates": {
            "n": "count",
            "total": {"function": "sum", "column": "value"},
            "colours": {"function": "value_counts", "column": "colour"},
        },
        "engine": "staged",
        # Two waves although there is little; no sample, so that there is something to learn; some of it left over.
        "routing": {"reducers": 2, "waves": [1, 3], "stage_overhead": 0, "first_plan": ["last_run"], "budget": 1.0},
        "output": {"path": "published", "files": 2},
        # Who is silent is dead after four times as long: those who come after one that sleeps wait for that.
        "sharing": {"lease_seconds": 0.5},
    }


def some_rows(rows: int, seed: int) -> pa.Table:
    chance = np.random.default_rng(seed)
    keys = chance.zipf(1.3, rows) % _KEYS
    colours = chance.choice(["red", "green", "blue"], rows)
    return pa.table({"key": [f"key-{key}" for key in keys], "value": np.arange(rows), "colour": colours})


def _expected(folder: Path) -> list[str]:
    counts: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    colours: dict[str, Counter[str]] = defaultdict(Counter)
    for row in _rows(folder):
        counts[row["key"]] += 1
        totals[row["key"]] += row["value"]
        colours[row["key"]][row["colour"]] += 1
    return sorted(repr((key, counts[key], totals[key], sorted(colours[key].items()))) for key in counts)


def _rows(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.rglob("*.parquet")):
        yield from pq.ParquetFile(path).read().to_pylist()


def _as_rows(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(
        repr((row["key"], row["n"], row["total"], sorted((one["value"], one["count"]) for one in row["colours"])))
        for row in rows
    )


def _mounted(folder: Path) -> bool:
    """Mount a small disk that only this process and its children see; False where that is not allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_MOUNTS) != 0:
        return False
    if libc.mount(b"none", b"/", None, _PRIVATE | _RECURSIVE, None) != 0:
        return False
    options = f"size={DISK_BYTES}".encode()
    return bool(libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, options) == 0)


def chance_of(seed: int) -> random.Random:
    return random.Random(seed)
