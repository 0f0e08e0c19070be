"""Partition columns, from the names of a file's folders: ``date=2026-01-01/site=ch/part-0.parquet``."""

from __future__ import annotations

import datetime as dt
import posixpath
import re
from collections.abc import Sequence
from urllib.parse import unquote

from skewless.errors import InputError

#: How Hive writes null into a path.
_NULL = "__HIVE_DEFAULT_PARTITION__"


def values_of(files: Sequence[str], root: str) -> list[dict[str, str | None]]:
    """The partition columns of each file, outermost first, as text. Files of one folder share theirs.

    Args:
        files: their paths.
        root: the path of the input. Every folder ``name=value`` below it counts, and those at the end of the path
            itself.
    """
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
    return {unquote(name): None if value == _NULL else unquote(value) for name, _, value in pairs}


def _is_below(folder: str, root: str) -> bool:
    return folder == root or folder.startswith(f"{root}/")


def types_of(files: Sequence[str], values: Sequence[dict[str, str | None]]) -> dict[str, str]:
    """The Spark SQL type of each partition column, as Spark infers it from all its values.

    Raises:
        InputError: files differ in their partition columns.
    """
    if not values:
        return {}
    names = list(values[0])
    for file, found in zip(files, values, strict=True):
        if list(found) != names:
            raise InputError(
                f"input file {file}", f"the partition columns {names} as {posixpath.basename(files[0])} has them",
                str(list(found)), "put all files of an input into folders of one depth",
            )  # fmt: skip
    return {
        name: _common([_type_of(one[name]) for one in {found[name]: found for found in values}.values()])
        for name in names
    }


#: The types of numbers from narrow to wide: a column has the widest type of its values.
_NUMBERS = ("int", "bigint", "double")


def _type_of(text: str | None) -> str:
    if text is None:
        return ""
    if re.fullmatch(r"[+-]?\d+", text):
        size = abs(int(text))
        return "int" if size < 1 << 31 else "bigint" if size < 1 << 63 else "string"
    if re.fullmatch(r"[+-]?(\d+\.\d*|\.\d+)([eE][+-]?\d+)?", text):
        return "double"
    if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
        try:
            dt.date.fromisoformat(text)
        except ValueError:
            return "string"
        return "date"
    return "string"


def _common(kinds: Sequence[str]) -> str:
    found = {kind for kind in kinds if kind}
    if len(found) == 1:
        return found.pop()
    return max(found, key=_NUMBERS.index) if found and found <= set(_NUMBERS) else "string"
