"""The page of all jobs: what failed and why, what is late, what it cost against its usual, what runs, what is next."""

import datetime as dt
import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from skewless.documents.step_documents import Failure, StepTimes
from skewless.run.directory import RunDirectory
from skewless_airflow.run_store import run_location
from skewless_airflow.web.rendering import above, day
from skewless_airflow.web.runs import Timing
from skewless_airflow.web.views.jobs import JobLine, PartState, by_need, lateness, parts_of, verdict_of
from skewless_airflow.web.views.past_runs import RunLine
from tests import airflow_setting
from tests.airflow.web_scenario import (
    DAG,
    EVIL,
    FORBIDDEN_DAG,
    NO_TASKS,
    Moments,
    make_dags,
    served,
    synthetic_run,
    trigger,
)

pytestmark = [airflow_setting.IN_PROCESS, pytest.mark.usefixtures("airflow_database")]


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory, airflow_database: None) -> Iterator[dict[str, TestClient]]:  # noqa: ARG001
    """One job with three good nights and a failed one, which runs again; another that the command line ran."""
    folder = tmp_path_factory.mktemp("jobs")
    run = synthetic_run()
    with served(folder) as found:
        make_dags(folder)
        for night in ("night_1", "night_2", "night_3"):
            trigger(found["admin"], DAG, night, "success")
            Moments(run_location(DAG, night), run).prepare().stages().merge().validate().publish()
        trigger(found["admin"], DAG, "night_4", "failed")
        failed = Moments(run_location(DAG, "night_4"), run).prepare().stages(1).run
        failed.write_once("failures/stage_01.run-1-0a1b2c3d.json", Failure(exit_code=1, sentence=f"row {EVIL} was bad"))
        trigger(found["admin"], DAG, "night_5")
        by_hand = (
            Moments(run_location(FORBIDDEN_DAG, "by_hand"), run).prepare().stages().merge().validate(success=False)
        )
        _took(by_hand.run, "prepare", 1_780_000_000.0, 10.0)
        _took(by_hand.run, "validate", 1_780_000_050.0, 20.0)
        yield found


def _took(run: RunDirectory, step: str, started: float, seconds: float) -> None:
    run.write_once(f"times/{step}.json", StepTimes(step=step, started=started, seconds=seconds))


def test_what_failed_comes_first_with_its_reason_though_it_runs_again(clients: dict[str, TestClient]) -> None:
    text = clients["viewer"].get("/skewless/").text
    attention = text.partition('id="attention"')[2].partition("</section>")[0]
    assert re.search(
        rf"{DAG}</a></strong> .*>Thu 1 Jan( 2026)?</a> failed: stage_01.run: row &lt;img.* was bad.*runs again",
        attention,
    )
    assert text.index('id="attention"') < text.index("<table")
    assert re.search("<title>1 failed, 1 running · Skewless</title>", text)
    assert 'data-seconds="20"' in text, "it is made anew by itself"


def test_why_a_run_failed_is_told_only_to_who_may_read_its_tasks(clients: dict[str, TestClient]) -> None:
    for address in ("/skewless/", "/skewless/api/v1/dags"):
        assert "was bad" in clients["viewer"].get(address).text
        assert "was bad" not in clients[NO_TASKS].get(address).text


def test_a_run_of_the_command_line_stands_beside_those_of_airflow_with_its_times(
    clients: dict[str, TestClient],
) -> None:
    text = clients["admin"].get("/skewless/").text
    row = text.partition("<tbody>")[2].partition(f"dags/{FORBIDDEN_DAG}/over-time")[2].partition("</tr>")[0]
    assert "command line" in row
    assert ">failed<" in row
    assert "1 min 10 s" in row
    assert "validate: 1 of 4 checks failed" in text


