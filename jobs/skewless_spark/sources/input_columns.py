"""The columns of an input: those of files that differ, and those that the names of folders tell."""

import datetime as dt
import posixpath
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from urllib.parse import unquote

from skewless.documents.job import Unit
from skewless.errors import InputError, nearest
from skewless_spark.sources.formats.column_types import DECIMAL, is_value

#: Of each file that has a footer, by its path: the Spark SQL type of each of its columns.
ColumnsOfFiles = Mapping[str, Mapping[str, str]]

#: Types from narrow to wide. All values of one are values of the next, and Spark reads them as such.
_WIDER = (("tinyint", "smallint", "int", "bigint"), ("float", "double"))


def widest(first: str, second: str) -> str | None:
    """The one of two types that has the values of both; None if neither has.

    >>> widest("int", "bigint"), widest("decimal(12,2)", "decimal(9,2)"), widest("int", "double")
    ('bigint', 'decimal(12,2)', None)
    """
    if first == second:
        return first
    for kinds in _WIDER:
        if first in kinds and second in kinds:
            return max(first, second, key=kinds.index)
    one, other = DECIMAL.fullmatch(first), DECIMAL.fullmatch(second)
    if one and other and one[2] == other[2]:
        return max(first, second, key=lambda kind: int(DECIMAL.fullmatch(kind)[1]))  # type: ignore[index]
    return None


