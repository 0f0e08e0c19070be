"""``python -m benchmarks [--only B3]``: every benchmark there is, one after the other, and what each one wrote."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks import (
    balance,
    dpa_table,
    formats,
    in_order,
    many_files,
    memory,
    object_input,
    overhead,
    planning,
    price_of_a_stage,
    several_clusters,
    standing_still,
    table_output,
)
from benchmarks.all_aims import write_all_aims
from benchmarks.result_files import RESULTS
from benchmarks.spark.harness import PATIENCE_SECONDS, Effort, run_row
from benchmarks.spark.page import file_name, write
from benchmarks.spark.row import Size
from benchmarks.spark.rows import ROWS

FOLDER = RESULTS
#: Inputs are drawn once and kept here; a look at less than the full size is written here too.
DATA = Path(__file__).parents[1] / "data" / "bench"
OTHERS = {"balance": balance.main, "dpa_table": dpa_table.main, "memory": memory.main, "B8": overhead.main}
OTHERS["B11"] = price_of_a_stage.main
OTHERS["several_clusters"] = several_clusters.main
OTHERS["B1_bucket"] = object_input.main
OTHERS["B13"] = table_output.main
OTHERS["B12"] = many_files.main
OTHERS["B14"] = formats.main
OTHERS |= {one.NAME: one.main for one in (standing_still, in_order, planning)}

#: What those write, where it is not called as they are.
FILES = {"B8": overhead.NAME, "B11": price_of_a_stage.NAME, "B1_bucket": object_input.NAME, "B13": table_output.NAME}
FILES |= {"B12": many_files.NAME, "B14": formats.NAME}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all of them, or one."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", choices=[*OTHERS, *ROWS], help="one of them; by default all")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full size, for a look (Spark's rows)")
    parser.add_argument("--repetitions", type=int, default=3, help="runs of each peer (Spark's rows)")
    parser.add_argument(
        "--patience", type=float, default=PATIENCE_SECONDS, help="a peer that takes more seconds is run once"
    )
    parser.add_argument("--long", action="store_true", help="B2 with T* = 60 s, for the exponent 1.6")
    options = parser.parse_args(arguments)
    names = [options.only] if options.only else [*OTHERS, *ROWS]
    size = Size(options.scale, options.long)
    full = size.scale == 1.0
    for name in names:
        if name in OTHERS:
            OTHERS[name]([], FOLDER)
            written = FILES.get(name, name)
            print(f"wrote {FOLDER / written}.json and {FOLDER / written}.md")
            write_all_aims(FOLDER)
        else:
            bench(name, size, Effort(options.repetitions, options.patience), FOLDER if full else DATA / "results")


def bench(name: str, size: Size, effort: Effort, folder: Path, root: Path = DATA) -> None:
    """Run one of Spark's rows and write it; what is no full size belongs into another folder than the results."""
    document = run_row(ROWS[name], size, effort, root)
    write(document, folder)
    write_all_aims(folder)
    for verdict in document["verdicts"]:
        print(f"{name}: {verdict['words']}")
    print(f"wrote {folder / file_name(document)}.json and .svg, and {folder / 'spark.md'}")


if __name__ == "__main__":
    main()
