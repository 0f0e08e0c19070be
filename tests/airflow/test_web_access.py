"""No one without a login can read the pages, and no user can read a DAG without permission."""

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from skewless_airflow import web
from skewless_airflow.plugin import SkewlessWeb, external_views
from skewless_airflow.run_store import run_location
from tests import airflow_setting
from tests.airflow.web_scenario import (
    DAG,
    FORBIDDEN_DAG,
    NO_RUNS,
    NO_TASKS,
    Moments,
    make_dags,
    served,
    synthetic_run,
    trigger,
)

STATIC = Path(str(web.__file__)).parent / "static"

pytestmark = [airflow_setting.IN_PROCESS, pytest.mark.usefixtures("airflow_database")]

_EVERYBODY = ("", "nobody", "viewer", "admin")
#: Ways out of a folder, as they come over the wire.
_TRAVERSALS = (
    "../security.py", "..%2fsecurity.py", "..%2Fsecurity.py", "%2e%2e/security.py",
    "%2e%2e%2fsecurity.py", "..%5csecurity.py", "....//security.py", "%2fetc%2fpasswd", "//etc/passwd",
    "/etc/passwd", "..%252fsecurity.py", "x%00.css", "skewless.css/../../security.py", "%c0%ae%c0%ae/x",
)  # fmt: skip


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory, airflow_database: None) -> Iterator[dict[str, TestClient]]:  # noqa: ARG001
    folder = tmp_path_factory.mktemp("web")
    with served(folder) as found:
        make_dags(folder)
        run = synthetic_run()
        for dag_id in (DAG, FORBIDDEN_DAG):
            trigger(found["admin"], dag_id, "one", "success")
            for folder_of in (dag_id, f"{dag_id}+g"):
                Moments(run_location(folder_of, "one"), run).prepare().stages().merge().validate().publish()
        yield found


def _app() -> FastAPI:
    from skewless_airflow.web.app import create_app

    return create_app()


def _addresses(dag_id: str) -> list[str]:
    values = {"dag_id": dag_id, "run_id": "one", "task_id": "stage_01.plan", "stage": "1", "path": "index.html"}
    found = []
    for route in _app().routes:
        assert isinstance(route, APIRoute), f"{route} is mounted, and would not ask for a login"
        address = route.path.replace(":path", "").replace("{_}", "whatever")
        found.append("/skewless" + address.format(**values))
    return found


def test_no_route_describes_the_api_to_strangers() -> None:
    paths = {getattr(route, "path", "") for route in _app().routes}
    assert not paths & {"/docs", "/redoc", "/openapi.json"}


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_without_a_login_every_route_is_refused(clients: dict[str, TestClient], method: str) -> None:
    addresses = [*_addresses(DAG), *(f"/skewless/{path}" for path in ("docs", "redoc", "openapi.json", "static/", "x"))]
    assert len(addresses) > 15
    answers = {address: clients[""].request(method, address).status_code for address in addresses}
    assert set(answers.values()) == {401}, answers


def test_a_user_without_a_role_is_refused_everywhere(clients: dict[str, TestClient]) -> None:
    answers = {address: clients["nobody"].get(address).status_code for address in _addresses(DAG)}
    assert set(answers.values()) == {403}, answers


def test_a_forged_token_is_refused(clients: dict[str, TestClient]) -> None:
    answer = clients[""].get("/skewless/", headers={"Authorization": "Bearer abc.def.ghi"})
    assert answer.status_code == 403


def test_what_the_browser_sends_is_enough(clients: dict[str, TestClient]) -> None:
    """An iframe of the same origin sends the cookie, and no header."""
    token = clients["viewer"].headers["Authorization"].removeprefix("Bearer ")
    answer = clients[""].get(f"/skewless/dags/{DAG}/runs/one/skew", headers={"Cookie": f"_token={token}"})
    assert answer.status_code == 200


def test_a_dag_that_is_not_the_users_is_refused(clients: dict[str, TestClient]) -> None:
    about_it = [address for address in _addresses(FORBIDDEN_DAG) if FORBIDDEN_DAG in address]
    assert len(about_it) > 9
    refused = {address: clients["viewer"].get(address) for address in about_it}
    assert {answer.status_code for answer in refused.values()} == {403}
    assert {clients["admin"].get(address).status_code for address in about_it} == {200}


