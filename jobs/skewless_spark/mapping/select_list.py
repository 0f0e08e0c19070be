"""A map as a Spark SQL select list: Spark parses and analyzes it, and what a task could not repeat is refused."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple, cast

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from skewless.documents.job import Selected
from skewless.errors import SpecError, first_line, nearest
from skewless.spec.calls import Map
from skewless.spec.input import OWN_PREFIX
from skewless_spark.session.session import query_in_jvm, session_in_jvm

_GENERATORS = ("explode", "explode_outer", "posexplode", "posexplode_outer")
#: Functions that depend on the time, the user or the task, although Spark treats some of them as constant.
_FLEETING = frozenset({
    "current_timestamp", "current_date", "curdate", "current_time", "now", "localtimestamp", "current_user", "user",
    "session_user", "current_database", "current_schema", "current_catalog", "current_timezone", "unix_timestamp",
    "input_file_name", "input_file_block_start", "input_file_block_length", "spark_partition_id",
    "monotonically_increasing_id", "rand", "random", "randn", "uuid", "shuffle", "reflect", "java_method",
    "try_reflect",
})  # fmt: skip
#: Our own columns beside those of the input.
_ORIGIN, _POSITION, _MADE = (f"{OWN_PREFIX}{name}" for name in ("origin", "position", "made_"))
_METADATA = "_metadata"


class Mapped(NamedTuple):
    """The columns of the mapped rows, and the input columns that they are made from.

    Attributes:
        types: the Spark SQL type of each mapped column.
        selected: the parsed select list; empty for a mapper.
        condition: the input columns in the map's condition.
    """

    types: dict[str, str]
    reads: tuple[str, ...]
    selected: tuple[Selected, ...] = ()
    condition: tuple[str, ...] = ()


def types_of(spark: SparkSession, given: Map, types: Mapping[str, str], at: str) -> Mapped:
    """The mapped columns of a select list and the columns it reads; see ``mapping.map_types``."""
    usable = {name: kind for name, kind in types.items() if not kind.startswith("unsupported ")}
    selected = tuple(_parsed(spark, text, f"{at}, map.select {text!r}") for text in given.select or ())
    condition = () if given.where is None else _checked(spark, given.where, f"{at}, map.where {given.where!r}").reads
    read = [(name, f"map.select {one.text!r}") for one in selected for name in one.reads]
    _require_known([*read, *((name, f"map.where {given.where!r}") for name in condition)], types, at)
    names = [name for one in selected for name in one.names]
    twice = next((name for name in names if [one.lower() for one in names].count(name.lower()) > 1), None)
    if twice is not None:
        raise SpecError(f"{at}, map.select", "columns whose names differ, in more than case", f"{twice!r} twice")
    if sum(bool(one.generator) for one in selected) > 1:
        raise SpecError(f"{at}, map.select", "at most one explode", "several", "explode an arrays_zip of them")
    lower = {name.lower() for name, _ in read} | {name.lower() for name in condition}
    reads = tuple(name for name in usable if _as_read(name).lower() in lower)
    about = [f"s{number} {usable[name]}" for number, name in enumerate(reads)]
    empty = spark.createDataFrame(cast("list[Row]", []), ", ".join([*about, "o bigint"]))
    try:
        frame = _selected(empty, given, selected, reads, "o")
    except (AnalysisException, ParseException) as err:
        raise SpecError(f"{at}, map", "expressions over the columns of the input", first_line(err)) from None
    _refuse_unrepeatable(frame, any(one.generator for one in selected), at)
    kinds = {name: field.dataType for name, field in zip(names, frame.schema, strict=False)}
    types = dict(pair for name, kind in kinds.items() for pair in _fields(name, kind))
    types |= {name: kind.simpleString() for name, kind in kinds.items()}
    return Mapped(types, reads, selected, tuple(condition))


def _fields(name: str, kind: DataType) -> Iterator[tuple[str, str]]:
    """The fields of a struct, as a spec names them, with their types; a dot in a name would be taken for a step."""
    for field in kind if isinstance(kind, StructType) else ():
        if "." not in field.name:
            yield f"{name}.{field.name}", field.dataType.simpleString()
            yield from _fields(f"{name}.{field.name}", field.dataType)


def apply(
    given: Map,
    selected: Sequence[Selected],
    rows: DataFrame,
    names: Sequence[str],
    columns: Sequence[str],
    origin: str,
    index: str,
) -> DataFrame:
    """Map rows; see ``mapping.mapped_rows``."""
    made = [name for one in selected for name in one.names]
    frame = _selected(rows, given, selected, names, origin)
    wanted = [_wanted(name, made).alias(f"c{number}") for number, name in enumerate(columns)]
    return frame.select(*wanted, F.col(_ORIGIN).alias(origin), F.col(_POSITION).alias(index))


def _selected(rows: DataFrame, given: Map, items: Sequence[Selected], names: Sequence[str], origin: str) -> DataFrame:
    """A column for each name of all items, in order, the origin, and the index of an exploded row."""
    named = [F.col(f"s{number}").alias(name) for number, name in enumerate(names) if not _about(name)]
    about = [F.col(f"s{number}").alias(name.partition(".")[2]) for number, name in enumerate(names) if _about(name)]
    frame = rows.select(*named, *([F.struct(*about).alias(_METADATA)] if about else []), F.col(origin).alias(_ORIGIN))
    if given.where is not None:
        frame = frame.where(given.where)
    columns, number = [], 0
    place = F.lit(0)
    for item in items:
        aliases = [f"{_MADE}{number + at}" for at in range(len(item.names))]
        columns.append(_column(item, aliases))
        number += len(aliases)
        if item.generator:
            position = aliases[0] if item.generator.startswith("pos") else _POSITION
            place = F.coalesce(F.col(position), F.lit(0))
    made = frame.select(*columns, F.col(_ORIGIN))
    return made.select(
        *(F.col(f"{_MADE}{at}") for at in range(number)), F.col(_ORIGIN), place.cast("int").alias(_POSITION)
    )


def _column(item: Selected, aliases: Sequence[str]) -> Column:
    if not item.generator:
        return F.expr(item.text).alias(aliases[0])
    exploded = F.posexplode_outer if item.generator.endswith("_outer") else F.posexplode
    made = aliases if item.generator.startswith("pos") else [_POSITION, *aliases]
    return exploded(F.expr(item.argument)).alias(*made)


def _wanted(name: str, made: Sequence[str]) -> Column:
    root = name if name in made else next(column for column in made if name.startswith(f"{column}."))
    fields = name[len(root) + 1 :].split(".") if root != name else []
    return reduce(Column.getField, fields, F.col(f"{_MADE}{made.index(root)}"))


def _about(name: str) -> bool:
    return name.startswith(f"{_METADATA}.")


def _as_read(name: str) -> str:
    return _METADATA if _about(name) else name


def _require_known(read: Sequence[tuple[str, str]], types: Mapping[str, str], at: str) -> None:
    """Refuse names of no column. Spark would look for them among our own, and among those of the frames below."""
    kinds = {_as_read(name).lower(): kind for name, kind in types.items() if not name.lower().startswith(OWN_PREFIX)}
    for name, where in read:
        kind = kinds.get(name.lower())
        if kind is None and name.lower() in _FLEETING:  # without parentheses it is a function where it is no column
            raise _fleeting(f"{at}, {where}", name)
        if kind is None:
            raise SpecError(f"{at}, {where}", "columns of the input", repr(name), nearest(name, types))
        if kind.startswith("unsupported "):
            raise SpecError(f"{at}, {where}", "columns that Spark reads", f"{name!r} of type {kind}", "leave it out")


def _parsed(spark: SparkSession, text: str, at: str) -> Selected:
    found = _checked(spark, text, at)
    if not found.names:
        raise SpecError(at, "an expression with a name", "none", "write '... AS name'")
    return found


def _checked(spark: SparkSession, text: str, at: str) -> Selected:
    parser = session_in_jvm(spark).sessionState().sqlParser()
    try:
        root = parser.parseExpression(text)
    except ParseException as err:
        raise SpecError(at, "a Spark SQL expression", first_line(err)) from None
    reads = tuple(_attributes(root, at))
    kind = root.getClass().getSimpleName()
    names: tuple[str, ...] = ()
    inner = root
    if kind == "Alias":
        names, inner = (str(root.name()),), root.child()
    elif kind == "MultiAlias":
        names, inner = tuple(str(root.names().apply(n)) for n in range(root.names().size())), root.child()
    elif kind == "UnresolvedAttribute":
        names = (_parts(root)[-1],)
    if inner.getClass().getSimpleName() == "UnresolvedFunction" and _parts(inner)[-1].lower() in _GENERATORS:
        origin = inner.origin()
        call = text[origin.startIndex().get() : origin.stopIndex().get() + 1]
        found = re.fullmatch(r"\s*`?(\w+)`?\s*\((.*)\)\s*", call, re.DOTALL)
        if found is None or inner.arguments().size() != 1:
            raise SpecError(at, "a plain call of one argument", call[:100])
        generator = found[1].lower()
        if len(names) != 2 and generator.startswith("pos"):
            raise SpecError(at, "two names for a position and a value", str(list(names)), "write AS (position, name)")
        return Selected(text=text, names=names, generator=generator, argument=found[2], reads=reads)
    return Selected(text=text, names=names, reads=reads)


def _attributes(one: Any, at: str, bound: frozenset[str] = frozenset()) -> Iterator[str]:
    """Names that must be columns, and refusals of what no map may hold.

    Args:
        bound: the arguments of the functions that it is in, in lower case; a parser takes all names there for such.
    """
    kind = one.getClass().getSimpleName()
    if kind.endswith("Subquery") or kind in {"Exists", "ListQuery"}:
        raise SpecError(at, "an expression over one row", "a subquery", "a map is stateless")
    if kind.startswith("UnresolvedStar"):
        raise SpecError(at, "columns by name", "a star", "list the columns that are needed")
    if "Window" in kind:
        raise SpecError(at, "an expression over one row", "a window", "a map is stateless")
    if kind == "LambdaFunction":
        bound |= {_parts(argument)[0].lower() for argument in _listed(one.arguments())}
    if kind == "UnresolvedFunction":
        name = _parts(one)[-1].lower()
        if name in _FLEETING and (name != "unix_timestamp" or one.arguments().isEmpty()):
            raise _fleeting(at, f"the function {name}")
    if kind in {"UnresolvedAttribute", "UnresolvedNamedLambdaVariable"} and _parts(one)[0].lower() not in bound:
        yield _parts(one)[0]
    for child in _listed(one.children()):
        yield from _attributes(child, at, bound)


def _tree(root: Any) -> Iterator[Any]:
    yield root
    for child in _listed(root.children()):
        yield from _tree(child)


def _listed(several: Any) -> list[Any]:
    return [several.apply(number) for number in range(several.size())]


def _parts(one: Any) -> list[str]:
    return [str(part) for part in _listed(one.nameParts())]


def _refuse_unrepeatable(frame: DataFrame, explodes: bool, at: str) -> None:
    """Refuse what only the analyzer recognizes: further non-deterministic functions, aggregates, generators."""
    generators = 0
    for node in _tree(query_in_jvm(frame).analyzed()):
        kind = node.getClass().getSimpleName()
        generators += kind == "Generate"
        if kind in {"Aggregate", "Window"}:
            raise SpecError(f"{at}, map", "expressions over one row", f"an {kind.lower()}", "a map is stateless")
        for one in _listed(node.expressions()):
            if not one.deterministic():
                raise _fleeting(f"{at}, map", str(one.sql())[:100])
    if generators > explodes:
        raise SpecError(f"{at}, map.select", "explode or posexplode as the only ones that make rows", "another one")


def _fleeting(at: str, came: str) -> SpecError:
    return SpecError(at, "the same answer whenever it is asked", came, "a task may be run again")
