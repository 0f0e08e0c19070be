"""A type, an aggregate, a role and an engine: what is called good is published, all else is refused in a sentence."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pyspark.sql import SparkSession

from skewless.errors import InputError, SkewlessError, SpecError
from skewless.spec.spec import JobSpec
from skewless_spark.aggregates import REGISTRY
from skewless_spark.aggregates.binding import check_types
from skewless_spark.aggregates.native import SYNONYMS
from skewless_spark.prepare.freezing import freeze
from tests.spark.scenario import DATE, OWN_MAPPER, result_of, run_job, spec_of, write_input
from tests.spark.wide_values import digest
from tests.tiers import mostly_long

#: A value of each type, which follows from ``i``.
VALUES: dict[str, str] = yaml.safe_load(Path(__file__).with_name("values.yaml").read_text())["types"]
NESTED = list(VALUES)[-7:]
SELECT = ["k", "i", *(f"{value} AS `{name}`" for name, value in VALUES.items())]
CALLS = [("max_by", one) for one in VALUES] + [("first", one) for one in VALUES] + [
    (function, one) for one in NESTED
    for function in ("min_by", "last", "count", *(() if "map" in one else ("max", "collect_list", "count_distinct")))
]  # fmt: skip
ENGINES: dict[str, dict[str, Any]] = {
    "combine": {"engine": "combine"},
    "bypass": {"engine": "bypass"},
    "staged, with a backlog": {"engine": "staged", "routing": {"waves": [1, 1], "reducers": 2, "budget": 12}},
}


@pytest.mark.parametrize("engine", mostly_long(ENGINES, "staged, with a backlog"))
def test_each_type_is_an_argument_and_a_result_of_each_engine(spark: SparkSession, tmp_path: Path, engine: str) -> None:
    table = pa.table({"k": [f"k{n % 2}" for n in range(24)], "i": list(range(24))})
    source, by = write_input(tmp_path / "in", table, files=2), {"max_by": {"by": "i"}, "min_by": {"by": "i"}}
    calls = {f"{call}_{name}": {"function": call, "column": name, **by.get(call, {})} for call, name in CALLS}
    spec = spec_of(source, "k", calls, map={"select": SELECT}, **ENGINES[engine])
    run, finished, _ = run_job(spark, spec, tmp_path / "run")
    assert finished.quality.success, [check.sentence for check in finished.quality.checks if not check.success]
    found = {row.pop("k"): row for row in result_of(run).to_pylist()}
    spark.read.parquet(str(source)).selectExpr(*SELECT).selectExpr("struct(*) AS row").write.parquet(
        str(tmp_path / "plain")
    )
    plain = [one["row"] for one in pq.read_table(tmp_path / "plain").to_pylist()]
    for key in ("k0", "k1"):
        own = sorted((one for one in plain if one["k"] == key), key=lambda one: one["i"])
        for function, name in CALLS:
            values = [one[name] for one in own]
            expected = {"count": 12, "count_distinct": 12, "collect_list": values}
            ends = values[0] if function in {"min_by", "first"} else values[-1]
            assert found[key][f"{function}_{name}"] == expected.get(function, ends), (function, name)


#: What some calls need besides a column; their further columns are numbers.
OPTIONS = {
    "histogram": '{"edges": [1]}', "approx_percentile": '{"percentage": 0.5}', "percentile": '{"percentages": [0.5]}',
    "sessions": '{"gap": 1}',
}  # fmt: skip
FORMATS = ["parquet", "orc", "json", "csv", "delta", "iceberg"]


def is_good(check: Callable[[], object]) -> bool:
    """Whether a check takes a spec; if it does not, it says why in one sentence."""
    try:
        check()
    except (SpecError, InputError) as err:
        return "\n" in str(err)  # which no run would pass
    return True


@pytest.mark.long
@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_check_takes_is_published_by_each_engine(spark: SparkSession, tmp_path: Path, engine: str) -> None:
    """Each aggregate of each type, a hundred in one job; and each type as a key, in another one."""
    source = write_input(tmp_path / "in", pa.table({"k": [f"k{n % 2}" for n in range(24)], "i": range(24)}), files=2)
    schema = spark.read.parquet(str(source)).selectExpr(*SELECT).schema
    types, calls = {one.name: one.dataType.simpleString() for one in schema}, dict[str, Any]()
    for function, definition in REGISTRY.items():
        for name in () if function in {*SYNONYMS, "spark"} else VALUES:  # which stands beside none in order
            further = dict.fromkeys(definition.further, "i")
            call = {"function": function, "column": name, **further, **json.loads(OPTIONS.get(function, "{}"))}
            if is_good(partial(check_types, spec_of(source, "k", {"x": call}), types, "spec")):
                calls[f"{function}_{name}"] = call
    of_key = {one: spec_of(source, one, {"n": "count"}, map={"select": SELECT}) for one in VALUES}
    keys = [one for one, spec in of_key.items() if is_good(partial(freeze, spec, DATE, "/", "spec"))]
    assert keys == [one for one in VALUES if one not in NESTED]
    names = list(calls)
    jobs: list[tuple[Any, Any, int]] = [
        ("k", {name: calls[name] for name in names[at : at + 100]}, 2) for at in range(0, len(names), 100)
    ]
    for number, (key, asked, count) in enumerate([*jobs, (keys, {"n": "count"}, 24)]):
        spec = spec_of(source, key, asked, map={"select": SELECT}, **ENGINES[engine])
        run, finished, _ = run_job(spark, spec, tmp_path / f"{number}")
        assert finished.quality.success, [check.sentence for check in finished.quality.checks if not check.success]
        assert len(result_of(run)) == count


@pytest.mark.parametrize("kind", mostly_long(FORMATS, "delta"))
def test_what_a_check_takes_is_published_in_each_format(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    source = write_input(tmp_path / "in", pa.table({"k": ["a", "b"], "i": [0, 1]}), files=1)
    output = {"format": kind, "path": "local.db.types" if kind == "iceberg" else str(tmp_path / "out")}

    def spec(*names: str) -> JobSpec:
        calls = {one: {"function": "max_by", "column": one, "by": "i"} for one in names}
        return spec_of(source, "k", calls, map={"select": SELECT}, output=output)

    names = [one for one in VALUES if is_good(partial(freeze, spec(one), DATE, str(tmp_path), "spec"))]
    assert set(VALUES) - set(names) == ({"binary", *NESTED} if kind == "csv" else set())
    run, finished, _ = run_job(spark, spec(*names), tmp_path / "run")
    assert finished.quality.success
    assert (len(result_of(run)), result_of(run).column_names) == (2, ["k", *names])


def test_types_of_files_that_spark_has_not_are_what_they_are_stored_as_or_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    of = pa.ExtensionArray.from_storage
    table = pa.table({
        "k": ["a", "a"], "json": of(pa.json_(), pa.array(["{}", "[]"])),
        "flag": of(pa.bool8(), pa.array([1, 0], pa.int8())),
        "uuid": of(pa.uuid(), pa.array([b"x" * 16] * 2, pa.binary(16))), "long": pa.array([1, 2], pa.duration("us")),
        "wide": pa.array([1, 2], pa.decimal256(50, 2)),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=1)
    calls = {name: {"function": "max_by", "column": name, "by": "long"} for name in ("json", "uuid", "flag")}
    for waves in ([1], [1, 1]):  # whole files by Spark, row groups by Arrow
        spec = spec_of(tmp_path / "in.parquet", "k", calls, routing={"waves": waves})
        run, _, _ = run_job(spark, spec, tmp_path / f"run{len(waves)}")
        assert result_of(run).to_pylist() == [{"k": "a", "json": "[]", "uuid": b"x" * 16, "flag": 0}]
    for key, column in (("wide", "k"), ("k", "wide")):
        spec = spec_of(tmp_path / "in.parquet", key, {"x": {"function": "max", "column": column}})
        with pytest.raises(SkewlessError, match=r"wide.*decimal256"):
            freeze(spec, DATE, "/", "spec")


# Values of many megabytes: as they come, among small ones, as keys, mapped, and in states.

_VALUES, _BYTES, _KEYS = 40, 60 << 20, 4


def wide(number: int) -> str:
    return f"{number:04d}" + chr(97 + number % 26) * _BYTES


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of wide values alone, and one of them behind many small ones in the same row group."""
    folder = tmp_path_factory.mktemp("wide")
    values = pa.chunked_array([pa.array([wide(number)]) for number in range(_VALUES)])
    for name, small in (("alone", 0), ("few", 100_000)):
        column = pa.chunked_array([pa.array([f"s{number}" for number in range(small)], pa.string()), *values.chunks])
        keys = [f"k{number % _KEYS}" for number in [*range(small), *range(_VALUES)]]
        (folder / name).mkdir()
        table = pa.table({"k": keys, "v": column})
        pq.write_table(
            table, folder / name / "x.parquet", row_group_size=1 << 20, use_dictionary=False, compression="zstd"
        )
    return folder


