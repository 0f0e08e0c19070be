"""A power loss at any moment of a publication: if the record is there, the day is whole; and it is never a mix."""

from pathlib import Path

from skewless.publication.records import PUBLISHED
from tests.publication.power_loss import Disk, Image, watched
from tests.publication.versions import day_of, digests, digests_of, publish_version, ready


def everywhere(_folder: str) -> bool:
    return True


def nowhere(_folder: str) -> bool:
    return False


def day_in(image: Image, day: str) -> list[str]:
    inside = (path for path in image if path.startswith(f"{day}/") and path.endswith(".parquet"))
    return digests(image[path] for path in inside)


def test_a_durable_record_means_a_day_that_is_whole_and_no_moment_leaves_a_mix(tmp_path: Path) -> None:
    runs = [ready(tmp_path / str(number), tmp_path / "out", number) for number in (1, 2)]
    (first, second), (old, new) = runs, map(digests_of, runs)
    day = str(day_of(first).relative_to(tmp_path))
    seen: set[tuple[bool, str]] = set()

    def look(disk: Disk) -> None:
        outs = [disk.image(lucky) for lucky in (nowhere, everywhere, lambda folder: folder != day)]
        # Run and output may lie on two file systems: what one has written says nothing of the other.
        for recorded in (disk.image(lucky).get(record, b"") for lucky in (nowhere, everywhere)):
            for out in outs:
                found = day_in(out, day)
                name = {tuple(old): "old", tuple(new): "new", (): "absent"}.get(tuple(found), "torn")
                seen.add((bool(recorded), name))

    for run, expected in ((first, {"absent", "new"}), (second, {"old", "new"})):
        new, record = digests_of(run), str(Path(run.path(PUBLISHED)).relative_to(tmp_path))
        seen.clear()
        with watched(tmp_path, look) as disk:
            publish_version(run)
            assert day_in(disk.image(nowhere), day) == new
            # The record itself may be lost: whoever publishes again finds the day whole, and writes it anew.
            assert disk.image(everywhere)[record]
        assert {name for _, name in seen} == expected
        assert {name for recorded, name in seen if recorded} == {"new"}
        old = new
