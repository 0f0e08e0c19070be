"""A day with keys in quarantine: both are published at once, or neither, whatever was killed."""

import itertools
from pathlib import Path

from skewless.documents.ledger import balance
from skewless.documents.quality import QualityReport, Quarantine
from skewless.publication.folder_output import FolderOutput, faults_of
from skewless.publication.publish import publishing
from skewless.publication.records import QUARANTINE, manifest_of
from skewless.run.directory import QUALITY_REPORT, QUALITY_STEP, RunDirectory
from tests.publication.days import DAY, NOW, published, turns_of, validated

#: What readers of an ending see, and what lies in quarantine.
OLD, NEW = ({"old 1", "old 2"}, set[str]()), ({"kept"}, {"held"})


def apart(folder: Path, out: Path, turn: int) -> RunDirectory:
    """A validated run with a key in quarantine, whose verdict has written the files of both."""
    run = validated(folder, out, {"whole.txt": "kept and held"}, turn=turn)
    Path(run.path(f"{QUALITY_STEP}/COMMIT.json")).unlink()
    quality = run.new_attempt(QUALITY_STEP)
    files = []
    for kind, text in (("result", "kept"), ("quarantined", "held")):
        path = Path(quality.path(f"{kind}.txt"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        files.append(quality.described(kind, str(path), 1, copied=True))
    ledger = balance(run.job(), [], 0)
    report = QualityReport(success=True, keys=2, checks=(), ledger=ledger, quarantine=Quarantine(keys=1))
    quality.write(QUALITY_REPORT, report)
    quality.commit(files, {})
    return run


def seen(out: Path) -> tuple[set[str], set[str]]:
    day = out / DAY
    held = (day / QUARANTINE).iterdir() if (day / QUARANTINE).exists() else ()
    return {one.read_text() for one in day.glob("*.parquet")}, {one.read_text() for one in held}


def test_a_publication_that_ends_after_any_step_shows_both_or_neither_and_both_when_it_is_done_again(
    tmp_path: Path,
) -> None:
    for stop in itertools.count(1):
        out = tmp_path / str(stop) / "out"
        published(validated(tmp_path / str(stop) / "old", out, {"a.txt": "old 1", "b.txt": "old 2"}))
        run = apart(tmp_path / str(stop) / "new", out, 2)
        steps = publishing(run, FolderOutput(run, NOW), turns_of(out))
        done = [name for _, name in zip(range(stop), steps, strict=False)]
        assert seen(out) in (OLD, NEW), done
        assert (seen(out) == NEW) == ("exchanged" in done), done
        steps.close()
        record = published(run)
        assert seen(out) == NEW
        assert (record.keys, record.quarantined) == (1, 1)
        manifest = manifest_of(out / DAY)
        assert manifest is not None
        assert not faults_of(out / DAY, manifest)
        assert not list(out.rglob("*.parquet"))[1:], "no glob of an ending finds what is in quarantine"
        if len(done) < stop:
            return
