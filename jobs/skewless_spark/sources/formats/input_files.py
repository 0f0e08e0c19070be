"""Finds, opens and names the files of an input."""

import bisect
import errno
import fnmatch
import glob
import os
import posixpath
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import IO, TypeVar

import fsspec
from fsspec.implementations.local import LocalFileSystem

from skewless.errors import InputError, first_line
from skewless.run.folder import as_written, open_location

_KINDS = {
    stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}  # fmt: skip


def files_below(root: str, hidden: Callable[[str], bool]) -> Iterator[str]:
    """The file at a path, or the files in a folder and its subfolders. The path itself may be a link."""
    if not os.path.isdir(root):  # noqa: PTH112  # paths are text here, as fsspec has them
        yield _regular(root)
        return
    for folder, inner, names in os.walk(root, onerror=_refuse_unlisted):
        # No folder above is hidden, or it would not have been entered.
        inner[:] = [name for name in inner if not hidden(name)]
        for name in inner:
            _refuse_linked(f"{folder}/{name}")
        for name in names:
            if not hidden(name):
                yield _regular(f"{folder}/{name}")


def refuse_linked_on_the_way(pattern: str) -> None:
    """Refuse folders that fsspec would silently leave out of a glob."""
    parts = pattern.split("/")
    first = next(number for number, part in enumerate(parts) if any(sign in part for sign in "*?["))
    base, wild = "/".join(parts[:first]) or "/", parts[first:-1]
    for folder, inner, _ in os.walk(base, onerror=_refuse_closed):
        depth = 0 if folder == base else len(os.path.relpath(folder, base).split("/"))
        inner[:] = [
            name for name in inner
            if ("**" in wild or (depth < len(wild) and fnmatch.fnmatchcase(name, wild[depth])))
            and (name[0] != "." or any(part.startswith(".") for part in wild))
        ]  # fmt: skip
        for name in inner:
            _refuse_linked(f"{folder.rstrip('/')}/{name}")


def _regular(path: str) -> str:
    """The path of a plain file, or of a link to one.

    Raises:
        InputError: it is something else; reading a FIFO, for example, would wait forever.
    """
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116
    except OSError as err:
        if not os.path.islink(path):  # noqa: PTH114
            raise _unreadable(path, err) from None
        led = "round in a circle" if err.errno == errno.ELOOP else "to nothing that can be read"
        raise _refusal(path, f"a link to {Path(path).readlink()}, which leads {led}") from None
    if stat.S_ISREG(mode):
        return path
    raise _refusal(path, _KINDS[stat.S_IFMT(mode)])


def _refusal(path: str, came: str) -> InputError:
    hint = "remove it, or give it a name that begins with an underscore"
    return InputError(f"input file {path}", "a plain file", came, hint)


def _refuse_linked(path: str) -> None:
    if os.path.islink(path):  # noqa: PTH114
        raise InputError(
            f"input folder {path}", "a folder that lies where it is listed", f"a link to {Path(path).readlink()}",
            "move the folder there, or name it in path",
        )  # fmt: skip


def _refuse_unlisted(err: OSError) -> None:
    raise _unreadable(str(err.filename), err) from None


def _refuse_closed(err: OSError) -> None:
    if isinstance(err, PermissionError):
        _refuse_unlisted(err)


def _unreadable(path: str, err: OSError) -> InputError:
    return InputError(f"input {path}", "a path that can be read", err.strerror or str(err), "mend its permissions")


def open_input(path: str) -> tuple[fsspec.AbstractFileSystem, str]:
    """The file system of an input and the path in it.

    Raises:
        InputError: the file system is unknown, or its package is not installed.
    """
    try:
        fs, root = open_location(path)
    except (ImportError, ValueError, OSError) as err:
        required = "a path that fsspec can open"
        raise InputError(f"input {path}", required, first_line(err), "install what it asks for") from None
    return fs, root.rstrip("/")


def find(path: str, *, may_miss: bool = False) -> list[str]:
    """The data files at a path (a file, a folder with folders in it, or a glob), sorted.

    Args:
        may_miss: whether there may be nothing at the path; then there are no files.

    Raises:
        InputError: there is nothing at the path, Hadoop cannot read a name, or something there is not a plain file.
    """
    fs, root = open_input(path)
    try:
        files = _found(fs, root, path, may_miss=may_miss)
    except PermissionError as err:
        raise _unreadable(path, err) from None
    # Hadoop reads "b:c.parquet" as a URI of the scheme "b", and finds no name whose bytes are no UTF-8.
    odd = next((file for file in files if re.search(":[^/]*$|[\ud800-\udfff]", file)), None)
    if odd is not None:
        named = f"input file {as_written(fs, path, odd)}".encode(errors="backslashreplace").decode()
        raise InputError(named, "a file name in UTF-8 without ':'", "one that Hadoop cannot read", "rename it")
    return files


