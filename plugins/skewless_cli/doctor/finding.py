"""What a check is asked about, and what it has found."""

from __future__ import annotations

import importlib.util
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal, NamedTuple


class Surroundings(NamedTuple):
    """Where a job would run.

    Attributes:
        root: the data root, a path or a URL.
        catalog: the folder of job specs; empty if there is none.
    """

    root: str
    catalog: str


@dataclass(frozen=True)
class Finding:
    """One line of the doctor.

    Attributes:
        state: ``absent`` is what may be missing: nothing that is here needs it.
        remedy: the command that mends it, or brings what is absent; empty if nothing is to be done.
    """

    subject: str
    state: Literal["good", "absent", "wrong"]
    told: str
    remedy: str = ""

    def __str__(self) -> str:
        """As people read it.

        >>> str(Finding("Java", "wrong", "there is none", "apt-get install openjdk-17-jre-headless"))
        'wrong   Java: there is none; apt-get install openjdk-17-jre-headless'
        """
        return f"{self.state:<7} {self.subject}: {self.told}{f'; {self.remedy}' if self.remedy else ''}"

    def as_object(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return asdict(self)


def installed(package: str) -> str | None:
    """The version of an installed package; None if there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def pip_install(*wanted: str) -> str:
    """The command that installs something here, and moves no Airflow that is here already."""
    kept = installed("apache-airflow") if any("skewless[" in one for one in wanted) else None
    words = [*wanted, *([f"apache-airflow=={kept}"] if kept else [])]
    pip = "pip" if importlib.util.find_spec("pip") else "uv pip"
    return f"{pip} install {' '.join(word if word.startswith('-') else repr(word) for word in words)}"
