"""What a run leaves for the nights after it, and how it is held against the nights before."""

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from skewless.documents.nights import JobNights
from skewless.history import NightsStore
from tests.spark.scenario import Told

DAY = dt.date(2026, 11, 20)
pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two days: the second one has half of the rows of the first, and five times as many without a key."""
    monkeypatch.chdir(tmp_path)
    for day, rows, nulls in ((DAY, 4_000, 40), (DAY + dt.timedelta(days=1), 2_000, 100)):
        folder = tmp_path / f"data/in/date={day}"
        folder.mkdir(parents=True)
        pages = [None if at < nulls else f"/page/{at % 50}" for at in range(rows)]
        amounts = [None if at % 50 == 7 else float(at % 50) for at in range(rows)]
        pq.write_table(pa.table({"page": pages, "amount": amounts}), folder / "a.parquet")
    spec = {
        "name": "pages", "input": {"path": "in/date={date}"}, "key": "page", "output": {"path": "out"},
        "aggregates": {"n": "count", "most": {"function": "max", "column": "amount"}},
    }  # fmt: skip
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    return tmp_path


def test_a_run_is_held_against_the_nights_before_it(home: Path, command_here: Callable[..., Told]) -> None:
    def run(day: dt.date, *words: str) -> Told:
        return command_here("run", "spec.yaml", "--date", str(day), *words)

    told = run(DAY, "--json")
    assert told.returncode == 0, told.stderr
    store = NightsStore(str(home / "data/.out.skewless/nights/pages"))
    (night,) = store.newest().nights
    assert night.figures == {
        "rows": (4000, 0), "keys": (51, 0), "rows without a key": (0.01, 4000),
        "rows of the heaviest key": (0.02, 4000), "mean of n": (pytest.approx(4000 / 51), 0),
        "keys without most": (1 / 51, 51), "mean of most": (pytest.approx((sum(range(50)) - 7 + 39) / 50), 0),
    }  # fmt: skip
    assert told.json["quality"]["figures"]["rows"] == [4000, 0]
    assert told.json["quality"]["bands"]["checks"] == []

    # A month of such nights.
    nights = [night.model_copy(update={"part": str(DAY - dt.timedelta(days=back))}) for back in range(30)]
    store.change(lambda _: JobNights(nights=tuple(reversed(nights))))
    told = run(DAY + dt.timedelta(days=1), "--set", "quality.bands=fail")
    assert told.returncode == 3
    assert "rows as in the nights around" in told.stderr
    assert len(store.newest().nights) == 30, "a night that was not published is not kept"
    told = run(DAY + dt.timedelta(days=1))
    assert told.returncode == 0
    assert "data quality: passed" in told.stdout
    assert "4 of 7 figures within their bands" in told.stdout
    for words in ("rows: 2,000; usual for the weekday", "rows without a key: 5.000%", "mean of n: 39.22"):
        assert f"WARNING: {words}" in told.stdout
    assert len(store.newest().nights) == 31
