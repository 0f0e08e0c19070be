"""Where the time of a missed aim goes: ``results/waterfall_NAME.svg``, ours beside the peers of the same cell.

Of documents that keep it: Spark's rows by what a session does, whole processes by their steps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.drawing import Parts, draw_parts


def write_waterfalls(folder: Path) -> None:
    """Draw the waterfalls of all documents that a folder has; those of aims that are met now go."""
    for path in folder.glob("waterfall_*.svg"):
        path.unlink()
    for path in sorted(folder.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        bars = [
            Parts(f"{cell}, {way}", seconds)
            for cell, ways in parts_of(document).items()
            if cell in {verdict["cell"] for verdict in document["verdicts"] if verdict["met"] is False}
            for way, seconds in ways.items()
        ]
        if bars:
            draw_parts(bars, folder / waterfall_of(path.stem), path.stem)


def waterfall_of(name: str) -> str:
    """What the waterfall of a document is called."""
    return f"waterfall_{name}.svg"


def parts_of(document: Mapping[str, Any]) -> Mapping[str, Mapping[str, Mapping[str, float]]]:
    """The seconds by cell, way and part."""
    found: dict[str, dict[str, Mapping[str, float]]] = {}
    for line in document.get("lines", ()):
        if line.get("profile"):
            found.setdefault(line["cell"], {})[line["peer"]] = line["profile"]
    return document.get("parts", found)
