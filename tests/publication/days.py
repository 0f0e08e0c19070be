"""A day to publish: runs that are ready for it, and what lies in its folder and beside it."""

import datetime as dt
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from skewless.document import Document
from skewless.documents.commit import CommittedFile
from skewless.documents.ledger import balance
from skewless.documents.quality import Check, QualityReport
from skewless.publication.folder_output import FolderOutput
from skewless.publication.publish import publish, publishing
from skewless.publication.records import Publication, VersionManifest, manifest_of
from skewless.run.directory import QUALITY_STEP, RESULT_STEP, Attempt, RunDirectory
from skewless_leases import Turns, open_store
from tests.unit import synthetic

DAY = "date=2026-11-20"
NOW = dt.datetime(2026, 11, 21, 3, 0, tzinfo=dt.UTC)


def validated(
    folder: Path, out: Path | str, parts: dict[str, str], *, turn: int = 1, success: bool = True, **output: Any
) -> RunDirectory:
    """A run that is ready to be published, its result files holding the texts given."""
    run = prepared(folder, out, turn, **output)
    result = run.new_attempt(RESULT_STEP)
    files = []
    for name, text in {**parts, "late-zombie.parquet": "never listed"}.items():
        path = Path(result.path(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if name in parts:
            files.append(result.described("result", str(path), 1, copied=True))
    commit_result(run, result, files, rows=7, keys=len(parts), success=success)
    return run


def prepared(folder: Path, out: Path | str, turn: int, **output: Any) -> RunDirectory:
    run = RunDirectory(str(folder))
    job = synthetic.job([], output_path=str(out)).model_copy(update={"turn": turn})
    spec = job.spec.model_copy(update={"output": job.spec.output.model_copy(update=output)})
    run.write_once("job.json", job.model_copy(update={"spec": spec}))
    return run


def commit_result(
    run: RunDirectory, result: Attempt, files: Sequence[CommittedFile], *, rows: int, keys: int, success: bool = True,
    columns: Mapping[str, str] | None = None,
) -> None:  # fmt: skip
    result.commit(files, {"rows": rows, "keys": keys})
    commit_quality(run, columns, success=success)


def commit_quality(
    run: RunDirectory, columns: Mapping[str, str] | None = None, /, *, success: bool = True, **documents: Document
) -> None:
    """Commit a quality report, which lets a run be published or not, and documents by name."""
    quality, keys = run.new_attempt(QUALITY_STEP), run.committed(RESULT_STEP).count("keys")
    check = Check(
        subject="result", expectation="expect_x", column="n", success=success, observed="3", found="3 of 7"
    )  # fmt: skip
    ledger = balance(run.job(), [], 0)
    report = QualityReport(success=success, keys=keys, checks=(check,), ledger=ledger, columns=dict(columns or {}))
    quality.write("result.json", report)
    for name, document in documents.items():
        quality.write(f"{name}.json", document)
    quality.commit([], {})


def seen_while_published(
    read: Callable[[], int], publish: Callable[[RunDirectory], object], runs: Sequence[RunDirectory]
) -> list[int]:
    """What a reader gets, one read after the other, while two publish runs beside each other, every second one each."""
    seen, done = list[int](), threading.Event()

    def look() -> None:
        while not done.is_set():
            seen.append(read())

    reader = threading.Thread(target=look)
    reader.start()
    with ThreadPoolExecutor(2) as publishers:
        list(publishers.map(lambda some: list(map(publish, some)), (runs[::2], runs[1::2])))
    done.set()
    reader.join()
    return seen


def turns_of(out: Path) -> Turns:
    return Turns(open_store(str(beside(out) / "turns"), durable=False))


def beside(out: Path) -> Path:
    return out.with_name(f".{out.name}.skewless")


def published(run: RunDirectory, now: dt.datetime = NOW) -> Publication:
    return publish(publishing(run, FolderOutput(run, now), turns_of(Path(run.job().output_path))))


def texts(day: Path) -> list[str]:
    """What a reader sees: the contents of the files that no reader passes over, by name."""
    return [path.read_text(encoding="utf-8") for path in sorted(day.iterdir()) if path.name[0] not in "._"]


def manifest(out: Path) -> VersionManifest:
    found = manifest_of(out / DAY)
    assert found is not None
    return found


def left_over(out: Path) -> list[str]:
    return sorted(path.name for path in (beside(out) / "drafts").rglob("*") if path.is_dir() and path.name != DAY)


def kept(out: Path) -> list[list[str]]:
    return [texts(path) for path in sorted((beside(out) / "kept" / DAY).glob("*"))]
