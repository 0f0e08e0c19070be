"""The trigger form: Airflow's own params, made from the spec, and what becomes of what they are given."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from airflow.sdk import DAG
from airflow.sdk.exceptions import ParamValidationError
from airflow.serialization.serialized_objects import DagSerialization
from pydantic import JsonValue

from skewless.errors import SpecError
from skewless.spec.part import Part
from skewless.spec.reading import OPTIONS, load_spec, option_values, with_options
from skewless.spec.spec import JobSpec
from skewless_airflow import build_dag
from skewless_airflow.trigger_form import chosen, form_params
from tests.airflow.test_dag_structure import SPEC
from tests.airflow_setting import IN_PROCESS, PROJECT


@pytest.fixture
def dag(tmp_path: Path) -> DAG:
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(SPEC))
    return build_dag(path)


def _spec(**changes: Any) -> JobSpec:
    return JobSpec.model_validate({**SPEC, **changes})


def test_the_form_has_a_date_and_every_option_in_sections(dag: DAG) -> None:
    sections = {name: dag.params.get_param(name).schema["section"] for name in dag.params}
    assert set(sections) == {"date", *OPTIONS} - {"accept", "late", "missing"}
    assert list(dict.fromkeys(sections.values())) == ["Run", "Routing"]
    first = next(iter(dag.params))
    assert dag.params.get_param(first).schema["title"] == "Day to compute (instead of the schedule's)"


def test_the_form_of_a_job_with_a_window_asks_about_late_and_missing_data() -> None:
    spec = _spec(window=[1, 7], input={"path": "/lake/{date}"})
    form = form_params(spec)
    assert set(form) == {"date", *OPTIONS} - {"accept"}
    assert form["late"].schema["enum"] == ["recompute", "ignore", "fail"]
    assert [form[name].schema["section"] for name in ("late", "missing")] == ["Window", "Window"]
    assert chosen({"late": "ignore", "missing": "allow"}, form, spec, "form").options == {"late": "ignore"}
    with pytest.raises(SpecError, match="but got 'windows'"):
        chosen({"windows": [7]}, form, spec, "form")
    with pytest.raises(SpecError, match="expected late only of a job with a window, but got one without"):
        with_options(_spec(), {"late": "ignore"}, "form")


@IN_PROCESS
def test_the_form_of_a_job_with_a_quarantine_takes_keys_as_texts_or_all() -> None:
    unique = {"type": "expect_column_values_to_be_unique", "severity": "quarantine", "at_most": 2}
    spec = _spec(quality={"expectations": [unique]})
    params = form_params(spec)
    assert "accept" not in form_params(_spec())
    cases: tuple[tuple[JsonValue, object], ...] = (("all", "all"), (["42", "pen"], (("42",), ("pen",))), ([], ()))
    for accept, expected in cases:
        params["accept"].resolve(accept)
        options = chosen({"accept": accept}, params, spec, "form").options
        assert with_options(spec, options, "form").quality.accept == expected


@pytest.mark.parametrize("schedule", [{}, {"cron": "5 * * * *", "part": "hour-1"}], ids=["days", "hours"])
def test_every_field_has_a_title_and_a_description_that_a_browser_can_show(schedule: dict[str, JsonValue]) -> None:
    dag = build_dag(_spec(schedule=schedule))
    assert ("hour" in dag.params) == ("part" in schedule)
    written = json.loads(json.dumps(DagSerialization.to_dict(dag)))
    assert written["dag"]["params"]
    for name in dag.params:
        schema = dag.params.get_param(name).schema
        assert schema["title"]
        assert schema["description_md"]
        assert "`" not in schema["description_md"], "the padding of code covers the lines above and below it"
        assert not {"$ref", "anyOf"} & set(schema)


@pytest.mark.parametrize("path", sorted((PROJECT / "jobs" / "catalog").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_defaults_are_the_specs_and_valid_so_that_a_schedule_needs_no_form(path: Path) -> None:
    spec = load_spec(path)
    form = form_params(spec)
    resolved = {name: field.resolve() for name, field in form.items()}
    assert resolved.pop("date") is None
    assert resolved == option_values(spec)
    assert chosen({"date": None, **resolved}, form, spec, "form").options == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("policy", "eval"), ("reducers", 0), ("reducers", 1.5), ("budget", 0.5), ("date", "tomorrow"),
    ],
)  # fmt: skip
def test_airflow_refuses_what_the_spec_would(dag: DAG, name: str, value: JsonValue) -> None:
    with pytest.raises(ParamValidationError):
        dag.params.get_param(name).resolve(value)


def test_what_was_chosen_is_what_differs_from_the_spec() -> None:
    spec = _spec()
    given: dict[str, JsonValue] = {"date": "2026-03-01", "policy": "static", "reducers": 8}
    choice = chosen({**given, "budget": 1.5}, form_params(spec), spec, "form")
    assert choice.part == Part(dt.date(2026, 3, 1))
    assert choice.options == {"policy": "static", "budget": 1.5}
    assert with_options(spec, choice.options, "form").routing.policy.name == "static"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        pytest.param({"polcy": "static"}, "but got 'polcy'; did you mean 'policy'", id="misspelt"),
        pytest.param({"input": {"path": "/etc"}}, "but got 'input'", id="path"),
        pytest.param({"spec": "x.yaml"}, "but got 'spec'", id="spec"),
        pytest.param({"date": "31.1.2026"}, "field date: expected a day like 2026-01-31", id="date"),
    ],
)
def test_conf_that_is_not_of_the_form_is_refused_in_one_sentence(given: dict[str, JsonValue], words: str) -> None:
    spec = _spec()
    with pytest.raises(SpecError) as refused:
        chosen(given, form_params(spec), spec, "trigger form of small")
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        pytest.param({"cron": "0 2 * * *", "timezone": "Europe/Zurich"}, "**the day before**", id="previous"),
        pytest.param({"cron": "0 2 * * *", "part": "day"}, "**the day of the run**", id="current"),
        pytest.param({"asset": "orders", "part": "day-2"}, "**the day 2 days before**", id="offset"),
        pytest.param({"part": "hour-1"}, "**the hour before**", id="hour"),
        pytest.param({}, "**the day before** where its DAG has a schedule, else **the day of the run**", id="unknown"),
    ],
)
def test_the_form_names_the_day_that_is_computed_if_it_is_left_empty(schedule: dict[str, Any], words: str) -> None:
    date = form_params(_spec(schedule=schedule))["date"]
    assert words in str(date.schema["description_md"])


def test_a_job_of_hours_has_a_field_for_the_hour_and_a_job_of_days_has_none() -> None:
    hourly = _spec(schedule={"part": "hour-1", "timezone": "Europe/Zurich"})
    form = form_params(hourly)
    assert list(form)[:2] == ["date", "hour"]
    assert "hour" not in form_params(_spec())
    given: dict[str, JsonValue] = {"date": "2026-10-25", "hour": "02b"}
    assert chosen(given, form, hourly, "form").part == Part(dt.date(2026, 10, 25), "02b")
    assert [form["hour"].resolve(hour) for hour in (None, "00", "02b", "23")] == [None, "00", "02b", "23"]
    for hour in ("24", "7", "02c", "002", 7):
        with pytest.raises(ParamValidationError):
            form["hour"].resolve(hour)
    with pytest.raises(SpecError, match="form, field hour: a job of hours needs an hour"):
        chosen({"date": "2026-10-25"}, form, hourly, "form")


def test_fields_that_were_emptied_are_not_chosen() -> None:
    hourly = _spec(schedule={"part": "hour-1"})
    for empty in ("", None):
        given: dict[str, JsonValue] = {"date": empty, "hour": empty, "budget": empty}
        assert chosen(given, form_params(hourly), hourly, "form") == (None, {})
    assert chosen({"reducers": ""}, form_params(hourly), hourly, "form").options == {"reducers": ""}
    with pytest.raises(SpecError, match="form, field date"):
        chosen({"date": "", "hour": "05"}, form_params(hourly), hourly, "form")
