"""Runs the query of a map over the rows of a wave, and proves beforehand that it is one of the input's single rows."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from itertools import count, filterfalse
from typing import Any, NamedTuple, cast

from py4j.protocol import Py4JJavaError
from pydantic_core import PydanticCustomError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from skewless.documents.job import MadeColumn
from skewless.errors import SpecError, first_line, nearest
from skewless.query.rows import reread, row_query
from skewless.query.sql import column_names, counts_places, read_in
from skewless.query.understood import INPUT, STATE, understood
from skewless.spec.input import OWN_PREFIX
from skewless.spec.spec import JobSpec
from skewless_spark.session.session import jvm_of, query_in_jvm, under_settings

#: Our own columns beside those of the input.
_ORIGIN, _POSITION = (f"{OWN_PREFIX}{name}" for name in ("origin", "position"))
_METADATA, _FILE = "_metadata", "_metadata."
#: What a query may do with a row of the input; of joins, which side the input may be on.
_PASSES = frozenset({"Project", "Filter", "Generate", "SubqueryAlias", "View", "ResolvedHint"})
_LEFT = frozenset({"Inner", "Cross", "LeftOuter", "LeftSemi", "LeftAnti"})
_RIGHT = frozenset({"Inner", "Cross", "RightOuter"})
#: What gives other rows, or another order of them, each time.
_UNSTABLE = {"GlobalLimit": "a LIMIT", "LocalLimit": "a LIMIT", "Sample": "a sample", "Window": "a window function",
             "Offset": "an OFFSET", "Tail": "a LIMIT"}  # fmt: skip
#: Expressions that depend on the time or the user, although Spark treats them as constant.
_FLEETING = frozenset({
    "CurrentTimestamp", "CurrentDate", "Now", "LocalTimestamp", "CurrentTime", "CurrentUser", "CurrentDatabase",
    "CurrentCatalog", "CurrentTimeZone", "CallMethodViaReflection", "TryReflect",
})  # fmt: skip
_NUMBERS = count()


class Mapped(NamedTuple):
    """The columns of the mapped rows, and the input columns that they are made from."""

    types: dict[str, str]
    """The Spark SQL type of each mapped column."""
    reads: tuple[str, ...]
    """The input columns, and by lookup those of each."""
    lookups: dict[str, tuple[str, ...]]
    made: dict[str, MadeColumn]
    """What each mapped column is made from."""
    condition: tuple[str, ...] = ()
    """The input columns in its conditions."""


def types_of(
    spark: SparkSession, text: str, types: Mapping[str, str], lookups: Mapping[str, Mapping[str, str]], at: str,
) -> Mapped:  # fmt: skip
    """The mapped columns of a query and the columns it reads; see ``mapping.map_types``.

    Args:
        lookups: the columns of each lookup.
    """
    at = f"{at}, map"
    tables = {INPUT: types, **lookups}
    frames = {name: _empty(spark, kinds, files=name == INPUT, origin=name == INPUT) for name, kinds in tables.items()}
    with viewed(frames) as views:
        try:
            frame = spark.sql(row_query(text, views, _ORIGIN, _POSITION)[0])
            _require_rows_of_input(query_in_jvm(frame).analyzed(), at)
            _require_read_alike(spark, *reread(text, views), at)
        except PydanticCustomError as err:
            context = err.context or {}
            raise SpecError(at, str(context["required"]), str(context["came"]), context.get("hint", "")) from None
        except PySparkException as err:
            raise _of_spark(err, at, types) from None
    fields = [field for field in frame.schema if field.name not in {_ORIGIN, _POSITION, _METADATA}]
    names = [field.name for field in fields]
    twin = next((name for name in names if [one.lower() for one in names].count(name.lower()) > 1), None)
    if twin is not None:
        raise SpecError(at, "columns whose names differ, in more than case", f"{twin!r} twice")
    lineage = _Lineage(query_in_jvm(frame).analyzed(), {name: frames[name] for name in lookups})
    found = dict(pair for field in fields for pair in _fields(field.name, field.dataType))
    found |= {field.name: field.dataType.simpleString() for field in fields}
    reads = _reads(frame, frames, tables, text)
    own = tuple(column for column in reads.pop(INPUT) if column != _ORIGIN)
    return Mapped(found, own, reads, {name: lineage.made[name] for name in names}, lineage.condition)


def types_over_states(
    spark: SparkSession, text: str, types: Mapping[str, str], lookups: Mapping[str, Mapping[str, str]], at: str
) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """The keys of a query over states, with their types, and the columns that it reads of each lookup."""
    tables = {INPUT: {**types, STATE: "boolean"}, **lookups}
    frames = {name: _empty(spark, kinds, files=False) for name, kinds in tables.items()}
    with viewed(frames) as views:
        try:
            frame = spark.sql(reread(text, views)[1])
        except PySparkException as err:
            raise _of_spark(err, at, types) from None
    require_stable(query_in_jvm(frame).analyzed(), at)
    keys = {field.name: field.dataType.simpleString() for field in frame.schema if field.name != STATE}
    return keys, _reads(frame, frames, tables, text)


def _reads(
    frame: DataFrame, frames: Mapping[str, DataFrame], tables: Mapping[str, Mapping[str, str]], text: str
) -> dict[str, tuple[str, ...]]:
    """The columns of each table that a query reads."""
    written, read, placed = column_names(text), read_in(text), counts_places(text)
    return {
        name: tuple(one for one in tables[name] if "." not in one)
        if read.count(name.lower()) > 1 or (placed and name != INPUT)
        else _used(frame, one, written)
        for name, one in frames.items()
    }  # fmt: skip


def required_result(
    spark: SparkSession, spec: JobSpec, types: Mapping[str, str], lookups: Mapping[str, Mapping[str, str]], where: str
) -> StructType:
    """The columns of the result of a query by Spark itself; one that it refuses, or reads otherwise, is refused."""
    at = f"{where}, field query"
    assert spec.query is not None  # noqa: S101  # for mypy
    found = understood(spec.query, frozenset(spec.tables))
    of_tables = {found.input: types, **lookups}
    frames = {name: _empty(spark, kinds, files=name == found.input) for name, kinds in of_tables.items()}
    with viewed(frames) as views:
        try:
            text, again = reread(spec.query, views)
            _require_read_alike(spark, text, again, at)
            known = spark.sql(reread(found.scope, {INPUT: views[found.input.lower()], **views})[1]).columns
            if column := next((one for one in known if one.lower() in found.aliases), None):
                required = "names in GROUP BY, HAVING and SELECT that only a column or only the select list has"
                raise SpecError(at, required, f"{column!r}, a column of FROM, too", "give it another name there")
            return spark.sql(text).schema
        except PySparkException as err:
            raise _of_spark(err, at, dict(pair for kinds in of_tables.values() for pair in kinds.items())) from None


def _require_read_alike(spark: SparkSession, text: str, again: str, at: str) -> None:
    """Refuse a query of which Spark and our parser make different ones; what both make of it is compared by Spark."""
    plans = [query_in_jvm(spark.sql(one)) for one in (text, again)]
    try:
        if plans[0].optimizedPlan().sameResult(plans[1].optimizedPlan()):
            return
    except Py4JJavaError as err:  # such as listagg(DISTINCT ...) beside another DISTINCT, in Spark 4.3
        came, hint = str(err.java_exception), "compute what it fails at in a query of its own"
        raise SpecError(at, "a query that Spark can plan", first_line(came, 100), hint) from None
    # The optimizer puts several count(DISTINCT ...) in an order that is another one each time.
    folding = jvm_of(spark).org.apache.spark.sql.catalyst.optimizer.ConstantFolding
    with under_settings(spark, {"spark.sql.debug.maxToStringFields": "1000000"}):
        shapes = [_renumbered(folding.apply(plan.analyzed()).toString()) for plan in plans]
    if shapes[0] != shapes[1]:
        raise SpecError(at, "a query that is read as Spark reads it", f"one that is taken for {first_line(again)}")


def _renumbered(shape: str) -> str:
    """A plan as text, with numbers by their first appearance."""
    seen: dict[str, int] = {}
    numbers = r"(?<=#)\d+|(?<=CTERelationDef )\d+|(?<=CTERelationRef )\d+"
    return re.sub(numbers, lambda found: str(seen.setdefault(found[0], len(seen))), shape)


def apply(
    text: str, rows: DataFrame, names: Sequence[str], columns: Sequence[str], origin: str, index: str,
    lookups: Mapping[str, DataFrame],
) -> DataFrame:  # fmt: skip
    """Map rows; see ``mapping.mapped_rows``."""
    named = [F.col(f"s{number}").alias(name) for number, name in enumerate(names) if not _of_file(name)]
    about = [F.col(f"s{number}").alias(name[len(_FILE) :]) for number, name in enumerate(names) if _of_file(name)]
    own = rows.select(*named, *([F.struct(*about).alias(_METADATA)] if about else []), F.col(origin).alias(_ORIGIN))
    with viewed({INPUT: own, **lookups}) as views:
        query, position = row_query(text, views, _ORIGIN, _POSITION)
        frame = rows.sparkSession.sql(query)
    wanted = [_wanted(name, frame.columns).alias(f"c{number}") for number, name in enumerate(columns)]
    return frame.select(*wanted, F.col(_ORIGIN).alias(origin), _index(position, frame).alias(index))


def _index(position: str, frame: DataFrame) -> Column:
    """The number of a row among those of its source row; without one, a number that equal rows alone share."""
    if position:
        return F.coalesce(F.col(_quoted(position)), F.lit(0)).cast("int")
    columns = (F.col(_quoted(name)) for name in frame.columns if name != _ORIGIN)
    hashed = (column.cast("string") if "map<" in frame.schema[at].dataType.simpleString() else column
              for at, column in enumerate(columns))  # fmt: skip
    return F.hash(*hashed).bitwiseAND(F.lit((1 << 31) - 1))


def _empty(spark: SparkSession, types: Mapping[str, str], *, files: bool, origin: bool = False) -> DataFrame:
    usable = {name: kind for name, kind in types.items() if not kind.startswith("unsupported ")}
    within = {name for name in usable if "." in name and name.partition(".")[0] in usable}
    columns = [f"{_quoted(name)} {kind}" for name, kind in usable.items() if name not in within and not _of_file(name)]
    about = ", ".join(f"{name[len(_FILE) :]}: {kind}" for name, kind in usable.items() if _of_file(name))
    own = [f"{_METADATA} struct<{about}>"] * files + [f"{_ORIGIN} bigint"] * origin
    return spark.createDataFrame(cast("list[Row]", []), ", ".join([*columns, *own]))


@contextmanager
def viewed(frames: Mapping[str, DataFrame]) -> Iterator[dict[str, str]]:
    """The frames as views, by their names in lower case, as long as a query is analyzed."""
    views = {name.lower(): f"{OWN_PREFIX}view_{next(_NUMBERS)}" for name in frames}
    catalog = next(iter(frames.values())).sparkSession.catalog
    try:
        for name, frame in frames.items():
            frame.createOrReplaceTempView(views[name.lower()])
        yield views
    finally:
        for view in views.values():
            catalog.dropTempView(view)


def _of_spark(err: PySparkException, at: str, types: Mapping[str, str]) -> SpecError:
    unknown = ((err.getMessageParameters() or {}).get("objectName") or "").replace("`", "")
    name = unknown.rpartition(".")[2]
    if (kind := types.get(name, "")).startswith("unsupported "):
        return SpecError(at, "columns of types that Spark reads", f"{name!r} of type {kind}")
    if unknown and "UNRESOLVED_COLUMN" in str(err):
        return SpecError(at, "columns of the tables", repr(unknown), nearest(name, filterfalse(_of_file, types)))
    return SpecError(at, "a query over the columns of the tables", first_line(err))


def _fields(name: str, kind: DataType) -> Iterator[tuple[str, str]]:
    """The fields of a struct, as a spec names them, with their types; a dot in a name would be taken for a step."""
    for field in kind if isinstance(kind, StructType) else ():
        if "." not in field.name:
            yield f"{name}.{field.name}", field.dataType.simpleString()
            yield from _fields(f"{name}.{field.name}", field.dataType)


def _wanted(name: str, made: Sequence[str]) -> Column:
    root = name if name in made else next(column for column in made if name.startswith(f"{column}."))
    fields = name[len(root) + 1 :].split(".") if root != name else []
    return reduce(Column.getField, fields, F.col(_quoted(root)))


def _require_rows_of_input(plan: Any, at: str) -> None:
    """Refuse a query whose result is not made from single rows of the input, the same ones whenever it is run."""
    for kind, node, child in _way(plan) or ():
        sides = _LEFT if child == 0 else _RIGHT
        if kind == "Join" and (joined := str(node.joinType()).partition("(")[0]) not in sides:
            required = "inner, left, semi, anti and cross joins, which keep rows of the input"
            raise SpecError(at, required, f"a join of kind {joined}")
        if kind != "Join" and kind not in _PASSES:
            came = {"Aggregate": "an aggregation", "Distinct": "DISTINCT", "Sort": "ORDER BY"}.get(kind, kind)
            raise SpecError(at, "rows that are made from one row of the input", _UNSTABLE.get(kind, came))
    require_stable(plan, at)


def require_stable(plan: Any, at: str) -> None:
    """Refuse a plan that may give other rows when it is run again."""
    fleeting = _says_the_time(plan)
    for node in _nodes(plan):
        kind = _class(node)
        if kind in _UNSTABLE:
            raise SpecError(at, "the same rows whenever it is asked", _UNSTABLE[kind], "a task may be run again")
        require_same(node, at, fleeting=fleeting)


def _says_the_time(plan: Any) -> bool:
    patterns = jvm_of(SparkSession.active()).org.apache.spark.sql.catalyst.trees.TreePattern
    return bool(plan.containsPattern(patterns.CURRENT_LIKE()))


def require_same(node: Any, at: str, *, fleeting: bool | None = None) -> None:
    """Refuse a node of a plan that may give other values when it is run again."""
    fleeting = _says_the_time(node) if fleeting is None else fleeting
    for expression in _listed(node.expressions()):
        odd = None if expression.deterministic() else expression
        if odd is None and fleeting:
            odd = next((one for one in _tree(expression) if _class(one) in _FLEETING), None)
        if odd is not None:
            came = str(odd.sql())[:100]
            raise SpecError(at, "the same answer whenever it is asked", came, "a task may be run again")


def _way(plan: Any) -> list[tuple[str, Any, int]] | None:
    """The nodes between a plan's root and the input, each with the child that leads there; None if none does."""
    children = _listed(plan.children())
    if not children:
        return [] if any(str(column.name()) == _ORIGIN for column in _listed(plan.output())) else None
    for at, child in enumerate(children):
        below = _way(child)
        if below is not None:
            return [(_class(plan), plan, at), *below]
    return None


