"""What the pages say at every moment of a run's life, and that keys stay data on all of them."""

import dataclasses
import datetime as dt
import io
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, cast
from urllib.parse import urljoin

import pytest
from fastapi.testclient import TestClient
from rich.console import Console

from benchmarks.simulation import Simulation
from skewless.documents.job import PinnedTable
from skewless.documents.ledger import PartLine, PartLines, balance
from skewless.documents.quality import QualityReport
from skewless.documents.stage_report import Decision, EngineChoice, SplitLoad, StageReport
from skewless.documents.step_documents import Failure
from skewless.documents.window import JobWindow, SeenFile, WindowPart, WindowSpan
from skewless.publication.records import Identity, Overtaken
from skewless.run.directory import (
    PART_LINES,
    QUALITY_REPORT,
    QUALITY_STEP,
    RESULT_STEP,
    WINDOW_PLAN,
    RunDirectory,
)  # fmt: skip
from skewless.run.step_times import bill_of, run_facts
from skewless.spec.result import Window
from skewless.standing.tree import WindowPlan
from skewless_airflow.run_store import run_location
from skewless_airflow.web.rendering import HEIGHT, day, load_chart
from skewless_airflow.web.views.stage_view import read_stage
from skewless_cli.run_view import as_object, show
from tests import airflow_setting
from tests.airflow.web_scenario import (
    DAG,
    EVIL,
    OTHER_DAG,
    Moments,
    large_run,
    make_dags,
    served,
    synthetic_run,
    trigger,
)
from tests.tiers import mostly_long

pytestmark = [airflow_setting.IN_PROCESS, pytest.mark.usefixtures("airflow_database")]

_MOST_BYTES = 300_000
#: As large as Iceberg's are.
_SNAPSHOT = 8_123_456_789_012_345_678


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    return synthetic_run()


def _combined(location: str, simulation: Simulation, splits: Sequence[int] = ()) -> None:
    """A run that nothing was routed in: no tasks; without splits, as where clusters shared it, no head either."""
    report, plan = simulation.reports[0], simulation.plans[0]
    choice = EngineChoice(engine="combine", rows=10, sentence=f"combine: states are small {EVIL}")
    whole = plan.model_copy(update={"engine": "combine", "waves": (0, len(simulation.job.waves)), "budget_rows": None})
    last, rows = simulation.reports[-1].histogram, simulation.job.rows
    histogram = last if splits else report.histogram.model_copy(update={"head": {}})
    loads = tuple(SplitLoad(rows=one) for one in [*splits, rows - sum(splits)]) if splits else ()
    combined = report.model_copy(
        update={
            "tasks": (), "splits": loads, "histogram": histogram, "waves": whole.waves, "admitted_rows": rows,
            "processed_rows": rows, "backlog_rows": 0,
        }
    )  # fmt: skip
    decision = Decision(
        stage=0, policy="adaptive", engine=choice, queued_rows=10, candidates=(), certificate=None,
        sentence=choice.sentence, next_plan=whole,
    )  # fmt: skip
    run = RunDirectory(location)
    run.write_once("job.json", simulation.job)
    run.enact(decision)
    attempt = run.new_attempt("stages/0000")
    attempt.write("report.json", StageReport.model_validate(combined.model_dump()))
    attempt.commit([], {"processed_rows": rows})