def test_who_may_not_read_the_tasks_of_a_dag_sees_none_of_its_runs(clients: dict[str, TestClient]) -> None:
    # A comparison over nights names keys, as the quality report of a run does.
    of_runs = [address for address in _addresses(DAG) if "/runs/one" in address or "/comparisons" in address]
    of_dags = [address for address in _addresses(DAG) if f"/{DAG}" in address and address not in of_runs]
    assert len(of_runs) >= 8
    assert len(of_dags) >= 2
    assert {address: clients[NO_TASKS].get(address).status_code for address in of_runs} == dict.fromkeys(of_runs, 403)
    assert {address: clients[NO_TASKS].get(address).status_code for address in of_dags} == dict.fromkeys(of_dags, 200)
    every = [*of_runs, *of_dags]
    assert {address: clients[NO_RUNS].get(address).status_code for address in every} == dict.fromkeys(every, 403)


def test_who_may_not_read_the_runs_of_a_dag_learns_nothing_of_them_from_lists(clients: dict[str, TestClient]) -> None:
    facts = {user: clients[user].get("/skewless/api/v1/dags").json()["dags"] for user in (NO_RUNS, NO_TASKS)}
    # Other tests may have left DAGs of theirs in the same database.
    assert DAG in {row["dag_id"] for row in facts[NO_RUNS]}
    assert {(row["runs"], row["last"]) for row in facts[NO_RUNS]} == {(None, None)}
    assert all(row["runs"] == 1 and row["last"]["run_id"] == "one" for row in facts[NO_TASKS] if row["dag_id"] == DAG)
    pages = {user: clients[user].get("/skewless/").text for user in (NO_RUNS, NO_TASKS)}
    assert "/runs/one/" not in pages[NO_RUNS]
    assert "you may not read its runs" in pages[NO_RUNS]
    assert "1 run" not in pages[NO_RUNS]
    assert "/runs/one/" in pages[NO_TASKS]


def test_no_other_parameter_stands_in_for_the_dag_of_the_address(clients: dict[str, TestClient]) -> None:
    answer = clients["viewer"].get(f"/skewless/dags/{FORBIDDEN_DAG}/runs/one/skew", params={"dag_id": DAG})
    assert answer.status_code == 403
    assert clients["viewer"].get("/skewless/dags/~/runs/one/skew").status_code == 422


def test_lists_name_only_what_the_user_may_read(clients: dict[str, TestClient]) -> None:
    for address in ("/skewless/", "/skewless/api/v1/dags"):
        assert FORBIDDEN_DAG not in clients["viewer"].get(address).text
        assert FORBIDDEN_DAG in clients["admin"].get(address).text


def test_no_path_leads_out_of_the_static_files(clients: dict[str, TestClient]) -> None:
    for path in _TRAVERSALS:
        for user in _EVERYBODY:
            answer = clients[user].get(f"/skewless/static/{path}")
            assert answer.status_code in ({401, 403} if user in {"", "nobody"} else {404}), path
            assert "def harden" not in answer.text


def test_a_file_beside_the_static_ones_is_not_served(clients: dict[str, TestClient], tmp_path: Path) -> None:
    secret = tmp_path / "secret.css"
    secret.write_text("p { color: secret }")
    up = os.path.relpath(secret, STATIC)
    assert (STATIC / up).resolve() == secret.resolve()
    for way in (up, f"./{up}", f"static/../{up}", str(secret.resolve())):
        answer = clients["viewer"].get(f"/skewless/static/{quote(way, safe='')}")
        assert answer.status_code == 404, way
        assert secret.read_text() not in answer.text
    served = [clients["viewer"].get(f"/skewless/static/{file.name}").status_code for file in STATIC.iterdir()]
    assert served == [200] * 4


