"""Python, Java and packages: whether they are those that the package's own metadata asks for, and whole."""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution, metadata, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from skewless_cli.doctor.finding import Finding, Surroundings, installed, pip_install

#: By each extra that users install, the package by which it is known to be installed.
EXTRAS = {
    "spark": "pyspark", "airflow": "apache-airflow", "openlineage": "apache-airflow-providers-openlineage",
    "iceberg": "pyiceberg", "delta": "deltalake", "object-stores": "obstore",
}  # fmt: skip
#: The oldest Java that Spark 4 runs on.
LEAST_JAVA = 17
_JAVA_SECONDS = 30


def check_python(_: Surroundings) -> Iterator[Finding]:
    """The version of this Python."""
    asked = metadata("skewless")["Requires-Python"] or ""
    good = SpecifierSet(asked).contains(platform.python_version(), prereleases=True)
    told = f"{platform.python_version()}, {sys.executable}"
    if good:
        yield Finding("Python", "good", told)
    else:
        yield Finding("Python", "wrong", f"{told}, but skewless needs {asked}", "python3.13 -m venv .venv")


def check_java(_: Surroundings) -> Iterator[Finding]:
    """The Java that Spark would start: that of JAVA_HOME, or else of the PATH."""
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    program = str(Path(home, "bin", "java")) if home else on_path
    found = _java_version(program) if program else None
    lacking = f"apt-get install openjdk-{LEAST_JAVA}-jre-headless"
    if found is not None and int(found.partition(".")[0]) >= LEAST_JAVA:
        yield Finding("Java", "good", f"{found}, {program}")
        return
    if found is not None:
        told = f"{found}, {program}, but Spark needs {LEAST_JAVA} or later"
    elif home:
        told = f"JAVA_HOME is {home}, which has no program bin/java that runs"
        lacking = f"export JAVA_HOME={Path(on_path).resolve().parents[1]}" if on_path else lacking
    else:
        told = "there is none in JAVA_HOME or on the PATH"
    yield Finding("Java", "wrong" if installed("pyspark") else "absent", told, lacking)


def _java_version(program: str) -> str | None:
    """What a program says of itself, like ``17.0.9``; None if it is no Java that runs."""
    try:
        done = subprocess.run(  # noqa: S603  # the user's own Java
            [program, "-version"], capture_output=True, text=True, check=False, timeout=_JAVA_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    told = re.search(r'version "(?:1\.)?(\d+[\w.]*)', done.stderr)
    return told[1] if told and done.returncode == 0 else None


def check_packages(_: Surroundings) -> Iterator[Finding]:
    """Skewless itself and each extra: whether the packages that they ask for are here in a version that they take."""
    yield _of_requirements("skewless", "", f"skewless {installed('skewless')}")
    for extra, package in EXTRAS.items():
        if installed(package) is None:
            told = f"not installed, as there is no {package}"
            yield Finding(f"extra {extra}", "absent", told, pip_install(f"skewless[{extra}]"))
        else:
            yield _of_requirements("skewless", extra, f"extra {extra}")


def _of_requirements(package: str, extra: str, subject: str) -> Finding:
    asked = list(_asked(package, extra))
    lacking = [one for one in asked if not _fits(one)]
    if not lacking:
        return Finding(subject, "good", ", ".join(f"{one.name} {installed(one.name)}" for one in asked))
    told = ", ".join(f"{one.name} is {installed(one.name) or 'not installed'}" for one in lacking)
    needed = ", ".join(f"{one.name}{one.specifier}" for one in lacking)
    for one in lacking:
        one.marker = None
    return Finding(subject, "wrong", f"{told}, but it needs {needed}", pip_install(*map(str, lacking)))


def _asked(package: str, extra: str) -> Iterator[Requirement]:
    """What a package asks for, alone or for an extra, with what is asked for by extras of other packages."""
    for text in requires(package) or ():
        one = Requirement(text)
        always = one.marker is None or one.marker.evaluate({"extra": ""})
        if always == bool(extra) or not (always or (one.marker and one.marker.evaluate({"extra": extra}))):
            continue
        if canonicalize_name(one.name) != package:
            yield one
        if installed(one.name) is not None:
            for below in sorted(one.extras):
                yield from _asked(one.name, below)


def _fits(one: Requirement) -> bool:
    found = installed(one.name)
    return found is not None and one.specifier.contains(found, prereleases=True)


def check_pyspark(_: Surroundings) -> Iterator[Finding]:
    """Whether PySpark's files are its own: pip lays those of pyspark-client over them."""
    try:
        spark = distribution("pyspark")
    except PackageNotFoundError:
        yield Finding("PySpark", "absent", "not installed", pip_install("skewless[spark]"))
        return
    odd = foreign_files(spark)
    if not odd:
        yield Finding("PySpark", "good", f"{spark.version}, each of its files as it was installed")
        return
    client = installed("pyspark-client")
    whose = f"those of pyspark-client {client}" if client else "not as they were installed"
    yield Finding(
        "PySpark", "wrong", f"{len(odd):,} files of pyspark {spark.version} are {whose}, such as {odd[0]}",
        pip_install("--force-reinstall", "--no-deps", f"pyspark=={spark.version}"),
    )  # fmt: skip


def foreign_files(package: Distribution) -> list[str]:
    """The modules of an installed package that are gone, or are not those that its RECORD has the hashes of."""
    return [
        str(file)
        for file in package.files or ()
        if file.suffix == ".py" and file.hash and _digest(Path(file.locate()), file.hash.mode) != file.hash.value
    ]


def _digest(path: Path, algorithm: str) -> str | None:
    """The hash of a file as a RECORD writes it; None if there is none."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    return base64.urlsafe_b64encode(hashlib.new(algorithm, content).digest()).rstrip(b"=").decode()


def check_submit(_: Surroundings) -> Iterator[Finding]:
    """The program by which Airflow's tasks submit Spark steps."""
    found, beside = shutil.which("spark-submit"), Path(sys.executable).with_name("spark-submit")
    if found:
        yield Finding("spark-submit", "good", found)
        return
    mend = f"export PATH={beside.parent}:$PATH" if beside.exists() else pip_install("skewless[spark]")
    yield Finding("spark-submit", "wrong" if installed("apache-airflow") else "absent", "not on the PATH", mend)