class _Lineage:
    """Of which columns of the input and of lookups a plan makes its columns; and which are in its conditions."""

    def __init__(self, plan: Any, lookups: Mapping[str, DataFrame]) -> None:
        outputs = {name: _listed(query_in_jvm(frame).analyzed().output()) for name, frame in lookups.items()}
        self._tables = {one.exprId().id(): name for name, output in outputs.items() for one in output}
        self._known: dict[int, MadeColumn] = {}
        self._conditions: dict[str, None] = {}
        self._visit(plan)
        output = _listed(plan.output())
        self.made = {str(one.name()): self._known.get(one.exprId().id(), MadeColumn()) for one in output}
        self.condition = tuple(name for name in self._conditions if name != _ORIGIN)

    def _visit(self, node: Any) -> None:
        children = _listed(node.children())
        for child in children:
            self._visit(child)
        kind = _class(node)
        if not children:
            self._leaf(node)
        elif kind == "Project":
            for one in _listed(node.projectList()):
                if _class(one) == "Alias":
                    of_column = _class(one.child()) == "AttributeReference"
                    plain = self._known.get(one.child().exprId().id()) if of_column else None
                    self._known[one.exprId().id()] = plain or self._made(one.child())
        elif kind == "Generate":
            made = self._made(node.generator())
            self._known.update((one.exprId().id(), made) for one in _listed(node.generatorOutput()))
        elif kind in {"Filter", "Join"}:
            for expression in _listed(node.expressions()):
                self._conditions.update(dict.fromkeys(self._made(expression).reads))

    def _leaf(self, node: Any) -> None:
        columns = {one.exprId().id(): str(one.name()) for one in _listed(node.output())}
        if _ORIGIN in columns.values():
            self._known.update((one, MadeColumn(reads=(name,), plain=True)) for one, name in columns.items())
        for one, name in columns.items():
            if one in self._tables:
                self._known[one] = MadeColumn(beside={self._tables[one]: (name,)}, plain=True)

    def _made(self, expression: Any) -> MadeColumn:
        found = [self._known.get(one, MadeColumn()) for one in _ids(expression.references())]
        beside = dict[str, dict[str, None]]()
        for table, names in (pair for one in found for pair in one.beside.items()):
            beside.setdefault(table, {}).update(dict.fromkeys(names))
        reads = tuple(dict.fromkeys(name for one in found for name in one.reads))
        return MadeColumn(reads=reads, beside={table: tuple(names) for table, names in beside.items()})


