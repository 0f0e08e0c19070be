"""Documents below a folder, at a local path or a URL that fsspec reads: read whole, written once, with checksums."""

import errno
import hashlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, TypeVar

from fsspec.implementations.local import LocalFileSystem

from skewless.document import Document
from skewless.documents.commit import CommittedFile
from skewless.errors import DocumentError, MachineError, RunDirectoryError
from skewless.run.folder import as_written, for_short_reads, is_object, make_run_folder, open_location

Doc = TypeVar("Doc", bound=Document)


class Storage:
    """The files below a path or URL, without what they mean.

    A group may enter it beside its owner, if this object makes it; see ``make_run_folder``.
    """

    def __init__(self, location: str, group: str = "") -> None:
        try:
            self.fs, root = open_location(location)
        except (ImportError, ValueError) as err:
            raise RunDirectoryError(
                f"run directory {location}", "a path that fsspec can open", str(err), "install what it asks for"
            ) from None
        #: In ``fs``, where a scheme and a host have no place.
        self.root, self._group = str(root).rstrip("/"), group
        self._location = as_written(self.fs, location, self.root)

    def __str__(self) -> str:
        return self._location

    def path(self, name: str) -> str:
        """The full path of something below the run directory, as Spark and fsspec read it."""
        return f"{self._location}/{name}"

    def exists(self, name: str) -> bool:
        """Whether a document is there; a ``RunDirectoryError`` if the file system does not say."""
        try:
            return bool(self.fs.exists(f"{self.root}/{name}"))
        except OSError as err:
            raise self._unreadable(name, err) from None

    def read(self, name: str, kind: type[Doc]) -> Doc:
        """Read a document; a ``RunDirectoryError`` if it is not there, a ``DocumentError`` if it is no ``kind``."""
        return kind.from_sealed(self.text_of(name), where=self.path(name))

    def fields(self, name: str, kind: type[Document]) -> dict[str, Any]:
        """The fields of a document as JSON has them, unchecked (``Document.sealed_fields``)."""
        return kind.sealed_fields(self.text_of(name), where=self.path(name))

    def text_of(self, name: str) -> bytes:
        """The bytes of a file; a ``RunDirectoryError`` if it is not there, or cannot be read."""
        try:
            text: bytes = self.fs.cat_file(f"{self.root}/{name}")
        except (FileNotFoundError, NotADirectoryError):
            raise RunDirectoryError.saying(
                f"run directory {self}", f"there is no {name}", "run the step before this one first, or check the path"
            ) from None
        except OSError as err:
            raise self._unreadable(name, err) from None
        return text

    def _unreadable(self, name: str, err: OSError) -> RunDirectoryError:
        return _refused(self.path(name), "the document cannot be read", err)

    def write_once(self, name: str, document: Document) -> bool:
        """Write a document, whole, unless it is there already; whether this call wrote it."""
        full = f"{self.root}/{name}"
        try:
            if is_object(self._location):
                return bool(self.fs.create(full, document.sealed().encode()))
            if isinstance(self.fs, LocalFileSystem):
                make_run_folder(self.root, self._group)
            self.fs.makedirs(full.rpartition("/")[0], exist_ok=True)
            if isinstance(self.fs, LocalFileSystem):
                return _link_once(full, document.sealed().encode())
        except OSError as err:
            raise _refused(f"run directory {self}", f"{name} cannot be written", err) from None
        try:
            with self.fs.open(full, "xb") as out:
                out.write(document.sealed().encode())
        except FileExistsError:
            return False
        return True

    def write_same(self, name: str, document: Doc) -> Doc:
        """Write a document that every attempt would write alike; a ``RunDirectoryError`` if another one is there."""
        if self.write_once(name, document):
            return document
        found = self.read(name, type(document))
        if found != document:
            raise RunDirectoryError(
                self.path(name),
                "the document that this step would write",
                "a different one",
                "begin a new run directory, or run the step with the release that began this one",
            )
        return found

    def require_its_own(self, name: str, required: str, alike: bool, came: str) -> None:
        """Refuse, by a ``DocumentError``, a whole document that lies in the place of another one."""
        if not alike:
            hint = "restore the file from a copy, or begin a new run directory"
            raise DocumentError(self.path(name), required, came, hint)

    def verify(self, file: CommittedFile) -> None:
        """Check that a committed file is as its commit says; a ``RunDirectoryError`` if it is gone or differs."""
        path = f"{self.root}/{file.path}"
        try:
            size = int(self.fs.size(path))
            came = f"{size:,} bytes" if size != file.size_bytes else ""
            came = came or ("other content" if file_checksum(self.fs, path) != file.checksum else "")
        except OSError as err:
            came = "no such file" if isinstance(err, FileNotFoundError) else str(err)
        if came:
            raise self.differs_from_commit(file, came)

    def copy(self, file: CommittedFile, begin: Callable[[], IO[bytes]]) -> tuple[int, str]:
        """Copy a committed file into what ``begin`` opens; its bytes and their SHA-256. Errors as of ``verify``."""
        self.verify(file)
        out, size, digest = begin(), 0, hashlib.sha256()
        with self.fs.open(f"{self.root}/{file.path}", "rb") as source:
            while block := source.read(_BLOCK):
                out.write(block)
                size += len(block)
                digest.update(block)
        out.close()
        if file.content and digest.hexdigest() != file.content:
            raise self.differs_from_commit(file, "other content")
        return size, digest.hexdigest()

    def differs_from_commit(self, file: CommittedFile, came: str) -> RunDirectoryError:
        """The error of a file that is not the one that was committed."""
        return RunDirectoryError(
            self.path(file.path), f"the file of {file.size_bytes:,} bytes that was committed", came,
            "restore it from a copy, or begin a new run directory",
        )  # fmt: skip