@pytest.mark.parametrize(
    ("dag_id", "run_id"),
    [
        ("..", "one"), ("..%2f..", "one"), ("%2e%2e", "one"), (DAG, ".."), (DAG, "..%2fone"), (DAG, "..%5cone"),
        (DAG, "%00"), (DAG, "a%09b"), (DAG, "x" * 300), (f"{DAG}%00", "one"), ("unknown", "one"), (DAG, "unknown"),
        pytest.param(f"{DAG}+g", "one", id="folder-of-a-group-as-dag"),
    ],
)  # fmt: skip
def test_an_address_that_names_nothing_is_told_so_in_one_sentence(
    clients: dict[str, TestClient], dag_id: str, run_id: str
) -> None:
    for end in (f"dags/{dag_id}/runs/{run_id}/skew", f"api/v1/dags/{dag_id}/runs/{run_id}"):
        assert clients[""].get(f"/skewless/{end}").status_code == 401
        answer = clients["viewer"].get(f"/skewless/{end}")
        # A client resolves plain dots itself, so such an address may lead to a page of Airflow's own.
        if "/skewless/" in str(answer.url) and answer.status_code != 200:
            assert answer.status_code in {404, 422}
            assert "Traceback" not in answer.text
            assert answer.json()["error"] if "/api/" in str(answer.url) else '<p class="note">' in answer.text
        else:
            assert ".." in (dag_id, run_id)


def test_an_address_with_a_line_end_does_not_get_past_airflows_router(clients: dict[str, TestClient]) -> None:
    for user in _EVERYBODY:
        answer = clients[user].get(f"/skewless/dags/{DAG}/runs/one%0a/skew")
        assert (answer.status_code, answer.text) == (404, '{"detail":"Not Found"}')


@pytest.mark.parametrize("group", ["..", "../one", "a/b", "a\\b", "%2e%2e", "a+b", "\0", "x" * 300])
def test_a_group_cannot_be_taken_for_a_path(clients: dict[str, TestClient], group: str) -> None:
    for end in (f"dags/{DAG}/runs/one/skew", f"dags/{DAG}/over-time", f"api/v1/dags/{DAG}/runs/one"):
        assert clients["viewer"].get(f"/skewless/{end}", params={"group": group}).status_code == 422
        assert clients[""].get(f"/skewless/{end}", params={"group": group}).status_code == 401


def test_every_answer_forbids_scripts_and_foreign_frames(clients: dict[str, TestClient]) -> None:
    for address in [*_addresses(DAG), "/skewless/nothing"]:
        for user in ("", "viewer"):
            headers = clients[user].get(address).headers
            policy = headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            refreshes = (address, user) == ("/skewless/", "viewer")  # the run is finished; the page of all jobs goes on
            assert ("script-src 'self'" in policy) == ("script-src" in policy) == refreshes
            assert "frame-ancestors 'self'" in policy
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Cache-Control"].startswith("private")


def test_airflow_knows_the_tabs_and_the_app(clients: dict[str, TestClient]) -> None:
    (plugin,) = [one for one in clients["admin"].get("/api/v2/plugins").json()["plugins"] if one["name"] == "skewless"]
    assert [app["url_prefix"] for app in plugin["fastapi_apps"]] == ["/skewless"]
    tabs = [view["destination"] for view in plugin["external_views"]]
    assert tabs == ["nav", "dag", "dag_run"], "one each, as Airflow shows them on every DAG, and none on tasks"
    assert clients["admin"].get("/api/v2/plugins/importErrors").json()["total_entries"] == 0


def test_the_tabs_lead_to_pages(clients: dict[str, TestClient]) -> None:
    for view in external_views():
        href = str(view["href"])
        assert not href.startswith("/")
        filled = href.replace("{DAG_ID}", DAG).replace("{RUN_ID}", "one").replace("{TASK_ID}", "stage_01.plan")
        assert clients["viewer"].get(f"/{filled}").status_code == 200
        for icon in (view["icon"], view["icon_dark_mode"]):
            assert clients["viewer"].get(f"/{icon}").headers["content-type"] == "image/svg+xml"


def test_links_hold_below_a_path_of_airflows_own() -> None:

    parent = FastAPI(root_path="/airflow")
    parent.mount("/skewless", SkewlessWeb())
    answer = TestClient(parent).get("/airflow/skewless/dags/a%2fb/nothing")
    assert answer.status_code == 401
    assert 'href="../../static/skewless.css"' in answer.text