def test_the_api_has_the_same_facts_for_each_job(clients: dict[str, TestClient]) -> None:
    jobs = {one["dag_id"]: one for one in clients["admin"].get("/skewless/api/v1/dags").json()["dags"]}
    ours, by_hand = jobs[DAG], jobs[FORBIDDEN_DAG]
    assert (ours["last"]["run_id"], ours["ended"]["run_id"], ours["ended"]["standing"]) == (
        "night_5",
        "night_4",
        "failed",
    )
    assert [one["reason"] for one in ours["bad"] if one["run_id"] == "night_4"] == [f"stage_01.run: row {EVIL} was bad"]
    nights = clients["admin"].get(f"/skewless/api/v1/dags/{DAG}/runs").json()["runs"]
    first = next(one for one in nights if one["run_id"] == "night_1")
    assert ours["usual_work_seconds"] == first["work_seconds"]
    assert by_hand["last"]["seconds"] == 70.0
    assert first["saved"].startswith("Plain hashing would have made")
    assert by_hand["last"]["ended"].startswith("2026-05-28T")
    assert (ours["late"], by_hand["late"]) == ("", "")


_NOW = dt.datetime(2026, 11, 26, 7, 0, tzinfo=dt.UTC)
_HOUR = dt.timedelta(hours=1)


def _line(state: str, began: float | None = None, ended: float | None = None, deadline: float | None = None) -> RunLine:
    moments = [None if one is None else _NOW - one * _HOUR for one in (began, ended, deadline)]
    return RunLine("r", "2026-11-25", state, standing=state, started=moments[0], ended=moments[1], deadline=moments[2])


@pytest.mark.parametrize(
    ("line", "next_run", "usual", "words"),
    [
        pytest.param(_line("success", 5, 4), -1, 3600, "", id="ended in time"),
        pytest.param(_line("success", 5, 3, 4), -1, 3600, "ended after its deadline", id="missed its deadline"),
        pytest.param(_line("running", 2, None, 1), -1, 3600, "runs past its deadline", id="deadline is over"),
        pytest.param(_line("running", 2, None, -1), -1, 3700, "", id="deadline is ahead"),
        pytest.param(_line("running", 2.1), -1, 3600, "runs more than 2 times as long as usual", id="takes too long"),
        pytest.param(_line("running", 9), -1, None, "", id="nothing is usual yet"),
        pytest.param(_line("success", 30, 29), 0.2, None, "was due, and has not begun", id="has not begun"),
        pytest.param(_line("success", 30, 29), 0.05, None, "", id="is being created"),
        pytest.param(_line("queued"), 0.2, None, "", id="the one before waits"),
        pytest.param(None, 0.2, None, "was due, and has not begun", id="never ran"),
    ],
)
def test_a_job_is_late_by_its_deadline_its_schedule_or_its_usual_time(
    line: RunLine | None, next_run: float, usual: float | None, words: str
) -> None:
    ended = None if line is None or line.going_on else line
    assert lateness(line, ended, Timing("", _NOW - next_run * _HOUR), usual, _NOW) == words


def test_jobs_stand_in_the_order_in_which_they_need_somebody() -> None:
    good, running, failed = _line("success", 5, 4), _line("running", 1), _line("failed", 5, 4)
    jobs = [
        JobLine("a", "", "", 1, good, ended=good), JobLine("b", "", "", 1, running, running=True),
        JobLine("c", "", "", 1, good, ended=good, late="late"),
        JobLine("d", "", "", 1, failed, ended=failed, bad=(PartState("2026-11-25", "failed", "failed", "r"),)),
    ]  # fmt: skip
    morning = by_need(jobs)
    assert [job.dag_id for job in morning] == ["d", "c", "b", "a"]
    assert verdict_of(morning) == "1 failed, 1 late, 1 running"
    assert verdict_of(jobs[:1]) == "all good"


def test_a_day_is_named_by_its_day_and_a_longest_task_by_what_was_possible() -> None:
    today = dt.date(2026, 11, 27)
    assert [day(one, today) for one in ("2026-11-26", "2025-01-02, hour 07", "manual__1")] == [
        "Thu 26 Nov", "Thu 2 Jan 2025, hour 07", "manual__1",
    ]  # fmt: skip
    assert [above(one) for one in (0.004, 0.0001, 0.5, None)] == [
        "0.4 % above the best possible", "the best possible", "50 % above the best possible", "not measured",
    ]  # fmt: skip


def _of(part: str, standing: str, **more: Any) -> RunLine:
    return RunLine(f"{part} {standing}", part, standing, standing=standing, standing_words=standing, **more)


