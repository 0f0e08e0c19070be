"""``python -m benchmarks [--only B3]``: every benchmark there is, one after the other, and what each one wrote."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import (
    actions,
    balance,
    dpa_table,
    formats,
    growth,
    in_order,
    long_windows,
    many_files,
    memory,
    overhead,
    partial_key,
    planning,
    price_of_a_stage,
    queries,
    several_clusters,
    standing_still,
    table_output,
    two_phases,
)
from benchmarks.leases import simulation as leases
from benchmarks.result_files import DATA, RESULTS, write_all_aims, write_results
from benchmarks.spark.cell import Size
from benchmarks.spark.harness import PATIENCE_SECONDS, Effort, run_row
from benchmarks.spark.page import file_name, write
from benchmarks.spark.rows import ROWS

#: Each has a ``NAME`` of its files, ``measure()``, which returns a document, and ``page(document)``.
MEASURED = {
    "memory": memory, "B8": overhead, "B11": price_of_a_stage, "several_clusters": several_clusters,
    "B13": table_output, "B12": many_files, "B14": formats,
    "planning": planning, "growth": growth, "partial_key": partial_key, "leases": leases,
    "J5": two_phases,
}  # fmt: skip
#: What draws the figure of a page that has one.
PLOTS: Mapping[str, Callable[[Mapping[str, Any], Path], None]] = {"several_clusters": several_clusters.plot}
#: Commands of their own, which write.
COMMANDS = {
    "balance": balance.main, "dpa_table": dpa_table.main, "standing_still": standing_still.main,
    "in_order": in_order.main, "actions": actions.main, "B19": queries.main,
    "B22": long_windows.main,
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all of them, or one."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", choices=[*COMMANDS, *MEASURED, *ROWS], help="one of them; by default all")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full size, for a look (Spark's rows)")
    parser.add_argument("--repetitions", type=int, default=3, help="runs of each peer (Spark's rows)")
    parser.add_argument(
        "--patience", type=float, default=PATIENCE_SECONDS, help="a peer that takes more seconds is run once"
    )
    parser.add_argument("--long", action="store_true", help="B2 with T* = 60 s, for the exponent 1.6")
    options = parser.parse_args(arguments)
    names = [options.only] if options.only else [*COMMANDS, *MEASURED, *ROWS]
    size = Size(options.scale, options.long)
    full = size.scale == 1.0
    for name in names:
        if name in COMMANDS:
            COMMANDS[name]([], RESULTS)
            write_all_aims(RESULTS)
        elif name in MEASURED:
            benchmark = MEASURED[name]
            document = benchmark.measure()
            write_results(RESULTS, benchmark.NAME, document, benchmark.page(document))
            if name in PLOTS:
                PLOTS[name](document, RESULTS / f"{benchmark.NAME}.svg")
            _told(name, document)
            write_all_aims(RESULTS)
        else:
            bench(name, size, Effort(options.repetitions, options.patience), RESULTS if full else DATA / "results")


def bench(name: str, size: Size, effort: Effort, folder: Path, root: Path = DATA) -> None:
    """Run one of Spark's rows and write it; what is no full size belongs into another folder than the results."""
    document = run_row(ROWS[name], size, effort, root)
    write(document, folder)
    write_all_aims(folder)
    _told(name, document)
    print(f"wrote {folder / file_name(document)}.json and .svg, and {folder / 'spark.md'}")


def _told(name: str, document: Mapping[str, Any]) -> None:
    for verdict in document.get("verdicts", ()):
        print(f"{name}: {verdict['words']}")


if __name__ == "__main__":
    main()
