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
from skewless_airflow.dags.factory import build_dag
from skewless_airflow.places import catalog_folder


class Catalog(NamedTuple):
    """The DAGs of the valid specs by their id, and the errors of all others."""

    dags: dict[str, DAG]
    faults: list[SkewlessError]


def read_catalog(folder: Path | None = None) -> Catalog:
    """Build one DAG for each ``*.yaml`` and ``*.yml`` of the catalog; in a task, only the one that the task is of.

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
                if load_spec(path).name == wanted:
                    return Catalog({wanted: build_dag(path)}, [])
                continue
            dag = _sound(path)
            if dag.dag_id in origin:
                raise SpecError(
                    f"spec {path}, field name", "a name that no other spec has",
                    f"{dag.dag_id!r}, which {origin[dag.dag_id].name} has", "rename one of the two",
                )  # fmt: skip
        except SkewlessError as err:
            catalog.faults.append(err)
            continue
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


def _sound(path: Path) -> DAG:
    """A DAG that Airflow will accept: a bad cron expression, say, which it would refuse only later, is found here."""
    dag = build_dag(path)
    try:
        dag.validate()
        DagSerialization.to_dict(dag)
    except (AirflowException, ValueError) as err:
        raise SpecError(f"spec {path}", "a DAG that Airflow accepts", " ".join(str(err).split())) from None
    return dag
