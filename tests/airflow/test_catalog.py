"""A broken spec takes no other DAG down, and is told in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import get_parsing_context

from skewless_airflow.dags.catalog import read_catalog
from tests.airflow.test_dag_structure import SPEC
from tests.airflow_setting import PROJECT

DAGS = PROJECT / "dags"


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A catalog of one sound spec."""
    monkeypatch.setenv("SKEWLESS_CATALOG", str(tmp_path))
    _write(tmp_path / "sound.yaml")
    return tmp_path


def _catalog_dags(bag: DagBag) -> list[str]:
    """The DAGs of specs; examples and maintenance have tags of their own."""
    return sorted(name for name, dag in bag.dags.items() if "skewless" in dag.tags)


def _write(path: Path, **changes: object) -> None:
    path.write_text(yaml.safe_dump({**SPEC, **changes}))


def test_a_sound_catalog_gives_one_dag_for_each_spec_and_no_errors(catalog: Path) -> None:
    _write(catalog / "other.yaml", name="other")
    bag = DagBag(DAGS)
    assert (_catalog_dags(bag), bag.import_errors) == (["other", "small"], {})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"name": "b", "agregates": {}}, "did you mean 'aggregates'", id="typo"),
        pytest.param({"name": "b", "schedule": {"cron": "0 99 * * *"}}, "0 99 * * *", id="bad-cron"),
        pytest.param({"name": "small"}, "which broken.yaml has, rename one of the two", id="same-name"),
    ],
)
def test_a_broken_spec_is_an_import_error_beside_the_sound_dags(
    catalog: Path, changes: dict[str, object], words: str
) -> None:
    _write(catalog / "broken.yaml", **changes)
    bag = DagBag(DAGS)
    assert _catalog_dags(bag) == ["small"]
    (where,), (sentence,) = bag.import_errors.keys(), bag.import_errors.values()
    assert Path(where).name == "skewless_broken_specs.py"
    assert words.partition(",")[0] in sentence
    assert "\n" not in sentence


def test_all_broken_specs_are_named(catalog: Path) -> None:
    _write(catalog / "b.yaml", name="b", agregates={})
    (catalog / "c.yaml").write_text("name: [")
    (sentence,) = DagBag(DAGS).import_errors.values()
    assert "2 that cannot" in sentence
    assert "b.yaml" in sentence
    assert "c.yaml" in sentence


def test_a_task_builds_its_own_dag_only_and_no_other_spec_can_keep_it_from_that(
    catalog: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (catalog / "a_broken_one.yaml").write_text("name: [")
    _write(catalog / "other.yaml", name="other")
    assert list(read_catalog().dags) == ["other", "small"]
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "small")  # as Airflow does in a task
    assert get_parsing_context().dag_id == "small"
    assert list(read_catalog().dags) == ["small"]
