"""Every store keeps the same promises; the real ones with several processes, and when one is killed."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.leases.memory_store import MemoryStore
from skewless_leases import open_store
from skewless_leases.file_store import FileStore
from skewless_leases.store import KeyValueStore, LeaseError, StoreError
from tests.processes import side_by_side


@pytest.fixture(params=["memory", "folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> KeyValueStore:
    if request.param == "memory":
        return MemoryStore()
    if request.param == "folder":
        return FileStore(str(tmp_path / "store"))
    return open_store(f"{request.getfixturevalue('bucket')}/{tmp_path.name}")


def test_only_the_first_creates(store: KeyValueStore) -> None:
    assert store.put("a", b"one", None)
    assert store.put("a", b"two", None) is None
    assert store.scan()["a"].value == b"one"
    assert store.put("b", b"two", store.scan()["a"].version) is None, "it does not exist"
    assert store.get("b") is None


def test_only_who_has_read_the_last_version_writes_and_deletes(store: KeyValueStore) -> None:
    first = store.put("a", b"one", None)
    assert first
    second = store.put("a", b"two", first)
    assert second
    assert store.put("a", b"late", first) is None
    assert not store.delete("a", first)
    third = store.put("a", b"three", second)
    assert third
    assert store.delete("a", third)
    assert not store.delete("a", third)
    assert store.get("a") is None
    assert store.scan() == {}


def test_a_version_is_never_used_again(store: KeyValueStore) -> None:
    first = store.put("a", b"same", None)
    assert first
    assert store.delete("a", first)
    assert store.put("a", b"same", None)
    assert store.put("a", b"late", first) is None
    assert not store.delete("a", first)


@given(
    keys=st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12), unique=True, max_size=6),
    value=st.binary(max_size=50),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_keys_and_values_are_data(store: KeyValueStore, keys: list[str], value: bytes) -> None:
    for key, row in store.scan().items():
        store.delete(key, row.version)
    names = [f"allocation/{key}" for key in keys]
    for name in names:
        assert store.put(name, name.encode() + value, None)
    assert {key: row.value for key, row in store.scan().items()} == {name: name.encode() + value for name in names}


@pytest.mark.parametrize("key", ["", ".", "..", "k" * 300])
def test_a_folder_refuses_keys_that_it_cannot_name(tmp_path: Path, key: str) -> None:
    with pytest.raises(LeaseError, match="a key of at most 200 bytes") as refused:
        FileStore(str(tmp_path)).put(key, b"", None)
    assert not isinstance(refused.value, StoreError)  # which would be tried again for ever


def test_keys_do_not_leave_the_folder(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path / "store"))
    for key in ("../../out", "/etc/out", "a/../../../out", "nul\x00byte"):
        assert store.put(key, b"x", None)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    assert not list(tmp_path.rglob("out"))


def test_a_folder_that_cannot_be_made_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    with pytest.raises(StoreError, match=r"its folder cannot be read or written \(Not a directory"):
        FileStore(str(tmp_path / "file" / "store"))


def test_a_value_that_the_disk_has_lost_can_be_written_over(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path), durable=False)
    version = store.put("a", b"one", None)
    assert version
    (tmp_path / "values" / version).unlink()
    row = store.get("a")
    assert row
    assert row.value == b""
    assert store.put("a", b"two", row.version)


def test_what_is_answered_is_on_the_disk_value_first_and_then_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power loss takes back a grant that somebody has acted on, or leaves one without a value."""
    store, key = FileStore(str(tmp_path)), tmp_path / "heads" / "a"
    synced: list[tuple[str, object]] = []
    flush = os.fsync

    def noted(handle: int) -> None:
        flush(handle)
        path = Path(f"/proc/self/fd/{handle}").resolve()
        content = path.read_bytes() if path.is_file() else sorted(one.name for one in path.iterdir())
        synced.append((str(path.relative_to(tmp_path)), content))

    monkeypatch.setattr(os, "fsync", noted)
    first = store.put("a", b"one", None)
    assert first
    assert synced == [
        (f"values/{first}", b"one"),
        ("values", [first]),
        (f"births/{first}", [first]),
        ("heads", ["a"]),
        ("heads/a", [first]),
    ]
    synced.clear()
    second = store.put("a", b"two", first)
    assert second
    assert synced == [(f"values/{second}", b"two"), ("values", sorted([first, second])), ("heads/a", [second])]
    synced.clear()
    assert store.delete("a", second)
    assert synced == [("heads/a", [])]
    assert not key.exists()


