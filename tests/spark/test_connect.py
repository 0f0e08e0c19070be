"""Steps as clients of a real Spark Connect server: each one a Python of its own, as Airflow starts them."""

from __future__ import annotations

import collections
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from deploy.local.standalone import free_port
from skewless.documents.ledger import balance
from skewless.planner.planner import plan_next_stage
from skewless.run.directory import RESULT_STEP, RunDirectory
from skewless_airflow.connect import server as connect_server
from skewless_airflow.connect.server import ConnectServer
from skewless_spark.session.connect import CLIENT_ONLY
from skewless_spark.session.shipped_code import write_archive
from tests.listening import LOOPBACK, listening
from tests.processes import side_by_side

pytestmark = pytest.mark.timeout(280)

JOBS = Path(__file__).parents[2] / "jobs"
WORDS = ["self"] * 900 + ["if"] * 300 + [f"word-{n % 40}" for n in range(400)]
SPEC: dict[str, Any] = {
    "name": "words",
    "input": {"path": "words"},
    "key": "word",
    "aggregates": {
        "occurrences": "count",
        "middle": {"function": "exact_median", "column": "size"},
        "sizes": {"function": "streaming_histogram", "column": "size", "bins": 4},
    },
    "engine": "staged",
    "routing": {"waves": [1], "reducers": 3, "stage_overhead": 0, "first_plan": ["last_run"]},
    "output": {"path": "published", "files": 2},
}
#: A job that would go on for minutes, with its progress every half second.
_BUSY = """
import time
from skewless_spark.session.connect import released
from skewless_spark.session.session import build_session
from skewless_spark.session.step_progress import StepProgress, announce

def slowly(batches):
    for batch in batches:
        time.sleep(1)
        yield batch

spark = build_session("a busy, slow step")
announce(spark)
with released(spark), StepProgress(spark, "busy", 4000, seconds=0.5):
    rows = spark.range(0, 4000, 1, 4).repartition(200)
    rows.mapInArrow(slowly, "id bigint").write.format("noop").mode("overwrite").save()
"""
#: Rows are told when the task that read them has ended, or with a heartbeat.
_SOME_ROWS = re.compile(r"skewless: busy: [1-9]\d* of 200 tasks, [1-9][\d,]* of 4,000 rows$")
_WHERE = """
from skewless_spark.session.connect import released
from skewless_spark.session.session import build_session

def where(batches):
    import pyarrow, sys
    from skewless.aggregates.registered import RegisteredAggregates
    found = sys.modules[type(RegisteredAggregates()["exact_median"]).__module__].__file__
    for batch in batches:
        yield pyarrow.RecordBatch.from_pydict({"path": [found] * batch.num_rows})

with released(build_session("where")) as spark:
    print("found", spark.range(1).mapInArrow(where, "path string").first()[0])
"""
_SUM = """
import sys
from pyspark.sql import functions as F
from skewless_spark.session.connect import released
from skewless_spark.session.session import build_session

with released(build_session("sum")) as spark:
    print("sum", spark.read.parquet(sys.argv[1]).agg(F.sum("number")).first()[0])
"""
_TEXT = """
from pyspark.sql import functions as F
from skewless_spark.session.connect import released
from skewless_spark.session.session import build_session

with released(build_session("text")) as spark:
    rows = spark.range(1).select(F.expr("'price: ${x}${env:HOME}'")).where("'${x}' <> ''").collect()
    print("text", *(row[0] for row in rows))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    folder = tmp_path_factory.mktemp("server")
    connect_server.describe(folder, free_port(), free_port(), "1g")
    try:
        with connect_server.in_use(folder) as found:
            yield found
    finally:
        assert connect_server.stop(folder)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("root")
    (folder / "words").mkdir()
    for number in range(4):
        mine = WORDS[number::4]
        table = pa.table({"word": mine, "size": pa.array([len(word) for word in mine], pa.int32())})
        pq.write_table(table, folder / "words" / f"{number}.parquet")
    return folder


def client(server: ConnectServer, **more: str) -> dict[str, str]:
    address = f"sc://localhost:{server.port}/;token={server.token}"
    kept = {name: value for name, value in os.environ.items() if name not in CLIENT_ONLY}
    return {**kept, "SPARK_REMOTE": address, "SKEWLESS_SPARK_UI": server.ui, **more}


def python(arguments: Sequence[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], env=dict(environment), capture_output=True, text=True, check=False, timeout=120
    )


def entry(name: str, run: RunDirectory, environment: Mapping[str, str], *more: str) -> str:
    """Run a step's entry to its good end; what it said."""
    done = python([str(JOBS / name), "--run-dir", str(run), *more], environment)
    assert not done.returncode, done.stdout + done.stderr
    return done.stdout


