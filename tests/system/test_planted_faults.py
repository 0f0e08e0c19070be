"""The tables of planted faults fit the code; ``make mutants`` plants them."""

from collections import Counter

import pytest

from tests.planted.copy import Copy, Verdict
from tests.planted.table import ROOT, Fault, planted

FAULTS = tuple(planted())
#: How many there must be at least: a table that loses its entries checks nothing.
FEWEST = 120


def test_there_are_enough_and_each_has_a_name_of_its_own() -> None:
    names = Counter(fault.name for fault in FAULTS)
    assert [name for name, times in names.items() if times > 1] == []
    assert len(names) >= FEWEST


def test_all_planted_faults_apply_and_their_tests_exist() -> None:
    wrong = []
    for fault in FAULTS:
        try:
            fault.applied((ROOT / fault.file).read_text())
        except (OSError, ValueError) as err:
            wrong.append(str(err))
        if not fault.has_test(ROOT):
            wrong.append(f"{fault.name}: there is no test {fault.test}")
    assert wrong == []


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    return Copy(tmp_path_factory.mktemp("planted") / "copy")


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ("if came != went:", "if came == went:", Verdict.KILLED),
        ("if on_disk != report.backlog_rows:", "if on_disk < report.backlog_rows:", Verdict.SURVIVED),
        ("import LedgerError", "import LedgrError", Verdict.UNCLEAR),
        ("came, went = ", "came, wnet = ", Verdict.UNCLEAR),
    ],
    ids=["a fault that is seen", "one that is not", "an import that fails", "a name that is not known"],
)
def test_only_a_test_that_fails_by_what_it_checks_kills_a_fault(
    copy: Copy, old: str, new: str, verdict: Verdict
) -> None:
    file, test = (
        "plugins/skewless/documents/ledger.py",
        "tests/unit/test_ledger.py::test_a_run_that_counts_each_row_once_balances",
    )
    fault = Fault.model_validate({"name": "one", "file": file, "from": old, "to": new, "test": test})
    assert copy.judge(fault).verdict is verdict
    assert (copy.root / file).read_text() == (ROOT / file).read_text()


GOOD = {"name": "a-b", "file": "plugins/x.py", "from": "x != 1", "to": "x < 1", "test": "tests/unit/test_x.py::test_x"}


@pytest.mark.parametrize(
    ("change", "text", "problem"),
    [
        ({}, "y = 1\n", "exactly once, and is there 0 times"),
        ({}, "a = x != 1\nb = x != 1\n", "exactly once, and is there 2 times"),
        ({"to": "x != 1"}, "a = x != 1\n", "changes nothing"),
        ({"to": "x  !=  1  # not"}, "a = x != 1\n", "changes nothing but comments and spaces"),
        ({"to": "x ="}, "a = x != 1\n", "no Python any more"),
        ({"file": "tests/unit/test_x.py"}, "a = x != 1\n", "a fault is planted in"),
    ],
    ids=["gone", "twice", "the same", "spaces only", "no Python", "in a test"],
)
def test_a_fault_that_no_longer_applies_is_refused(change: dict[str, str], text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Fault.model_validate(GOOD | change).applied(text)
