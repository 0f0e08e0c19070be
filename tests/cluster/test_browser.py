"""A person at a browser: logs in, triggers a job from the form, watches its Skew tab fill, reads on.

Airflow is the one of `make up`, Spark is real, and so is Chromium. One run is made and watched; the tests
look at the pages it left. ``SKEWLESS_SCREENSHOTS=1`` writes docs/screenshots.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
import yaml
from selenium import webdriver
from selenium.common.exceptions import (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    NoAlertPresentException,
    NoSuchElementException,
    StaleElementReferenceException,
    WebDriverException,
)
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support import expected_conditions as expected
from selenium.webdriver.support.ui import WebDriverWait

from deploy import PROJECT
from deploy.local import USER, free_port
from skewless.run.directory import RunDirectory
from skewless_airflow.run_store import safe_run_id
from tests.airflow_rest import FINISHED_RUN, AirflowRest
from tests.cluster.earlier_nights import FAILED, INPUT, NIGHTS
from tests.cluster.words import write_words, zipf_words

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

JOB = "nightly_words"
#: A key that would be code if anybody took it for that.
HOSTILE = "<img src=x onerror=alert(1)>"
COUNTS = {**zipf_words(40_000, 1.1), HOSTILE: 9_000}
SPEC = {
    "name": JOB,
    "description": "How often each word occurs in the sources, and in how many letters.",
    "input": {"path": INPUT},
    "key": "word",
    "engine": "staged",
    "aggregates": {"occurrences": "count", "letters": {"function": "sum", "column": "size"}},
    "routing": {"waves": [1, 4, 15], "reducers": 8, "stage_overhead": 0},
    "quality": {
        "expectations": [
            {
                "type": "expect_column_values_to_be_between",
                "kwargs": {"column": "occurrences", "min_value": 1, "max_value": 60_000},
            },
            {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "letters"}},
        ]
    },
    "output": {"path": "published/words", "files": 2},
}
#: The width of a small telephone.
NARROW = 400
WAIT_SECONDS = 60.0
#: A click that has brought about nothing after this time was lost.
AGAIN_SECONDS = 10.0
#: Pages of ours, RUN for the run, and what each says.
OURS = {
    "": JOB,
    f"dags/{JOB}/over-time": "Skew over time",
    f"dags/{JOB}/comparisons?group=shadow": "differ",
    "RUN/skew": "Ledger",
    "RUN/tasks/stage_01.plan/decision": "Decision about stage 1",
    "RUN/quality": "checks passed",
    "RUN/what-if": "static",
}
#: Deque's checker of accessibility, https://github.com/dequelabs/axe-core, as it is released.
AXE = Path(__file__).with_name("axe.min.js")
SCREENSHOTS = PROJECT / "docs" / "screenshots"


class Visit(NamedTuple):
    url: str
    run_id: str
    run: RunDirectory
    driver: webdriver.Chrome
    #: What the Skew tab said while the run went on.
    seen: list[str]

    def in_airflow(self, page: str) -> None:
        self.driver.get(f"{self.url}/dags/{JOB}/runs/{_quoted(self.run_id)}{page}")

    def ours(self, page: str) -> str:
        return f"{self.url}/skewless/{page.replace('RUN', f'dags/{JOB}/runs/{_quoted(self.run_id)}')}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root and a catalog of one job, which has run on the nights before."""
    place = tmp_path_factory.mktemp("browser")
    (place / "catalog").mkdir()
    spec = place / "catalog" / f"{JOB}.yaml"
    spec.write_text(yaml.safe_dump(SPEC))
    earlier = [sys.executable, "-m", "tests.cluster.earlier_nights", str(place / "data"), str(spec)]
    done = subprocess.run(earlier, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    write_words(place / "data" / INPUT, COUNTS, files=8)
    return place


@pytest.fixture(scope="module")
def airflow(folder: Path) -> Iterator[tuple[str, str]]:
    port = free_port()
    setting = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")} | {
        "SKEWLESS_AIRFLOW_HOME": str(folder / "airflow"),
        "SKEWLESS_ROOT": str(folder / "data"),
        "SKEWLESS_CATALOG": str(folder / "catalog"),
        "SKEWLESS_DRIVER_MEMORY": "1g",
        "SKEWLESS_PORT": str(port),
    }
    command = [sys.executable, "-m", "deploy.local"]
    try:
        up = subprocess.run([*command, "up"], env=setting, capture_output=True, text=True, check=False)
        assert up.returncode == 0, f"{up.stdout}\n{up.stderr}"
        held = yaml.safe_load((folder / "airflow" / "simple_auth_manager_passwords.json.generated").read_text())
        yield f"http://localhost:{port}", held[USER]
    finally:
        subprocess.run([*command, "down"], env=setting, check=True, capture_output=True)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """A Chromium of its own; it takes no account of who is logged in elsewhere."""
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        pytest.fail("The browser test needs chromium and chromedriver on the PATH, and they are not: "
                    "apt-get install chromium chromium-driver, or as root: make test-cluster.")  # fmt: skip
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for argument in (
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--disable-background-networking", "--no-first-run", "--window-size=1280,1100", "--no-proxy-server",
        f"--user-data-dir={tmp_path_factory.mktemp('profile')}",
    ):  # fmt: skip
        options.add_argument(argument)
    try:
        browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(chromedriver))
    except WebDriverException as err:
        pytest.fail(f"Chromium does not start: {err.msg}")
    try:
        yield browser
    finally:
        browser.quit()


