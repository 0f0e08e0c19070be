"""``skewless prune``, as somebody types it."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from skewless_cli.main import app
from tests.unit.test_retention import _run


def test_prune_says_what_goes_and_takes_it_away_unless_it_is_a_dry_run(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for name, day in {"newest": 20, "second": 19}.items():
        _run(runs, name, day=day, age=0)
    _run(runs, "failed", day=1, age=5_000, published=False)
    said = CliRunner().invoke(app, ["prune", "--root", str(tmp_path), "--dry-run"])
    assert said.exit_code == 0
    assert "dry run: remove" in said.output
    assert "never was" in said.output
    assert (runs / "clicks" / "failed").exists()
    CliRunner().invoke(app, ["prune", str(runs)])
    assert sorted(path.name for path in (runs / "clicks").iterdir()) == ["newest", "second"]
