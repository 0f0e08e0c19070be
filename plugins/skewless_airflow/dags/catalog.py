"""All specs of the catalog: the valid ones as DAGs, the broken ones as one import error.

Airflow marks every DAG of a file stale when that file has an import error. So two files read the catalog:
``skewless_dags.py`` builds the valid specs and never fails, and ``skewless_broken_specs.py`` has no DAGs to lose and
fails with the messages of the broken ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from airflow.sdk import DAG, get_parsing_context
from airflow.sdk.exceptions import AirflowException
from airflow.serialization.serialized_objects import DagSerialization

from skewless.errors import SkewlessError, SpecError
from skewless.spec.reading import load_spec
from skewless_airflow.dags.factory import build_dag, build_restating_dag, restates, restating_id
from skewless_airflow.run_store import catalog_folder


class Catalog(NamedTuple):
    """The DAGs of the valid specs by their id, and the errors of all others."""

    dags: dict[str, DAG]
    faults: list[SkewlessError]


def read_catalog(folder: Path | None = None) -> Catalog:
    """Build the DAGs of each ``*.yaml`` and ``*.yml`` of the catalog; in a task, only the one that the task is of.

    A job with a window has a second DAG, which computes old results again.

    A task reads the file of its DAG anew. To check that Airflow accepts a DAG takes a tenth of a second, and Airflow
    has accepted that one.
    """
    wanted = get_parsing_context().dag_id
    catalog = Catalog({}, [])
    origin: dict[str, Path] = {}
    try:
        folder = folder or catalog_folder()
    except SpecError as err:
        return Catalog({}, [err])
    for path in sorted(folder.glob("*.y*ml")):
        try:
            if wanted is not None:
                spec = load_spec(path)
                if wanted == spec.name:
                    return Catalog({wanted: build_dag(path)}, [])
                if restates(spec) and wanted == restating_id(spec):
                    return Catalog({wanted: build_restating_dag(spec, path)}, [])
                continue
            dags = _sound(path)
            taken = next((dag.dag_id for dag in dags if dag.dag_id in origin), None)
            if taken is not None:
                raise SpecError(
                    f"spec {path}, field name", "a name that no other spec has",
                    f"{taken!r}, which {origin[taken].name} has", "rename one of the two",
                )  # fmt: skip
        except SkewlessError as err:
            catalog.faults.append(err)
            continue
        for dag in dags:
            origin[dag.dag_id] = path
            catalog.dags[dag.dag_id] = dag
    return catalog


def refuse_faults(catalog: Catalog) -> None:
    """Raise an error that names every broken spec, if there is any."""
    if len(catalog.faults) == 1:
        raise catalog.faults[0]
    if catalog.faults:
        raise SpecError(
            "job catalog", "specs that can be read",
            f"{len(catalog.faults)} that cannot: {' '.join(str(fault) for fault in catalog.faults)}",
        )  # fmt: skip


def _sound(path: Path) -> list[DAG]:
    """DAGs that Airflow will accept: a bad cron expression, say, which it would refuse only later, is found here."""
    spec = load_spec(path)
    dags = [build_dag(path), *([build_restating_dag(spec, path)] if restates(spec) else [])]
    try:
        for dag in dags:
            dag.validate()
            DagSerialization.to_dict(dag)
    except (AirflowException, ValueError) as err:
        raise SpecError(f"spec {path}", "a DAG that Airflow accepts", " ".join(str(err).split())) from None
    return dags
