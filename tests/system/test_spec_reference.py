"""The command that prints the reference of specs, of the release that is installed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from skewless.spec.reference import reference_page, schema_text


@pytest.mark.parametrize(
    ("option", "text"), [([], reference_page), (["--schema"], schema_text)], ids=["page", "schema"]
)
def test_the_command_prints_it(option: list[str], text: Callable[[], str]) -> None:
    command = [str(Path(sys.executable).with_name("skewless")), "spec-reference", *option]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == text()
