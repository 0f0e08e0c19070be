"""Some of the faults of tables of ``make faults``, chosen by a seed; no wrong result in any."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.faults.lake.harness import KINDS, LakeHarness
from tests.faults.lake.kills import KILL
from tests.faults.lake.trials import trials_of
from tests.faults.lake.wires import OUTAGE, WIRE
from tests.faults.test_faults import SEED

#: How many trials of a kind are made: in ``make test``, and in ``make test-long``.
SOME, MANY = {KILL: 3}, {KILL: 12, WIRE: 12, OUTAGE: 4}


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeHarness]:
    one = LakeHarness(tmp_path_factory.mktemp("tables"))
    yield one
    one.close()


@pytest.mark.parametrize(
    ("kind", "bucket", "wanted"),
    [
        ("delta", False, SOME),
        *(pytest.param(kind, bucket, MANY, marks=pytest.mark.long) for kind in KINDS for bucket in (False, True)),
    ],
)
def test_a_table_survives_kills_at_its_writes_and_wires_that_break(
    harness: LakeHarness, kind: str, bucket: bool, wanted: dict[str, int]
) -> None:
    found = trials_of(harness, kind, bucket=bucket)
    # Only what is in a bucket has a wire.
    for what in wanted if bucket else (KILL,):
        of = [trial for trial in found if trial.kind == what]
        for trial in random.Random(SEED).sample(of, wanted[what]):
            try:
                trial.act(harness, trial.seed)
            except Exception as err:
                raise AssertionError(trial.name) from err


@pytest.mark.long
def test_all_writes_are_found_whoever_makes_them(harness: LakeHarness) -> None:
    names = {kind: " ".join(one.fault for one in trials_of(harness, kind, bucket=False)) for kind in KINDS}
    assert "pwrite64 catalog.db" in names["iceberg"]  # SQLite, in C
    assert "write warehouse/marts/clicks/data/date=2026-11-20/00000-ID.parquet" in names["iceberg"]  # Arrow, in C++
    assert "linkat marts/clicks/_delta_log/0003.json" in names["delta"]  # deltalake, in Rust
    assert "link runs/new/publish/published.json" in names["delta"]  # Python