def common_types(files: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """The type of each column that some file has.

    Where no type serves all files, it is that of the first one: ``fitted`` refuses the others if the job reads it.
    """
    found: dict[str, str] = {}
    for types in dict.fromkeys(tuple(one.items()) for one in files):
        for name, kind in types:
            found[name] = widest(found.get(name, kind), kind) or found[name]
    return found


def refuse_unknown(declared: Iterable[str], known: Iterable[str], first: str) -> None:
    """Refuse a type that a spec declares for a column that is neither in files nor in the names of folders."""
    names = list(known)
    odd = next((name for name in declared if name not in names), None)
    if odd is not None:
        raise InputError("spec, field columns", f"columns of {first} or of its folders", repr(odd),
                         nearest_column(odd, names))  # fmt: skip


def nearest_column(name: str, known: Iterable[str]) -> str:
    """A hint for a column that is not there: of a text that was cut by another sign, the sign.

    >>> nearest_column("v", ["k;v"])
    "say options: {sep: ';'}"
    """
    cut = next((one for one in known if name in re.split(r"[,;|\t]", one)), "")
    sign = re.sub(r"[^,;|\t]", "", cut)[:1]
    return f"say options: {{sep: {sign!r}}}" if cut else nearest(name, known)


def wider_types(own: ColumnsOfFiles, wanted: Mapping[str, str]) -> dict[str, str]:
    """Those of some types that must be wider, so that they have the values of all files."""
    found = common_types([wanted, *own.values()])
    return {name: found[name] for name, kind in wanted.items() if found[name] != kind}


def fitted(
    units: Sequence[Unit],
    own: ColumnsOfFiles,
    wanted: Mapping[str, str],
    required: Container[str],
    told: Callable[[str], str],
) -> tuple[Unit, ...]:
    """The units, with what their files lack of the columns that a job reads.

    Args:
        own: the columns of the files; of formats without footers nothing is known.
    """
    known: dict[tuple[tuple[str, str], ...], dict[str, str | None]] = {}
    lacking = {}
    for path, types in own.items():
        shape = tuple(types.items())
        if shape not in known:
            known[shape] = dict.fromkeys(name for name in wanted if name not in types)
            # They may be integers of 64 bits without a sign, which Spark reads as no wider decimals; pyarrow does.
            known[shape] |= {name: name for name, kind in wanted.items() if types.get(name) == "decimal(20,0)" != kind}
            _refuse_unfit(path, types, wanted, required, told)
        lacking[path] = known[shape]
    return tuple(
        unit.model_copy(update={"inner": {**unit.inner, **lacking[unit.path]}}) if lacking.get(unit.path) else unit
        for unit in units
    )


def _refuse_unfit(
    path: str, types: Mapping[str, str], wanted: Mapping[str, str], required: Container[str], told: Callable[[str], str]
) -> None:
    for name, kind in wanted.items():
        came = types.get(name)
        if came is None and name in required:
            raise InputError(
                f"input file {path}", f"the column {name!r}, which the job reads", "none",
                "write it, or set schema: evolve to read null",
            )  # fmt: skip
        if came is not None and widest(came, kind) != kind:
            raise InputError(
                f"input file {path}", f"column {name!r} of type {kind} as {told(name)}", f"type {came}",
                "write all files of an input with one schema",
            )  # fmt: skip


#: How Hive writes null into a path.
_NULL = "__HIVE_DEFAULT_PARTITION__"


def values_of(files: Sequence[str], root: str) -> list[dict[str, str | None]]:
    """The partition columns of each file, outermost first, as text. Files of one folder share theirs."""
    folders = [posixpath.dirname(file) for file in files]
    known = {folder: _values_in(folder, root) for folder in dict.fromkeys(folders)}
    return [known[folder] for folder in folders]


def _values_in(folder: str, root: str) -> dict[str, str | None]:
    below = posixpath.relpath(folder, root).split("/") if _is_below(folder, root) else []
    above = (root if _is_below(folder, root) else folder).split("/")
    tail: list[str] = []
    while above and "=" in above[-1]:
        tail.insert(0, above.pop())
    return _values((*tail, *below))


def values_of_folders(file: str) -> dict[str, str | None]:
    """The values that all folders on the path of a file name, wherever the path of the input ends."""
    return _values(posixpath.dirname(file).split("/"))


def _values(folders: Sequence[str]) -> dict[str, str | None]:
    pairs = [part.partition("=") for part in folders if part.partition("=")[1] and part.partition("=")[0]]
    # To Spark and Hive an escape is a character, not a byte of UTF-8: "%C3%A9" is "Ã©".
    texts = ((unquote(name, "latin-1"), value) for name, _, value in pairs)
    return {name: None if value == _NULL else unquote(value, "latin-1") for name, value in texts}


def _is_below(folder: str, root: str) -> bool:
    return folder == root or folder.startswith(f"{root}/")


def types_of(
    files: Sequence[str],
    values: Sequence[dict[str, str | None]],
    declared: Mapping[str, str] | None = None,
    kept: Sequence[Mapping[str, str]] = (),
) -> dict[str, str]:
    """The Spark SQL type of each partition column.

    It is the declared one; else one that the job's states have, if all values fit it; else it follows from all values:
    a number or a date where each value is written as Spark writes it, so that no two folders become one key, and
    otherwise text.

    Raises:
        InputError: files differ in their partition columns; or a value does not fit the type of its column.
    """
    if not values:
        return {}
    names = list(values[0])
    for file, found in zip(files, values, strict=True):
        if "" in found.values():
            raise InputError(f"input file {file}", "folders with a value, as in store=1", "one without", "rename it")
        if list(map(str.lower, found)) != list(map(str.lower, names)):
            raise InputError(
                f"input file {file}", f"the partition columns {names} as {posixpath.basename(files[0])} has them",
                str(list(found)), "put all files of an input into folders of one depth",
            )  # fmt: skip
    values = named_as(names, values)
    return {name: _type_of_column(name, _first_files(files, values, name), declared or {}, kept) for name in names}


def named_as(names: Iterable[str], values: Iterable[Mapping[str, str | None]]) -> list[dict[str, str | None]]:
    """The values of folders under these names: like Spark, we take ``Store=2`` beside ``store=1`` for ``store=2``."""
    known = {name.lower(): name for name in names}
    return [{known.get(name.lower(), name): value for name, value in one.items()} for one in values]


def _first_files(files: Sequence[str], values: Sequence[dict[str, str | None]], name: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for file, one in zip(files, values, strict=True):
        text = one[name]
        if text is not None:
            found.setdefault(text, file)
    return found


def _type_of_column(
    name: str, found: Mapping[str, str], declared: Mapping[str, str], kept: Sequence[Mapping[str, str]]
) -> str:
    texts = list(found)
    if name in declared:
        odd = next((text for text in texts if not is_value(text, declared[name])), None)
        if odd is None:
            return declared[name]
        required = f"a value of type {declared[name]}"
        raise _misfit(name, found, odd, required, ", as the spec declares it", "correct the spec, or the folder")
    inferred = _inferred(texts)
    known = [one[name] for one in reversed(kept) if one.get(name) in _KEEPS]
    fitting = next((kind for kind in known if all(map(_KEEPS[kind], texts))), None)
    hint = f"rename the folder, or declare columns: {{{name}: {'string' if inferred == _ODD else inferred}}}"
    if known and fitting is None:
        odd = next(text for text in texts if not _KEEPS[known[0]](text))
        why = ", as the states of the job have it"
        raise _misfit(name, found, odd, f"a value of type {known[0]}", why, f"{hint}, whereupon all states begin anew")
    if fitting is None and inferred == _ODD:
        odd = next(text for text in texts if _type_of(text) == _ODD)
        raise _misfit(name, found, odd, "a plain number, such as 5 or -0.5,", "", hint)
    return fitting or inferred


def _misfit(name: str, found: Mapping[str, str], text: str, what: str, why: str, hint: str) -> InputError:
    required = f"{what} in the folder of partition column {name!r}{why}"
    return InputError(f"input file {found[text]}", required, repr(text)[:100], hint)


#: The type of a number with a plus sign or with other digits than ASCII's: Spark takes it for the plain number, and so
#: two folders for one.
_ODD = "odd"
#: The types of numbers from narrow to wide: a column has the widest type of its values.
_NUMBERS = ("int", "bigint", "double", _ODD)


def _inferred(texts: Sequence[str]) -> str:
    kinds = {_type_of(text) for text in texts}
    numbers = bool(kinds) and kinds <= set(_NUMBERS)
    kind = max(kinds, key=_NUMBERS.index) if numbers else kinds.pop() if len(kinds) == 1 else "string"
    if kind == _ODD:
        return kind
    apart = kind != "double" or len(set(map(float, texts))) == len(texts)
    return kind if apart and all(map(_KEEPS[kind], texts)) else "string"


def _type_of(text: str) -> str:
    if re.fullmatch(r"[+-]?(\d+|\d+\.\d*|\.\d+)([eE][+-]?\d+)?", text):
        if text.startswith("+") or not text.isascii():
            return _ODD
        if not re.fullmatch(r"-?\d+", text):
            return "double"
        return next((kind for kind, bits in (("int", 32), ("bigint", 64)) if _has_bits(text, bits)), "string")
    return "date" if _is_day(text) else "string"


def _has_bits(text: str, bits: int) -> bool:
    return -1 << (bits - 1) <= int(text) < 1 << (bits - 1)


def _is_whole(text: str, bits: int) -> bool:
    return bool(re.fullmatch(r"0|-?[1-9][0-9]*", text)) and _has_bits(text, bits)


def _is_day(text: str) -> bool:
    try:
        return dt.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


#: For each type that is inferred: whether a text is a value of it that Spark would write in the same way. With ``007``
#: and ``1.50`` it would not: as numbers they would be one key with ``7`` and ``1.5``.
_KEEPS: Mapping[str, Callable[[str], bool]] = {
    "int": partial(_is_whole, bits=32), "bigint": partial(_is_whole, bits=64), "date": _is_day,
    "double": lambda text: _type_of(text) in _NUMBERS[:3] and repr(float(text)) in {text, f"{text}.0"},
    "string": lambda _: True,
}  # fmt: skip
