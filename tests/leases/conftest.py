"""Real back ends: a folder each, and an object store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.object_stores import BUCKET, ObjectServer, as_client
from tests.tiers import mostly_long


@pytest.fixture
def bucket(s3: ObjectServer) -> Iterator[str]:
    with as_client(s3.environment):
        yield f"s3://{BUCKET}"


@pytest.fixture(params=mostly_long(["folder", "bucket"], "folder"))
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "folder":
        return str(tmp_path / "leases")
    return f"{request.getfixturevalue('bucket')}/{tmp_path.name}"