@pytest.fixture(scope="module")
def visit(folder: Path, airflow: tuple[str, str], driver: webdriver.Chrome) -> Iterator[Visit]:
    url, password = airflow
    with AirflowRest(url, USER, password) as rest:
        rest.wait_for_dag(JOB, 120)
        rest.set_paused(JOB, False)  # Airflow's form does so only if it has heard by then that the DAG is paused
        _log_in(driver, url, password)
        driver.get(f"{url}/dags/{JOB}")
        submit = '[data-testid="trigger-dag-submit"]'
        _click(
            driver, '[data-testid="trigger-dag-button"]', lambda: bool(driver.find_elements(By.CSS_SELECTOR, submit))
        )
        _click_path(driver, "//button[normalize-space(.)='Routing']", lambda: "Reducers" in _text(driver))
        _shoot(driver, "trigger-form")
        _click(driver, submit, lambda: bool(rest.active_runs(JOB)))
        (run_id,) = rest.active_runs(JOB)
        run = RunDirectory(f"{folder}/data/runs/{JOB}/{safe_run_id(run_id)}")
        found = Visit(url, run_id, run, driver, [])
        found.in_airflow("/plugin/skew")
        _into_our_frame(driver)
        while rest.run_state(JOB, run_id) not in FINISHED_RUN:
            said = _text(driver)
            if said and said not in found.seen[-1:]:
                found.seen.append(said)
            time.sleep(1)
        assert rest.run_state(JOB, run_id) == "success"
        yield found


@pytest.fixture(autouse=True)
def top(visit: Visit) -> Iterator[None]:
    visit.driver.switch_to.default_content()
    visit.driver.get_log("browser")
    yield
    visit.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    visit.driver.switch_to.default_content()


def test_the_skew_tab_fills_while_the_run_goes_on(visit: Visit) -> None:
    assert len(visit.seen) >= 2, "the page changed by itself"
    stages = [len(set(re.findall(r"Stage \d+", said))) for said in visit.seen]
    assert stages[0] < stages[-1], "it tells of more stages as they end"


def test_the_skew_tab_of_the_run_is_reached_by_its_tab(visit: Visit) -> None:
    visit.in_airflow("")
    _click_text(visit.driver, "Skew")
    _into_our_frame(visit.driver)
    _await(lambda: "Ledger" in _text(visit.driver), "the Skew tab")
    assert f"{sum(COUNTS.values()):,} rows processed" in _text(visit.driver)
    visit.driver.switch_to.default_content()
    _shoot(visit.driver, "skew-tab")