def _used(frame: DataFrame, table: DataFrame, written: Collection[str]) -> tuple[str, ...]:
    """The columns of a table that a query over its view needs: what the optimizer leaves, and what is written out."""
    ids = {one.exprId().id(): str(one.name()) for one in _listed(query_in_jvm(table).analyzed().output())}
    names = {name.lower(): name for name in ids.values()}
    plan, used, known = query_in_jvm(frame).optimizedPlan(), set[str](), False
    for node in _nodes(plan):
        output = {one.exprId().id() for one in _listed(node.output())}
        if not _listed(node.children()):
            known |= bool(output & set(ids))
        else:
            used |= {ids[one] for one in _ids(node.references()) if one in ids}
    used |= {ids[one] for one in _ids(plan.outputSet()) if one in ids}
    trees = (one for node in _nodes(plan) for expression in _listed(node.expressions()) for one in _tree(expression))
    fields = (one for one in trees if _class(one) == "GetStructField" and _class(one.child()) == "AttributeReference")
    of_files = {f"{_FILE}{one.extractFieldName()}": None for one in fields
                if one.child().name() == _METADATA} if _METADATA in used else ()  # fmt: skip
    used |= {name for low, name in names.items() if low in written}
    return (*(name for name in names.values() if name != _METADATA and (name in used or not known)), *of_files)


def _of_file(name: str) -> bool:
    return name.startswith(_FILE)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _ids(attributes: Any) -> list[int]:
    return [one.exprId().id() for one in _listed(attributes.toSeq())]


def _nodes(plan: Any) -> Iterator[Any]:
    """The nodes of a plan, and of the plans of subqueries in it."""
    yield plan
    for below in (*_listed(plan.children()), *_listed(plan.subqueries())):
        yield from _nodes(below)


def _tree(root: Any) -> Iterator[Any]:
    yield root
    for child in _listed(root.children()):
        yield from _tree(child)


def _class(node: Any) -> str:
    return str(node.nodeName())


def _listed(several: Any) -> list[Any]:
    return [several.apply(number) for number in range(several.size())]
