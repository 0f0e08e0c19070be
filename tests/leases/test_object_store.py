"""The store on an object store: late writers, lost answers, old versions, and a server that lets everybody win."""

import time
from pathlib import Path

import obstore
import pytest

from skewless.errors import RunDirectoryError
from skewless_leases import open_store
from skewless_leases.object_store import KEPT_VERSIONS, ObjectStore
from skewless_leases.store import StoreError
from tests.broken_wire import Fault, broken_wire, once_each
from tests.object_stores import ObjectServer, as_client, object_server
from tests.tiers import mostly_long


@pytest.fixture
def address(bucket: str, tmp_path: Path) -> str:
    return f"{bucket}/{tmp_path.name}"


def opened(address: str) -> ObjectStore:
    store = open_store(address)
    assert isinstance(store, ObjectStore)
    return store


def written(store: ObjectStore, times: int, key: str = "a") -> str:
    row = store.get(key)
    version = row.version if row else None
    for number in range(times):
        version = store.put(key, b"%d" % number, version)
        assert version
    assert version
    return version


def test_of_two_that_have_read_the_same_version_one_writes(address: str) -> None:
    one, two = opened(address), opened(address)
    version = written(one, 3)
    row = two.get("a")
    assert row
    assert row.version == version
    assert one.put("a", b"one", version)
    assert two.put("a", b"two", version) is None
    assert [store.get("a").value for store in (one, two) if store.get("a")] == [b"one"] * 2  # type: ignore[union-attr]


def test_dots_are_keys_as_others_are(address: str) -> None:
    versions = {key: opened(address).put(key, key.encode(), None) for key in (".", "..", "a.b")}
    assert {key: row.value for key, row in opened(address).scan().items()} == {key: key.encode() for key in versions}


def test_old_versions_are_removed_and_the_highest_never(address: str, s3: ObjectServer, tmp_path: Path) -> None:
    store = opened(address)
    written(store, 3 * KEPT_VERSIONS)
    numbers = [int(key.rpartition("/")[2]) for key in s3.keys(tmp_path.name)]
    assert KEPT_VERSIONS <= len(numbers) < 2 * KEPT_VERSIONS
    assert max(numbers) == 3 * KEPT_VERSIONS
    assert numbers == list(range(min(numbers), max(numbers) + 1))


def late_writer(address: str, writes: int) -> tuple[ObjectStore, ObjectStore, str]:
    """One that has read a version and is stopped, while another one writes on; the second store, and the version."""
    late, other = opened(address), opened(address)
    written(other, 1)
    row = late.get("a")
    assert row
    late.put("warm", b"", None)  # it has trusted the store before
    written(other, writes)
    return late, other, row.version


def test_a_late_writer_that_creates_a_removed_number_again_has_not_written(address: str) -> None:
    late, other, version = late_writer(address, 3 * KEPT_VERSIONS)
    with pytest.raises(StoreError, match="nobody can say whether this write came before them; read again"):
        late.put("a", b"late", version)
    for store in (late, other, opened(address)):
        row = store.get("a")
        assert row
        assert row.value == b"%d" % (3 * KEPT_VERSIONS - 1)


def test_a_late_writer_just_before_a_version_that_is_there_has_not_written(
    address: str, s3: ObjectServer, tmp_path: Path
) -> None:
    late, other, version = late_writer(address, 2)
    [path] = [key for key in s3.keys(f"{tmp_path.name}/a") if key.endswith("00000002")]
    obstore.delete(late._bucket, [path])
    assert late.put("a", b"late", version) is None
    assert path not in s3.keys(f"{tmp_path.name}/a")
    row = other.get("a")
    assert row
    assert row.value == b"1"


def test_a_writer_whose_version_was_written_upon_since_has_written(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stopped between its write and its look for later ones."""
    slow, fast = opened(address), opened(address)
    version = written(slow, 1)
    look = ObjectStore._later

    def meanwhile(self: ObjectStore, below: str, number: int) -> list[int]:
        if self is slow:
            written(fast, 3)
        return look(self, below, number)

    monkeypatch.setattr(ObjectStore, "_later", meanwhile)
    assert slow.put("a", b"slow", version)


@pytest.mark.parametrize("fault", mostly_long(["lose answer", "lose request", "500", "503", "409"], "lose answer"))
def test_a_request_that_fails_once_costs_no_write(s3: ObjectServer, tmp_path: Path, fault: Fault) -> None:
    with broken_wire(s3.port, once_each(fault)) as wire, as_client(s3.behind(wire.port)):
        store = opened(f"s3://lake/{tmp_path.name}")
        version = store.put("a", b"one", None)
        assert version
        assert store.put("a", b"two", version)
        assert store.put("a", b"late", version) is None
        assert {key: row.value for key, row in store.scan().items()} == {"a": b"two"}


@pytest.mark.parametrize("fault", mostly_long(["lose answer", "lose request", "503"], "503"))
def test_three_requests_in_a_row_that_fail_cost_no_write(s3: ObjectServer, tmp_path: Path, fault: Fault) -> None:
    def first_three(number: int, _request: str) -> Fault:
        return fault if number < 3 else "none"

    with broken_wire(s3.port, first_three) as wire, as_client(s3.behind(wire.port)):
        assert opened(f"s3://lake/{tmp_path.name}").put("a", b"one", None)


@pytest.mark.long
def test_a_store_that_does_not_answer_is_given_up_in_time(s3: ObjectServer) -> None:
    with broken_wire(s3.port, lambda *_: "late", late_seconds=60) as wire, as_client(s3.behind(wire.port)):
        store, begun = open_store("s3://lake/silent", answer_seconds=0.5), time.monotonic()
        with pytest.raises(StoreError, match="the store did not answer"):
            store.get("a")
    assert time.monotonic() - begun < 2.5


@pytest.mark.long
def test_a_store_that_stays_away_is_told_in_one_sentence(s3: ObjectServer) -> None:
    with broken_wire(s3.port, lambda *_: "500") as wire, as_client(s3.behind(wire.port)):
        store = open_store("s3://lake/away", answer_seconds=0.5)
        with pytest.raises(StoreError) as told:
            store.get("a")
    answer = "the store answered 500 Internal Server Error, InternalError"
    assert str(told.value) == f"store s3://lake/away: it cannot be read or written ({answer})."


@pytest.mark.long
def test_a_store_that_lets_every_writer_win_is_refused(tmp_path: Path) -> None:
    with object_server("rclone", tmp_path / "server") as server, as_client(server.environment):
        store = open_store("s3://lake/leases")
        with pytest.raises(RunDirectoryError, match="two writers of one object have both won"):  # never tried again
            store.put("a", b"", None)
        assert server.keys() == []
