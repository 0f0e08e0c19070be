"""What can go wrong, each in one sentence: where, what was expected, what was found, what to do."""

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, NamedTuple, Self

#: In a URL: a password after a user, a token in place of a user, and a parameter whose name is that of a secret.
#: What follows a colon and begins with a port is no password.
_PASSWORD = re.compile(r"(?<=://)([^\s'\"/@:]*:)(?!\d+(?:[/?#]|$))(?:(?!://)[^\s'\"])*@")
_TOKEN = re.compile(r"(?<=https://)[^\s'\"/@:]+@|(?<=http://)[^\s'\"/@:]+@")
_PARAMETER = re.compile(r"([?&;#]([\w.-]+)=)[^&;\s'\"]*")
#: What names a secret, by whole words, and by words that are part of others. A provider or a type of it is none.
_SECRET = re.compile(
    r"(?:\b(?:key|sas|pwd|pw|pass|passphrase|auth|authorization|bearer|sig|jwt)\b"
    r"|passw|secret|token|credential|signature|(?:access|account|private|api|shared)\.?key)"
    r"(?!(?:\.\w+){0,2}\.type\b|.*\.(?:providers?|manager|store|bits|policy|algorithm|class|enabled|config|file|path)$)"
)


def names_secret(name: str) -> bool:
    """Whether the value of a setting, a variable or a parameter of a URL is a secret, by the words of its name.

    >>> [names_secret(name) for name in ("fs.azure.sas.box.account", "DB_PWD", "accountKey", "spark.sql.keyword")]
    [True, True, True, False]
    """
    return _SECRET.search(re.sub(r"[_-]|(?<=[a-z])(?=[A-Z])", ".", name).lower()) is not None


def without_secrets(text: str) -> str:
    """A text with stars in place of the passwords and tokens in its URLs.

    >>> without_secrets("redis://me:pass@host/0 and sc://host:15002/;token=abc;user_id=me")
    'redis://me:***@host/0 and sc://host:15002/;token=***;user_id=me'
    """
    shown = _TOKEN.sub("***@", _PASSWORD.sub(r"\1***@", text))
    return _PARAMETER.sub(lambda match: f"{match[1]}***" if names_secret(match[2]) else match[0], shown)


class SkewlessError(Exception):
    """The root of all errors that Skewless raises: "WHERE: expected REQUIRED, but got CAME; HINT" is their sentence.

    Args:
        where: the file, field, step or service that the error is about.
        required: what was expected there, as a noun; empty if ``came`` says everything (see ``saying``).
        came: what was found there, as a noun.
        hint: what the reader can do, as an imperative; may be empty.
    """

    exit_code: ClassVar[int] = 1
    """With what the command ``skewless`` ends: 2 for a bad spec or input, 3 for failed data quality, 4 for a machine
    that is to be mended first, and 1 for everything else, where a further try may help."""

    def __init__(self, where: str, required: str, came: str, hint: str = "") -> None:
        where, required, came, hint = map(without_secrets, (where, required, came, hint))
        self.where, self.required, self.came, self.hint = where, required, came, hint
        sentence = f"{where}: expected {required}, but got {came}" if required else f"{where}: {came}"
        sentence = f"{sentence}; {hint}" if hint else sentence
        super().__init__(sentence if sentence.endswith(("?", "...")) else f"{sentence}.")

    @classmethod
    def saying(cls, where: str, fact: str, hint: str = "") -> Self:
        """An error that compares nothing: "WHERE: FACT; HINT" is its sentence.

        >>> str(SpecError.saying("spec a.yaml, line 4", "a tab is not allowed in YAML", "indent with spaces"))
        'spec a.yaml, line 4: a tab is not allowed in YAML; indent with spaces.'
        """
        return cls(where, "", fact, hint)


class SpecError(SkewlessError):
    """The job spec, or an override of it, cannot be run as it is written."""

    exit_code = 2


class InputError(SkewlessError):
    """The input of the job is missing, or differs from what the spec says."""

    exit_code = 2


class DocumentError(SkewlessError):
    """A document of a run directory is damaged, of another version, or of another kind."""