def _of_window(location: str, simulation: Simulation) -> None:
    """A merged run over three days, of which one was reused, one added to, and one is new."""
    job, units = simulation.job, len(simulation.job.units)
    version = "stat:1795219198000000000:0:0"
    seen = [SeenFile(path=f"/in/{name}", size_bytes=1, version=version, ranks=(0,)) for name in "abc"]
    first = {"files": seen[:1], "base": 3, "base_rows": 500, "before_rows": 500, "reused": 1}
    added = {"files": seen[1:], "units": (0, 1), "ranks": (256,), "base": 1, "base_rows": 700, "before_rows": 700}
    added |= {"reused": 1, "added": 1, "late_rows": 60, "reasons": (f"/in/{EVIL} was added",)}
    new = {"files": seen[:1], "units": (1, units), "ranks": range(units - 1), "added": 1}
    days = {"2026-11-18": first, "2026-11-19": added, "2026-11-20": new}
    parts = tuple(WindowPart.model_validate({"name": day, "place": at, **days[day]}) for at, day in enumerate(days))
    missing = ("2026-11-17",)
    window = JobWindow(
        store="/states", fingerprint="f" * 24, shapes={}, windows=(WindowSpan(),), missing=missing, parts=parts
    )
    path = job.spec.input.model_copy(update={"path": "/in/date={date}"})
    spec = job.spec.model_copy(update={"window": Window(length=4), "input": path})
    job = job.model_copy(update={"spec": spec, "window": window})
    run = Moments(location, dataclasses.replace(simulation, job=job)).prepare().stages().run
    counts = ((500, 0, 0), (700, 60, 0), (0, 19_940, 0))
    of_days = (
        PartLine(part=day, unchanged_rows=kept, new_rows=fresh, taken_out_rows=out)
        for day, (kept, fresh, out) in zip(days, counts, strict=True)
    )
    lines = PartLines(parts=tuple(of_days))
    attempt = run.new_attempt(RESULT_STEP)
    attempt.write(PART_LINES, lines)
    plan = WindowPlan(
        parts=tuple(f"{day}@1" for day in days), made={}, results={"4": ("a", "b")}, passed_over=(f"a ({EVIL})",)
    )
    attempt.write(WINDOW_PLAN, plan)
    attempt.commit([], {"rows": 21_200, "keys": 400})
    ledger = balance(job, run.reports(), 21_200, lines)
    attempt = run.new_attempt(QUALITY_STEP)
    attempt.write(QUALITY_REPORT, QualityReport(success=True, keys=400, checks=(), ledger=ledger))
    attempt.commit([], {"checks": 0, "failed": 0})


def _from_table(simulation: Simulation) -> Simulation:
    """The run, if its input were a table, and if the two nights before it had been skipped."""
    pinned = PinnedTable(kind="iceberg", name=f"lake.{EVIL}", snapshot=str(_SNAPSHOT), left_out=7)
    source = simulation.job.source.model_copy(update={"pinned": pinned})
    changed = {"source": source, "skipped": ("2026-11-18", "2026-11-19")}
    return dataclasses.replace(simulation, job=simulation.job.model_copy(update=changed))


