"""Delta tables in a bucket behind a wire that breaks: nothing is done twice, and a store that is away is a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from skewless.errors import UnreachableError
from skewless.run.objects import client
from skewless_lake.publication import publish_run, published_parts, require_fitting, turn_in_table
from skewless_lake.rollback import roll_back
from skewless_lake.staged import OutputPart
from tests.broken_wire import Fault, broken_wire
from tests.lake.outputs import NOW, committed, ready, result_table, staged
from tests.object_stores import ObjectServer, as_client, object_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    with object_server("localbucket", tmp_path_factory.mktemp("localbucket")) as found:
        yield found


def behind(server: ObjectServer, port: int) -> dict[str, str]:
    return {**server.behind(port), "AWS_ALLOW_HTTP": "true"}


@pytest.fixture
def target(server: ObjectServer, tmp_path: Path) -> Iterator[OutputPart]:
    """A day that was published twice."""
    with as_client(behind(server, server.port)):
        for turn, text in enumerate(["old", "new"], start=1):
            run = ready(tmp_path / text, tmp_path, "bucket", text, turn=turn)
            publish_run(run, NOW)
        yield OutputPart.of(run.job())


def seen(target: OutputPart) -> list[str]:
    found = pa.table(DeltaTable(target.path.removeprefix("delta+")).to_pyarrow_table())
    return [str(by) for by in found["by"].to_pylist()]


@pytest.mark.parametrize("fault", ["lose answer", "cut answer", "late"])
def test_a_day_goes_back_once_though_the_answer_is_lost(
    server: ObjectServer, target: OutputPart, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    """To go back once more would undo it, and say that all is well."""
    monkeypatch.setattr(client, "ANSWER_SECONDS", 1.0)
    hit = list[int]()

    def faults(number: int, request: str) -> Fault:
        commits = request.startswith("PUT") and "_delta_log" in request and not hit
        hit.extend([number] if commits else [])
        return fault if commits else "none"

    with broken_wire(server.port, faults, late_seconds=2.0) as wire, as_client(behind(server, wire.port)):
        about = roll_back(target, NOW)
    assert hit
    assert about["run"].endswith("/old")
    assert about["snapshot"] == "3"
    assert seen(target) == ["old"] * 3


@pytest.mark.parametrize("fault", ["503", "lose request"])
def test_a_store_that_is_away_is_one_sentence_and_the_published_day_stays(
    server: ObjectServer, target: OutputPart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    run = ready(tmp_path / "late", tmp_path, "bucket", "late", turn=3)
    other = committed(tmp_path / "other", tmp_path, "bucket", result_table("other"), turn=4)
    monkeypatch.setattr(client, "RETRIES", 1)
    told = r"cannot be read or written \((the store answered 503|.*error sending request.*|.*closed.*)\); mend that"
    with broken_wire(server.port, lambda *_: fault) as wire, as_client(behind(server, wire.port)):
        for act in (
            lambda: publish_run(run, NOW),
            lambda: staged(other),
            lambda: roll_back(target, NOW),
            lambda: turn_in_table(target),
            lambda: published_parts(target),
            lambda: require_fitting(target),
        ):
            with pytest.raises(UnreachableError, match=told):
                act()
    assert seen(target) == ["new"] * 3
    assert publish_run(run, NOW).superseded is None
    assert seen(target) == ["late"] * 3


def test_deltalake_asks_as_often_as_our_own_clients(
    server: ObjectServer, target: OutputPart, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As shipped it would ask for three minutes, request by request."""
    monkeypatch.setattr(client, "RETRIES", 2)
    with broken_wire(server.port, lambda *_: "500") as wire, as_client(behind(server, wire.port)):
        with pytest.raises(UnreachableError):
            turn_in_table(target)
        asked = [request for request, _ in wire.seen]
    assert max(asked.count(request) for request in asked) == 3
