"""Days as partitions of a metastore's table: Hive's, and Glue as moto has it; published, killed, raced, read."""

import datetime as dt
import io
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hive_metastore.ThriftHiveMetastore import Client
from hive_metastore.ttypes import Database
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

from skewless.errors import LostRaceError, SpecError
from skewless.publication.publish import publishing
from skewless.publication.records import Publication, identity_of, record_of
from skewless.publication.retention import Limits
from skewless.run.directory import RESULT_STEP, RunDirectory
from skewless.run.folder import open_location
from skewless.spec import Output
from skewless_lake.catalogs import Column
from skewless_lake.partition_output import PartitionOutput, Versions, columns_of, draw_turn
from skewless_lake.pruning import prune_each
from skewless_lake.publication import published_parts, publishing_run, readers_have, roll_back, state_now
from skewless_lake.staged_files import OutputPart
from skewless_leases import Turns, open_store
from tests.lake.hive_catalog import hive_catalog, of_hive
from tests.object_stores import as_client, object_server
from tests.publication.days import NOW, commit_result, prepared, seen_while_published

STEPS = ("built", "claimed", "exchanged", "finished", "recorded")
ROWS = 50


class World:
    """A table in a metastore, and runs of one day: each row says which turn it is of."""

    def __init__(self, catalog: str, out: str, folder: Path) -> None:
        self.catalog, self.out, self.folder = catalog, out, folder
        self.name = f"{catalog}.marts.{folder.name.lower().replace('-', '_')}"
        above, _, last = out.rpartition("/")
        self.turns = Turns(open_store(f"{above}/.{last}.skewless/turns"))

    def ready(self, turn: int) -> RunDirectory:
        run = prepared(self.folder / "runs" / "simulation" / str(turn), self.out, turn, table=self.name, grace_hours=24)
        result, files = run.new_attempt(RESULT_STEP), []
        for number in range(3):
            path = result.path(f"{number}.parquet")
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table({"version": [turn] * ROWS, "Part": [f"p{number}"] * ROWS}), path)
            files.append(result.described("result", path, ROWS, copied=True))
        commit_result(run, result, files, rows=7, keys=3 * ROWS, columns={"version": "bigint", "Part": "string"})
        return run

    def steps(self, run: RunDirectory) -> Generator[str, None, Publication]:
        return publishing(run, PartitionOutput(run, NOW, self.turns), self.turns)

    def publish(self, run: RunDirectory) -> Publication:
        for _ in range(200):  # another one is in the middle of its publication
            try:
                steps = self.steps(run)
                while True:
                    next(steps)
            except StopIteration as ended:
                return ended.value
            except LostRaceError:
                continue
        raise AssertionError("it is never done")

    def at(self, run: RunDirectory) -> OutputPart:
        return OutputPart.of(run.job())

    def read(self, run: RunDirectory) -> int:
        """What a reader by the catalog gets, which must be one version, whole."""
        shown = Versions(self.at(run)).shown()
        assert shown is not None
        fs, root = open_location(shown.location.replace("file:/", "/") if self.catalog == "hive" else shown.location)
        names = [path for path in fs.find(root) if path.endswith(".parquet")]
        rows = pa.concat_tables(pq.read_table(io.BytesIO(fs.cat_file(path))) for path in names)
        assert rows.num_rows == 3 * ROWS
        [version] = set(rows["version"].to_pylist())
        return int(version)


@contextmanager
def _amazon(folder: Path) -> Iterator[None]:
    with object_server("moto", folder) as server, as_client(server.environment):
        boto3.client("glue", region_name="us-east-1").create_database(DatabaseInput={"Name": "marts"})
        yield


@contextmanager
def _hive(folder: Path) -> Iterator[None]:
    with hive_catalog(folder / "hive") as address, pytest.MonkeyPatch.context() as patch:
        for name, value in of_hive(address).items():
            patch.setenv(name, value)
        host, port = address.removeprefix("thrift://").split(":")
        with closing(TBufferedTransport(TSocket(host, int(port)))) as transport:
            transport.open()
            client: Any = Client(TBinaryProtocol(transport))
            client.create_database(Database(name="marts", locationUri=f"file:{folder}/marts"))
        yield


