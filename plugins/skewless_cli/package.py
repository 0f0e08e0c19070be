"""``skewless package``: what a cluster that has no Skewless runs steps from, written once into a folder of a bucket.

The folder is named by the version and by the checksum of its content, so that a spec goes on with the one it names.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from importlib.metadata import PackageNotFoundError, distribution, version
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import Requirement

from skewless.errors import MachineError, SpecError
from skewless.run.folder import open_location

_LIST, _ENVIRONMENT, _ENTRY = "package.json", "environment.tar.gz", "skewless_spark/entries/pipeline.py"
_PACKAGES = ("skewless", "skewless_leases", "skewless_lake", "skewless_cli", "skewless_spark")
#: Of the extras that steps may need; the cluster has its own PySpark.
_ROOT, _OF_SPARK = "skewless[spark,iceberg,delta,object-stores]", {"pyspark", "py4j"}


def package(into: str) -> str:
    """Write the files below a folder or a URL, unless they are there; the address of their folder.

    The environment has this Python, and its packages in the versions that are installed here.

    Raises:
        MachineError: there is no venv-pack here, or the environment cannot be made.
    """
    try:
        from venv_pack import pack  # noqa: PLC0415  # an extra
    except ImportError:
        raise MachineError("package", "venv-pack2", "none", "pip install 'skewless[package]'") from None
    code, number = _code(), version("skewless")
    wheel = f"skewless-{number}-py3-none-any.whl"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "steps.py").write_bytes(code[_ENTRY])
        (folder / "requirements.txt").write_text("\n".join(pinned()) + "\n")
        with zipfile.ZipFile(folder / wheel, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, content in sorted(code.items()):
                archive.writestr(zipfile.ZipInfo(path), content)  # without times: equal code gives equal bytes
        sums = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.iterdir())}
        digest = hashlib.sha256(json.dumps([sums, sys.version_info[:2]]).encode()).hexdigest()
        fs, root = open_location(into.rstrip("/"))
        place = f"{number}-{digest[:12]}"
        if not fs.exists(f"{root}/{place}/{_LIST}"):
            try:
                fs.makedirs(f"{root}/{place}", exist_ok=True)
            except OSError as err:
                raise SpecError.saying(into, f"it cannot be written to ({err.strerror})", "name another") from None
            _environment(folder / "environment", folder / "requirements.txt", folder / wheel)
            pack(str(folder / "environment"), str(folder / _ENVIRONMENT))
            sums[_ENVIRONMENT] = hashlib.sha256((folder / _ENVIRONMENT).read_bytes()).hexdigest()
            (folder / _LIST).write_text(json.dumps({"python": sys.version, "sha256": sums}, indent=1))
            for file in (*sums, _LIST):  # the list comes last: with it the folder is whole
                fs.put_file(str(folder / file), f"{root}/{place}/{file}")
    return f"{into.rstrip('/')}/{place}"


def pinned() -> list[str]:
    """What the steps need beside Spark and Skewless, with the versions that are installed here."""
    versions, wanted = dict[str, str](), [Requirement(_ROOT)]
    for requirement in wanted:
        try:
            versions[requirement.name] = version(requirement.name)
        except PackageNotFoundError:  # of an extra that is not installed here
            continue
        for inner in map(Requirement, distribution(requirement.name).requires or ()):
            needed = any(not inner.marker or inner.marker.evaluate({"extra": one}) for one in {"", *requirement.extras})
            if needed and inner.name not in _OF_SPARK and str(inner) not in map(str, wanted):
                wanted.append(inner)
    del versions["skewless"]
    return [f"{name}=={number}" for name, number in sorted(versions.items())]


def _code() -> dict[str, bytes]:
    """The content of a wheel of this Skewless, also where it is installed from a checkout."""
    info = f"skewless-{version('skewless')}.dist-info"
    of_info = {
        what: distribution("skewless").read_text(what) or "" for what in ("METADATA", "WHEEL", "entry_points.txt")
    }
    content = {f"{info}/{what}": text.encode() for what, text in of_info.items()}
    for found in filter(None, map(find_spec, _PACKAGES)):
        (top,) = map(Path, found.submodule_search_locations or ())
        files = [file for file in top.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
        content |= {file.relative_to(top.parent).as_posix(): file.read_bytes() for file in files}
    record = "".join(f"{path},,\n" for path in (*sorted(content), f"{info}/RECORD"))
    return {**content, f"{info}/RECORD": record.encode()}


def _environment(made: Path, requirements: Path, wheel: Path) -> None:
    python = str(made / "bin/python")
    pip = [sys.executable, "-P", "-m", "pip", "--python", python, "install"]
    install = ["uv", "pip", "install", "--python", python] if shutil.which("uv") else pip
    for command in (
        [sys.executable, "-P", "-m", "venv", "--without-pip", str(made)],
        [*install, "--quiet", "--no-deps", "-r", str(requirements), str(wheel)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # our own
        if done.returncode:
            raise MachineError("package", "an environment", " ".join((done.stdout + done.stderr).split())[-400:])