class RunDirectoryError(SkewlessError):
    """A run directory cannot be used as it is: something is missing in it, or belongs to another run."""


class LostRaceError(SkewlessError):
    """Another attempt at the same step committed first; the files of this one do not count."""


class LedgerError(SkewlessError):
    """Rows were lost or counted twice."""


class PlanError(SkewlessError):
    """A routing plan, or the numbers for one, would be unsafe or inconsistent."""


class AggregateError(SkewlessError):
    """An aggregate broke its contract while it ran."""


class MapError(SkewlessError):
    """A mapper broke its contract while it ran."""


class UnreachableError(SkewlessError):
    """Spark, or a service that it needs, does not answer."""


class MachineError(SkewlessError):
    """What this machine or its storage does not give comes no sooner if one tries again: rights, Java, packages."""

    exit_code = 4


class QualityError(SkewlessError):
    """The result did not meet its expectations; nothing was published."""

    exit_code = 3


#: Spark's name of an error, its state in SQL, and a second sentence, which tells of settings.
_CODES = re.compile(r"^(\[[A-Z_.0-9]+\] )+|\.?\s+SQLSTATE: \w+|(?<=\w)\. [A-Z].*|[.;]+$")


def first_line(err: BaseException | str, most: int = 200) -> str:
    """What a library says first, where causes follow that only its authors understand, such as a stack trace.

    >>> first_line("[PARSE_SYNTAX_ERROR] Syntax error at or near ','. SQLSTATE: 42601 (line 1, pos 4)")
    "Syntax error at or near ',' (line 1, pos 4)"
    """
    line = next((line.strip() for line in str(err).splitlines() if line.strip()), type(err).__name__)
    return _CODES.sub("", line)[:most]


