"""Where the results of benchmarks are written: all figures as JSON, and a summary for readers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def write_results(folder: Path, name: str, document: Mapping[str, Any], page: str) -> None:
    """Write ``NAME.json`` and ``NAME.md``.

    Args:
        folder: where; it is made if it is missing.
        name: of the files.
        document: all figures.
        page: a summary for readers.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    (folder / f"{name}.md").write_text(page, encoding="utf-8")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [f"| {' | '.join(line)} |" for line in (head, *rows)]
    return "\n".join([lines[0], f"|{'---|' * len(head)}", *lines[1:]])