FULL = """
import resource, signal, sys
from skewless_leases.store import StoreError
from skewless_leases.file_store import FileStore
store = FileStore(sys.argv[1])
version = store.put("a", b"one", None)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
for _ in range(3):
    try:
        store.put("a", bytes(1000), version)
    except StoreError as err:
        print(err)
print(store.get("a").value, len(list(store.root.rglob("*"))))
"""


def test_what_cannot_be_written_whole_is_not_written_and_leaves_no_litter(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=True)
    said = done.stdout.splitlines()
    assert len(said) == 4
    assert all(line.endswith("its folder cannot be read or written (File too large).") for line in said[:3])
    assert said[3] == "b'one' 6"  # three folders, the key's, its head and its value


COUNTING = """
import sys
from skewless_leases import open_store
address, rounds = sys.argv[1], int(sys.argv[2])
store = open_store(address)
done = 0
while done < rounds:
    row = store.get("count")
    value = int(row.value) if row else 0
    if store.put("count", str(value + 1).encode(), row.version if row else None):
        done += 1
        if done % 10 == 0:
            print(done, flush=True)
"""


def counting(address: str, rounds: int) -> list[str]:
    return [sys.executable, "-c", COUNTING, address, str(rounds)]


def test_no_update_of_several_processes_is_lost(address: str) -> None:
    # A server of S3 in Python takes ten times as long for each, and must not be kept from answering in time.
    rounds, pause = (20, 0.1) if "://lake" in address else (100, 0.001)
    store, seen = open_store(address), 0
    with side_by_side([counting(address, rounds)] * 4, stdout=subprocess.DEVNULL) as processes:
        while any(process.poll() is None for process in processes):
            row = store.get("count")
            now = int(row.value) if row else 0
            assert now >= seen  # never gone, torn or older than before
            seen = now
            time.sleep(pause)
        assert [process.wait() for process in processes] == [0, 0, 0, 0]
    row = store.get("count")
    assert row
    assert int(row.value) == 4 * rounds


CREATING = """
import sys
from skewless_leases import open_store
store = open_store(sys.argv[1])
won = 0
for number in range(100):
    version = store.put(f"race/{number % 5}", sys.argv[2].encode(), None)
    if version:
        won += 1
        assert store.get(f"race/{number % 5}").value == sys.argv[2].encode()
        assert store.delete(f"race/{number % 5}", version)
print(won)
"""


def test_what_one_has_created_nobody_else_creates_or_deletes(address: str) -> None:
    commands = [[sys.executable, "-c", CREATING, address, name] for name in "abcd"]
    with side_by_side(commands, stdout=subprocess.PIPE) as processes:
        won = [int(process.communicate(timeout=60)[0]) for process in processes]
        assert [process.returncode for process in processes] == [0, 0, 0, 0]
    assert all(count > 0 for count in won)
    assert open_store(address).scan() == {}


def test_a_writer_that_is_killed_leaves_nothing_half_done(address: str) -> None:
    store = open_store(address)
    for _ in range(3):
        with side_by_side([counting(address, 1_000_000)], stdout=subprocess.PIPE) as (process,):
            assert process.stdout
            process.stdout.readline()
        row = store.get("count")
        assert row
        before = int(row.value)
        assert before >= 10
        assert store.put("count", str(before + 1).encode(), row.version)
