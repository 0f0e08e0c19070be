"""``skewless doctor``: whether all that a job needs is here, each thing in one line, good or with its remedy.

A new check is a function with its findings, and a line in ``examine``. None needs an extra.
"""

import csv
import importlib.util
import json
import os
import platform
import re
import secrets
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, metadata, requires, version
from pathlib import Path
from typing import Any, Literal

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from skewless.documents.commit import StepCommit
from skewless.errors import SkewlessError, without_secrets
from skewless.run.folder import RUN_GROUP, RUNS_FOLDER, plain_path, runs_below
from skewless.run.storage import Storage
from skewless.spec.clusters import DEFAULT_CONNECTION
from skewless.spec.reading import load_spec, parse_spec, require_own, spec_files
from skewless.spec.spec import JobSpec

#: By each extra that users install, the package by which it is known to be installed.
EXTRAS = {
    "spark": "pyspark", "airflow": "apache-airflow", "openlineage": "apache-airflow-providers-openlineage",
    "iceberg": "pyiceberg", "delta": "deltalake", "object-stores": "obstore",
}  # fmt: skip
LEAST_JAVA = 17
#: How the folder is called in which two commits compete; it is removed at once.
PROBE = ".skewless-doctor-"
_ANSWER_SECONDS = 120
#: What SQLite, PostgreSQL and MySQL say of a table that is not there.
_NO_TABLES = ("no such table", "does not exist", "doesn't exist")


@dataclass(frozen=True)
class Finding:
    """One line of the doctor."""

    subject: str
    state: Literal["good", "absent", "wrong"]
    """``absent`` is what may be missing: nothing that is here needs it."""
    fact: str
    remedy: str = ""
    """The command that mends it, or brings what is absent; empty if nothing is to be done."""

    def __str__(self) -> str:
        """As people read it.

        >>> str(Finding("Java", "wrong", "there is none", "apt-get install openjdk-17-jre-headless"))
        'wrong   Java: there is none; apt-get install openjdk-17-jre-headless'
        """
        return f"{self.state:<7} {self.subject}: {self.fact}{f'; {self.remedy}' if self.remedy else ''}"


def examine(root: str, catalog: str) -> Iterator[Finding]:
    """All findings, each as soon as it is known.

    Args:
        root: the data root, a path or a URL.
        catalog: the folder of job specs; empty if there is none.
    """
    yield from check_programs()
    yield from check_packages()
    yield from check_pyspark()
    yield from check_places(root)
    yield from check_airflow(catalog)
    yield from check_catalog(catalog)


def installed(package: str) -> str | None:
    """The version of an installed package; None if there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def pip_install(*wanted: str) -> str:
    """The command that installs something here, and moves no Airflow that is here already."""
    kept = installed("apache-airflow") if any("skewless[" in package for package in wanted) else None
    packages = [*wanted, *([f"apache-airflow=={kept}"] if kept else [])]
    pip = "pip" if importlib.util.find_spec("pip") else "uv pip"
    return f"{pip} install {' '.join(word if word.startswith('-') else repr(word) for word in packages)}"


def _quoted(command: str, path: Path) -> str:
    return f"{command} {shlex.quote(str(path))}"


def check_programs() -> Iterator[Finding]:
    """This Python, the Java that Spark would start, and the program by which Airflow's tasks submit Spark steps."""
    required, running = metadata("skewless")["Requires-Python"] or "", f"{platform.python_version()}, {sys.executable}"
    if SpecifierSet(required).contains(platform.python_version(), prereleases=True):
        yield Finding("Python", "good", running)
    else:
        yield Finding("Python", "wrong", f"{running}, but skewless needs {required}", "python3.13 -m venv .venv")
    home, of_spark = os.environ.get("JAVA_HOME"), "wrong" if installed("pyspark") else "absent"
    program = str(Path(home, "bin", "java")) if home else shutil.which("java")
    java = _java_version(program) if program else None
    if java is not None and int(java.partition(".")[0]) >= LEAST_JAVA:
        yield Finding("Java", "good", f"{java}, {program}")
    else:
        fact = f"{java or 'no Java that runs'}, {program}" if program else "there is none in JAVA_HOME or on the PATH"
        remedy = f"apt-get install openjdk-{LEAST_JAVA}-jre-headless, and let JAVA_HOME name it"
        yield Finding("Java", of_spark, f"{fact}, but Spark needs {LEAST_JAVA} or later", remedy)  # type: ignore[arg-type]
    if there := shutil.which("spark-submit"):
        yield Finding("spark-submit", "good", there)
        return
    beside = Path(sys.executable).with_name("spark-submit")
    on_path = f"export PATH={shlex.quote(str(beside.parent))}:$PATH"
    remedy = on_path if beside.exists() else pip_install("skewless[spark]")
    yield Finding("spark-submit", "wrong" if installed("apache-airflow") else "absent", "not on the PATH", remedy)


