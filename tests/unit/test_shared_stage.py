"""The documents of a stage that several clusters share, and what a spec may say of it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from skewless.documents.commit import CommittedFile
from skewless.documents.shared_stage import RoutedRows, StageShares, TaskShare
from skewless.errors import SpecError
from skewless.spec.reading import parse_spec

SPEC: dict[str, Any] = {
    "name": "small",
    "input": {"path": "rows"},
    "key": "k",
    "aggregates": {"n": "count"},
    "output": {"path": "out"},
}


def routed(rows: dict[int, int]) -> RoutedRows:
    def file(task: int, count: int) -> CommittedFile:
        path = f"stages/0000/attempts/a/routed/routed_to={task}/part.parquet"
        return CommittedFile(kind="routed", path=path, rows=count, size_bytes=9, checksum="0" * 64)

    return RoutedRows(stage=0, cluster="a", tasks={task: (file(task, count),) for task, count in rows.items()})


def test_the_largest_task_is_leased_first_and_each_has_one_name() -> None:
    names = routed({3: 10, 0: 500, 7: 500, 1: 2}).partitions
    assert [names[name] for name in sorted(names)] == [0, 7, 3, 1]


def test_shares_are_counted_by_cluster() -> None:
    tasks = {f"{n}-0-1": TaskShare(cluster="ab"[n % 3 == 0], seconds=1) for n in range(7)}
    assert StageShares(stage=0, routed_by="a", tasks=tasks).done == {"a": 4, "b": 3}


@pytest.mark.parametrize("store", ["files", "redis://leases:6379/0", "rediss://leases/2"])
def test_leases_are_in_files_or_in_a_redis(store: str) -> None:
    spec = parse_spec(yaml.safe_dump({**SPEC, "sharing": {"store": store}}))
    assert spec.sharing.store == store


@pytest.mark.parametrize(
    "sharing",
    [
        {"store": "redis://user:secret@leases/0"},
        {"store": "redis://leases/0#other"},
        {"store": "/somewhere"},
        {"lease_seconds": 0},
        {"lease_seconds": "soon"},
        {"leases": 3},
    ],
    ids=["a password", "a set of its own", "a path", "no time", "no number", "no field"],
)
def test_what_no_leases_can_be_kept_by_is_refused(sharing: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=r"^spec, field sharing\."):
        parse_spec(yaml.safe_dump({**SPEC, "sharing": sharing}))
