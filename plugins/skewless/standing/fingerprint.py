"""The fingerprint of a job's states: a checksum of all that shapes them. States of two fingerprints are never mixed."""

from __future__ import annotations

import ast
import hashlib
import io
import json
import tokenize
from collections.abc import Mapping, Sequence
from importlib.util import decode_source

from skewless.document import Document
from skewless.documents.job import STATE_FORM
from skewless.spec.spec import JobSpec


class Fingerprint(Document):
    """What shapes the states of a job, by name: ``fingerprint.json`` of a store.

    Attributes:
        shapes: a checksum or a short text of each thing, by its name for people.
    """

    shapes: dict[str, str]

    @property
    def name(self) -> str:
        """The folder of the states."""
        return self.digest()[:24]

    def is_like(self, other: Fingerprint) -> bool:
        """Whether the states differ in nothing but the types of columns."""
        mine, theirs = (
            {name: value for name, value in one.shapes.items() if not name.startswith(_TYPES)} for one in (self, other)
        )
        return mine == theirs

    @property
    def types_of_input(self) -> dict[str, str]:
        """The type of each column of the input that shapes the states."""
        of_map = any(name.startswith(_TYPES[1]) for name in self.shapes)
        prefix = _TYPES[of_map]
        return {
            str(ast.literal_eval(name.removeprefix(prefix))): kind
            for name, kind in self.shapes.items() if name.startswith(prefix)
        }  # fmt: skip


#: How the types of columns are called: of keys and arguments, and with a map, of what it reads.
_TYPES = ("the type of column ", "the type of input column ")


def fingerprint_of(
    spec: JobSpec,
    types: Mapping[str, str],
    code: Mapping[str, str],
    engine: str,
    fields: Mapping[str, str] | None = None,
    inputs: Mapping[str, str] | None = None,
) -> Fingerprint:
    """The fingerprint of the states of a job.

    ``types`` are the Spark SQL types of the columns that are keys or arguments, ``inputs``, with a map, of those that
    it reads. ``code`` has a checksum of the code of each aggregate and mapper; the ``engine`` is the version of Spark,
    whose functions make native states, without its patch release. Of a table, ``fields`` tell what each column is that
    is read: a name may come to stand for another column.
    """
    given = spec.input
    # The types of what is read stand for themselves. Without a header, names say where in a line a column is.
    places = list(given.columns or ()) if given.format == "csv" and not given.header else None
    read = {"format": given.format, "options": given.reader_options, "columns": places}
    shapes: dict[str, object] = {
        "the form of states": str(STATE_FORM),
        "the version of Spark": ".".join(engine.split(".")[:2]),
        "the unit of parts": spec.schedule.unit,
        "the key": spec.key,
        "how the input is read": read,
        "the map": spec.map.model_dump(mode="json") if spec.map else None,
        # In their order: state columns are numbered.
        "the names and order of aggregates": list(spec.aggregates),
        **{f"{_TYPES[0]}{name!r}": kind for name, kind in sorted(types.items())},
        **{f"{_TYPES[1]}{name!r}": kind for name, kind in sorted((inputs or {}).items())},
        **{f"aggregate {name!r}": call.model_dump(mode="json") for name, call in spec.aggregates.items()},
        **{f"the code of {name!r}": text for name, text in sorted(code.items())},
        **{f"the table's column {name!r}": text for name, text in sorted((fields or {}).items())},
    }
    return Fingerprint(shapes={name: _short(value) for name, value in shapes.items()})


def code_alone(content: bytes) -> str:
    """A module's source without comments, docstrings and empty lines, none of which shapes a state.

    Source that this Python cannot parse stays as it is.
    """
    try:
        source = decode_source(content)
        tree, tokens = ast.parse(source), list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (SyntaxError, ValueError, tokenize.TokenError):
        return content.decode(errors="backslashreplace")
    lines, gone = source.split("\n"), set[int]()
    for token in tokens:
        line, column = token.start
        if token.type == tokenize.COMMENT:
            lines[line - 1] = lines[line - 1][:column].rstrip()
        if token.type == tokenize.NL and not lines[line - 1].strip():
            gone.add(line)
    homes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if not isinstance(node, homes) or ast.get_docstring(node, clean=False) is None:
            continue
        first, last = node.body[0].lineno, node.body[0].end_lineno or node.body[0].lineno
        # A docstring beside other code stays, as in `def f(): "..."`.
        if lines[first - 1].lstrip()[:1] in {'"', "'"} and lines[last - 1][-1:] in {'"', "'"}:
            gone.update(range(first, last + 1))
    return "\n".join(line for number, line in enumerate(lines, start=1) if number not in gone).strip("\n")


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return text if len(text) <= 64 else hashlib.sha256(text.encode()).hexdigest()


def changed_shapes(before: Fingerprint, now: Fingerprint) -> Sequence[str]:
    """The names of what differs between two fingerprints."""
    names = dict.fromkeys([*before.shapes, *now.shapes])
    return [name for name in names if before.shapes.get(name) != now.shapes.get(name)]