class _NoRightsError(MachineError, RunDirectoryError):
    """This user may not read or write a file of a run directory."""


def _refused(where: str, fact: str, err: OSError) -> RunDirectoryError:
    kind = _NoRightsError if err.errno in {errno.EACCES, errno.EPERM, errno.EROFS} else RunDirectoryError
    return kind.saying(where, f"{fact} ({err.strerror or type(err).__name__})", "mend that, and try again")


def _link_once(path: str, content: bytes) -> bool:
    """Create a local file, whole, unless it exists; a crash leaves no torn document."""
    draft = Path(f"{path}.{secrets.token_hex(8)}.draft")
    try:
        with draft.open("xb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
    return True


#: How a Parquet file ends, behind four bytes with the length of its footer.
_PARQUET_END = b"PAR1"
_BLOCK = 1 << 20


def file_checksum(fs: Any, path: str) -> str:
    """SHA-256 of a file in hex; of a Parquet file, of its footer alone.

    A footer says where each page is, how long it is, and its least and greatest values. Each page carries its own CRC,
    which every reader checks. So nothing is read twice, however large the file is.
    """
    with fs.open(path, "rb") as opened:
        return _footer_digest(opened, int(fs.size(path))) if path.endswith(".parquet") else _digest(opened)


def content_checksum(fs: Any, path: str) -> str:
    """SHA-256 of a whole file in hex, for files that are copied without a look at their pages."""
    with for_short_reads(fs, path) as opened:
        return _digest(opened)


def _footer_digest(opened: Any, size: int) -> str:
    opened.seek(max(0, size - 8))
    ending = opened.read(8)
    length = int.from_bytes(ending[:4], "little")
    if ending[4:] != _PARQUET_END or length + 12 > size:
        raise OSError("it has no Parquet footer at its end")
    opened.seek(size - 8 - length)
    return hashlib.sha256(opened.read(length)).hexdigest()


def _digest(opened: Any) -> str:
    found = hashlib.sha256()
    while block := opened.read(_BLOCK):
        found.update(block)
    return found.hexdigest()
