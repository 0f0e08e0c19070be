"""One trial: a random input, a random spec, a run, and what came of it. A pure function of a seed and a number."""

import json
import random
import shutil
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from skewless.errors import SkewlessError
from skewless.run.directory import RunDirectory
from skewless.spec.reading import parse_spec
from skewless_spark.comparison import OtherSide, committed_result, compare
from skewless_spark.entries.pipeline import finish_run, run_stages
from skewless_spark.prepare.prepare import prepare
from skewless_spark.result.merge import merge_states
from skewless_spark.session.spark_errors import sentence_for
from skewless_spark.sources import cutting
from skewless_spark.states.job_columns import JobColumns
from tests.fuzz.aggregates import Call, draw_calls
from tests.fuzz.inputs import DATE, Input, draw_input
from tests.fuzz.published import alarms, differences, grouped, published_differences, read_published, sort_faults
from tests.fuzz.specs import ENGINES, draw_map, draw_output, draw_routing
from tests.fuzz.values import Row
from tests.spark.scenario import Quiet, result_of

#: Of so many results one is compared with that of another run of the same rows.
COMPARED = 4
#: A run of a few rows that takes longer than this hangs. Machines that are shared are slow.
SECONDS = 240
EQUAL, REFUSED, MISMATCH, TRACEBACK, SLOW = "equal", "refused", "MISMATCH", "TRACEBACK", "SLOW"
BAD = (REFUSED, MISMATCH, TRACEBACK, SLOW)


class SlowError(BaseException):
    """A trial that does not end. No handler of the product catches it."""


@dataclass
class Outcome:
    """What came of a trial.

    Attributes:
        seed: with the number, all that it depends on.
        how: what is not in the spec: how the input was written.
        features: what it covers, for the table at the end.
    """

    seed: int
    number: str
    kind: str
    told: str = ""
    seconds: float = 0.0
    spec: dict[str, Any] = field(default_factory=dict)
    how: dict[str, Any] = field(default_factory=dict)
    features: list[str] = field(default_factory=list)

    @property
    def bad(self) -> bool:
        """Whether it is a fault: every spec that is drawn is valid, so a refusal is one, too."""
        return self.kind in BAD

    def __str__(self) -> str:
        if not self.bad:
            return f"seed {self.seed}, trial {self.number}: {self.kind}, {self.seconds:.1f} s"
        spec = yaml.safe_dump(self.spec, sort_keys=False, allow_unicode=True, width=200)
        how = json.dumps(self.how, default=str, ensure_ascii=False)
        return f"seed {self.seed}, trial {self.number}: {self.kind}\n{self.told}\n--- spec\n{spec}--- written\n{how}"