def test_a_decision_opens_in_the_run_and_has_a_page(visit: Visit) -> None:
    decision = visit.run.decision(1)
    visit.in_airflow("/plugin/skew")
    _into_our_frame(visit.driver)
    _click(visit.driver, "#decision-1 summary")
    opened = _shown(visit.driver, "#decision-1").text
    assert [one.action for one in decision.candidates if one.action not in opened] == []
    visit.driver.get(visit.ours("RUN/tasks/stage_01.plan/decision"))
    _await(lambda: "Decision about stage 1" in _text(visit.driver), "the decision of the task")
    _shoot(visit.driver, "decision")


def test_the_log_of_a_plan_task_says_what_was_decided(visit: Visit) -> None:
    visit.in_airflow("/tasks/stage_01.plan")
    words = visit.run.decision(1).sentence.split(";")[0][:40]
    log = '[data-testid="virtual-scroll-container"]'
    _await(lambda: words in _shown(visit.driver, log).text, f"a log that says {words!r}")
    _shoot(visit.driver, "plan-log")


def test_the_quality_report_is_reached_from_the_run_and_tells_of_the_nights_before(visit: Visit) -> None:
    visit.in_airflow("/plugin/skew")
    _into_our_frame(visit.driver)
    _click_text(visit.driver, "Data quality")
    _await(lambda: "checks passed" in _text(visit.driver), "the quality report")
    assert len(visit.driver.find_elements(By.CSS_SELECTOR, ".marks rect.bad")) == len(FAILED)
    visit.driver.switch_to.default_content()
    visit.driver.get(visit.ours("RUN/quality"))
    _await(lambda: "checks passed" in _text(visit.driver), "the quality report by itself")
    _shoot(visit.driver, "quality")


def test_the_dag_has_its_runs_over_time(visit: Visit) -> None:
    def all_runs() -> bool:
        visit.driver.get(f"{visit.url}/dags/{JOB}")
        _click_text(visit.driver, "Skew over time")
        _into_our_frame(visit.driver)
        _await(lambda: visit.run_id in _text(visit.driver), "the run in the DAG's tab")
        return f"All {len(NIGHTS) + 1} runs" in _text(visit.driver)

    # The page reads for two seconds, and asks to be loaded again where it has not read all runs by then.
    _await(all_runs, "all runs of the DAG")
    visit.driver.switch_to.default_content()
    _shoot(visit.driver, "over-time")


def test_all_jobs_are_one_click_from_everywhere_in_airflow(visit: Visit) -> None:
    visit.driver.get(f"{visit.url}/dags/{JOB}")
    _click(visit.driver, 'a[href$="/plugin/skewless"]')
    _into_our_frame(visit.driver)
    _await(lambda: JOB in _text(visit.driver), "the job in the list of all")
    visit.driver.switch_to.default_content()
    _shoot(visit.driver, "all-jobs")


@pytest.mark.parametrize("chosen", ["dark", "light"])
def test_our_tabs_have_the_colours_that_were_chosen_in_airflow(visit: Visit, chosen: str) -> None:
    # Without a word to the browser about what its owner prefers: that would be said to every frame.
    visit.in_airflow("/plugin/skew")
    visit.driver.execute_script("localStorage.setItem('theme', arguments[0])", chosen)
    visit.in_airflow("/plugin/skew")
    _into_our_frame(visit.driver)
    _await(lambda: "Ledger" in _text(visit.driver), "the Skew tab")
    ink, page = _ink_and_page(visit.driver)
    visit.driver.switch_to.default_content()
    _shoot(visit.driver, f"skew-tab-{chosen}")
    visit.driver.execute_script("localStorage.removeItem('theme')")
    assert ink > 128 > page if chosen == "dark" else ink < 128 < page