def counted(count: int, noun: str) -> str:
    """So many things, in words: 1 key, 2,016 keys."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint that names the nearest known word, or lists all of them.

    >>> nearest("polcy", ["policy", "waves"])
    "did you mean 'policy'?"
    """
    choices = sorted(known)
    close = difflib.get_close_matches(word, choices, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    return "the known ones are " + ", ".join(repr(choice) for choice in choices)


#: A path or URL in a message, after the words before which a reader names it; or in quotes, or the first that there is.
_PLACES = (
    r"(?:Checksum error:|reading file|CSV file:) (?:file:(?://)?)?(/\S*?|\w+://\S*?)\.?(?:\s|$)",
    r"'((?:/|\w+://)[^'\n]+)'",
    r"((?:(?<![\w/:])/|\b(?!jdbc)\w[\w+-]*://)[^\s'\"(),;]+)",
)


class Cause(NamedTuple):
    """A cause, by a sign in the messages of an exception and of those before it, the root cause last."""

    kind: type[SkewlessError]
    sign: str
    where: str
    """With ``{}`` for the path that the messages name, or else "a file", or "the step"."""
    required: str
    came: str
    """What the group of the sign holds, or else the root cause, if this is empty."""
    hint: str


#: What is to be done about a file that is damaged, or that is not there.
OF_FILES = _COPY, _GONE = "restore it from a copy", "restore it, or begin a new run"
_STEP, _INPUT = "the step", "input file {}"
_READ = r"(?s)(?=.*(?:FAILED_READ_FILE\.NO_HINT|reading file \S+ Details:)).*"

#: The first that fits counts. An ``InputError`` and a ``MachineError`` come out the same however often one tries.
CAUSES = (
    Cause(UnreachableError, "Answer from Java side is empty", "Spark", "an answer of its JVM", "none, as it has ended",
          "see its log, and try again"),
    Cause(MachineError, r"No module named 'skewless(?:_spark)?['.]", "Spark's Python workers", "this project's code",
          "none", "install it where they run"),
    Cause(MachineError, "JAVA_GATEWAY_EXITED|No such file or directory: 'java'", "Spark", "Java 17 or newer",
          "none that starts", "install it, or set JAVA_HOME; skewless doctor says what is there"),
    Cause(InputError, "DATETIME_PATTERN_RECOGNITION|(DATETIME_PATTERN)", "options of the input", "patterns of Spark",
          "another one", "d is the day of the month, M the month, y the year, as in dd.MM.yyyy"),
    Cause(InputError, r"(\w+ (?:cannot be more than one character|flag can be true or false|should be an integer).*)"
          r"|The value of parameter\(s\) (`charset`[^\n]*)|requirement failed: ([^\n]*(?:lineSep|encoding)[^\n]*)"
          r"|(?s:\A(?!.*reading file ).*)IllegalArgumentException: (For input.*)",
          "options of the input", "values of Spark", "", "mend them"),
    Cause(InputError, r"\[MALFORMED_RECORD_IN_PARSING|CSV header does not conform|Number of column in CSV header",
          _INPUT, "records as the spec declares them", "",
          "nothing was committed; mend the file or the spec's input (columns, options)"),
    # Messages of Hadoop's and Parquet's readers about bytes that differ from those that were written.
    Cause(InputError, "Checksum error: |could not verify page integrity", "{}", "the bytes that were written",
          "others, by its checksum", _COPY),
    # What readers say of a file that is whole, and that they have no means to read.
    Cause(InputError, rf"{_READ}ClassNotFoundException: [\w.$]*?(\w+Codec)\b", "{}", "a codec that this Spark has", "",
          "write the file with zstd or snappy, or give Spark the codec's jar"),
    Cause(InputError, "native zStandard library not available", _INPUT, "Hadoop's native library for .zst",
          "none", "compress it by gzip or bzip2, or give Spark that library"),
    Cause(InputError, rf"{_READ}(ParquetCryptoRuntimeException)", "{}", "columns that are not encrypted", "",
          "leave them out, or give Spark their keys"),
    Cause(SkewlessError, "(?i)(No space left on device|Disk quota exceeded|File too large)", _STEP,
          "room for what it writes", "", "make room, and try again"),
    Cause(MachineError, r"(?i)PermissionError.*?(permission denied|not permitted)|(Read-only file system)"
          r"|AccessDeniedException|AccessControlException|\((permission denied)\)|(the store does not let us in[^\n]*)",
          "{}", "the right to read or write it", "", "give it to this user"),
    Cause(SkewlessError, "(Stale file handle|Input/output error)", "{}", "storage that holds what it has promised", "",
          "mount it anew if that stays, and try again"),
    Cause(UnreachableError, r"ConnectException|ConnectionRefused|ConnectionReset|ConnectTimeout|EndpointConnectionError"
          r"|ClientConnector|UnknownHostException|SocketTimeout|NoRouteToHost|gaierror|Couldn't (?:connect|resolve)"
          r"|NETWORK_CONNECTION|Connection timed out|^TimeoutError|(the store did not answer[^\n]*)",
          "{}", "a store that answers", "", "see that it is up and that its address is right, and try again"),
    Cause(InputError, f"{_READ}|EOFException: Unexpected end of input", "{}", "bytes that can be read", "", _COPY),
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
    # Class 22 of the SQL standard, errors of data: overflow, cast, division by zero; and what ``raise_error`` says.
    # Spark 3.5 tells no SQLSTATE.
    Cause(InputError, r"(?:\[[A-Z_.0-9]+\] )([^\n]*?)\s*SQLSTATE: (?:22\w{3}|P0001)\b"
          r"|\[(?:\w*OVERFLOW|DIVIDE_BY_ZERO|CAST_INVALID_INPUT|INVALID_ARRAY_INDEX\w*)\] ([^\n]*)", "the rows",
          "values that the job's expressions take", "",
          "leave such rows out by WHERE or map.where, or use try_cast or try_divide"),
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
    nameless = "a file" if cause.hint in OF_FILES else _STEP
    place = next(places, "that this Spark does not name" if cause.where == _INPUT else nameless)
    came = cause.came or (first_line(told[:1].lower() + told[1:]) if " " in told else told) or root.rstrip(".")
    return cause.kind(cause.where.format(decoded(place)), cause.required, came, cause.hint)


def explained_here(err: BaseException) -> SkewlessError | None:
    """The error of the cause of a Python exception, where no Spark takes part."""
    return explained([f"{type(err).__name__}: {err}"]) if isinstance(err, OSError | MemoryError) else None
