"""Where a job's input and output are: paths of the spec, bound to the data root, with input and output kept apart."""

import os
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from fsspec.implementations.local import LocalFileSystem

from skewless.errors import SpecError
from skewless.publication.places import beside_folder
from skewless.publication.records import QUARANTINE
from skewless.run.folder import absolute_root, is_object
from skewless.spec.input import TABLES, is_named
from skewless.spec.part import Part, path_of_all_parts, resolve_path
from skewless.spec.result import Output
from skewless.spec.spec import JobSpec
from skewless_spark.sources.formats.input_files import is_hidden, open_input
from skewless_spark.sources.listing import Listing


def input_location(spec: JobSpec, part: Part, root: str, where: str) -> str:
    """The path, pattern or URL of the input of a part, as ``resolved`` has it; empty of a table that has a name."""
    if spec.input.named:
        return ""
    at = f"{where}, field input.path"
    return resolved(resolve_path(spec.input.path, part, at), root, at)


def output_location(spec: JobSpec, part: Part, root: str, where: str) -> str:
    """Where the result of a part is published: a folder, as ``resolved`` has it, or the name of a table.

    A table's name is like ``iceberg://CATALOG.NAMESPACE.TABLE`` or, where a table is a folder, ``delta+`` and its URL.
    """
    if is_named(spec.output.format):
        return f"{spec.output.format}://{spec.output.path}"
    at = f"{where}, field output.path"
    found = resolved(resolve_path(spec.output.path, part, at), root, at)
    return _table_at(spec.output.format, found) if spec.output.is_table else found


def _table_at(kind: str, folder: str) -> str:
    return f"{kind}+{folder}" if "://" in folder else f"{kind}+file://{folder}"


def _is_table(output_path: str) -> bool:
    return output_path.startswith(tuple(f"{kind}{sign}" for kind in TABLES for sign in ("://", "+")))


def resolved(path: str, root: str, at: str) -> str:
    """A path of a spec: an absolute path or a URL as it is, a relative path below the data root.

    Raises:
        SpecError: it is relative, and a symbolic link on the way leads out of the data root.
    """
    if "://" in path:
        return path
    if "://" in root and not path.startswith("/"):
        return f"{absolute_root(root)}/{path.removeprefix('./')}"
    base = Path(root).absolute()
    full = os.path.normpath(base / path)
    if not Path(path).is_absolute():
        led = os.path.realpath(full)
        if not Path(led).is_relative_to(os.path.realpath(base)):
            raise SpecError(
                at, f"a relative path that stays below the data root {base}", f"{path}, which leads to {led}",
                "write the absolute path, if that is meant",
            )  # fmt: skip
    return full


def came_to(output: str, read: str) -> str:
    """Which of the tables that a job publishes in it reads, in words."""
    return "the same" if read == output else "the one whose keys in quarantine are there"


def check_apart(output_path: str, input_path: str, where: str, output: Output) -> None:
    """Refuse an output inside the input, as far as the paths alone can tell.

    Raises:
        SpecError: it is inside, or it is in a bucket, which cannot exchange folders, without ``output.allow_gap``.
    """
    if _is_table(output_path):
        tables = (_table_at(kind, input_path) for kind in TABLES) if input_path else ()
        if found := next((one for one in tables if one in {output_path, f"{output_path}{QUARANTINE}"}), None):
            required = f"another table than the input {input_path}"
            raise SpecError(f"{where}, field output.path", required, came_to(output_path, found))
        return
    at = f"{where}, field output.path"
    if is_object(output_path) and not output.allow_gap and not output.in_catalog:
        hint = "then who lists the folder may see two versions for a moment; or publish a table there"
        raise SpecError(at, "allow_gap: true, or table, with a folder in a bucket", output_path, hint)
    if output.allow_gap and not is_object(output_path):
        raise SpecError(at, "a folder in a bucket with allow_gap", output_path, "remove allow_gap: here is no gap")
    if "://" in output_path and not is_object(output_path):
        hint = "publish into a table there: format: iceberg or format: delta"
        raise SpecError(at, "a path of a local or shared file system, or of a bucket", output_path, hint)
    read = input_path if is_object(input_path) == is_object(output_path) else ""
    if read and _plain(output_path).is_relative_to(_plain(read)):
        raise SpecError(at, f"a folder apart from the input {input_path}", f"{output_path}", "choose another folder")


def _plain(path: str) -> Path:
    """A path that tells what lies in what. Links are followed: they may lead from elsewhere into the input."""
    return _bare(path if "://" in path else os.path.realpath(path))


def _bare(path: str) -> Path:
    return Path(path.rpartition("://")[2])  # s3:// and s3a:// are one


#: What is written into a run directory, and, but for their names, what states are.
_WRITTEN = ("job.json", "stages/0000/attempts/0/states/part-0.parquet")


def check_kept(spec: JobSpec, root: str, kept: Mapping[str, str], where: str) -> None:
    """Refuse to keep a run or states inside the input, of whatever part: a later run would read them."""
    given = spec.input.path
    if spec.input.named:
        return
    pattern = resolved(path_of_all_parts(given), root, f"{where}, field input")
    fs, read = _on_file_system(pattern)
    wanted = read.split("/")
    for what, location in kept.items():
        other, found = _on_file_system(location)
        if type(fs) is type(other) and any(_is_read(f"{found}/{name}".split("/"), wanted) for name in _WRITTEN):
            required, came = f"a folder apart from the input {given}", "one inside it, which later runs would read"
            raise SpecError(f"{what} {location}", required, came, "choose another folder")


def _on_file_system(location: str) -> tuple[Any, str]:
    """The file system of a path or URL, and the path in it. Links are followed: they may lead into the input."""
    fs, path = open_input(location)
    return fs, os.path.realpath(path) if isinstance(fs, LocalFileSystem) else path


def _is_read(path: Sequence[str], wanted: Sequence[str]) -> bool:
    if not wanted:
        return not any(map(is_hidden, path))
    if wanted[0] == "**":
        return any(_is_read(path[at:], wanted[1:]) for at in range(len(path) + 1))
    if not path or (path[0].startswith(".") and not wanted[0].startswith(".")):
        return False
    return (path[0] == wanted[0] or fnmatchcase(path[0], wanted[0])) and _is_read(path[1:], wanted[1:])


def check_output(output_path: str, input_path: str, listing: Listing, where: str, output: Output) -> None:
    """Refuse an output inside the input: the next night would read it.

    Raises:
        SpecError: it is inside, or it is no path of a file system.
    """
    if _is_table(output_path):
        return
    at = f"{where}, field output.path"
    check_apart(output_path, input_path, where, output)
    # A pattern may also lead to versions that were published before.
    ours = (_bare(output_path), _bare(beside_folder(output_path)))
    folders = {_bare(unit.path.rpartition("/")[0]) for unit in listing.units}
    if ours[0].is_relative_to(_bare(input_path)) or any(one.is_relative_to(other) for one in folders for other in ours):
        raise SpecError(at, f"a folder apart from the input {input_path}", output_path, "choose another folder")
