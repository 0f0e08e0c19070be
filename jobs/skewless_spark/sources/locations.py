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
from skewless.spec.spec import JobSpec
from skewless_spark.sources.formats.input_files import is_hidden, open_input
from skewless_spark.sources.listing import Listing


def input_location(spec: JobSpec, part: Part, root: str, where: str) -> str:
    """The path, pattern or URL of the input of a part, as ``resolved`` has it; empty of a table that has a name."""
    if spec.input.named:
        return ""
    at = f"{where}, field {spec.field_of(spec.input)}.path"
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


def check_apart(output_path: str, input_path: str, where: str, spec: JobSpec) -> None:
    """Refuse an output inside the input, as far as the paths alone can tell: the next night would read its own result.

    Raises:
        SpecError: it is inside, or it is in a bucket, which cannot exchange folders, without ``output.allow_gap``.
    """
    at, output, given = f"{where}, field output.path", spec.output, spec.input
    named = [f"{given.format}://{given.path}", *(_table_at(kind, input_path) for kind in TABLES)]
    if found := next((one for one in named if one in {output_path, f"{output_path}{QUARANTINE}"}), None):
        came = "the same" if found == output_path else "the one whose keys in quarantine are there"
        raise SpecError(at, f"another table than the input {given.path}", came, "choose another one")
    if input_path and _plain(output_path).is_relative_to(_plain(input_path)):
        raise SpecError(at, f"a folder apart from the input {input_path}", f"{output_path}", "choose another folder")
    if output_path.startswith(tuple(f"{kind}{sign}" for kind in TABLES for sign in ("://", "+"))):  # a table
        return
    if is_object(output_path) and not output.allow_gap and not output.in_catalog:
        hint = "then who lists the folder may see two versions for a moment; or publish a table there"
        raise SpecError(at, "allow_gap: true, or table, with a folder in a bucket", output_path, hint)
    if output.allow_gap and not is_object(output_path):
        raise SpecError(at, "a folder in a bucket with allow_gap", output_path, "remove allow_gap: here is no gap")
    if "://" in output_path and not is_object(output_path):
        hint = "publish into a table there: format: iceberg or format: delta"
        raise SpecError(at, "a path of a local or shared file system, or of a bucket", output_path, hint)


def _plain(path: str) -> Path:
    """A path that tells what lies in what. Links are followed: they may lead from elsewhere into the input."""
    bare = _bare(path)
    return Path(os.path.realpath(bare)) if bare.is_absolute() else bare


def _bare(path: str) -> Path:
    return Path(path.rpartition("://")[2])  # s3:// and s3a:// are one


#: What is written into a run directory, and, but for their names, what states are.
_WRITTEN = ("job.json", "stages/0000/attempts/0/states/part-0.parquet")


def check_kept(spec: JobSpec, root: str, kept: Mapping[str, str], where: str) -> None:
    """Refuse to keep a run or states inside the input, of whatever part: a later run would read them."""
    for table in (one for one in (spec.input, *spec.lookups.values()) if not one.named):
        fs, read = _on_file_system(resolved(path_of_all_parts(table.path), root, f"{where}, field input"))
        wanted = read.split("/")
        for what, location in kept.items():
            other, found = _on_file_system(location)
            if type(fs) is type(other) and any(_is_read(f"{found}/{name}".split("/"), wanted) for name in _WRITTEN):
                came = "one inside it, which later runs would read"
                required = f"a folder apart from the input {table.path}"
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


def check_lookup(output_path: str, path: str, listing: Listing, where: str) -> None:
    """Refuse an output among files of others that a lookup reads. A lookup may read earlier results of its own job."""
    if not path or not _plain(output_path).is_relative_to(_plain(path)):
        return
    own = _bare(output_path)
    if any(own not in _bare(unit.path).parent.parents for unit in listing.units):
        required = f"a folder apart from the lookup {path}"
        raise SpecError(f"{where}, field output.path", required, output_path, "choose another folder")


def check_output(output_path: str, input_path: str, listing: Listing, where: str, spec: JobSpec) -> None:
    """Refuse an output inside the input: the next night would read it.

    Raises:
        SpecError: it is inside, or it is no path of a file system.
    """
    check_apart(output_path, input_path, where, spec)
    # A pattern may also lead to versions that were published before.
    ours = {_bare(output_path), _bare(beside_folder(output_path))}
    if any(not ours.isdisjoint(_bare(unit.path).parents) for unit in listing.units):
        required = f"a folder apart from the input {input_path}"
        raise SpecError(f"{where}, field output.path", required, output_path, "choose another folder")