@pytest.mark.parametrize(("page", "says"), OURS.items())
def test_each_page_holds_at_the_width_of_a_telephone_without_a_word_on_the_console(
    visit: Visit, page: str, says: str
) -> None:
    visit.driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": NARROW, "height": 800, "deviceScaleFactor": 2, "mobile": False}
    )
    visit.driver.get(visit.ours(page))
    _await(lambda: says in _text(visit.driver), f"{says!r} on the page")
    window, wide, view = visit.driver.execute_script(
        "const page = document.documentElement; return [innerWidth, page.scrollWidth, page.clientWidth]"
    )
    assert window == NARROW, "with the bar that scrolls downwards, which takes some of it"
    assert wide <= view, "the page scrolls sideways"
    assert [line["message"] for line in visit.driver.get_log("browser")] == []
    _shoot(visit.driver, f"narrow-{Path(page.partition('?')[0]).name or 'jobs'}")


def test_a_key_that_looks_like_code_is_text(visit: Visit) -> None:
    """Of all pages this is the one that names it; tests/airflow has such a key on each of them."""
    visit.driver.get(visit.ours("RUN/skew"))
    _await(lambda: HOSTILE in _text(visit.driver), "the key on the page")
    assert visit.driver.find_elements(By.CSS_SELECTOR, 'img[src="x"]') == []
    with pytest.raises(NoAlertPresentException):
        visit.driver.switch_to.alert.accept()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [NARROW, 1400])
def test_no_page_has_a_serious_finding_of_axe(visit: Visit, width: int, scheme: str) -> None:
    _prefer(visit.driver, scheme)
    visit.driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    )
    found = {}
    for page in (*OURS, "RUN/parts"):
        visit.driver.get(visit.ours(page))
        _await(lambda: len(_text(visit.driver)) > 100, "the page")
        visit.driver.execute_script("document.querySelectorAll('details').forEach((one) => (one.open = true))")
        found[page] = _serious(visit.driver)
    _prefer(visit.driver, None)
    assert {page: faults for page, faults in found.items() if faults} == {}


