"""What ends a step from outside: one table for every way in, with the exit code, and so whether a further try helps."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from skewless.errors import InputError, MachineError, SkewlessError, UnreachableError

#: A path or URL in a message, after the words before which a reader names it; or in quotes, or the first that there is.
_PLACES = (
    r"(?:Checksum error:|reading file) (?:file:(?://)?)?(/\S*?|\w+://\S*?)\.?(?:\s|$)",
    r"'((?:/|\w+://)[^'\n]+)'",
    r"((?:(?<![\w/:])/|\b(?!jdbc)\w[\w+-]*://)[^\s'\"(),;]+)",
)


class Cause(NamedTuple):
    """A cause, by a sign in the messages of an exception and of those before it, the root cause last.

    Attributes:
        where: with ``{}`` for the path that the messages name, or else "a file", or "the step".
        came: what the group of the sign holds, or else the root cause, if this is empty.
    """

    kind: type[SkewlessError]
    sign: str
    where: str
    required: str
    came: str
    hint: str


#: What is to be done about a file that is damaged, or that is not there.
OF_FILES = _COPY, _GONE = "restore it from a copy", "restore it, or begin a new run"
_STEP, _READ = "the step", r"(?s)(?=.*FAILED_READ_FILE\.NO_HINT).*"

#: The first that fits counts. An ``InputError`` and a ``MachineError`` come out the same however often one tries.
CAUSES = (
    Cause(UnreachableError, "Answer from Java side is empty", "Spark", "an answer of its JVM", "none, as it has ended",
          "see its log, and try again"),
    Cause(MachineError, r"No module named 'skewless(?:_spark)?['.]", "Spark's Python workers", "this project's code",
          "none", "install it where they run"),
    Cause(MachineError, "JAVA_GATEWAY_EXITED|No such file or directory: 'java'", "Spark", "Java 17 or newer",
          "none that starts", "install it, or set JAVA_HOME; skewless doctor says what is there"),
    Cause(InputError, r"\[MALFORMED_RECORD_IN_PARSING|CSV header does not conform|Number of column in CSV header",
          "input file {}", "records as the spec declares them", "",
          "nothing was committed; mend the file or the spec's input (columns, options)"),
    # Messages of Hadoop's and Parquet's readers about bytes that differ from those that were written.
    Cause(InputError, "Checksum error: |could not verify page integrity", "{}", "the bytes that were written",
          "others, by its checksum", _COPY),
    # What readers say of a file that is whole, and that they have no means to read.
    Cause(InputError, rf"{_READ}ClassNotFoundException: [\w.$]*?(\w+Codec)\b", "{}", "a codec that this Spark has", "",
          "write the file with zstd or snappy, or give Spark the codec's jar"),
    Cause(InputError, rf"{_READ}(ParquetCryptoRuntimeException)", "{}", "columns that are not encrypted", "",
          "leave them out, or give Spark their keys"),
    Cause(SkewlessError, "(?i)(No space left on device|Disk quota exceeded|File too large)", _STEP,
          "room for what it writes", "", "make room, and try again"),
    Cause(MachineError, r"(?i)PermissionError.*?(permission denied|not permitted)|(Read-only file system)"
          r"|AccessDeniedException|AccessControlException|\((permission denied)\)", "{}",
          "the right to read or write it", "", "give it to this user"),
    Cause(SkewlessError, "(Stale file handle|Input/output error)", "{}", "storage that holds what it has promised", "",
          "mount it anew if that stays, and try again"),
    Cause(UnreachableError, r"ConnectException|ConnectionRefused|ConnectionReset|ConnectTimeout|EndpointConnectionError"
          r"|ClientConnector|UnknownHostException|SocketTimeout|NoRouteToHost|gaierror|Couldn't (?:connect|resolve)"
          r"|NETWORK_CONNECTION|Connection timed out|^TimeoutError", "{}", "a store that answers", "",
          "see that it is up and that its address is right, and try again"),
    Cause(InputError, _READ, "{}", "bytes that can be read", "", _COPY),
    Cause(InputError, r"FAILED_READ_FILE\.FILE_NOT_EXIST|FileNotFoundError|java\S+FileNotFoundException"
          r"|NoSuchFileException", "{}", "a file that was there when the run began", "no such file", _GONE),
    Cause(InputError, r"Cannot grow BufferHolder|Cannot reserve additional contiguous bytes|exceeds size limitation"
          r"|NegativeArraySize|OversizedAllocationException|Size exceeds Integer\.MAX_VALUE|ArrowCapacityError"
          r"|array cannot contain more than|Memory required for vector|Requested array size exceeds VM limit"
          r"|COLLECTION_SIZE_LIMIT_EXCEEDED", _STEP, "values that Spark's buffers can hold",
          "one, or a row of several, that outgrew them",
          "look for texts of hundreds of megabytes among its columns, and leave them out"),
    Cause(SkewlessError, r"OutOfMemoryError|UNABLE_TO_ACQUIRE_MEMORY|MemoryError|malloc of size \d+ failed", _STEP,
          "memory for what it holds at a time", "less",
          "give its Spark more (spark.driver.memory, spark.executor.memory), or smaller values"),
    # The kernel may have killed it for the memory it took.
    Cause(SkewlessError, "Python worker exited unexpectedly|Python worker failed to connect back", _STEP,
          "Python workers that live until their task ends", "one that was killed or crashed",
          "try again, with more memory if the kernel killed it for that"),
)  # fmt: skip


def explained(messages: Sequence[str], decoded: Callable[[str], str] = str) -> SkewlessError | None:
    """The error of the cause that messages tell of, the root cause last; None if it is none of these."""
    text = "\n".join(messages)
    fits = ((cause, match) for cause in CAUSES if (match := re.search(cause.sign, text)))
    cause, match = next(fits, (None, None))
    if cause is None or match is None:
        return None
    told = next(filter(None, match.groups()), "")
    root = re.sub(r"^[\w.$]+: |\[[A-Z_.]+\] |\s*SQLSTATE.*", "", " ".join(messages[-1].split()))[:300]
    places = (found[1] for sign in _PLACES if (found := re.search(sign, text)))
    place = next(places, "a file" if cause.hint in OF_FILES else _STEP)
    came = cause.came or (told.lower() if " " in told else told) or root.rstrip(".")
    return cause.kind(cause.where.format(decoded(place)), cause.required, came, cause.hint)


def explained_here(err: BaseException) -> SkewlessError | None:
    """The error of the cause of a Python exception, where no Spark takes part."""
    return explained([f"{type(err).__name__}: {err}"]) if isinstance(err, OSError | MemoryError) else None