class WrongError(AssertionError):
    """A result that is not what the oracle says."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    def ring(*_: Any) -> None:
        raise SlowError(f"more than {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def tried(
    spark: SparkSession, seed: int, number: str, folder: Path, play: Callable[[Outcome, random.Random, Path], None]
) -> Outcome:
    """Play a trial in a folder of its own, which is kept if it fails."""
    outcome = Outcome(seed, number, EQUAL)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    began = time.monotonic()
    try:
        with at_most(SECONDS):
            play(outcome, random.Random(f"{seed} {number}"), folder)
    except WrongError as err:
        outcome.kind, outcome.told = MISMATCH, str(err)
    except SlowError as err:
        spark.sparkContext.cancelAllJobs()
        outcome.kind, outcome.told = SLOW, f"{err}\n{traceback.format_exc()[-3000:]}"
    except SkewlessError as err:
        outcome.kind, outcome.told = REFUSED, str(err)
    except Exception as err:  # noqa: BLE001 - what else there is, is what is looked for
        said = sentence_for(err)
        # Sentences of ours have this form; they are also made of errors that Spark raised.
        ours = ": expected " in said and not said.startswith(type(err).__name__)
        outcome.kind, outcome.told = (REFUSED, said) if ours else (TRACEBACK, traceback.format_exc()[-6000:])
    outcome.seconds = time.monotonic() - began
    if not outcome.bad:
        shutil.rmtree(folder, ignore_errors=True)
    return outcome


def draw_key(chance: random.Random, source_columns: dict[str, Any]) -> list[str]:
    names = list(source_columns)
    return chance.sample(names, min(len(names), chance.choice([1, 1, 1, 2, 3])))


def run_trial(spark: SparkSession, seed: int, number: int, folder: Path, compared: int = COMPARED) -> Outcome:
    """One run over one input; of ``compared`` numbers, one is run in two ways, and the results are compared."""

    def play(outcome: Outcome, chance: random.Random, place: Path) -> None:
        source = draw_input(chance, place)
        spec, calls, rows = draw_spec(chance, source)
        publishes = chance.random() < 0.35
        outcome.spec, outcome.how = spec, source.told
        outcome.features = features_of(spec, source, publishes=publishes)
        run, watcher = computed(spark, place, "run", spec, source)
        outcome.features.append(f"stages {min(len(watcher.reports), 4)}")
        if any(report.backlog_rows for report in watcher.reports):
            outcome.features.append("backlog")
        result = result_of(run).to_pylist() if run.committed("result").files else []
        require(differences(result, grouped(rows, spec["key"]), spec["key"], calls))
        require(sort_faults(result, spec["output"].get("sort", ())))
        if number % compared == 0 and result:
            engines = ("auto", "staged") if spec["engine"] in {"auto", "staged"} else ENGINES
            again = {**spec, "engine": chance.choice(engines), "routing": draw_routing(chance)}
            outcome.features.append("compared")
            require(comparison_faults(spark, run, computed(spark, place, "again", again, source)[0], len(result)))
        if publishes:
            finish_run(spark, run)
            published = read_published(spec["output"], place, DATE)
            require(published_differences(spec["output"], published, result) or alarms(run))

    return tried(spark, seed, str(number), folder, play)


def computed(
    spark: SparkSession, place: Path, name: str, spec: dict[str, Any], source: Input
) -> tuple[RunDirectory, Quiet]:
    run, watcher = RunDirectory(str(place / name)), Quiet()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutting, "CUT_BYTES", source.told.get("cut_bytes", cutting.CUT_BYTES))
        prepare(run, parse_spec(yaml.safe_dump(spec, sort_keys=False, allow_unicode=True)), DATE, str(place))
    run_stages(spark, run, watcher)
    merge_states(spark, run)
    return run, watcher


def comparison_faults(spark: SparkSession, run: RunDirectory, again: RunDirectory, keys: int) -> list[str]:
    """What ``skewless compare`` says of a result beside that of another run, and all but one of its keys, if wrong."""
    result = committed_result(spark, again).toDF(*JobColumns.of(again.job()).published.values())
    expected = [(result, (keys, 0, 0)), (result.limit(keys - 1), (keys, 1, 1))]
    told = []
    for other, right in expected:
        found = compare(spark, run, OtherSide(other, dict(other.dtypes)), 1e-9, 3)
        if (found.keys, found.differ, found.only_here) != right or found.lacking or found.types:
            told.append(f"a comparison: {found}")
    return told


def require(told: list[str]) -> None:
    if told:
        raise WrongError(f"{len(told)} differences\n" + "\n".join(told[:8]))


def draw_spec(chance: random.Random, source: Input) -> tuple[dict[str, Any], dict[str, Call], list[Row]]:
    """A spec over an input, its calls, and the rows that they see."""
    columns, rows = source.columns, source.rows
    step = draw_map(chance, columns)
    if step is not None:
        columns, rows = step.columns, [made for row in rows for made in step.rows_of(row)]
    key = draw_key(chance, columns)
    odd = [name for name in columns if not name.isidentifier() or not name.isascii()]
    forward = source.ordered and chance.random() < 0.25
    calls = draw_calls(chance, columns, ordered=source.ordered, forward=forward)
    nested = any(one.nested or (one.kind and one.kind.name == "binary") for one in calls.values())
    nested = nested or any(columns[name].name == "binary" for name in key)
    spec: dict[str, Any] = {"name": "fuzz", "input": source.section}
    if step is not None:
        spec["map"] = step.section
    spec |= {"key": key, "aggregates": {name: one.call for name, one in calls.items()}}
    moving = {"sessions", "exact_median"}
    moves = any(isinstance(one.call, dict) and one.call["function"] in moving for one in calls.values())
    if not moves and chance.random() < 0.08:
        spec["state"] = "forward"
    spec["engine"] = chance.choice(["auto", "staged"]) if moves or "state" in spec else chance.choice(ENGINES)
    spec["routing"] = draw_routing(chance)
    table_like = not any(name in odd for name in key)
    spec["output"] = draw_output(chance, nested=nested, table=table_like)
    if chance.random() < 0.2:
        sortable = [*key, "n"]
        spec["output"]["sort"] = [
            f"{name}{chance.choice(['', ' desc'])}"
            for name in chance.sample(sortable, chance.randint(1, len(sortable)))
            if " " not in name
        ]
    return spec, calls, rows


def features_of(spec: dict[str, Any], source: Input, *, publishes: bool = False) -> list[str]:
    told = [f"format {source.told.get('format')}", f"engine {spec['engine']}"]
    told += [f"policy {spec['routing']['policy']['name']}"]
    told += [f"layout {source.told['layout']}"] if "layout" in source.told else []
    told += ["map"] if "map" in spec else []
    told += ["budget"] if "budget" in spec["routing"] else []
    output = spec["output"]
    told += [f"published {output.get('format', 'parquet')}"] if publishes else []
    told += [f"aggregate {one if isinstance(one, str) else one['function']}" for one in spec["aggregates"].values()]
    return told


def table_of(outcomes: list[Outcome]) -> str:
    counted = Counter(feature for one in outcomes for feature in one.features)
    return ", ".join(f"{name}: {count}" for name, count in sorted(counted.items()))