def prepared(spec: Mapping[str, Any], root: Path, environment: Mapping[str, str]) -> RunDirectory:
    path = root / f"{spec['name']}.yaml"
    path.write_text(yaml.safe_dump(dict(spec)))
    run = RunDirectory(str(root / "runs" / str(spec["name"])))
    entry("prepare_run.py", run, environment, "--spec", str(path), "--date", "2026-11-20", "--root", str(root))
    return run


@pytest.mark.long
def test_a_job_with_native_and_python_aggregates_comes_out_as_counted(server: ConnectServer, root: Path) -> None:
    environment = client(server)
    run = prepared(SPEC, root, environment)
    said, stage = "", 0
    while stage == 0 or run.decide(stage, plan_next_stage).next_plan is not None:
        said += entry("run_stage.py", run, environment, "--stage", str(stage))
        stage += 1
    entry("merge_states.py", run, environment)
    assert "checks passed" in entry("validate_result.py", run, environment)
    assert f"at {server.ui}" in said, "the log has the address of the UI"
    assert server.token not in said
    commit = run.committed(RESULT_STEP)
    assert not balance(run.job(), run.reports(), commit.counts["rows"]).problems
    table = pa.concat_tables(pq.read_table(run.path(file.path)) for file in commit.files)
    counted = dict(zip(table["word"].to_pylist(), table["occurrences"].to_pylist(), strict=True))
    assert counted == collections.Counter(WORDS)
    medians = dict(zip(table["word"].to_pylist(), table["middle"].to_pylist(), strict=True))
    assert medians == {word: float(len(word)) for word in counted}


@pytest.mark.long
def test_a_select_list_is_frozen_by_a_parser_of_its_own_and_run_by_the_server(
    server: ConnectServer, root: Path
) -> None:
    spec = {
        **SPEC,
        "name": "letters",
        "map": {"select": ["upper(word) AS word", "explode(split(word, '')) AS letter"], "where": "size < 5"},
        "key": "letter",
        "aggregates": {"occurrences": "count"},
        "output": {"path": "letters", "format": "csv"},
    }
    environment = client(server)
    run = prepared(spec, root, environment)
    assert [one.generator for one in run.job().source.selected] == ["", "explode"]
    entry("run_stage.py", run, environment, "--stage", "0")
    expected = sum(len(word) for word in WORDS if len(word) < 5)
    assert sum(load.processed_rows + load.backlog_rows for load in run.report(0).tasks) == expected
    bad = root / "bad.yaml"
    bad.write_text(yaml.safe_dump({**spec, "name": "bad", "map": {"select": ["rand() AS letter"]}}))
    run_dir = str(root / "runs" / "bad")
    refused = python(
        [str(JOBS / "prepare_run.py"), "--run-dir", run_dir, "--spec", str(bad), "--date", "2026-11-20", "--root",
         str(root)], environment,
    )  # fmt: skip
    assert refused.returncode == 2
    assert "the function rand" in refused.stderr


@pytest.mark.timeout(60)
def test_a_step_says_how_far_it_is_and_stops_the_server_s_work_when_it_is_told_to_end(server: ConnectServer) -> None:
    command = [sys.executable, "-c", _BUSY]
    told = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with side_by_side([command], env=client(server), **told) as (busy,):
        assert busy.stdout is not None
        said = []
        for line in busy.stdout:
            said.append(line)
            if _SOME_ROWS.match(line):
                break
        assert _SOME_ROWS.match(said[-1]), said
        assert active_stages(server)
        busy.send_signal(signal.SIGTERM)
        busy.stdout.read()
        assert busy.wait(timeout=30) == 128 + signal.SIGTERM
    deadline = time.monotonic() + 20
    while active_stages(server) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not active_stages(server)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("sc://localhost:1", "Spark Connect: expected a server at localhost:1"),
        ("sc://localhost:{port}/;token=wrong-token", "UNAUTHENTICATED"),
    ],
    ids=["nobody answers", "the token is wrong"],
)
def test_a_server_that_does_not_take_us_is_told_in_a_sentence_without_the_token(
    server: ConnectServer, root: Path, address: str, words: str
) -> None:
    run = prepared({**SPEC, "name": "unheard"}, root, os.environ)
    environment = {**client(server), "SPARK_REMOTE": address.format(port=server.port)}
    done = python([str(JOBS / "run_stage.py"), "--run-dir", str(run), "--stage", "0"], environment)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("skewless: ")
    assert words in last
    assert "wrong-token" not in done.stdout + done.stderr


