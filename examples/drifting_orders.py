"""Orders of a day, half of them of one customer; others are busy every few hours: what ``make demo-stages`` reads.

Made from a fixed seed, so the decisions about it are the same on every machine.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from examples import data_root, say, whole

FOLDER = "drifting_orders"
#: Files in the order of the day, and orders in each of them.
FILES, ORDERS = 40, 3000
#: How often other customers become busy, how many are busy at a time, and which part of the orders is theirs.
PERIODS, BUSY, BUSY_PART = 5, 10, 0.7
CUSTOMERS = 2000
#: A customer who is always busy, and which part of the orders is theirs.
WHOLESALER, WHOLESALE_PART = 0, 0.5
_SEED = 1


def write(folder: Path) -> int:
    """Write the orders anew; returns how many there are."""
    random = np.random.default_rng(_SEED)
    with whole(folder) as draft:
        for number in range(FILES):
            customers = _customers(random, number * PERIODS // FILES)
            names = pa.array([f"customer-{one:04d}" for one in customers], pa.string())
            amounts = pa.array(random.integers(1, 500, ORDERS), pa.int64())
            pq.write_table(pa.table({"customer": names, "amount": amounts}), draft / f"part-{number:05d}.parquet")
    return FILES * ORDERS


def _customers(random: np.random.Generator, period: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The customers of one file's orders: some of them busy, the same ones in a whole period."""
    of_period = np.random.default_rng([_SEED, period])
    busy = of_period.choice(CUSTOMERS, BUSY, replace=False)
    weights = of_period.dirichlet(np.ones(BUSY))
    theirs = random.choice(busy, int(ORDERS * BUSY_PART), p=weights)
    found = np.concatenate([theirs, random.integers(0, CUSTOMERS, ORDERS - len(theirs))])
    random.shuffle(found)
    return np.where(random.random(ORDERS) < WHOLESALE_PART, WHOLESALER, found)


def main() -> None:
    """``python -m examples.drifting_orders``: writes below ``$SKEWLESS_ROOT``, or ``data``."""
    folder = data_root() / "corpus" / FOLDER
    if not folder.exists():
        say(f"corpus: {write(folder):,} orders in {FILES} Parquet files, in {folder}")


if __name__ == "__main__":
    main()