_LATER = Overtaken(by=Identity(job="0" * 64, run="/runs/<img src=x>/later"), turn=2)
#: Every moment of a run's life, by the run's id.
_MOMENTS: dict[str, Callable[[str, Simulation], object]] = {
    "triggered": lambda _location, _run: None,
    "prepared": lambda location, run: Moments(location, run).prepare(),
    "one-stage": lambda location, run: Moments(location, run).prepare().stages(1),
    "all-stages": lambda location, run: Moments(location, run).prepare().stages(),
    "merged": lambda location, run: Moments(location, run).prepare().stages().merge(),
    "combined": _combined,
    "combined-measured": lambda location, run: _combined(location, run, [run.job.rows // 2]),
    "failed-quality": lambda location, run: Moments(location, run).prepare().stages().merge().validate(success=False),
    "finished": lambda location, run: (
        Moments(location, run).prepare().stages().times().merge().validate().publish(snapshot=_SNAPSHOT)
    ),
    "window": _of_window,
    "superseded": lambda location, run: (
        Moments(location, _from_table(run)).prepare().stages().merge().validate().publish(superseded=_LATER)
    ),
}
_RUNNING = {"triggered", "prepared", "one-stage", "all-stages", "merged", "combined", "combined-measured", "window"}
_PAGES = ("skew", "parts", "quality", "what-if", "tasks/stage_01.plan/decision",
          "tasks/prepare/decision", "tasks/stage_09.plan/decision")  # fmt: skip


@pytest.fixture(scope="module")
def clients(
    tmp_path_factory: pytest.TempPathFactory,
    simulation: Simulation,
    airflow_database: None,  # noqa: ARG001  # it must be there first
) -> Iterator[dict[str, TestClient]]:
    folder = tmp_path_factory.mktemp("web")
    with served(folder) as clients:
        make_dags(folder)
        for run_id, write in _MOMENTS.items():
            trigger(clients["admin"], DAG, run_id, None if run_id in _RUNNING else "success")
            write(run_location(DAG, run_id), simulation)
        Moments(run_location(DAG, "local__2026"), simulation).prepare().stages(1)
        trigger(clients["admin"], OTHER_DAG, "theirs")
        yield clients


@pytest.fixture
def viewer(clients: dict[str, TestClient]) -> TestClient:
    return clients["viewer"]


def _page(viewer: TestClient, run_id: str, page: str = "skew") -> str:
    answer = viewer.get(f"/skewless/dags/{DAG}/runs/{run_id}/{page}")
    assert answer.status_code == 200, answer.text
    return answer.text


@pytest.mark.parametrize(
    ("page", "run_id"),
    mostly_long(
        [(page, run_id) for page in _PAGES for run_id in _MOMENTS],
        *(("skew", run_id) for run_id in _MOMENTS),
        ("parts", "window"),
        ("quality", "finished"),
        ("what-if", "finished"),
        ("tasks/stage_01.plan/decision", "finished"),
    ),
)
def test_every_page_renders_at_every_moment_and_keys_stay_text(viewer: TestClient, run_id: str, page: str) -> None:
    text = _page(viewer, run_id, page)
    assert len(text.encode()) < _MOST_BYTES
    _Sound().feed(text)
    assert "<img" not in text
    assert not re.search(r"\s(on\w+|style)\s*=", text.replace("&lt;img src=x onerror=", "")), "inline code or style"
    assert "javascript:" not in text


@pytest.mark.parametrize(
    ("run_id", "words"),
    [
        ("triggered", ["There is nothing to show yet", "This run computes 2", "not prepared yet"]),
        ("prepared", ["No stage has committed yet", "prepare"]),
        ("one-stage", ["Stage 0", "Decision about stage 1", "Candidates", "stand still", "so far"]),
        ("all-stages", ["it balances so far", "Not validated yet"]),
        ("merged", ["in the states"]),
        (
            "combined",
            ["Nothing was routed", "combine: states are small", "not measured: the rows of each", "is not measured"],
        ),
        (
            "combined-measured",
            ["Nothing was routed", "split 1: ", "above the fair share", "Hot keys", "reduced where it is read"],
        ),
        ("failed-quality", ["failed validation, nothing is published", "max_value=5", "1 of 400 values unexpected"]),
        ("superseded", ["superseded by a later run", "<code>/runs/&lt;img src=x&gt;/later</code>", "turn 2"]),
        (
            "window",
            [
                "3 parts.",
                "2 reused, 0 reread, 2 added, 0 replaced, 0 removed",
                "1,200 rows were not read",
                "1,200 in kept states",
            ],
        ),
        ("finished", ["published", "it balances.", "4 of 4 checks passed", "Balance:"]),
        ("finished", [f"lake.marts.clicks/date=2026-11-20</code> as snapshot <code>{_SNAPSHOT}</code> of the table"]),
        (
            "superseded",
            [
                f"<dd>lake.&lt;img src=x onerror=alert(1)&gt;, snapshot {_SNAPSHOT}, 7 files left out by map.where: ",
                "<dd>nobody has computed 2 parts before this one: 2026-11-18, 2026-11-19</dd>",
            ],
        ),
        ("finished", ["Where the time went", "<b>between two steps</b>", "Spark job, 24 tasks", "in none of these"]),
    ],
)
def test_the_run_page_tells_where_the_run_stands(viewer: TestClient, run_id: str, words: list[str]) -> None:
    text = _page(viewer, run_id)
    missing = [one for one in words if one not in text and one not in _page(viewer, run_id, "quality")]
    assert not missing


def test_the_page_of_parts_tells_what_was_read_and_what_was_reused(viewer: TestClient) -> None:
    text = _page(viewer, "window", "parts")
    for words in (
        "of the window of 2026", "1 more without files", "rows not read</dt><dd>1,200", "rows read</dt><dd>20,000",
        "late rows</dt><dd>60", "Without files: 2026-11-17", "/in/&lt;img src=x",
        '2026-11-19<td class="n" data-is="changed, parts later">1<td data-is="this run">added to<',
        "Reused: 1 other part.",
        "newest file of 2026-11-20: modified 2026-11-20 23:59:58 UTC",
    ):  # fmt: skip
        assert words in text, words
    assert "window 4: a merge of 2 states; 0 merged states of several parts made" in text
    assert "Not used: a (&lt;img" in text
    assert "This job has no window" in _page(viewer, "finished", "parts")
    assert "There is nothing to show yet" in _page(viewer, "triggered", "parts")
    found = viewer.get(f"/skewless/api/v1/dags/{DAG}/runs/window").json()["run"]["window"]
    assert (found["new_rows"], found["late_rows"], found["restated_rows"]) == (20_000, 60, 0)


def _before_the_certificate(text: str) -> str:
    above, certificate, _ = text.partition('class="callout certificate')
    assert certificate, "it is on the page all the same"
    return " ".join(re.sub(r"<[^>]*>", " ", above.partition("</nav>")[2]).split())


def test_of_a_failed_run_the_step_and_its_sentence_come_before_the_certificate(
    viewer: TestClient, clients: dict[str, TestClient], simulation: Simulation
) -> None:
    trigger(clients["admin"], DAG, "broken", "failed")
    run = Moments(run_location(DAG, "broken"), simulation).prepare().stages(1).run
    words = ("wave 1 was cut.", "first the disk was full.", f"then row {EVIL} was lost.")
    for name, sentence in zip(("stage_00.run-1", "stage_01.run-2", "stage_01.run-10"), words, strict=True):
        run.write_once(f"failures/{name}-0a1b2c3d.json", Failure(exit_code=1, sentence=sentence))
    text = _page(viewer, "broken")
    above = _before_the_certificate(text)
    assert "Step stage_01.run failed then row &lt;img src=x onerror=alert(1)&gt; was lost." in above
    assert "failed in stage_01.run" in text
    assert "wave 1 was cut." not in above, "stage 0 was tried again, and did it"
    assert all(word in text for word in ("stage_00.run, try 1: wave 1 was cut.", "try 2: first the disk was full."))


def test_a_run_that_goes_on_is_followed_and_one_that_ended_is_not(viewer: TestClient) -> None:
    for run_id in _MOMENTS:
        answer = viewer.get(f"/skewless/dags/{DAG}/runs/{run_id}/skew")
        assert ("refresh.js" in answer.text) == (run_id in _RUNNING)
        assert ("script-src 'self'" in answer.headers["Content-Security-Policy"]) == (run_id in _RUNNING)
        assert "unsafe" not in answer.headers["Content-Security-Policy"]


def test_a_dag_that_is_no_job_has_the_tabs_and_is_told_so(viewer: TestClient) -> None:
    run = viewer.get(f"/skewless/dags/{OTHER_DAG}/runs/theirs/skew").text
    assert "its DAG is not a Skewless job" in run
    assert "refresh.js" not in run, "there is nothing to wait for"
    assert 'class="tabs"' not in run, "nor to look at"
    assert "This DAG has no run directory" in viewer.get(f"/skewless/dags/{OTHER_DAG}/over-time").text
    assert f"/dags/{OTHER_DAG}" not in viewer.get("/skewless/").text


def _seconds(work: Callable[[], object]) -> float:
    begun = time.process_time()  # ours alone, whatever else the machine does
    work()
    return time.process_time() - begun


@pytest.mark.long
def test_the_first_look_at_ten_thousand_tasks_takes_little_more_than_to_decode_their_documents(
    viewer: TestClient,
) -> None:
    looks, decodings, texts = [], [], []
    huge = large_run(tasks=10_000, keys=20_000)
    assert len(huge.reports) == 3
    for run_id in ("huge", "huge_2", "huge_3"):  # the best of three: the same one takes up to twice as long
        folder = Path(run_location(DAG, run_id))
        Moments(str(folder), huge).prepare().stages()
        decodings.append(_seconds(lambda: [json.loads(file.read_bytes()) for file in folder.rglob("*.json")]))  # noqa: B023
        looks.append(_seconds(lambda: texts.append(_page(viewer, run_id))))  # noqa: B023
        assert _seconds(lambda: _page(viewer, run_id)) < 1.0, "what was read once is not read again"  # noqa: B023
        shutil.rmtree(folder)  # as lists of runs read it too
    assert min(looks) < 1.6 * min(decodings), (looks, decodings)
    text = texts[-1]
    assert "The 60 longest queues of 10,000." in text
    assert "9,940 other tasks" in text
    assert "The 50 hottest of 20,000 head keys" in text
    assert len(text.encode()) < _MOST_BYTES


@pytest.mark.parametrize("busy", [8, 7, 17], ids=["one split a slot", "one slot idle", "two rounds"])
def test_no_chart_contradicts_its_verdict(tmp_path: Path, busy: int) -> None:
    """Of 17 splits on 8 slots some are empty: what is drawn is what the run waited for."""
    run = synthetic_run(reducers=8)
    rows = run.job.rows
    _combined(str(tmp_path), run, [rows // busy] * (busy - 1) + [0] * (17 - busy))
    stage = read_stage(RunDirectory(str(tmp_path)), 0)
    assert stage is not None
    assert (stage.tasks, stage.slots, len(stage.side_by_side)) == (17, 8, 8)
    assert stage.gap is not None
    chart = load_chart(stage, 60)
    assert chart.line is not None
    bars = [rect.height / (HEIGHT - chart.line) for rect in chart.rects if rect.kind == "done"]
    assert max(bars) == pytest.approx(1 + stage.gap, abs=0.01)
    assert (stage.gap < 0.02) == (busy == 8)


def test_lines_of_the_input_and_rows_after_the_map_are_both_named(viewer: TestClient, simulation: Simulation) -> None:
    mapped = [report.model_copy(update={"source_rows": 7 + report.stage}) for report in simulation.reports]
    Moments(run_location(DAG, "mapped"), dataclasses.replace(simulation, reports=mapped)).prepare().stages()
    text = _page(viewer, "mapped")
    lines = sum(7 + stage for stage in range(len(mapped)))
    assert f"<dt>input lines</dt><dd>{lines}" in text
    assert f"<dt>rows after the map</dt><dd>{sum(one.processed_rows for one in mapped):,}" in text
    assert "input lines" not in _page(viewer, "finished")


def test_a_removed_file_is_no_row_that_came_late(simulation: Simulation, tmp_path: Path) -> None:
    _of_window(str(tmp_path / "added"), simulation)
    job = RunDirectory(str(tmp_path / "added")).job()
    window = job.window
    assert window is not None
    changed = {"base": None, "base_rows": 0, "reused": 0, "added": 0, "removed": 1, "late_rows": 0}
    parts = (window.parts[0], window.parts[1].model_copy(update=changed), window.parts[2])
    job = job.model_copy(update={"window": window.model_copy(update={"parts": parts})})
    Moments(str(tmp_path / "removed"), dataclasses.replace(simulation, job=job)).prepare().stages()
    for name, words, late in (
        ("added", "late by 1 part: 2026-11-19, added to, 60 late rows", {"2026-11-19": 1}),
        ("removed", "changed after 1 part: 2026-11-19, reduced anew, 0 late rows", {}),
    ):
        text, run = io.StringIO(), RunDirectory(str(tmp_path / name))
        show(run, Console(file=text, width=300))
        assert words in text.getvalue()
        assert as_object(run)["late_parts"] == late


def test_every_chart_has_a_name_a_scale_and_its_numbers_in_text(viewer: TestClient) -> None:
    pages = [*(_page(viewer, run_id) for run_id in _MOMENTS), _page(viewer, "window", "parts")]
    pages += [viewer.get(f"/skewless/{page}").text for page in ("", f"dags/{DAG}/over-time")]
    for text in pages:
        assert all('aria-label="' in one or 'aria-hidden="true"' in one for one in re.findall("<svg[^>]*>", text))
        plots = re.findall(
            r'<div class="plot">.*?</div>\s*<svg class="(\w+)"[^>]*aria-label="([^"]*)"', text, re.DOTALL
        )
        assert text.count('class="plot"') == len(plots)
        assert all(", from 0 to " in name for _, name in plots)
        assert text.count('<div class="dates">') == sum(kind == "spark" for kind, _ in plots)


def test_every_decision_is_told_with_all_that_it_refused(viewer: TestClient, simulation: Simulation) -> None:
    text = _page(viewer, "finished").replace("&#39;", "'").replace("&gt;", ">").replace("&lt;", "<")
    for decision in simulation.decisions:
        assert decision.sentence[1:] in text, "all but its first letter, which is a capital"
        assert all(one.sentence[1:] in text for one in decision.candidates)
        if decision.certificate:
            assert decision.certificate.conclusion in text


def test_hot_keys_are_named_with_where_they_go(viewer: TestClient, simulation: Simulation) -> None:
    text = _page(viewer, "finished")
    seen, _ = simulation.reports[-1].histogram.head[EVIL]
    row = re.search(
        rf"<tr><td class=\"top\"><code><bdi>&lt;img src=x onerror=alert\(1\)&gt;</bdi></code><td .*>{seen:,}<.*", text
    )
    assert row
    assert re.search("split over|pinned to", row[0])
    assert "pinned to" in text
    assert "&#39;line\\nend&#39;" in text, "odd characters of a key are visible"


def test_a_plan_task_shows_its_one_decision(viewer: TestClient, simulation: Simulation) -> None:
    text = _page(viewer, "finished", "tasks/stage_02.plan/decision")
    assert "Decision about stage 2" in text
    assert f"{simulation.decisions[1].queued_rows:,} rows queued" in text
    assert "Based on stage 1" in text
    grouped = _page(viewer, "finished", "tasks/my_group.stage_02.plan/decision")
    assert "Decision about stage 2" in grouped
    for other in ("stage_00.run", "%3Cimg%20src=x%3E"):
        assert "takes no decision" in _page(viewer, "finished", f"tasks/{other}/decision")


def test_several_aggregations_of_a_dag_are_kept_apart(viewer: TestClient, simulation: Simulation) -> None:
    for group in ("clicks", "views"):
        moments = Moments(run_location(f"{DAG}+{group}", "several"), simulation).prepare()
        if group == "clicks":
            moments.stages().merge().validate()
    first = f"/skewless/dags/{DAG}/runs/several/skew"
    assert viewer.get(first).status_code == 404, "neither Airflow nor the only aggregation knows it"
    clicks, views = (viewer.get(first, params={"group": group}).text for group in ("clicks", "views"))
    assert "Stage 0" in clicks
    assert "No stage has committed." in views, "Airflow knows of no run that goes on"
    assert "skew?group=views" in clicks
    task = viewer.get(f"/skewless/dags/{DAG}/runs/several/tasks/clicks.stage_01.plan/decision").text
    assert "Decision about stage 1" in task
    assert "skew?group=clicks" in task
    assert "4 of 4 checks passed" in _page(viewer, "several", "quality?group=clicks")
    over_time = viewer.get(f"/skewless/dags/{DAG}/over-time", params={"group": "clicks"}).text
    assert over_time.count("runs/several/skew?group=clicks") == 1
    assert "runs/finished/skew" not in over_time
    jobs = viewer.get("/skewless/api/v1/dags").json()["dags"]
    # Other tests of this process may have left DAGs in Airflow's database, and groups of this one on disk.
    others = {"many", "figures"}
    ours = [(one["dag_id"], one["group"]) for one in jobs if one["dag_id"] == DAG and one["group"] not in others]
    assert ours == [(DAG, ""), (DAG, "clicks"), (DAG, "views")]


def test_runs_are_seen_over_time_with_those_that_airflow_does_not_know(
    viewer: TestClient, simulation: Simulation
) -> None:
    text = viewer.get(f"/skewless/dags/{DAG}/over-time").text
    for run_id in _MOMENTS:
        assert (f"runs/{run_id}/skew" in text) == (run_id != "triggered"), "it has no run directory"
    assert "runs/local__2026/skew" in text
    assert "Stage 0" in _page(viewer, "local__2026")
    assert text.count('<figure class="tile">') == 6
    assert day(str(simulation.job.part)) in text, "a day is named by its day"
    assert "failed" in text


def test_lists_of_runs_read_what_they_show_and_no_more(viewer: TestClient, simulation: Simulation) -> None:
    good, bad = (Moments(run_location(f"{DAG}+many", name), simulation).prepare().stages().merge() for name in "ab")
    good.validate().publish()
    bad.validate(success=False)
    Path(run_location(f"{DAG}+many", "a"), "plans", "0000.json").write_text("{")  # the last one tells the engine
    assert "readers see that of an earlier run" in _page(viewer, "b", "quality?group=many")
    over_time = viewer.get(f"/skewless/dags/{DAG}/over-time?group=many").text
    assert "unreadable" not in over_time
    assert f">{simulation.job.rows:,}<" in over_time


def test_the_nights_of_a_job_beside_another_one_are_counted_and_name_the_worst_keys(
    viewer: TestClient, simulation: Simulation
) -> None:
    for number, (night, differ) in enumerate(((0, 1), (1, 2), (2, 0), (0, 0))):  # the last is of the first's day
        date = simulation.job.date + dt.timedelta(days=night)
        of_night = dataclasses.replace(simulation, job=simulation.job.model_copy(update={"date": date}))
        Moments(run_location(f"{DAG}+shadow", f"night{number}"), of_night).compare(differ)
    text = viewer.get(f"/skewless/dags/{DAG}/comparisons?group=shadow").text
    assert "3 nights compared, 1 differ<" in text
    assert text.count("400") == 4, "each night, and the summary of the one that differs"
    assert text.count("&lt;img src=x onerror=alert(1)&gt;: occurrences 7 here") == 2
    assert EVIL not in text
    assert "No run of this DAG was compared" in viewer.get(f"/skewless/dags/{DAG}/comparisons").text
    told = viewer.get(f"/skewless/api/v1/dags/{DAG}/comparisons?group=shadow").json()
    assert told["verdict"] == "3 nights compared, 1 differ"
    assert sorted(one["comparison"]["differ"] for one in told["runs"]) == [0, 0, 2]
    run = viewer.get(f"/skewless/dags/{DAG}/runs/night1/skew?group=shadow").text
    assert "compared, 400 keys, 2 differ; nothing was published" in run
    assert "plain hashing, by a replay<" in run
    assert "1.580 of the best possible" in run
    assert EVIL not in run
    steps = viewer.get(f"/skewless/api/v1/dags/{DAG}/runs/night1?group=shadow").json()["run"]["steps"]
    assert [(one["task"], one["done"]) for one in steps][-2:] == [("validate", True), ("compare", True)]
    lines = viewer.get(f"/skewless/api/v1/dags/{DAG}/runs?group=shadow").json()["runs"]
    assert {(line["standing"], line["published"]) for line in lines} == {("agrees", False), ("differs", False)}


def test_a_published_run_says_first_what_its_routing_has_saved(viewer: TestClient) -> None:
    text = _page(viewer, "finished")
    sentence = "Plain hashing would have made &lt;img src=x onerror=alert(1)&gt; 1.5 times as long."
    assert text.index("<h1>nightly, ") < text.index(sentence) < text.index('class="tabs"')
    told = viewer.get(f"/skewless/api/v1/dags/{DAG}/runs/finished").json()["run"]["savings"]
    assert (told["sentence"], told["against_over_bound"]) == (
        f"Plain hashing would have made {EVIL} 1.5 times as long.",
        None,
    )
    assert "Plain hashing" not in _page(viewer, "failed-quality")


def test_a_run_that_failed_leads_to_the_log_of_its_task_and_to_its_run_in_airflow(viewer: TestClient) -> None:
    address, run = f"/skewless/dags/{DAG}/runs/failed-quality/skew", f"/dags/{DAG}/runs/failed-quality"
    text = viewer.get(address).text
    assert {run, f"{run}/tasks/validate"} <= {urljoin(address, link) for link in _Links().of(text)}
    assert "Owner: <bdi>" in text
    assert text.index("values of key occur at least") < text.index("Step <code>validate</code> failed")


def test_figures_are_shown_with_their_bands_over_days(viewer: TestClient) -> None:
    text = _page(viewer, "finished", "quality")
    assert "1 of 2 figures within their bands" in text
    assert "WARNING: mean of &lt;img src=x onerror=alert(1)&gt;: 200; usual for the weekday, by 30 nights" in text
    assert EVIL not in text
    assert text.count('<span class="odd">! warned</span>') == 1, "in the colour of a warning"


def test_failed_checks_are_listed_first_with_their_keys_and_those_of_the_spec_apart_from_the_built_in_ones(
    viewer: TestClient,
) -> None:
    text = _page(viewer, "failed-quality", "quality")
    failed, result, ledger = (
        text.index(f">{title}<")
        for title in ("Failed checks", "Built-in checks of the result", "Built-in checks of the ledger")
    )
    assert failed < text.index("occurrences: values between") < result < text.index("every key has a value of key")
    assert result < ledger < text.index("the ledger balances<")
    assert "<small>in <code><bdi>/page/1</bdi></code>: 60,000; <code><bdi>&lt;img" in text
    assert EVIL not in text
    assert "Checks of this job&#39;s spec" in _page(viewer, "finished", "quality")


def test_what_if_shows_the_replays_that_were_written_and_which_command_writes_the_others(viewer: TestClient) -> None:
    text = _page(viewer, "finished", "what-if")
    assert "as it ran" in text
    assert text.count("<details>") == 2
    assert "under plain hashing only" in text
    assert f"skewless replay {run_location(DAG, 'finished')} --policies halving," in text
    assert "No replay of this run was written" in _page(viewer, "prepared", "what-if")


@pytest.mark.long
def test_all_links_are_relative_and_lead_somewhere(viewer: TestClient) -> None:
    seen, waiting = set(), ["/skewless/"]
    while waiting:
        address = waiting.pop()
        answer = viewer.get(address)
        assert answer.status_code == 200, address
        if not answer.headers["content-type"].startswith("text/html"):
            continue
        for link in _Links().of(answer.text):
            assert not re.match(r"/|[a-z]+:", link), f"{link} on {address}"
            target = urljoin(address, link)
            if not target.startswith("/skewless/"):
                assert re.fullmatch(r"/dags/[^/]+/runs/[^/]+(/tasks/[^/]+)?", target), "a page of Airflow"
            elif target not in seen and not re.search("/runs/(halved|huge)/", target):
                seen.add(target)
                waiting.append(target)
    assert len(seen) > 40


def test_a_document_that_cannot_be_read_is_told_in_one_sentence(viewer: TestClient) -> None:
    place = Path(run_location(DAG, "later"))
    place.mkdir(parents=True)
    (place / "job.json").write_text('{"version": 99}')
    answer = viewer.get(f"/skewless/dags/{DAG}/runs/later/skew")
    assert answer.status_code == 500
    assert "read it with the release of Skewless that wrote it" in answer.text
    assert "unreadable" in viewer.get(f"/skewless/dags/{DAG}/over-time").text
    (place / "job.json").unlink()
    (place / "job.json").mkdir()
    answer = viewer.get(f"/skewless/dags/{DAG}/runs/later/skew")
    assert answer.status_code == 404
    assert "job.json" in answer.text
    shutil.rmtree(place)


def test_a_figure_has_one_value_on_the_page_the_terminal_the_api_the_event_and_the_bill(viewer: TestClient) -> None:
    for number in range(30):
        played = synthetic_run(keys=20 + 40 * number, rows=2_000 + 777 * number, reducers=2 + number % 7)
        made, group = Moments(run_location(f"{DAG}+figures", f"made{number}"), played), "?group=figures"
        made.prepare().stages().times().merge().validate(success=number % 3 > 0)
        run = made.publish().run if number % 3 else made.run
        shown, facts, bill = as_object(run), cast("dict[str, Any]", run_facts(run)), bill_of(run)
        api = viewer.get(f"/skewless/api/v1/dags/{DAG}/runs/made{number}{group}").json()["run"]
        page, api_steps = _page(viewer, f"made{number}", f"skew{group}"), {one["task"]: one for one in api["steps"]}
        for line, stage in zip(shown["stages"], api["stages"], strict=True):
            counts = ("admitted", "backlog_in", "forwarded", "processed", "backlog")
            assert [line[f"{name}_rows"] for name in counts] == [stage[name] for name in counts]
            assert line["seconds"] == api_steps[f"stage_{line['stage']:02d}.run"]["work_seconds"]
            assert f'<td class="n">{line["processed_rows"]:,}' in page or f">{line['processed_rows']:,}<" in page
        assert shown["work_seconds"] == api["work_seconds"] == sum(s["work_seconds"] or 0 for s in api["steps"]) == 6.0
        assert len(re.findall(r">6\.0 s<", page)) == 2, "a fact, and the sum of the steps"
        assert "4.0 s" in page
        assert bill.counted.held == 1_600.0, "of the one step that has a bill"
        assert (shown["certificate"], facts["stages"]) == (api["overall"], len(api["stages"]))
        assert facts["balance"]["conclusion"] == api["overall"]["conclusion"]
        assert facts["forwarded_rows"] == sum(stage["forwarded"] for stage in api["stages"])
        of_all = facts["quality"]["passed"], api["quality"]["success"], shown["quality"]["success"]
        assert set(of_all) == {number % 3 > 0}
        assert facts["quality"]["expectations"] == len(api["quality"]["checks"]) == len(shown["quality"]["checks"])
        validate = api_steps["validate"]
        assert (validate["words"], validate["done"]) == (("done", True) if number % 3 else ("failed", False))
        assert ("Step <code>validate</code> failed" in page) == (number % 3 == 0)
        assert not re.search("not yet|(committed|validated|prepared) yet", page), "nothing goes on"
        assert shown["savings"] == (api["savings"] and {k: v for k, v in api["savings"].items() if k != "version"})


def test_the_api_gives_keys_as_data(viewer: TestClient, simulation: Simulation) -> None:
    base = f"/skewless/api/v1/dags/{DAG}/runs"
    run = viewer.get(f"{base}/finished").json()
    assert (run["version"], run["state"], run["airflow_state"]) == (1, "published, passed with 1 warning", "success")
    assert run["run"]["keys"][0]["key"] == EVIL
    states = run["run"]["stands"], run["run"]["quality"]["verdict"]
    assert states == tuple({"word": "warned", "sentence": f"{end}passed with 1 warning"} for end in ("published, ", ""))
    assert run["run"]["times"][0]["name"] == "prepare"
    assert run["run"]["stages"][0]["figures"]["slots"] == 4
    assert [stage["processed"] for stage in run["run"]["stages"]] == [one.processed_rows for one in simulation.reports]
    assert any(EVIL in decision["sentence"] for decision in run["run"]["decisions"])
    assert run["run"]["ledger"]["problems"] == []
    assert viewer.get(f"{base}/failed-quality").json()["run"]["quality"]["success"] is False
    lines = viewer.get(base).json()["runs"]
    assert {line["run_id"] for line in lines} >= set(_MOMENTS) - {"triggered"}
    assert DAG in {dag["dag_id"] for dag in viewer.get("/skewless/api/v1/dags").json()["dags"]}


class _Sound(HTMLParser):
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        assert tag not in {"img", "iframe", "object", "embed", "style", "base"}, tag
        assert "target" not in given
        if tag == "script":
            assert str(given.get("src")).endswith("static/refresh.js")


class _Links(HTMLParser):
    def of(self, text: str) -> list[str]:
        self.found: list[str] = []
        self.feed(text)
        return self.found

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002  # of any element
        self.found += [value for name, value in attrs if name in {"href", "src", "action"} and value]
