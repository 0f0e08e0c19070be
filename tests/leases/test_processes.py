"""What a worker of many partitions must survive, and what it must not."""

import time
from pathlib import Path

import pytest

from skewless_leases import open_store
from skewless_leases.fence import Grant, commit, read
from skewless_leases.file_store import FileStore
from skewless_leases.lease_tables import look_at
from skewless_leases.store import LeaseError, StoreError
from skewless_leases.worker import Worker
from tests.leases.holder import SPANS
from tests.leases.simulated_workers import Diary
from tests.processes import PATIENCE_SECONDS, until


class Failing:
    def granted(self, grant: Grant) -> None:
        raise ZeroDivisionError(grant.partition)

    def asked_back(self, grant: Grant) -> bool:
        return bool(grant)

    def lost(self, grant: Grant) -> None:
        assert grant


def test_work_that_fails_ends_the_taking_part_and_says_so(address: str) -> None:
    def take_part() -> None:
        with Worker(address, "failing", room=1, partitions=lambda _: ["p0"], spans=SPANS, work=Failing()) as worker:
            while True:
                worker.grants()
                time.sleep(0.005)

    with pytest.raises(LeaseError, match="ZeroDivisionError: p0"):
        take_part()
    assert read(open_store(address), "p0").holder is None


def begun(address: str, name: str, partitions: list[str]) -> Worker:
    work = Diary(name, time.monotonic)
    return Worker(address, name, room=9, partitions=lambda _: partitions, spans=SPANS, work=work)


def test_a_value_that_is_out_of_sight_for_some_looks_ends_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    partitions, store = ["p0", "p1"], FileStore(str(tmp_path))
    with begun(str(tmp_path), "one", partitions) as worker:
        until(lambda: len(worker.grants()) == 2, "both to be held")
        row = store.get("allocation/p0")
        assert row
        # As with a listing that is older than the last write: it names a value that is gone.
        value, hidden = tmp_path / "values" / row.version, tmp_path / "hidden"
        value.rename(hidden)
        with pytest.raises(StoreError, match="it is empty"):
            look_at(store, 0.0)
        until(lambda: bool(worker.grants()) and caplog.text.count("and tries again") > 1, "two looks in vain")
        hidden.rename(value)
        partitions.append("p2")
        until(lambda: len(worker.grants()) == 3, "the third one to be held, too")
        commit(worker.store, worker.grants()["p0"], "after")
    assert read(store, "p0").value == "after"


@pytest.mark.long
def test_a_name_that_the_store_can_never_hold_is_refused_at_once(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(LeaseError, match="expected a key of at most 200 bytes, quoted, but got 'workers/nnn"):
        begun(str(tmp_path), "n" * 300, ["p0"]).__enter__()
    assert time.monotonic() - began < PATIENCE_SECONDS
    with pytest.raises(LeaseError, match="got 'allocation/qqq"), begun(str(tmp_path), "one", ["q" * 300]) as worker:
        until(lambda: bool(worker.grants()), "its refusal")


def test_what_went_wrong_in_the_work_is_not_hidden_by_what_goes_wrong_in_leaving(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path))

    def take_part() -> None:
        with begun(str(tmp_path), "one", ["p0", "p1"]) as worker:
            until(lambda: len(worker.grants()) == 2, "both to be held")
            row = store.get("allocation/p0")
            assert row
            store.put("allocation/p0", b"torn", row.version)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        take_part()
    assert read(store, "p1").holder is None
