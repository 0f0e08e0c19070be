"""How Spark spells the paths of files, and its columns about files."""

from __future__ import annotations

#: Columns of ``_metadata``, as Spark has them for every file source, with their types.
ROW_INDEX = "_metadata.row_index"
FILE_COLUMNS = {"_metadata.file_path": "string", "_metadata.file_name": "string", ROW_INDEX: "bigint"}


def file_value(name: str, path: str) -> str | None:
    """The value of a column about files for all rows of a file; None if it differs from row to row."""
    if name == ROW_INDEX:
        return None
    uri = as_spark_says(path)
    return uri if name == "_metadata.file_path" else uri.rpartition("/")[2]


def quoted(name: str) -> str:
    """A column name in backticks, for SQL."""
    return "`" + name.replace("`", "``") + "`"


def literally(path: str) -> str:
    """A path with all glob characters escaped, so that Spark takes it literally."""
    return "".join(f"\\{sign}" if sign in "*?[]{}\\" else sign for sign in path)


#: The characters that java.net.URI leaves unchanged in a path, beside letters and digits of any alphabet.
_PLAIN_SIGNS = frozenset("/_-!.~'()*,;:$&+=@")


def as_spark_says(path: str) -> str:
    """A listed path as ``_metadata.file_path`` spells it: a URI, with other characters percent-encoded.

    If Spark spells a path in another way, the run ends with an error; see ``read_units``.
    """
    scheme, mark, rest = path.rpartition("://")
    signs = (sign if sign.isalnum() or sign in _PLAIN_SIGNS else _percent(sign) for sign in rest)
    return f"{scheme}{mark}{''.join(signs)}" if mark else f"file:{''.join(signs)}"


def _percent(sign: str) -> str:
    return "".join(f"%{byte:02X}" for byte in sign.encode()) if sign.isascii() or sign.isspace() else sign


def text_literal(text: str) -> str:
    """A text as a literal in SQL. Its bytes are written as digits, whatever quotes and backslashes are in it."""
    return f"CAST(X'{text.encode().hex()}' AS STRING)"
