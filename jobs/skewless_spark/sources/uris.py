"""How Spark spells files, and the columns that it has about them."""

from __future__ import annotations

#: Columns of ``_metadata``, as Spark has them for every file source, with their types.
_TYPES = {
    "_metadata.file_path": "string",
    "_metadata.file_name": "string",
    "_metadata.row_index": "bigint",
}
FILE_COLUMNS = tuple(_TYPES)


def file_column_type(name: str) -> str:
    """The Spark SQL type of a column about files."""
    return _TYPES[name]


def file_value(name: str, path: str) -> str | None:
    """Its value for all rows of a file; None for one that differs from row to row."""
    if name == "_metadata.row_index":
        return None
    uri = as_spark_says(path)
    return uri if name == "_metadata.file_path" else uri.rpartition("/")[2]


def quoted(name: str) -> str:
    """A column name as SQL can call it."""
    return "`" + name.replace("`", "``") + "`"


def literally(path: str) -> str:
    """A path that Spark shall not take as a glob, whatever signs are in it."""
    return "".join(f"\\{sign}" if sign in "*?[]{}\\" else sign for sign in path)


#: What java.net.URI leaves as it is in a path, beside letters and digits of any alphabet.
_PLAIN_SIGNS = frozenset("/_-!.~'()*,;:$&+=@")


def as_spark_says(path: str) -> str:
    """A listed path as ``_metadata.file_path`` spells it: a URI, its other signs in percent.

    A spelling that we fail to foresee ends the run with a sentence; see ``read_units``.
    """
    scheme, mark, rest = path.rpartition("://")
    signs = (sign if sign.isalnum() or sign in _PLAIN_SIGNS else _percent(sign) for sign in rest)
    return f"{scheme}{mark}{''.join(signs)}" if mark else f"file:{''.join(signs)}"


def _percent(sign: str) -> str:
    return "".join(f"%{byte:02X}" for byte in sign.encode()) if sign.isascii() or sign.isspace() else sign
