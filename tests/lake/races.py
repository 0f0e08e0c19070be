"""Races: publishers of several days, and of the same one, stage and publish in one table at once."""

import datetime as dt
import multiprocessing
import os
from contextlib import ExitStack
from multiprocessing.pool import Pool
from pathlib import Path
from typing import NamedTuple, Self

from pyiceberg.table.snapshots import ancestors_of

from skewless.errors import SkewlessError
from skewless_lake.catalogs import open_catalog
from skewless_lake.publication import publish_run
from tests.lake.hive_catalog import hive_catalog, of_hive
from tests.lake.outputs import DAY, NOW, TABLES, ready, seen
from tests.lake.postgres import postgres
from tests.lake.rest_catalog import rest_catalog

PUBLISHERS = 6


class Call(NamedTuple):
    root: str
    kind: str
    turn: int
    day: dt.date


def publish(call: Call) -> bool:
    try:
        return _published(call)
    except SkewlessError as err:  # which is not made to be sent to another process
        raise AssertionError(str(err)) from None


def _published(call: Call) -> bool:
    root = Path(call.root)
    run = ready(root / "runs" / f"{call.turn}", root, call.kind, f"run {call.turn}", turn=call.turn, day=call.day)
    return publish_run(run, NOW).superseded is None


class Races:
    """Rounds of six publishers: of four days, and two of a fifth one."""

    def __init__(self, root: Path, kind: str) -> None:
        self.root, self.kind, self.rounds, self.published = root, kind, 0, 0
        self._open = ExitStack()

    def __enter__(self) -> Self:
        for name, value in self._catalog().items():
            os.environ[name] = value
            self._open.callback(os.environ.pop, name)
        if self.kind == "postgresql":
            self._open.callback(lambda: open_catalog("shared", str(self.root)).close())
        self._pool: Pool = self._open.enter_context(multiprocessing.get_context("spawn").Pool(PUBLISHERS))
        return self

    def _catalog(self) -> dict[str, str]:
        if self.kind == "postgresql":
            catalog = "PYICEBERG_CATALOG__SHARED__"
            folder = f"file://{self.root / 'warehouse'}"
            return {f"{catalog}URI": self._open.enter_context(postgres()), f"{catalog}WAREHOUSE": folder}
        if self.kind == "rest":
            return {"PYICEBERG_CATALOG__REST__URI": self._open.enter_context(rest_catalog(self.root / "rest"))}
        return of_hive(self._open.enter_context(hive_catalog(self.root / "hive"))) if self.kind == "hive" else {}

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def round(self) -> None:
        """Publish six runs at once: of each day, readers see the one with the last turn, and none is lost."""
        days = [DAY + dt.timedelta(days=number) for number in (0, 1, 2, 3, 4, 4)]
        first = PUBLISHERS * self.rounds + 1
        calls = [Call(str(self.root), self.kind, first + number, day) for number, day in enumerate(days)]
        visible = self._pool.map(publish, calls, chunksize=1)
        assert all(visible[:4]), visible
        assert visible[5], visible
        last = {str(call.day): [f"run {call.turn}"] * 3 for call in calls}
        assert seen(self.kind, self.root) == last
        self.rounds, self.published = self.rounds + 1, self.published + sum(visible)

    def require_linear(self) -> None:
        if self.kind == "delta":
            return
        name = TABLES[self.kind]
        table = open_catalog(name.partition(".")[0], str(self.root)).load_table(name.partition(".")[2])
        history = list(ancestors_of(table.current_snapshot(), table.metadata))
        turns = [int((one.summary.additional_properties if one.summary else {})["skewless.turn"]) for one in history]
        assert len(turns) == len(set(turns)) == self.published