def _java_version(program: str) -> str | None:
    try:
        done = subprocess.run(  # noqa: S603  # the user's own Java
            [program, "-version"], capture_output=True, text=True, check=False, timeout=_ANSWER_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    answer = re.search(r'version "(?:1\.)?(\d+[\w.]*)', done.stderr)
    return answer[1] if answer and done.returncode == 0 else None


def check_packages() -> Iterator[Finding]:
    """Skewless itself and each extra: whether the packages that they ask for are here in a version that they take."""
    yield _of_requirements("", f"skewless {installed('skewless')}")
    for extra, package in EXTRAS.items():
        if installed(package) is None:
            remedy = pip_install(f"skewless[{extra}]")
            yield Finding(f"extra {extra}", "absent", f"not installed, as there is no {package}", remedy)
        else:
            yield _of_requirements(extra, f"extra {extra}")


def _of_requirements(extra: str, subject: str) -> Finding:
    """What Skewless asks for, alone or for an extra. A remedy names the version range, or the extra of another one."""
    every = [Requirement(text) for text in requires("skewless") or ()]
    always = [package for package in every if package.marker is None or package.marker.evaluate({"extra": ""})]
    of_extra = [one for one in every if one not in always and one.marker and one.marker.evaluate({"extra": extra})]
    required = [one for one in (of_extra if extra else always) if one.name != "skewless"]
    lacking = [one for one in required if not one.specifier.contains(installed(one.name) or "", prereleases=True)]
    if not lacking:
        return Finding(subject, "good", ", ".join(f"{one.name} {installed(one.name)}" for one in required))
    fact = ", ".join(f"{one.name} is {installed(one.name) or 'not installed'}" for one in lacking)
    needed = ", ".join(f"{one.name}{one.specifier}" for one in lacking)
    for one in lacking:
        one.marker = None
    return Finding(subject, "wrong", f"{fact}, but it needs {needed}", pip_install(*map(str, lacking)))


def check_pyspark() -> Iterator[Finding]:
    """Whether PySpark's files are its own: pip lays those of pyspark-client over them."""
    if installed("pyspark") is None:
        yield Finding("PySpark", "absent", "not installed", pip_install("skewless[spark]"))
        return
    try:
        import skewless_spark  # noqa: F401, PLC0415  # it imports no PySpark, and ends where that is not fit
    except SystemExit as err:
        fact, _, remedy = str(err).removeprefix("skewless: pyspark: ").partition("; ")
        yield Finding("PySpark", "wrong", fact, remedy)
    else:
        here = distribution("pyspark")
        # From Python 3.12 on, ``Distribution.files`` passes over what is gone.
        rows = csv.reader((here.read_text("RECORD") or "").splitlines())
        named = [name for name, *_ in rows if "__pycache__" not in name]
        if gone := [name for name in named if not Path(str(here.locate_file(name))).exists()]:
            remedy = f"pip install --force-reinstall --no-deps pyspark=={here.version}"
            yield Finding("PySpark", "wrong", f"{len(gone):,} of its files are gone, {gone[0]} among them", remedy)
        else:
            yield Finding("PySpark", "good", f"{here.version}, whose files are its own")


def check_places(root: str) -> Iterator[Finding]:
    """The data root, and the folder of runs where it is another one: of two writers of a file only the first wins."""
    yield _of_place("SKEWLESS_ROOT", root)
    if os.environ.get(RUNS_FOLDER):
        yield _of_place(RUNS_FOLDER, runs_below(root))


def _of_place(variable: str, location: str) -> Finding:
    place = plain_path(location).rstrip("/")
    if "://" not in place and not Path(place).is_dir():
        folder = Path(place).absolute()
        above = next(one for one in (folder, *folder.parents) if one.exists())
        if above.is_dir() and os.access(above, os.W_OK | os.X_OK):
            return Finding(variable, "absent", f"there is no folder {folder} yet: the first run makes it")
        return Finding(variable, "wrong", f"there is no folder {folder}", _quoted("mkdir -p", folder))
    shown = without_secrets(place)
    try:
        won = _compete(f"{place}/{PROBE}{secrets.token_hex(8)}")
    except (SkewlessError, OSError) as err:
        fact = err.came if isinstance(err, SkewlessError) else err.strerror or type(err).__name__
        remedy = pip_install("skewless[object-stores]") if "obstore" in fact else getattr(err, "hint", "")
        return Finding(variable, "wrong", f"{shown}: {fact}", remedy or "let the user of Airflow's tasks write there")
    if won != [True, False]:
        fact = f"{shown}: of two writers of one file, not only the first has won"
        return Finding(variable, "wrong", fact, f"export {variable}=FOLDER, on a local or shared file system")
    return Finding(variable, "good", f"{shown}, where only the first writer of a file wins")


def _compete(folder: str) -> list[bool]:
    """Let two attempts commit one step, as in a run, and leave nothing behind; whether each has won."""
    storage = Storage(folder, os.environ.get(RUN_GROUP, ""))
    attempts = [StepCommit(step="doctor", attempt=name, files=()) for name in ("first", "second")]
    try:
        return [storage.write_once("COMMIT.json", attempt) for attempt in attempts]
    finally:
        if storage.fs.exists(storage.root):
            storage.fs.rm(storage.root, recursive=True)


def check_airflow(catalog: str) -> Iterator[Finding]:
    """Its database, the plugin, and each connection that some spec of the catalog has its steps by."""
    release = installed("apache-airflow-core") or installed("apache-airflow")
    home = Path(os.environ.get("AIRFLOW_HOME") or "~/airflow").expanduser()
    if release is None or not home.is_dir():  # to import Airflow would make its home
        fact = "not installed" if release is None else f"{release} is installed, but has no home {home}"
        mend = pip_install("skewless[airflow]") if release is None else "export AIRFLOW_HOME=FOLDER; airflow db migrate"
        yield Finding("Airflow", "absent", fact, mend)
        return
    specs = [spec for spec in _specs_of(catalog).values() if isinstance(spec, JobSpec)]
    to_spark = [spec for spec in specs if spec.spark.on_spark_submit]
    of_specs = {
        name
        for spec in to_spark
        for name in (spec.spark.submit.get("conn_id", DEFAULT_CONNECTION), *spec.sharing.connections)
    }
    names = sorted(of_specs or {DEFAULT_CONNECTION})
    answers = _answers_of_airflow(names)
    if "error" in answers:
        lacks = any(words in answers["error"] for words in _NO_TABLES)
        mend = "airflow db migrate" if lacks else "airflow db check, which prints why"
        yield Finding("Airflow", "wrong", f"{release} in {home}: {answers['error']}", mend)
        return
    if answers["fault"]:
        yield Finding(
            "Airflow", "wrong", f"{release} in {home} cannot serve, or build a DAG: {answers['fault']}",
            f"install the packages of its day, by the constraints of Airflow {release}",
        )  # fmt: skip
        return
    yield Finding("Airflow", "good", f"{release} in {home}, whose database answers, serves, and builds a DAG")
    if "skewless" in answers["plugins"]:
        yield Finding("Airflow's plugin skewless", "good", "loaded")
    else:
        yield Finding("Airflow's plugin skewless", "wrong", "not loaded", "airflow plugins, which prints why")
    for name in names:
        connection, subject = answers["connections"][name], f"Airflow's connection {name}"
        master = "'local[*]'" if name == DEFAULT_CONNECTION else "spark://HOST:7077"
        add = f"airflow connections add {name} --conn-type spark --conn-host {master}"
        if connection is None:
            yield Finding(subject, "wrong", "there is none", add)
        elif connection["type"] != "spark":
            fact = f"its type is {connection['type']!r}, and steps are submitted by one of the type spark"
            yield Finding(subject, "wrong", fact, f"airflow connections delete {name}; {add}")
        else:
            yield Finding(subject, "good", f"Spark at {connection['host'] or 'yarn'}")


def _answers_of_airflow(names: list[str]) -> dict[str, Any]:
    """What another process says that imports Airflow (see ``answers``), or ``error`` with why it says nothing."""
    try:
        done = subprocess.run(  # noqa: S603  # this Python
            [sys.executable, "-P", "-m", "skewless_cli.doctor", *names],
            capture_output=True, text=True, check=False, timeout=_ANSWER_SECONDS,
        )  # fmt: skip
        return dict(json.loads(done.stdout.rstrip().rpartition("\n")[2]))
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {_ANSWER_SECONDS} seconds"}
    except ValueError:
        return {"error": f"a process that imports it ended with exit code {done.returncode}"}


def answers(connections: Sequence[str]) -> dict[str, Any]:
    """Airflow's plugins, why it cannot serve or build a DAG of ours, and each connection; null for one that is not."""
    from airflow.models.connection import Connection  # noqa: PLC0415  # it writes to both outputs, and may hang
    from airflow.plugins_manager import get_plugin_info  # noqa: PLC0415
    from airflow.sdk.exceptions import AirflowNotFoundException  # noqa: PLC0415
    from airflow.utils.session import create_session  # noqa: PLC0415
    from sqlalchemy import select  # noqa: PLC0415

    with create_session() as session:  # else a database that does not answer would be one without connections
        session.execute(select(Connection.conn_id).limit(1))
    held: dict[str, dict[str, str] | None] = {}
    for name in connections:
        try:
            connection = Connection.get_connection_from_secrets(name)
        except AirflowNotFoundException:
            held[name] = None
        else:
            held[name] = {"type": connection.conn_type or "", "host": connection.host or ""}
    fault = ""
    try:
        _serve_and_build()
    except Exception as err:  # noqa: BLE001  # of whatever package does not fit another one
        fault = f"{type(err).__name__}: {str(err).partition(chr(10))[0]}"
    return {"plugins": [plugin["name"] for plugin in get_plugin_info()], "connections": held, "fault": fault}


def _serve_and_build() -> None:
    """Build what Airflow's API server serves, our pages, and a DAG as the scheduler reads it; any error of theirs."""
    from airflow.api_fastapi.core_api.app import init_views  # noqa: PLC0415  # as above
    from airflow.api_fastapi.execution_api.app import create_task_execution_api_app  # noqa: PLC0415
    from airflow.serialization.serialized_objects import DagSerialization  # noqa: PLC0415
    from fastapi import FastAPI  # noqa: PLC0415

    from skewless_airflow.dags import build_dag  # noqa: PLC0415
    from skewless_airflow.web.app import create_app  # noqa: PLC0415

    init_views(served := FastAPI())
    for app in (served, create_task_execution_api_app(), create_app()):
        app.openapi()
    spec = "{name: doctor, input: {path: /input}, key: key, aggregates: {n: count}, output: {path: /output}}"
    DagSerialization.from_dict(DagSerialization.to_dict(build_dag(parse_spec(spec, "doctor"), auto_register=False)))


def check_catalog(catalog: str) -> Iterator[Finding]:
    """Each spec as it is read; ``skewless check`` also looks at aggregates, expectations and its input."""
    folder = Path(catalog).absolute()
    if not catalog:
        yield Finding("catalog", "absent", "no folder of specs", "export SKEWLESS_CATALOG=FOLDER, or --catalog FOLDER")
    elif not folder.is_dir():
        yield Finding("catalog", "wrong", f"there is no folder {folder}", _quoted("mkdir -p", folder))
    elif not (specs := _specs_of(catalog)):
        yield Finding("catalog", "absent", f"no spec in {folder}", _quoted("skewless init INPUT --into", folder))
    else:
        for path, spec in specs.items():
            if isinstance(spec, SkewlessError):
                yield Finding(f"spec {path}", "wrong", str(spec).removeprefix(f"spec {path}").lstrip(",: "))
            else:
                further = "also looks at its aggregates, its expectations and its input"
                fact = f"its fields are right; {_quoted('skewless check', path)} {further}"
                yield Finding(f"spec {path}", "good", fact)


def _specs_of(folder: str) -> dict[Path, JobSpec | SkewlessError]:
    """By its path, each spec of a catalog, or why it is none; see ``require_own``."""
    specs, seen = dict[Path, JobSpec | SkewlessError](), dict[str, Path]()
    for path in spec_files(Path(folder)) if folder else []:
        try:
            spec = load_spec(path)
            require_own(spec, path, seen, [spec.name])
            specs[path] = spec
        except SkewlessError as err:
            specs[path] = err
    return specs


if __name__ == "__main__":
    try:
        said = answers(sys.argv[1:])
    except Exception as err:  # noqa: BLE001  # whatever it is, it is said in the line of Airflow
        said = {"error": f"{type(err).__name__}: {err}".splitlines()[0][:200]}
    sys.stdout.write(f"\n{json.dumps(said)}\n")  # the last line: Airflow's imports write, too
