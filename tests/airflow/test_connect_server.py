"""What is written down of the local Spark Connect server; neither Spark nor Airflow is needed to see it."""

from __future__ import annotations

import os
from pathlib import Path

from skewless_airflow.connect.server import describe


def test_a_server_s_token_is_its_owner_s_and_in_no_text_of_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        server = describe(tmp_path / "connect", 15002, 4040, "1g")
    finally:
        os.umask(before)
    assert len(server.token) >= 24
    assert server.token not in repr(server) + str(server)
    (holds,) = [path for path in (tmp_path / "connect").iterdir() if server.token in path.read_text()]
    assert holds.stat().st_mode & 0o077 == 0
