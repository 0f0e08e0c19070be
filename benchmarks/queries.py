"""B19: queries of TPC-H, JCC-H and TPC-DS as jobs, beside plain Spark with adaptive execution, in one warm session.

``python -m benchmarks.queries CORPUS SCALE [NUMBERS]`` measures some, and keeps the lines of others. Timed are
prepare, stages and merge: from a spec to its result, as plain Spark writes one. Both run in turn, once where the scale
is above 1. There plain Spark needs 8 GB for its broadcasts (``SKEWLESS_DRIVER_MEMORY=8g``), and only results of at most
``COMPARED_ROWS`` are compared.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
from pyspark.sql import SparkSession

from benchmarks.result_files import (
    DATA,
    RESULTS,
    Verdict,
    as_documents,
    in_words,
    machine,
    page_of,
    table,
    write_all_aims,
    write_results,
)
from benchmarks.spark.setting import CORES, PLAIN, session, settings
from benchmarks.spark.spark_work import jobs_since, next_job
from skewless.run.directory import RunDirectory
from skewless_spark.entries.pipeline import run_stages
from skewless_spark.prepare.prepare import prepare
from skewless_spark.result.merge import merge_states
from tests.query.corpora import generate, texts
from tests.query.oracle import in_spark, plain_spark, spec_of
from tests.query.page import decided
from tests.query.rows import DAYS, differences
from tests.spark.scenario import result_of

NAME, SCALE, REPETITIONS, COMPARED_ROWS = "b19_queries", 1.0, 3, 200_000
AIM, AIM_HOT = 1.15, 0.5
CORPORA = {"tpch": "TPC-H", "jcch": "JCC-H", "tpcds": "TPC-DS"}
ADAPTIVE = {**PLAIN, "spark.sql.adaptive.enabled": "true", "spark.sql.shuffle.partitions": "200"}
#: By queries of JCC-H whose parameters are those of its populous rows, what stands in the place of which text.
_HOT = {
    3: {"BUILDING": "segment"},
    4: {"1993-07-01": "1993-10-01", "1993-10-01": "1994-01-01"},
    5: {"1995-01-01": "1994-01-01", "1994-01-01": "1993-01-01"},
    7: {"FRANCE": "nation_of_supplier", "GERMANY": "nation_of_customer"},
    9: {"green": "color"},
    10: {},
}
#: Of the order with most lines, what these are.
_POPULOUS = """SELECT c_mktsegment AS segment, split_part(p_name, ' ', 1) AS color, n1.n_name AS nation_of_supplier,
    n2.n_name AS nation_of_customer FROM lineitem, orders, customer, part, supplier, nation AS n1, nation AS n2
    WHERE l_orderkey = o_orderkey AND o_custkey = c_custkey AND l_partkey = p_partkey AND l_suppkey = s_suppkey
    AND s_nationkey = n1.n_nationkey AND c_nationkey = n2.n_nationkey GROUP BY ALL ORDER BY count(*) DESC LIMIT 1"""


def main(arguments: Sequence[str], folder: Path = RESULTS) -> None:
    """Measure queries of one set, or of all, and write the page."""
    names = arguments[:1] or [*CORPORA]
    scale, numbers = float(arguments[1]) if len(arguments) > 1 else SCALE, {int(one) for one in arguments[2:]}
    path = folder / f"{NAME}.json"
    lines = json.loads(path.read_text())["lines"] if path.exists() else []
    with session(CORES) as spark:
        for name in names:
            for line in measured(spark, name, scale, numbers):
                lines = sorted([*(one for one in lines if _place(one) != _place(line)), line], key=_place)
                found = {"row": "B19", "lines": lines, "setting": machine(pyspark="pyspark", duckdb="duckdb")}
                found["verdicts"] = as_documents(verdicts(lines))
                write_results(folder, NAME, found, page(found), by_line=True)
    write_all_aims(folder)


def _place(line: Mapping[str, Any]) -> tuple[int, float, int]:
    return [*CORPORA].index(line["set"]), line["scale"], line["number"]


def measured(spark: SparkSession, name: str, scale: float, numbers: set[int]) -> Any:
    """The lines of queries of a set that are in the class."""
    place = DATA / f"queries-{scale}"
    if not (place / name / "queries.json").exists():
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place) as scratch:
            generate(Path(scratch), name, str(scale)).rename(place / name)
    paths = {path.stem: path for path in (place / name).glob("*.parquet")}
    of_page = decided("TPC-DS" if name == "tpcds" else "TPC-H")
    for number, text in asked(name, place / name, paths).items():
        if of_page.get(number) == "" and (not numbers or number in numbers):
            measures = _measured(spark, text, paths, 1 if scale > 1 else REPETITIONS)
            line = {"set": name, "number": number, "scale": scale, **measures}
            sys.stderr.write(f"B19 {CORPORA[name]} {number}: {_ratio(line):.2f} {line}\n")
            yield line


def asked(name: str, folder: Path, paths: Mapping[str, Path]) -> dict[int, str]:
    """The queries of a set; those of JCC-H ask for populous rows."""
    found = texts(folder, name)
    if name != "jcch":
        return found
    with duckdb.connect() as database:
        for one, path in paths.items():
            database.execute(f"CREATE VIEW {one} AS SELECT * FROM '{path}'")  # noqa: S608
        (populous,) = database.sql(_POPULOUS).to_arrow_table().to_pylist()
    hot = {}
    for number, replaced in _HOT.items():
        # At once, as what stands in the place of one may be another one.
        parts = re.split(f"({'|'.join(replaced) or '$^'})", found[number])
        hot[number] = "".join(populous.get(replaced.get(part, part), replaced.get(part, part)) for part in parts)
    return hot


def _measured(spark: SparkSession, text: str, paths: Mapping[str, Path], repetitions: int) -> dict[str, Any]:
    spec, seconds, jobs = spec_of(text, paths), {"plain": list[float](), "ours": list[float]()}, dict[str, int]()
    steps: dict[str, float] = {}
    with tempfile.TemporaryDirectory(dir=DATA) as scratch, plain_spark(spark, paths):
        for number in range(repetitions + 1):  # the first makes its code warm
            run = RunDirectory(f"{scratch}/run-{number}")
            for way in ("plain", "ours") if number % 2 else ("ours", "plain"):
                first, began = next_job(spark), time.perf_counter()
                if way == "plain":
                    with settings(spark, ADAPTIVE):
                        spark.sql(text).write.parquet(f"{scratch}/{way}-{number}")
                else:
                    steps = _ours(spark, run, spec, scratch)
                if number:
                    seconds[way].append(round(time.perf_counter() - began, 3))
                jobs[way] = len(jobs_since(spark, first))
            if not number and (found := result_of(run)).num_rows <= COMPARED_ROWS:
                wrong = differences(found.to_pylist(), in_spark(spark, text), {})
                assert not wrong, wrong  # noqa: S101
        engine = run.plan(0).engine
    return {"seconds": seconds, "steps": steps, "jobs": jobs, "engine": engine}


def _ours(spark: SparkSession, run: RunDirectory, spec: Any, scratch: str) -> dict[str, float]:
    steps, began = {}, time.perf_counter()
    for name, step in (
        ("prepare", lambda: prepare(run, spec, DAYS[-1], scratch)),
        ("stages", lambda: run_stages(spark, run)),
        ("merge", lambda: merge_states(spark, run)),
    ):
        step()
        began, steps[name] = time.perf_counter(), round(time.perf_counter() - began, 3)
    return steps


def _ratio(line: Mapping[str, Any]) -> float:
    return round(median(line["seconds"]["ours"]) / median(line["seconds"]["plain"]), 3)


def verdicts(lines: Sequence[Mapping[str, Any]]) -> list[Verdict]:
    """The aims: no query is slow, and hot ones are fast; at the largest scale of each set."""
    largest = {line["set"]: line["scale"] for line in sorted(lines, key=_place)}
    ratios = {
        name: [_ratio(line) for line in lines if (line["set"], line["scale"]) == (name, largest.get(name))]
        for name in CORPORA
    }
    found = [
        Verdict("the slowest query over plain Spark", CORPORA[name], max(some), AIM)
        for name, some in ratios.items()
        if some
    ]
    if ratios["jcch"]:
        found.append(Verdict("the median of hot keys over plain Spark", "JCC-H", median(ratios["jcch"]), AIM_HOT))
    return found


def page(document: Mapping[str, Any]) -> str:
    """The page, in Markdown."""
    rows = []
    for name, title in CORPORA.items():
        for scale in sorted({line["scale"] for line in document["lines"] if line["set"] == name}):
            lines = [line for line in document["lines"] if (line["set"], line["scale"]) == (name, scale)]
            ratios = ", ".join(f"{line['number']}: {_ratio(line):.2f}" for line in lines)
            rows.append((title, f"{scale:g}", f"{median(map(_ratio, lines)):.2f}", ratios))
    about = (
        f"From a text to Parquet in a warm session, in turn, medians of {REPETITIONS}, above scale 1 once; plain Spark"
        f" is adaptive, JCC-H's ask for populous rows. {in_words(document['setting'])}."
    )
    head = ("set", "scale", "median", "ours over plain Spark, by query")
    return page_of("B19: queries of benchmarks", about, table(head, rows))


if __name__ == "__main__":
    main(sys.argv[1:])