def _found(fs: fsspec.AbstractFileSystem, root: str, path: str, *, may_miss: bool) -> list[str]:
    local = isinstance(fs, LocalFileSystem)
    if not (os.path.lexists(root) if local else fs.exists(root)):
        pattern = as_glob(fs, root)
        if local and _is_glob(pattern):
            refuse_linked_on_the_way(pattern)
        matched = [str(one) for one in fs.glob(pattern)] if _is_glob(pattern) else []
        matched = [one for one in matched if not (_dotted(pattern, one) or one.endswith(_HADOOPS_MARKER))]
        files = [file for one in matched for file in _inside(fs, one) if file != one or _names(root, one)]
        if not files and not may_miss:
            hint = nearby(root) if local else "check the path"
            raise InputError(f"input {path}", "an existing file, folder or glob", "no such path", hint)
        return sorted(set(files))
    return _inside(fs, root)


#: What other tools write for a day.
_OTHERS_DAY = re.compile(r"yesterday|today|\$\(|%[Ymd]|yyyy|(?<![a-z])ds(?![a-z])", re.IGNORECASE)


def nearby(path: str) -> str:
    """What is there in place of a local path that is not, as a hint."""
    if not path.startswith("/") or os.path.isdir(path):  # noqa: PTH112
        return "check the path and the format"
    parts = path.split("/")
    at = next(at for at in range(len(parts) - 1, -1, -1) if os.path.isdir("/".join(parts[:at]) or "/"))  # noqa: PTH112
    lacking, folder, names = parts[at], "/".join(parts[:at]) or "/", list[str]()
    with suppress(OSError):
        names = sorted(name for name in os.listdir(folder) if not is_hidden(name))  # noqa: PTH208
    alike = [name for name in names if re.sub(r"[\d-]+", "0", name) == re.sub(r"[\d-]+", "0", lacking)]
    close = get_close_matches(lacking, names, 1)
    if _OTHERS_DAY.search(lacking):
        hint = "write {date} for the day that a run computes, as in {date:%Y/%m/%d}"
    elif lacking in names:
        hint = f"{folder}/{lacking} is a file"
    elif alike:
        hint = f"the last one of its kind is {folder}/{alike[-1]}"
    elif close:
        hint = f"did you mean {'/'.join([*parts[:at], close[0], *parts[at + 1 :]])}?"
    else:
        hint = f"{folder} has {', '.join(names[:5] + ['and others'] * (len(names) > 5)) or 'nothing'}"
    return hint


#: How files begin, with what they are, and what to do about it.
_BEGINNINGS = (
    (b"PAR1", "a Parquet file", "set format: parquet"), (b"ORC", "an ORC file", "set format: orc"),
    (b"PK\3\4", "an archive, as those of Excel", "save it as CSV"),
    (b"\xd0\xcf\x11\xe0", "a workbook of Excel", "save it as CSV"), (b"Obj\1", "an Avro file", "write it as Parquet"),
    (b"\x1f\x8b", "a gzip file without its ending", "name it .gz"),
)  # fmt: skip


def other_format(raw: bytes, *kinds: str) -> tuple[str, str] | None:
    """What a file is that is of none of some formats, by how it begins, and what to do; None if nothing tells."""
    known = [(what, hint) for sign, what, hint in _BEGINNINGS if raw.startswith(sign) and not hint.endswith(kinds)]
    if not known and raw and raw.isascii() and b"\0" not in raw and not raw.startswith((b"PAR1", b"ORC")):
        known = [("a text", f"set format: {'json' if raw.startswith(b'{') else 'csv'}")]
    return next((one for one in known if not one[1].endswith(kinds)), None)


def _inside(fs: fsspec.AbstractFileSystem, root: str) -> list[str]:
    if isinstance(fs, LocalFileSystem):
        return sorted(files_below(root, is_hidden))
    if fs.isfile(root) and fs.size(root):
        return [root]
    inner = {str(file): int(facts.get("size") or 0) for file, facts in fs.find(root, detail=True).items()}
    below = sorted(file for file in inner if file != root)
    if not below:
        return [root] if fs.isfile(root) else []
    kept = [file for file in below if not any(map(is_hidden, posixpath.relpath(file, root).split("/")))]
    return [file for file in kept if inner[file] or not _is_marker(fs, file, below)]


#: With what Hadoop's older stores keep a folder.
_HADOOPS_MARKER = "_$folder$"