@pytest.fixture(scope="module", params=["glue", pytest.param("hive", marks=pytest.mark.long)])
def catalog(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with {"glue": _amazon, "hive": _hive}[request.param](tmp_path_factory.mktemp(request.param)):
        yield request.param


@pytest.fixture
def world(catalog: str, tmp_path: Path) -> World:
    return World(catalog, f"s3://lake/{tmp_path.name}" if catalog == "glue" else str(tmp_path / "out"), tmp_path)


def test_glue_has_no_table_of_a_folder_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    output, turns = Output(path="clicks", table="glue.marts.clicks"), Turns(open_store(f"{tmp_path}/turns"))
    with pytest.raises(
        SpecError, match=r"output.path: expected a folder at s3:// for glue.marts.clicks, but got /lake"
    ):
        draw_turn(output, "/lake/clicks", turns, 0)


def test_a_table_is_made_on_first_use_and_its_partition_shows_the_last_run(world: World) -> None:
    first, second = world.ready(1), world.ready(2)
    assert readers_have(first.job()) == "readers have no result of 2026-11-20"
    assert tuple(world.steps(first)) == STEPS
    assert readers_have(first.job()) == f"readers see that of {first}"
    assert world.read(first) == 1
    versions = Versions(world.at(first))
    table = world.name.partition(".")[2]
    columns = (Column("version", "bigint"), Column("part", "string"), Column("date", "date"))
    assert versions._store.columns(table) == columns
    list(publishing_run(second, NOW))
    assert world.read(first) == 2
    [(part, (_, by))] = published_parts(world.at(first)).items()
    assert (part, by.run) == ("2026-11-20", str(second))
    assert [one.turn for one in versions.kept()] == [1, 2]


def test_going_back_is_the_same_call_and_undoes_itself(world: World) -> None:
    runs = [world.ready(turn) for turn in (1, 2)]
    for run in runs:
        world.publish(run)
    assert roll_back(world.at(runs[0]), NOW)["run"] == str(runs[0])
    assert world.read(runs[0]) == 1
    assert [state_now(run).word for run in runs] == ["published", "superseded"]
    world.publish(runs[1])  # its task is cleared: what came after it stays
    assert world.read(runs[0]) == 1
    roll_back(world.at(runs[0]), NOW)
    assert world.read(runs[0]) == 2
    only = world.ready(9)
    world.publish(only)
    assert world.read(only) == 9


def test_a_type_that_hive_lacks_is_refused() -> None:
    nested = {"Rows": "array<struct<key:string,n:decimal(18,2)>>", "at": "timestamp_ntz"}
    assert columns_of(nested, "table t") == (Column("rows", nested["Rows"]), Column("at", "timestamp"))
    with pytest.raises(SpecError, match="column v: expected a type that Hive has, but got variant"):
        columns_of({"v": "map<string,variant>"}, "table t")


def test_nothing_to_go_back_to_and_other_columns_are_refused(world: World) -> None:
    run = world.ready(1)
    world.publish(run)
    with pytest.raises(SpecError, match="expected an earlier version, but got none"):
        roll_back(world.at(run), NOW)
    with pytest.raises(SpecError, match=r"expected the columns n int, date date, but got version bigint, part string"):
        Versions(world.at(run)).show(identity_of(run), 1, (Column("n", "int"),))


@pytest.mark.parametrize("step", STEPS)
def test_killed_after_any_step_and_tried_again_it_is_published_once(world: World, step: str) -> None:
    world.publish(world.ready(1))
    run = world.ready(2)
    attempt = world.steps(run)
    while next(attempt) != step:
        pass
    assert world.read(run) == (1 if STEPS.index(step) < STEPS.index("exchanged") else 2)
    world.publish(run)
    assert world.read(run) == 2
    assert [one.turn for one in Versions(world.at(run)).kept()] == [1, 2]


@pytest.mark.parametrize("killed", [False, True])
def test_one_that_sleeps_before_its_call_and_shows_its_older_version_is_mended(world: World, killed: bool) -> None:
    older, newer = world.ready(1), world.ready(2)
    late = world.steps(older)
    assert [next(late), next(late)] == ["built", "claimed"]
    world.publish(newer)
    assert next(late) == "exchanged"  # the older version is shown
    assert world.read(newer) == 1
    if not killed:
        list(late)
    world.publish(older)
    assert world.read(newer) == 2
    record = record_of(older)
    assert record is not None
    assert record.superseded is not None


def test_what_others_write_into_the_folder_of_a_version_goes_when_it_is_published_again(world: World) -> None:
    run = world.ready(1)
    world.publish(run)
    versions = Versions(world.at(run))
    fs, root = open_location(versions.folder_of(identity_of(run)))
    names = sorted(path for path in fs.find(root) if path.endswith(".parquet"))
    before = fs.info(names[1]).get("ino")
    fs.rm_file(names[0])
    with fs.open(f"{root}/part-of-spark.parquet", "wb") as out:
        out.write(b"strange")
    world.publish(run)
    assert sorted(path for path in fs.find(root) if path.endswith(".parquet")) == names
    assert before is None or fs.info(names[1])["ino"] != before, "readers may have its files: none is written in place"
    assert world.read(run) == 1


def test_versions_past_their_grace_and_those_of_removed_runs_go(world: World) -> None:
    runs = [world.ready(turn) for turn in (1, 2, 3)]
    world.publish(runs[0])
    world.publish(runs[1])
    versions = Versions(world.at(runs[0]))
    versions.remove_old(dt.datetime.now(dt.UTC))
    assert len(versions.kept()) == 2
    versions.remove_old(dt.datetime.now(dt.UTC) + dt.timedelta(hours=25))
    assert [one.turn for one in versions.kept()] == [2]
    world.publish(runs[2])
    later = dt.datetime.now(dt.UTC) + dt.timedelta(days=40)
    fates = list(prune_each(str(world.folder / "runs"), later, Limits(), dry_run=False))
    assert {fate.location.rpartition("/")[2]: fate.action for fate in fates} == {
        "1": "remove",
        "2": "keep",
        "3": "keep",
    }
    assert world.read(runs[2]) == 3


@pytest.mark.parametrize("count", [10, pytest.param(100, marks=pytest.mark.long)])
def test_readers_by_the_catalog_see_one_version_whole_while_days_are_published(world: World, count: int) -> None:
    first = world.ready(1)
    world.publish(first)
    runs = [world.ready(turn) for turn in range(2, count + 2)]
    seen = seen_while_published(lambda: world.read(first), world.publish, runs)
    assert len(set(seen)) > 1
    assert world.read(first) == count + 1