def test_a_day_that_failed_stays_failed_whatever_other_days_do_until_a_run_of_it_is_good() -> None:
    seen = dt.datetime(2026, 11, 25, 2, 10, tzinfo=dt.UTC)
    lines = [  # newest first: the 23rd was computed again last
        _of("2026-11-23", "published", published=True), _of("2026-11-24", "failed"),
        _of("2026-11-22", "superseded"), _of("2026-11-22", "warned", published=True),
        _of("2026-11-21", "running"), _of("2026-11-21", "failed"),
        _of("2026-11-21", "published", published=True, ended=seen),
    ]  # fmt: skip
    found = {one.part: one for one in parts_of(lines, Timing("", None), "", _NOW, 0.0)}
    states = [found[f"2026-11-{day}"].state for day in (21, 22, 23, 24)]
    assert states == ["failed", "warned", "published", "failed"]
    assert found["2026-11-24"].readers == "readers have no result of Tue 24 Nov"
    assert found["2026-11-21"].readers == "readers see that of Wed 25 Nov 02:10"
    unread = {one.part: one for one in parts_of(lines, Timing("", None), "", _NOW, _NOW.timestamp())}
    assert unread["2026-11-24"].readers == "", "nobody has looked at all runs of the day"


def test_hours_that_nobody_has_computed_are_missing_and_the_one_that_is_due_is_late() -> None:
    hours = [f"2026-11-26, hour {hour:02d}" for hour in range(7)]
    moments = tuple((_NOW - (6 - at) * _HOUR - 2 * _HOUR / 10, part) for at, part in enumerate(hours))
    lines = [_of(hours[4], "published"), _of(hours[1], "published")]
    found = {one.part: one.state for one in parts_of(lines, Timing("", moments[6][0], moments), "", _NOW, 0.0)}
    assert [found[one] for one in hours[1:]] == ["published", "missing", "missing", "published", "missing", "late"]
    assert hours[0] not in found, "before the first one known"
    since = parts_of(lines, Timing("", moments[6][0], moments), "", _NOW, moments[3][0].timestamp())
    assert [one.part for one in since if one.state == "missing"] == [hours[3], hours[5]], "earlier runs were not read"


def test_the_strip_has_the_latest_14_days_and_a_failure_says_what_readers_have(clients: dict[str, TestClient]) -> None:
    jobs = {one["dag_id"]: one for one in clients["admin"].get("/skewless/api/v1/dags").json()["dags"]}
    days = jobs[DAG]["days"]
    assert (len(days), days[-1]["part"]) == (14, f"{dt.datetime.now(dt.UTC):%Y-%m-%d}")
    (failed,) = [one for one in jobs[DAG]["bad"] if one["run_id"] == "night_4"]  # others may be of other tests
    assert failed["readers"].startswith("readers see that of")
    assert '<svg class="days"' in clients["viewer"].get("/skewless/").text


def test_days_whose_runs_were_not_read_in_time_are_not_without_a_run(
    clients: dict[str, TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skewless_airflow.web.views.jobs._OF_ALL_JOBS_SECONDS", -1.0)  # the last run of each alone
    (job,) = [one for one in clients["admin"].get("/skewless/api/v1/dags").json()["dags"] if one["dag_id"] == DAG]
    assert {one["words"] for one in job["days"][:-1]} == {"not read yet", "queued"}


def test_jobs_are_found_by_name_and_by_state(clients: dict[str, TestClient]) -> None:
    admin = clients["admin"]
    for ask, found in {"find=FORBID": (False, True), "state=running": (True, False), "": (True, True)}.items():
        rows = admin.get(f"/skewless/?{ask}").text.partition("<tbody>")[2]
        assert (f">{DAG}</a>" in rows, f">{FORBIDDEN_DAG}</a>" in rows) == found
    assert EVIL not in admin.get("/skewless/", params={"find": EVIL}).text


def test_a_job_runs_while_any_of_its_runs_goes_on(clients: dict[str, TestClient]) -> None:
    Moments(run_location(f"{DAG}+later", "by_hand"), synthetic_run()).prepare()  # after the run that is queued
    jobs = clients["admin"].get("/skewless/api/v1/dags").json()["dags"]
    assert [(one["last"]["run_id"], one["running"]) for one in jobs if one["group"] == "later"] == [("by_hand", True)]
