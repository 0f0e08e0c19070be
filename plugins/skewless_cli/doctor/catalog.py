"""The specs of the catalog, each good or with its sentence."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

from skewless.errors import SkewlessError, SpecError
from skewless.spec.reading import load_spec, spec_files
from skewless.spec.spec import JobSpec
from skewless_cli.doctor.finding import Finding, Surroundings


def specs_of(folder: str) -> dict[Path, JobSpec | SkewlessError]:
    """By its path, each spec of a catalog, or why it is none; a name that an earlier one has is a fault, too."""
    found: dict[Path, JobSpec | SkewlessError] = {}
    names: dict[str, Path] = {}
    for path in spec_files(Path(folder)) if folder else []:
        try:
            spec = load_spec(path)
            first = names.setdefault(spec.name, path)
            if first != path:
                raise SpecError(f"spec {path}, field name", "one that no other spec has", f"that of {first.name}")
            found[path] = spec
        except SkewlessError as err:
            found[path] = err
    return found


def check_catalog(asked: Surroundings) -> Iterator[Finding]:
    """Each spec, without its input: fields, schedule and, where Spark is installed, aggregates and expectations."""
    if not asked.catalog:
        yield Finding("catalog", "absent", "no folder of specs", "export SKEWLESS_CATALOG=FOLDER, or --catalog FOLDER")
        return
    if not Path(asked.catalog).is_dir():
        told = f"there is no folder {Path(asked.catalog).absolute()}"
        yield Finding("catalog", "wrong", told, f"mkdir -p {Path(asked.catalog).absolute()}")
        return
    specs = specs_of(asked.catalog)
    if not specs:
        yield Finding("catalog", "absent", f"no spec in {asked.catalog}", f"skewless init INPUT --into {asked.catalog}")
    for path, spec in specs.items():
        told = str(spec) if isinstance(spec, SkewlessError) else _fault(spec, f"spec {path}")
        if told:
            yield Finding(f"spec {path}", "wrong", told.removeprefix(f"spec {path}").lstrip(",: "))
        else:
            looks = f"skewless check {path} also looks at its input"
            yield Finding(f"spec {path}", "good", f"nothing is wrong in it; {looks}")


def _fault(spec: JobSpec, where: str) -> str:
    """What is wrong with aggregates or expectations, as far as the packages that know are here; empty if nothing is."""
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("great_expectations") is None:
        return ""
    try:
        from skewless_spark.prepare.freezing import check_spec  # noqa: PLC0415  # Spark is an extra

        check_spec(spec, where)
    except SkewlessError as err:
        return str(err)
    except (Exception, SystemExit) as err:  # noqa: BLE001  # our package ends where PySpark is not fit, or any import fails
        words = str(err).removeprefix("skewless: ") or type(err).__name__
        return f"it cannot be checked, as Spark cannot be imported: {words}".splitlines()[0][:400]
    return ""