def test_workers_take_the_code_that_was_sent_before_any_that_is_installed(server: ConnectServer) -> None:
    done = python(["-c", _WHERE], client(server, SKEWLESS_SHIP_CODE="1"))
    assert "skewless.zip/skewless/aggregates/" in done.stdout, done.stdout + done.stderr


def test_the_code_that_is_sent_has_the_names_that_it_registers(tmp_path: Path) -> None:
    write_archive(tmp_path / "skewless.zip")
    with zipfile.ZipFile(tmp_path / "skewless.zip") as archive:
        names = archive.namelist()
        (registered,) = [name for name in names if name.endswith(".dist-info/entry_points.txt")]
        assert "exact_median" in archive.read(registered).decode()
    assert {"skewless/documents/job.py", "skewless_spark/states/python_reduction.py"} <= set(names)


def test_the_server_its_driver_and_its_ui_listen_on_the_loopback_only(server: ConnectServer) -> None:
    addresses = listening(server.session.processes())
    assert len(addresses) >= 3
    assert not [address for address in addresses if not address.startswith(LOOPBACK)]


def test_only_the_owner_can_read_the_token(tmp_path: Path) -> None:
    described = connect_server.describe(tmp_path, 1, 2, "1g")
    assert described.token in (tmp_path / "server.json").read_text()
    assert (tmp_path / "server.json").stat().st_mode & 0o077 == 0


@pytest.mark.long
def test_a_server_whose_workers_may_know_older_code_is_exchanged_once_nobody_uses_it(tmp_path: Path) -> None:
    connect_server.describe(tmp_path, free_port(), free_port(), "1g")
    used: list[ConnectServer] = []

    def use() -> None:
        with connect_server.in_use(tmp_path) as server:
            used.append(server)

    try:
        with connect_server.in_use(tmp_path) as first:
            use()
            assert used == [first], "two may use it at once"
            state = tmp_path / "server.json"
            state.write_text(json.dumps({**json.loads(state.read_text()), "code": "of before"}))
            second = threading.Thread(target=use)
            second.start()
            second.join(2)
            assert second.is_alive()
            assert first.session.leads()
        second.join(120)
        assert used[1].pid != first.pid
        assert (used[1].code, used[1].token) == (first.code, first.token)
        assert not first.session.leads()
    finally:
        assert connect_server.stop(tmp_path)


def active_stages(server: ConnectServer) -> list[Any]:
    """The Spark stages that run on the server now, as its UI tells."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def asked(path: str) -> Any:
        with opener.open(f"{server.ui}/api/v1/{path}", timeout=10) as answer:
            return json.load(answer)

    (application,) = asked("applications")
    return list(asked(f"applications/{application['id']}/stages?status=active"))


def test_dollars_in_sql_are_text_on_a_server(server: ConnectServer) -> None:
    done = python(["-c", _TEXT], client(server))
    assert done.stdout == "text price: ${x}${env:HOME}\n", done.stderr[-2000:]


def test_a_bit_that_turned_in_a_page_is_found_by_the_server_too(server: ConnectServer, tmp_path: Path) -> None:
    path, environment = tmp_path / "numbers.parquet", client(server)
    numbers = pa.table({"number": pa.array(range(1000), pa.int64())})
    pq.write_table(numbers, path, compression="none", use_dictionary=False, write_page_checksum=True)
    assert "sum 499500" in python(["-c", _SUM, str(path)], environment).stdout
    content = bytearray(path.read_bytes())
    content[content.index((777).to_bytes(8, "little"))] ^= 1
    path.write_bytes(content)
    done = python(["-c", _SUM, str(path)], environment)
    assert "could not verify page integrity, CRC checksum verification failed" in done.stderr, done.stdout