def test_a_refresh_keeps_focus_scroll_and_what_was_opened(visit: Visit) -> None:
    visit.driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": NARROW, "height": 300, "deviceScaleFactor": 1, "mobile": False}
    )
    visit.driver.get(visit.ours(""))
    state = (
        "return [document.activeElement.getAttribute('href'), scrollY, document.querySelector('h1').textContent,"
        " performance.getEntriesByType('resource').filter((one) => one.initiatorType === 'fetch').length]"
    )
    visit.driver.execute_script(
        "const link = document.querySelector('td a'); link.focus(); scrollTo(0, 120);"
        "document.querySelector('h1').textContent = 'as before'"
    )
    before = visit.driver.execute_script(state)
    _await(lambda: visit.driver.execute_script(state)[2:] == ["All jobs", 1], "the page made anew")
    assert visit.driver.execute_script(state)[:2] == before[:2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_pages_follow_light_and_dark(visit: Visit, scheme: str) -> None:
    _prefer(visit.driver, scheme)
    visit.driver.get(visit.ours("RUN/skew"))
    _await(lambda: "Ledger" in _text(visit.driver), "the page")
    ink, page = _ink_and_page(visit.driver)
    _shoot(visit.driver, f"skew-{scheme}")
    _prefer(visit.driver, None)
    assert ink > 128 > page if scheme == "dark" else ink < 128 < page


def _serious(driver: webdriver.Chrome) -> list[str]:
    """What axe finds on the page that keeps somebody from using it: rule, element, and why."""
    driver.execute_script(AXE.read_text())
    found: list[dict[str, Any]] = driver.execute_async_script(
        "const done = arguments[0]; axe.run({ resultTypes: ['violations'] }).then((all) => done(all.violations))"
    )
    return [
        f"{one['id']}: {node['html'][:200]}: {node['failureSummary']}"
        for one in found
        if one["impact"] in {"serious", "critical"}
        for node in one["nodes"][:3]
    ]


def _log_in(driver: webdriver.Chrome, url: str, password: str) -> None:
    driver.get(url)
    _shown(driver, 'input[name="username"]').send_keys(USER)
    word = _shown(driver, 'input[name="password"]')
    word.send_keys(password)
    word.send_keys(Keys.ENTER)
    _shown(driver, '[data-testid="nav-dags-link"]')


def _into_our_frame(driver: webdriver.Chrome) -> None:
    _waiting(driver).until(expected.frame_to_be_available_and_switch_to_it((By.CSS_SELECTOR, "iframe")))


def _shown(driver: webdriver.Chrome, selector: str) -> WebElement:
    found: WebElement = _waiting(driver).until(expected.visibility_of_element_located((By.CSS_SELECTOR, selector)))
    return found


def _click(driver: webdriver.Chrome, selector: str, until: Callable[[], bool] | None = None) -> None:
    """Click what a selector finds.

    Args:
        until: what the click brings about. A click on a page that still moves or loads may be lost: it is repeated.
    """
    _click_at(driver, (By.CSS_SELECTOR, selector), until)


def _click_text(driver: webdriver.Chrome, text: str) -> None:
    _click_path(driver, f"//a[normalize-space(.)='{text}']")


def _click_path(driver: webdriver.Chrome, path: str, until: Callable[[], bool] | None = None) -> None:
    _click_at(driver, (By.XPATH, path), until)


def _click_at(driver: webdriver.Chrome, place: tuple[str, str], until: Callable[[], bool] | None) -> None:
    def clicked() -> bool:
        _settle(driver)
        try:
            found = driver.find_element(*place)
            free = found.is_enabled()
            if free:
                found.click()
        except (
            NoSuchElementException, ElementClickInterceptedException, ElementNotInteractableException,
            StaleElementReferenceException,
        ):  # fmt: skip
            return False
        return free

    _await(clicked, f"{place} to be clicked")
    deadline = time.monotonic() + WAIT_SECONDS
    while until is not None and not _happens(until, AGAIN_SECONDS):
        assert time.monotonic() < deadline, f"clicked {place} for {WAIT_SECONDS:.0f} s in vain"
        clicked()


def _settle(driver: webdriver.Chrome) -> None:
    """Wait until nothing moves. What moves for ever, as the cursor of the form's editor does, is not waited for."""
    moving = (
        "return document.getAnimations().some((one) => one.playState === 'running'"
        " && Number.isFinite(one.effect.getComputedTiming().endTime))"
    )
    _await(lambda: not driver.execute_script(moving), "the end of what moves")


def _waiting(driver: webdriver.Chrome) -> WebDriverWait[Any]:
    return WebDriverWait(driver, WAIT_SECONDS, ignored_exceptions=[StaleElementReferenceException])


def _text(driver: webdriver.Chrome) -> str:
    return str(driver.execute_script("return document.body ? document.body.innerText : ''"))


def _await(happened: Callable[[], bool], what: str) -> None:
    assert _happens(happened, WAIT_SECONDS), f"waited {WAIT_SECONDS:.0f} s for {what}"


def _happens(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _prefer(driver: webdriver.Chrome, scheme: str | None) -> None:
    """What the browser's owner prefers, light or dark; None for what this machine has."""
    features = [{"name": "prefers-color-scheme", "value": scheme}] if scheme else []
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def _ink_and_page(driver: webdriver.Chrome) -> tuple[float, float]:
    colours: list[str] = driver.execute_script(
        "const body = getComputedStyle(document.body); return [body.color, body.backgroundColor]"
    )
    ink, page = (sum(map(float, colour.partition("(")[2].rstrip(")").split(",")[:3])) / 3 for colour in colours)
    return ink, page


def _shoot(driver: webdriver.Chrome, name: str) -> None:
    """Take a screenshot for the docs, if somebody asked for them; of what has stopped moving."""
    if os.environ.get("SKEWLESS_SCREENSHOTS") == "1":
        _settle(driver)
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        driver.save_screenshot(str(SCREENSHOTS / f"{name}.png"))


def _quoted(ident: str) -> str:
    return quote(ident, safe="")
