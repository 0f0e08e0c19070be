"""Real back ends: a folder each, and an object store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.object_stores import BUCKET, ObjectServer, as_client, object_server
from tests.tiers import mostly_long


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    with object_server("localbucket", tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def bucket(s3_server: ObjectServer) -> Iterator[str]:
    with as_client(s3_server.environment):
        yield f"s3://{BUCKET}"


@pytest.fixture(params=mostly_long(["folder", "bucket"], "folder"))
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "folder":
        return str(tmp_path / "leases")
    return f"{request.getfixturevalue('bucket')}/{tmp_path.name}"
