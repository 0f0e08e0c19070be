"""What Spark says it has read: the rows of its scans, from the event logs of its applications."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

_PLANS = ("SparkListenerSQLExecutionStart", "SparkListenerSQLAdaptiveExecutionUpdate")
_TASK = "SparkListenerTaskEnd"
_ROWS = "number of output rows"


def logging_options(folder: Path) -> str:
    """Options of a JVM, as ``SPARK_SUBMIT_OPTS`` has them, with which each application logs its events to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        # The names of files in a plan are not cut.
        "spark.sql.maxMetadataStringLength": "100000",
    }
    given = os.environ.get("SPARK_SUBMIT_OPTS", "")
    return " ".join([given, *(f"-D{name}={value}" for name, value in settings.items())]).strip()


class ScanLog:
    """The scans of all applications that log to a folder, whether they still run or not."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[str, int] = {}
        self._places: dict[tuple[str, int], str] = {}
        self._rows: Counter[str] = Counter()

    def rows_below(self, folder: Path) -> int:
        """The rows that scans of files below a folder have given so far: of tasks that ended well."""
        self._read_on()
        return sum(rows for place, rows in self._rows.items() if str(folder) in place)

    def _read_on(self) -> None:
        for file in sorted(self._folder.iterdir()):
            if file.name.startswith("."):
                continue  # a checksum of Hadoop's
            name = file.name.removesuffix(".inprogress")
            with file.open("rb") as log:
                log.seek(self._read.get(name, 0))
                for line in log:
                    if not line.endswith(b"\n"):
                        break  # it is being written
                    self._read[name] = self._read.get(name, 0) + len(line)
                    self._take(name, line)

    def _take(self, name: str, line: bytes) -> None:
        head = line[:200].decode(errors="replace")
        if _TASK not in head and not any(one in head for one in _PLANS):
            return
        event: dict[str, Any] = json.loads(line)
        if "sparkPlanInfo" in event:
            self._learn(name, event["sparkPlanInfo"])
        elif event["Task End Reason"]["Reason"] == "Success":
            for one in event["Task Info"]["Accumulables"]:
                place = self._places.get((name, one["ID"]))
                if place is not None:
                    self._rows[place] += int(one["Update"])

    def _learn(self, name: str, node: dict[str, Any]) -> None:
        place = node.get("metadata", {}).get("Location")
        if place:
            found = (metric["accumulatorId"] for metric in node["metrics"] if metric["name"] == _ROWS)
            self._places.update({(name, number): place for number in found})
        for child in node["children"]:
            self._learn(name, child)
