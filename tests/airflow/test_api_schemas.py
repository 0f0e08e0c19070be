"""The JSON API under schemathesis: whatever is asked, nothing breaks, and answers are what its schema says."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from skewless_airflow.run_store import run_location
from tests import airflow_setting
from tests.airflow.web_scenario import DAG, FORBIDDEN_DAG, OTHER_DAG, Moments, make_dags, served, synthetic_run, trigger

pytestmark = [airflow_setting.IN_PROCESS, pytest.mark.long, pytest.mark.usefixtures("airflow_database")]

_BASE = "/skewless"
_SCHEMA = f"{_BASE}/api/v1/openapi.json"
_CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
_USERS = ("", "nobody", "viewer", "admin")
_ROUTES = (
    "/dags", "/dags/{dag_id}/runs", "/dags/{dag_id}/comparisons",
    "/dags/{dag_id}/runs/{run_id}",
)  # fmt: skip


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory, airflow_database: None) -> Iterator[dict[str, TestClient]]:  # noqa: ARG001
    folder = tmp_path_factory.mktemp("api")
    with served(folder) as found:
        make_dags(folder)
        run = synthetic_run(keys=60, rows=4_000)
        for dag_id in (DAG, FORBIDDEN_DAG):
            for run_id in ("api_one", "api_begun", "api_empty"):
                trigger(found["admin"], dag_id, run_id, "success" if run_id == "api_one" else None)
            Moments(run_location(dag_id, "api_one"), run).prepare().stages().merge().validate().publish()
            Moments(run_location(dag_id, "api_begun"), run).prepare().stages(1)
            Moments(run_location(dag_id, "api_compared"), run).compare(1)
        yield found


@pytest.fixture(scope="module")
def schema(clients: dict[str, TestClient]) -> Any:
    raw = clients["viewer"].get(_SCHEMA).json()
    return schemathesis.openapi.from_dict(raw)


def test_the_schema_knows_every_route_and_is_given_to_users_only(clients: dict[str, TestClient], schema: Any) -> None:
    assert {path.removeprefix("/api/v1") for path in schema.raw_schema["paths"]} == set(_ROUTES)
    assert [clients[user].get(_SCHEMA).status_code for user in _USERS] == [401, 403, 200, 200]


def _asked(clients: dict[str, TestClient], user: str, case: Any) -> None:
    given = case.as_transport_kwargs(base_url=f"http://testserver{_BASE}")
    known = {name: given[name] for name in ("method", "url", "params", "headers", "cookies") if given.get(name)}
    client = clients[user]
    answer = client.request(**known)
    assert answer.status_code < 500, f"{user or 'nobody logged in'}: {answer.request.url}: {answer.text[:500]}"
    if "/skewless/api/" in str(answer.request.url) and not _resolved_away(answer):
        case.validate_response(answer, checks=_CHECKS)
    if user == "":
        assert answer.status_code != 200


def _resolved_away(answer: Any) -> bool:
    """Whether Airflow's own router has answered: of an address with a line end, say."""
    return answer.status_code in {404, 405} and "detail" in answer.text[:20]


#: Names that lead somewhere, in the place of those that are made up, in most of the requests.
_KNOWN = {
    "dag_id": st.sampled_from([DAG, FORBIDDEN_DAG, OTHER_DAG, "..", "a" * 300]),
    "run_id": st.sampled_from(["api_one", "api_begun", "api_empty", "never", "..", "a" * 251, "x\u202e"]),
}


@st.composite
def cases(draw: st.DrawFn, operation: Any) -> Any:
    """A request as its schema would have it, or as it would not, mostly about something that is there."""
    modes = st.sampled_from([GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
    case = draw(operation.as_strategy(draw(modes)))
    for name in case.path_parameters or {}:
        if draw(st.integers(0, 3)):
            case.path_parameters[name] = draw(_KNOWN[name])
    if draw(st.integers(0, 3)) == 0:
        case.query = {**(case.query or {}), "group": draw(st.sampled_from(["g", "..", "x" * 250, "\u00e9" * 250, ""]))}
    return case


@pytest.mark.parametrize("user", _USERS)
@pytest.mark.parametrize("route", _ROUTES)
def test_no_request_breaks_a_route_and_answers_keep_to_the_schema(
    clients: dict[str, TestClient], schema: Any, route: str, user: str
) -> None:
    operation = schema[f"/api/v1{route}"]["GET"]

    @settings(max_examples=40, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(cases(operation))
    def asked(case: Any) -> None:
        _asked(clients, user, case)

    asked()


def test_an_answer_that_breaks_the_schema_would_be_noticed(clients: dict[str, TestClient], schema: Any) -> None:
    operation = schema["/api/v1/dags/{dag_id}/runs"]["GET"]
    answer = clients["viewer"].get(f"{_BASE}/api/v1/dags/{DAG}/runs")
    answer._content = answer.content.replace(b'"total"', b'"totals"')
    with pytest.raises(BaseExceptionGroup) as raised:
        operation.validate_response(answer)
    assert any("total" in str(one) for one in raised.value.exceptions)
