"""Tables in catalogs of other kinds than SQL: of Iceberg's REST protocol, a Hive metastore, and moto's Glue."""

import datetime as dt
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from skewless.errors import SpecError, UnreachableError
from skewless_lake.catalogs import configuration_of, open_catalog
from skewless_lake.iceberg_tables import commit_part, make_namespace, publications
from skewless_lake.pruning import left_files, remove_left
from skewless_lake.publication import publish_run, published_parts, require_fitting, roll_back
from tests.broken_wire import Fault, broken_wire
from tests.lake.hive_catalog import hive_catalog, of_hive
from tests.lake.outputs import DAY, NOW, committed, part_of, publish, read, ready, result_table, seen, staged
from tests.lake.rest_catalog import rest_catalog
from tests.object_stores import as_client, object_server

NEXT = DAY + dt.timedelta(days=1)
_REST = "PYICEBERG_CATALOG__REST__URI"
pytestmark = pytest.mark.long
of_each_kind = pytest.mark.parametrize("kind", ["rest", "hive", "glue"])


@contextmanager
def environment(given: Mapping[str, str]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in given.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with rest_catalog(tmp_path_factory.mktemp("rest")) as address, environment({_REST: address}):
        yield address


@pytest.fixture(scope="module")
def hive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with hive_catalog(tmp_path_factory.mktemp("hive")) as address, environment(of_hive(address)):
        yield


@pytest.fixture(scope="module")
def amazon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with object_server("moto", tmp_path_factory.mktemp("moto")) as server:
        access = server.environment
        of_amazon = {
            f"PYICEBERG_CATALOG__{kind.upper()}__{name}": value
            for kind in ("glue", "dynamodb")
            for name, value in {
                "TYPE": kind, "WAREHOUSE": "s3://lake/warehouse", "S3__ENDPOINT": server.endpoint,
                "S3__REGION": access["AWS_REGION"], f"{kind.upper()}__ENDPOINT": server.endpoint,
            }.items()
        }  # fmt: skip
        # Amazon's own client takes its region from here.
        more = {"AWS_ALLOW_HTTP": "true", "AWS_DEFAULT_REGION": access["AWS_REGION"]}
        with as_client({**access, **more, **of_amazon}):
            yield


@pytest.fixture(scope="module")
def glue(amazon: None) -> None:
    del amazon


@pytest.fixture(autouse=True)
def new_table(request: pytest.FixtureRequest) -> Iterator[None]:
    parameters = getattr(request.node, "callspec", None)
    kind = parameters.params.get("kind", "rest") if parameters else "rest"
    request.getfixturevalue(kind)
    yield
    if open_catalog(kind, "").table_exists("marts.clicks"):
        open_catalog(kind, "").drop_table("marts.clicks")


def table_of(kind: str) -> Table:
    return open_catalog(kind, "").load_table("marts.clicks")


@pytest.mark.parametrize("kind", ["hive"])
def test_files_are_where_the_metadata_says(tmp_path: Path, kind: str) -> None:
    """A metastore writes file:/path, with one slash, which is no relative path."""
    publish(tmp_path / "1", tmp_path, kind, "old")
    location = table_of(kind).location()
    assert location.startswith("file:/")
    assert not location.startswith("file://")
    found = Path(location.removeprefix("file:"), "data").rglob("*.parquet")
    assert sorted(str(one) for one in found) == sorted(
        task.file.file_path.removeprefix("file:") for task in table_of(kind).scan().plan_files()
    )


def test_a_database_that_several_make_at_once_keeps_what_the_first_has_put_there(hive: None) -> None:
    """A metastore that finds a database made by another has its folder removed, if it made the folder itself."""
    del hive

    def put(number: int) -> Path:
        catalog, namespace = load_catalog("hive", **configuration_of("hive")), f"raced_{number // 8}"
        make_namespace(catalog, (namespace,))
        location = str(catalog.load_namespace_properties(namespace)["location"]).removeprefix("file:")
        file = Path(location, str(number))
        file.write_text("metadata")
        return file

    with ThreadPoolExecutor(8) as pool:
        files = list(pool.map(put, range(48)))
    assert [file for file in files if not file.exists()] == []


@of_each_kind
def test_days_are_published_replaced_and_rolled_back(tmp_path: Path, kind: str) -> None:
    late = ready(tmp_path / "late", tmp_path, kind, "late", turn=2)
    for turn, (text, day) in enumerate([("old", DAY), ("next", NEXT), ("new", DAY)], start=1):
        publish(tmp_path / text, tmp_path, kind, text, turn=turn, day=day)
    assert publish_run(late, NOW).superseded is not None
    assert seen(kind, tmp_path) == {str(DAY): ["new"] * 3, str(NEXT): ["next"] * 3}
    assert roll_back(part_of(kind, tmp_path), NOW)["run"] == str(tmp_path / "old")
    assert seen(kind, tmp_path) == {str(DAY): ["old"] * 3, str(NEXT): ["next"] * 3}
    parts = published_parts(part_of(kind, tmp_path))
    assert {part: by.run for part, (_, by) in parts.items()} == {
        str(DAY): str(tmp_path / "old"), str(NEXT): str(tmp_path / "next"),
    }  # fmt: skip
    (left,) = left_files(late)
    assert len(left.paths) == 2
    remove_left(left)
    assert len(table_of(kind).snapshots()) == len(list(publications(table_of(kind), part_of(kind, tmp_path))))
    assert seen(kind, tmp_path) == {str(DAY): ["old"] * 3, str(NEXT): ["next"] * 3}


@of_each_kind
def test_a_table_evolves_and_is_made_in_the_order_of_its_rows(tmp_path: Path, kind: str) -> None:
    publish(tmp_path / "1", tmp_path, kind, "old", sort=["key desc"])
    assert [str(one) for one in table_of(kind).sort_order().fields] == ["2 DESC NULLS LAST"]
    wider = result_table("new").append_column("n", pa.array([1, 2, 3], pa.int64()))
    with pytest.raises(SpecError, match=r"column 'n' of type .*; set output\.schema: evolve"):
        staged(committed(tmp_path / "2", tmp_path, kind, wider, turn=2))
    publish(tmp_path / "3", tmp_path, kind, wider, turn=3, day=NEXT, schema="evolve")
    found = {(str(row["date"]), row["n"]) for row in read(kind, tmp_path).to_pylist()}
    assert found == {(str(DAY), None), *((str(NEXT), number) for number in (1, 2, 3))}


@pytest.mark.parametrize("kind", ["rest", "hive"])
def test_a_commit_upon_what_is_no_longer_there_is_refused(tmp_path: Path, kind: str) -> None:
    """And as the refusal that has us look at everything again, whichever words a catalog has for it."""
    publish(tmp_path / "1", tmp_path, kind, "old")
    part, first, second = part_of(kind, tmp_path), table_of(kind), table_of(kind)
    commit_part(first, part, [], {})
    with pytest.raises(CommitFailedException):
        commit_part(second, part, [], {})


@pytest.mark.parametrize("fault", ["lose answer", "cut answer", "lose request", "500", "503"])
def test_a_rest_catalog_that_fails_is_asked_again_or_is_one_sentence(
    tmp_path: Path, rest: str, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    publish(tmp_path / "1", tmp_path, "rest", "old")
    run = ready(tmp_path / "2", tmp_path, "rest", "new", turn=2)
    failed = list[str]()

    def first_commit(_number: int, request: str) -> Fault:
        if request.startswith("POST /v1/namespaces/marts/tables/clicks") and not failed:
            failed.append(request)
            return fault
        return "none"

    with broken_wire(int(rest.rpartition(":")[2]), first_commit) as wire, monkeypatch.context() as patch:
        patch.setenv(_REST, f"http://127.0.0.1:{wire.port}")
        try:
            publish_run(run, NOW)
        except UnreachableError as err:
            said = str(err)
            assert said.startswith("iceberg://rest.marts.clicks: its store or its catalog cannot be read or written (")
            assert "\n" not in said
        record = publish_run(run, NOW)
    assert failed
    assert record.superseded is None
    assert seen("rest", tmp_path) == {str(DAY): ["new"] * 3}
    assert [about["turn"] for _, about in publications(table_of("rest"), part_of("rest", tmp_path))] == ["2", "1"]


@pytest.mark.usefixtures("amazon")
def test_a_catalog_that_commits_nothing_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    sentence = (
        r"output dynamodb\.marts\.clicks: pyiceberg's DynamoDbCatalog makes tables and reads them, and commits "
        "nothing; choose a catalog in SQL, or of the kinds REST, Glue or Hive"
    )
    with pytest.raises(SpecError, match=sentence):
        require_fitting(part_of("dynamodb", tmp_path))
    with pytest.raises(SpecError, match=sentence):
        staged(committed(tmp_path / "1", tmp_path, "dynamodb", result_table("new")))
    assert not open_catalog("dynamodb", "").list_namespaces()
