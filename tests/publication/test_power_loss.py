"""A power loss at any moment of a publication: if the record is there, the day is whole; and it is never a mix."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from skewless.publication import PUBLISHED
from skewless.run_directory import RESULT_STEP, RunDirectory
from tests.publication.power_loss import Disk, Image, watched
from tests.publication.versions import day_of, publish_version, ready


def digests(contents: Iterator[bytes]) -> list[str]:
    return sorted(sha256(content).hexdigest() for content in contents)


def version_of(run: RunDirectory) -> list[str]:
    """What the files of a version are, by their bytes."""
    return digests(Path(run.path(file.path)).read_bytes() for file in run.committed(RESULT_STEP).files)


def day_in(image: Image, day: str) -> list[str]:
    """What a reader of Parquet files finds in a day, by their bytes."""
    inside = (path for path in image if path.startswith(f"{day}/") and path.endswith(".parquet"))
    return digests(image[path] for path in inside)


def test_a_durable_record_means_a_day_that_is_whole_and_no_moment_leaves_a_mix(tmp_path: Path) -> None:
    runs = [ready(tmp_path / str(number), tmp_path / "out", number) for number in (1, 2)]
    (first, second), (old, new) = runs, map(version_of, runs)
    day = str(day_of(first).relative_to(tmp_path))
    seen: set[tuple[bool, str]] = set()

    def look(disk: Disk) -> None:
        # Run and output may lie on two file systems: what one has written says nothing of the other.
        outs = [disk.image(lucky=lucky) for lucky in (False, True)]
        for recorded in (disk.image(lucky=lucky).get(record, b"") for lucky in (False, True)):
            for out in outs:
                found = day_in(out, day)
                name = {tuple(old): "old", tuple(new): "new", (): "absent"}.get(tuple(found), "torn")
                seen.add((bool(recorded), name))

    for run, expected in ((first, {"absent", "new"}), (second, {"old", "new"})):
        new, record = version_of(run), str(Path(run.path(PUBLISHED)).relative_to(tmp_path))
        seen.clear()
        with watched(tmp_path, look) as disk:
            publish_version(run)
            assert day_in(disk.image(lucky=False), day) == new
            assert record in disk.image(lucky=False)
        assert {name for _, name in seen} == expected
        assert {name for recorded, name in seen if recorded} == {"new"}
        old = new
