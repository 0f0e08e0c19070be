"""Where the results of benchmarks are written: as JSON, and as a page for readers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def write_results(folder: Path, name: str, document: Mapping[str, Any], page: str) -> None:
    """Write ``NAME.json`` and ``NAME.md``.

    Args:
        folder: where; it is made if it is missing.
        name: of the files.
        document: the figures.
        page: the same for readers.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    (folder / f"{name}.md").write_text(page, encoding="utf-8")
