"""Readers of a day that is published under their hands get one version whole, or an error: never a mix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem

from tests.publication.libraries import LIBRARIES
from tests.publication.oracle import Publisher, on_request, read_once

#: Reads of each library, and how many of them publish a version between listing and opening.
READS, ASK_EVERY = 1000, 80


class Stepping(LocalFileSystem):
    """The local file system, which has a version published at one step of a reader: a look, a listing or an opening."""

    protocol = "stepping"
    cachable = False

    def __init__(self, publisher: Publisher, at: int) -> None:
        super().__init__()
        self._publisher, self._at, self.steps = publisher, at, 0

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return LocalFileSystem._strip_protocol(str(path).removeprefix("stepping://"))

    def _step(self) -> None:
        self.steps += 1
        if self.steps == self._at:
            self._publisher.publish()

    def ls(self, path: str, detail: bool = False, **given: Any) -> Any:
        self._step()
        return super().ls(path, detail=detail, **given)

    def info(self, path: Any, **given: Any) -> Any:
        self._step()
        return super().info(path, **given)

    def open(self, path: str, *given: Any, **named: Any) -> Any:
        self._step()
        return super().open(path, *given, **named)


@pytest.mark.parametrize("name", [name for name in LIBRARIES if name != "polars"])  # which reads files by itself only
def test_a_version_published_at_any_step_of_a_read_leaves_it_whole_or_not_found(tmp_path: Path, name: str) -> None:
    publisher, at, seen = Publisher(tmp_path), 0, set()
    while True:
        at += 1
        files, said = Stepping(publisher, at), list[str]()
        outcome = read_once(LIBRARIES[name](files), publisher.day, lambda: None, said)
        assert outcome in {"whole", "not found"}, f"published at step {at}: {said}"
        assert read_once(LIBRARIES[name](), publisher.day, lambda: None, said) == "whole"
        seen.add(outcome)
        if files.steps < at:
            break
    assert at > 2 * 8
    assert seen == {"whole", "not found"}


def test_of_three_thousand_reads_none_is_torn_and_each_failure_is_whole_on_one_retry(tmp_path: Path) -> None:
    tallies = on_request(Publisher(tmp_path), list(LIBRARIES), READS, ASK_EVERY)
    for name, tally in tallies.items():
        assert tally.reads.total() == READS
        assert not tally.reads["torn"], f"{name}: {tally}"
        assert set(tally.retries) <= {"whole"}, f"{name}: {tally}"
        assert tally.whole >= 0.95, f"{name}: {tally}"
    # Whoever lists, and opens after the next version is there, must have noticed.
    assert any(tally.retries for tally in tallies.values())