def result_apart(spec: JobSpec, run: Path) -> list[dict[str, Any]]:
    """The rows of a result, of a Spark of its own; digests in place of long texts."""
    command = [sys.executable, "-m", "tests.spark.wide_values", spec.to_json(), str(run)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    rows: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return rows


@pytest.mark.long
@pytest.mark.parametrize(("engine", "source"), [("combine", "few"), ("staged", "alone")])
def test_40_values_of_60_mib_are_aggregated(tmp_path: Path, sources: Path, source: str, engine: str) -> None:
    spec = spec_of(
        sources / source, "k", {"rows": "count", "v": {"function": "max", "column": "v"}}, engine=engine,
        routing={"reducers": 2, "waves": [1, 1]}, output={"path": str(tmp_path / "out"), "files": 2},
    )  # fmt: skip
    found = {row["k"]: (row["rows"], row["v"]) for row in result_apart(spec, tmp_path / "run")}
    small = 0 if source == "alone" else 100_000
    rows = Counter(f"k{number % _KEYS}" for number in [*range(small), *range(_VALUES)])
    last = {f"k{key}": wide(_VALUES - _KEYS + key) for key in range(_KEYS)}
    if small:
        last = {f"k{key}": max(f"s{number}" for number in range(key, small, _KEYS)) for key in range(_KEYS)}
    assert found == {key: (rows[key], digest(value) if len(value) > _BYTES else value) for key, value in last.items()}


@pytest.mark.long
@pytest.mark.parametrize("source", ["few"])
def test_40_values_of_60_mib_go_to_python_and_back(
    tmp_path: Path, sources: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(OWN_MAPPER))
    spec = spec_of(
        sources / source, "token", {"rows": "count", "last": {"function": "exact_median", "column": "column"}},
        engine="staged", map={"mapper": "tokens", "column": "v", "pattern": "^[0-9]{4}"},
        routing={"reducers": 2, "waves": [1, 1]}, output={"path": str(tmp_path / "out"), "files": 2},
    )  # fmt: skip
    found = {row["token"]: row["rows"] for row in result_apart(spec, tmp_path / "run")}
    assert found == {f"{number:04d}": 1 for number in range(_VALUES)}
