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
SOME, MANY = {KILL: 3, WIRE: 2, OUTAGE: 1}, {KILL: 12, WIRE: 12, OUTAGE: 4}
of_each_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeHarness]:
    one = LakeHarness(tmp_path_factory.mktemp("tables"))
    yield one
    one.close()


def survives(harness: LakeHarness, kind: str, wanted: dict[str, int], *, bucket: bool) -> int:
    """Make trials; how many were made."""
    found, made = trials_of(harness, kind, bucket=bucket), 0
    for what, number in wanted.items():
        of = [trial for trial in found if trial.kind == what]
        for trial in random.Random(SEED).sample(of, min(number, len(of))):
            try:
                trial.act(harness, trial.seed)
            except Exception as err:
                raise AssertionError(trial.name) from err
            made += 1
    return made


@pytest.mark.parametrize("wanted", [SOME, pytest.param(MANY, marks=pytest.mark.long)], ids=["some", "many"])
@of_each_kind
def test_a_table_on_a_disk_survives_kills_at_its_writes(
    harness: LakeHarness, kind: str, wanted: dict[str, int]
) -> None:
    assert survives(harness, kind, wanted, bucket=False) == wanted[KILL]


@pytest.mark.parametrize("wanted", [SOME, pytest.param(MANY, marks=pytest.mark.long)], ids=["some", "many"])
@of_each_kind
def test_a_table_in_a_bucket_survives_kills_and_wires_that_break(
    harness: LakeHarness, kind: str, wanted: dict[str, int]
) -> None:
    assert survives(harness, kind, wanted, bucket=True) == sum(wanted.values())


def test_all_writes_are_found_whoever_makes_them(harness: LakeHarness) -> None:
    names = {kind: " ".join(one.fault for one in trials_of(harness, kind, bucket=False)) for kind in KINDS}
    assert "pwrite64 catalog.db" in names["iceberg"]  # SQLite, in C
    assert "write warehouse/marts/clicks/data/date=2026-11-20/00000-ID.parquet" in names["iceberg"]  # Arrow, in C++
    assert "linkat marts/clicks/_delta_log/0003.json" in names["delta"]  # deltalake, in Rust
    assert "link runs/new/publish/published.json" in names["delta"]  # Python
