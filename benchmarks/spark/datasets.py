"""The inputs: Parquet files drawn by seed, kept below ``data/bench`` by what they were drawn with."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.workloads import Keys, drift, zipf

Ints = npt.NDArray[np.int64]

#: Fifteen for each of eight slots, and enough for the smallest of the waves 1 : 4 : 15 : 80.
FILES = 120
VALUES = 1000
#: Distinct visitors, and items that they may visit, of a lake of days.
VISITORS, ITEMS = 1_000_000, 5_000


@dataclass(frozen=True)
class Dataset:
    """How an input is drawn: columns ``key`` (text) and ``value`` (bigint).

    Attributes:
        rows: how many.
        keys: distinct keys that can be drawn.
        exponent: the skew z; 0 is uniform.
        files: Parquet files of equal size, in the order in which the rows were drawn.
        epochs: parts of the input, each with other hot keys.
        first_file_share: the share of the rows in the first file; 0 for as many as in any other.
        values: ``uniform`` in 0..999; ``cost``: log-normal by key, the same for all rows of a key, with a
            mean of about 200.
        seed: of the generator.
    """

    rows: int
    keys: int
    exponent: float
    files: int = FILES
    epochs: int = 1
    first_file_share: float = 0.0
    values: Literal["uniform", "cost"] = "uniform"
    seed: int = 0

    @property
    def epoch_files(self) -> int:
        """Files that the first epoch's rows are in."""
        return self.files // self.epochs

    @property
    def moves(self) -> bool:
        """Whether each repetition is of another input, so that only the answers of one repetition are alike."""
        return False

    def draw(self, folder: Path) -> None:
        """Write the files into an empty folder."""
        for number, table in enumerate(_tables(self)):
            pq.write_table(table, folder / f"part-{number:05d}.parquet", compression="zstd")


@dataclass(frozen=True)
class LakeOfDays(Dataset):
    """An input of days, to which files come night by night.

    ``rows`` and ``files`` are those of a day. Columns: ``key``, ``value``, and bigints ``visitor`` and ``item``.

    Attributes:
        days: that there are before the first night.
        nights: on each of which a new day comes, and late rows for some days.
        late_share: those rows of a day, as a share of a day's rows.
        late_days: which days these are, counted back from the newest one: 1 is the day before it.
        file_share: the rows of a file that comes on its own, as a share of a day's rows.
    """

    days: int = 28
    nights: int = 3
    late_share: float = 0.02
    late_days: tuple[int, ...] = (1, 2, 3)
    file_share: float = 0.01

    @property
    def moves(self) -> bool:
        """See ``Dataset``."""
        return True

    def draw(self, folder: Path) -> None:
        """See ``Dataset``.

        ``days/D`` are the days before the first night, of which the first is 0; ``night-N/D`` is what comes in the Nth
        night, and ``late-N/D`` a late file that comes without a new day.
        """
        for day in range(self.days):
            self._write(folder / "days" / str(day), "part", self.rows, self.files, day)
        for night in range(1, self.nights + 1):
            newest = self.days - 1 + night
            self._write(folder / f"night-{night}" / str(newest), "part", self.rows, self.files, newest)
            for back in self.late_days:
                rows, seed = round(self.rows * self.late_share), 1000 * night + back
                self._write(folder / f"night-{night}" / str(newest - back), f"late-{night}", rows, 1, seed)
            late = folder / f"late-{night}" / str(self.days - 1 - self.late_days[-1])
            self._write(late, f"late-{night}", round(self.rows * self.file_share), 1, 1000 * night)

    def _write(self, folder: Path, name: str, rows: int, files: int, seed: int) -> None:
        folder.mkdir(parents=True)
        random = np.random.default_rng(self.seed + seed)
        ranks = zipf(self.keys, self.exponent, rows, self.seed + seed)
        columns = {
            "key": _key_names(self).take(pa.array(ranks - 1)),
            "value": random.integers(0, VALUES, rows),
            "visitor": random.integers(0, VISITORS, rows),
            "item": zipf(ITEMS, 1.1, rows, self.seed + seed + 1),
        }
        table, ends = pa.table(columns), np.linspace(0, rows, files + 1).astype(int)
        for number, (start, end) in enumerate(pairwise(ends.tolist())):
            path = folder / f"{name}-{number:03d}.parquet"
            pq.write_table(table.slice(start, end - start), path, compression="zstd")


def written(data: Dataset, root: Path) -> Path:
    """The folder of an input, drawn now if it was not before."""
    name = hashlib.sha256(json.dumps(asdict(data), sort_keys=True).encode()).hexdigest()[:16]
    folder = root / "inputs" / name
    if not folder.exists():
        draft = root / "inputs" / f".draft-{secrets.token_hex(4)}"
        draft.mkdir(parents=True)
        data.draw(draft)
        draft.rename(folder)
    return folder


def files_of(folder: Path) -> list[str]:
    """The files of an input, in order."""
    return [str(path) for path in sorted(folder.glob("part-*.parquet"))]


def drawn_keys(data: Dataset) -> Keys:
    """The keys in order of arrival, 1..``keys``, shape (rows,)."""
    if data.epochs > 1:
        return drift(data.keys, data.exponent, data.rows, data.epochs, data.seed)
    return zipf(data.keys, data.exponent, data.rows, data.seed)


def drawn_values(data: Dataset, keys: Keys) -> Ints:
    """The values in order of arrival, shape (rows,)."""
    random = np.random.default_rng(data.seed + 1)
    if data.values == "uniform":
        return random.integers(0, VALUES, data.rows)
    # exp(mu + sigma^2 / 2) = 200, and the dearest of 10 k keys costs some forty times the mean.
    of_key = np.rint(random.lognormal(np.log(200.0) - 0.5, 1.0, data.keys)).astype(np.int64)
    return of_key[keys - 1]


def _tables(data: Dataset) -> Iterator[pa.Table]:
    keys = drawn_keys(data)
    values = drawn_values(data, keys)
    names = _key_names(data)
    for start, end in _cuts(data):
        table = {"key": names.take(pa.array(keys[start:end] - 1)), "value": pa.array(values[start:end])}
        yield pa.table(table)


@lru_cache(maxsize=2)
def _key_names(data: Dataset) -> pa.Array:
    """By rank. The longest names belong to the rarest keys; drawn anew, so that ranks are no order of the texts."""
    return pa.array([f"k{number}" for number in np.random.default_rng(data.seed + 2).permutation(data.keys)])


def _cuts(data: Dataset) -> list[tuple[int, int]]:
    share = data.first_file_share
    first = round(data.rows * share) if share else round(data.rows / data.files)
    ends = np.linspace(first, data.rows, data.files).astype(np.int64) if data.files > 1 else np.array([data.rows])
    starts = np.concatenate([[0], ends[:-1]])
    return list(zip(starts.tolist(), ends.tolist(), strict=True))
