"""Libraries that read while days are published."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lake.outputs import KINDS
from tests.lake.readers import read_while_published

pytestmark = pytest.mark.long


@pytest.mark.parametrize("kind", KINDS)
def test_readers_see_one_version_whole_while_a_day_is_published_again_and_again(tmp_path: Path, kind: str) -> None:
    """``python -m tests.lake --reads 2500`` reads more often."""
    found = read_while_published(tmp_path, kind, reads=500)
    assert found.torn == 0
    assert found.versions > 1, "nothing was published while it was read"
