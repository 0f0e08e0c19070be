"""What the libraries of tables, catalogs and object stores say when they fail, in one sentence of ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from skewless.errors import UnreachableError

#: The packages whose errors are told in our words, as the modules of their classes begin.
_LIBRARIES = frozenset({"_internal", "deltalake", "obstore", "pyarrow", "pyiceberg", "requests", "sqlalchemy"})
#: The colours and arrows of messages of several lines.
_MARKS = re.compile(r"\x1b\[[0-9;]*m|\u21b3")
_STATUS = re.compile(r"(?:status code:?|HTTP status|HTTP response code:?) (\d{3})")
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")
#: Arrow's words for what Amazon's client did not manage.
_OF_AMAZON = re.compile(r"AWS Error (\w+)(?: \(HTTP status \d+\))? during (\w+)")
_LONGEST = 160


@contextmanager
def told_plainly(where: str) -> Iterator[None]:
    """Tell errors of the libraries in one sentence. Errors of ours, and mistakes in our own code, pass as they are.

    Raises:
        UnreachableError: a library has failed: the store or the catalog does not answer, or refuses.
    """
    try:
        yield
    except Exception as err:
        if not isinstance(err, OSError) and not _of_library(err):
            raise
        raise UnreachableError.saying(
            where, f"its store or its catalog cannot be read or written ({reason(err)})", "mend that, and try again"
        ) from err


def reason(err: BaseException) -> str:
    """What a library says, in a few words on one line: the last of the causes that it names, or a status."""
    said = _MARKS.sub("", str(err))
    on_one_line = " ".join(said.split())
    status, of_amazon, code = (one.search(on_one_line) for one in (_STATUS, _OF_AMAZON, _CODE))
    if of_amazon:
        return f"{of_amazon[1]} during {of_amazon[2]}{f', status {status[1]}' if status else ''}"
    if status:
        return f"the store answered {status[1]}{f', {code[1]}' if code else ''}"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    # The last of nested causes; SQLAlchemy puts its statement, and a link, behind the first line.
    last = (lines[0] if type(err).__module__.startswith("sqlalchemy") else lines[-1]) if lines else ""
    return last[:_LONGEST].rstrip(" .") or type(err).__name__


def first_line(err: BaseException) -> str:
    """What a library says first, where causes follow that only its authors understand, such as a stack trace."""
    return next((line.strip()[:200] for line in str(err).splitlines() if line.strip()), type(err).__name__)


def _of_library(err: Exception) -> bool:
    return any(kind.__module__.partition(".")[0] in _LIBRARIES for kind in type(err).__mro__)