def _is_marker(fs: fsspec.AbstractFileSystem, file: str, below: Sequence[str]) -> bool:
    """Whether an object of no bytes stands for a folder.

    Consoles and mounts keep a folder as an object called ``NAME/`` or ``NAME``, and listings say ``NAME`` of both.
    """
    within = bisect.bisect_left(below, f"{file}/")
    is_above = within < len(below) and below[within].startswith(f"{file}/")
    return file.endswith(_HADOOPS_MARKER) or is_above or not fs.isfile(file)


def _is_glob(path: str) -> bool:
    return any(sign in path for sign in _WILD)


def as_glob(fs: fsspec.AbstractFileSystem, path: str) -> str:
    """A path as a pattern: a folder on its way that exists is none, whatever its name, as one may be called "[1]"."""
    parts = path.split("/")
    wild = (at for at, part in enumerate(parts) if _is_glob(part) and not fs.exists("/".join(parts[: at + 1])))
    known = next(wild, len(parts))
    return "/".join([*map(glob.escape, parts[:known]), *parts[known:]])


def is_hidden(name: str) -> bool:
    """Whether the name of a file or folder says that it is no data: Spark's own rule.

    The rule is ``HadoopFSUtils.shouldFilterOutPathName`` with ``PartitioningAwareFileIndex.isDataPath`` of Spark.

    >>> [name for name in ("part-0", ".date=1", "_SUCCESS", "_date=1", "a._COPYING_") if is_hidden(name)]
    ['.date=1', '_SUCCESS', 'a._COPYING_']
    """
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")


def _dotted(pattern: str, match: str) -> bool:
    """Whether a wildcard matched a name that begins with a dot. As in a shell, the pattern must contain the dot.

    fsspec's wildcards match it anyway. The old versions of a published folder are in a folder with such a name.
    """
    said = [part for part in pattern.split("/") if part.startswith(".")]
    dotted = [part for part in match.split("/") if part.startswith(".")]
    return any(not any(fnmatch.fnmatchcase(part, one) for one in said) for part in dotted)


def _names(pattern: str, file: str) -> bool:
    """Whether a pattern that matches a file means it: ``*.py`` means ``__init__.py``, ``*`` alone not ``_SUCCESS``.

    Spark passes over both; it takes folders that a pattern matches as they are, whatever their names.
    """
    name, part = posixpath.basename(file), posixpath.basename(pattern)
    of_underscore = not is_hidden(name.lstrip("_"))
    return not is_hidden(name) or is_hidden(part) or (of_underscore and bool(part.strip(_WILD)))


_WILD = "*?["


def open_file(path: str) -> IO[bytes]:
    """A file opened for reading in order. A remote file is read ahead, and a compressed file is decompressed."""
    fs, file = open_location(path)
    codecs = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
    opened: IO[bytes] = fs.open(file, "rb", compression=codecs.get(posixpath.splitext(path)[1].lower()))
    return opened


Given = TypeVar("Given")
Found = TypeVar("Found")

#: Threads that inspect files; most of the time they wait for an object store or a shared disk.
THREADS = 16
#: Calls that take less than so long on average do not wait. Python runs one thread at a time, and to go from one to
#: another costs more than such a call: a footer on a local disk takes 35 us, and 130 us with sixteen threads.
_QUICK_SECONDS = 2e-4
#: Portions for each thread, so that none waits long for the last. A call takes some microseconds on a local disk, and
#: handing it to a thread on its own would take as long again.
_PORTIONS = 8
#: Calls are made without threads for so long: to start sixteen threads takes about as long as hundreds of such calls.
_ALONE_SECONDS = 0.02


def in_threads(call: Callable[[Given], Found], given: Iterable[Given]) -> Iterator[Found]:
    """The result of each call, in the order of the arguments."""
    arguments = list(given)
    began, done = time.monotonic(), 0
    while done < len(arguments) and time.monotonic() < began + max(_ALONE_SECONDS, done * _QUICK_SECONDS):
        yield call(arguments[done])
        done += 1
    left = arguments[done:]
    if not left:
        return
    size = -(-len(left) // (THREADS * _PORTIONS))
    portions = (left[start : start + size] for start in range(0, len(left), size))
    with ThreadPoolExecutor(max_workers=THREADS) as pool:
        yield from chain.from_iterable(pool.map(lambda portion: [call(one) for one in portion], portions))


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
    spelled = "".join(
        sign if sign.isalnum() or sign in _PLAIN_SIGNS or not (sign.isascii() or sign.isspace())
        else "".join(f"%{byte:02X}" for byte in sign.encode())
        for sign in rest
    )  # fmt: skip
    return f"{scheme}{mark}{spelled}" if mark else f"file:{spelled}"


def text_literal(text: str) -> str:
    """A text as a literal in SQL. Its bytes are written as digits, whatever quotes and backslashes are in it."""
    return f"CAST(X'{text.encode().hex()}' AS STRING)"
