"""A copy of the code in which one fault at a time is planted, and the tests that are run on it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.planted.table import ROOT, Fault

#: What the tests read. The environment, data of earlier runs and caches stay behind.
COPIED = (
    "plugins", "jobs", "dags", "tests", "benchmarks", "docs", "deploy", "examples", "pyproject.toml", "README.md",
    "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "docker-compose.yml",
)  # fmt: skip
#: An interpreter is started for each fault: of pytest's plugins it loads those that the tests need.
NO_OTHER_PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
PLUGINS = (
    "-p", "pytest_timeout", "-p", "_hypothesis_pytestplugin", "-p", "tests.planted.origin", "-p", "no:cacheprovider",
)  # fmt: skip
#: Errors of a test that could not run; they say nothing about what it checks.
BROKEN = (
    "NameError", "UnboundLocalError", "ImportError", "ModuleNotFoundError", "SyntaxError", "IndentationError",
    "Failed: Timeout",
)  # fmt: skip


class Verdict(Enum):
    KILLED = "killed"
    SURVIVED = "SURVIVED"
    UNCLEAR = "UNCLEAR"


@dataclass(frozen=True)
class Outcome:
    verdict: Verdict
    words: str


class Copy:
    """A copy of the repository in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "data"))
            else:
                folder.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, folder)

    def unbroken(self, tests: Sequence[str]) -> list[str]:
        code, cases, output = self._run(tests, {})
        wrong = [f"{name}: {words}" for name, kind, words in cases if kind]
        if not wrong and code:
            wrong.append(f"the tests ended with {code}: {output[-2000:]}")
        return wrong

    def judge(self, fault: Fault) -> Outcome:
        """Plant a fault, run its test, and put the code right again."""
        path = self.root / fault.file
        text = path.read_text()
        path.write_text(fault.applied(text))
        # Compiled files are told apart by seconds and length: what was compiled before could pass for this one.
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
            compiled.unlink()
        try:
            code, cases, output = self._run([fault.test], {"PYTHONDONTWRITEBYTECODE": "1"})
        finally:
            path.write_text(text)
        failed = [words for _, kind, words in cases if kind == "failure"]
        if failed and not failed[0].startswith(BROKEN):
            return Outcome(Verdict.KILLED, failed[0])
        if code == 0 and cases and not any(kind for _, kind, _ in cases):
            return Outcome(Verdict.SURVIVED, f"{fault.test} passes")
        words = next((f"{kind}: {words}" for _, kind, words in cases if kind), output[-500:])
        return Outcome(Verdict.UNCLEAR, f"no test failed, they could not run ({code}): {words}")

    def _run(self, tests: Sequence[str], environ: dict[str, str]) -> tuple[int, list[tuple[str, str, str]], str]:
        """Run tests here; the exit code, each test's name, kind of failure ('' if it passed) and words, the output."""
        report = self.root / "junit.xml"
        report.unlink(missing_ok=True)
        path = os.pathsep.join(str(self.root / name) for name in ("plugins", "jobs", "."))
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *PLUGINS, f"--junitxml={report}", *tests],
            cwd=self.root,
            env=os.environ | environ | {"PYTHONPATH": path, "SKEWLESS_PLANTED": str(self.root)} | NO_OTHER_PLUGINS,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        output = done.stdout + done.stderr
        if not report.exists():
            return done.returncode, [], output
        cases = []
        for case in ET.parse(report).iter("testcase"):
            bad = next((child for child in case if child.tag in {"failure", "error", "skipped"}), None)
            words = "" if bad is None else " ".join(bad.get("message", "").split())[:120]
            cases.append((str(case.get("name")), "" if bad is None else bad.tag, words))
        return done.returncode, cases, output
