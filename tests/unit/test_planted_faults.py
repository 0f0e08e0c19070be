"""The tables of planted faults apply to the code as it is; ``make mutants``, which plants them, takes an hour."""

from __future__ import annotations

import re
from pathlib import Path

from tests.planted.table import planted

ROOT = Path(__file__).parents[2]


def test_each_fault_stands_for_one_place_of_the_code() -> None:
    texts = {fault.file: (ROOT / fault.file).read_text(encoding="utf-8") for fault in planted()}
    assert [fault.name for fault in planted() if texts[fault.file].count(fault.old) != 1] == []


def test_each_fault_names_a_test_that_there_is() -> None:
    gone = []
    for fault in planted():
        file, _, name = fault.test.partition("::")
        text = (ROOT / file).read_text(encoding="utf-8") if (ROOT / file).exists() else ""
        if not re.search(rf"def {re.escape(name.partition('[')[0].rpartition('::')[2])}\b", text):
            gone.append(fault.name)
    assert gone == []
