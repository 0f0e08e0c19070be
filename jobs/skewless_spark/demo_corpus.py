"""The demo's corpus: the tokens of the Python standard library's own sources, as Parquet.

Every machine that runs Skewless has it, nobody has to download it, and it is skewed as
real data is: a comma or ``self`` is a key like any other, only ten thousand times heavier.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

#: Parquet files of the corpus: enough for a wave of one percent. Each has a bit of everything, as
#: in a table that many writers wrote at once.
PARTS = 128

#: A token: a name or a word, in code, comments and strings alike. A regular expression and not
#: ``tokenize``, because the library's own tests hold files that are broken on purpose.
TOKEN = re.compile(r"[A-Za-z_]\w*")

SCHEMA = pa.schema([("token", pa.string()), ("file", pa.string()), ("line", pa.int32()), ("column", pa.int32())])


def source_files() -> list[Path]:
    """The standard library's own ``.py`` files, sorted; not what was installed beside it."""
    root = Path(sysconfig.get_path("stdlib"))
    found = (path for path in root.rglob("*.py") if "site-packages" not in path.parts)
    return sorted(path for path in found if "dist-packages" not in path.parts)


def tokens_of(path: Path) -> Iterator[tuple[str, int, int]]:
    """(token, line from 1, column from 0) of each token of a file, in order."""
    text = path.read_text(encoding="utf-8", errors="replace")
    for line, words in enumerate(text.split("\n"), start=1):
        for found in TOKEN.finditer(words):
            yield found[0], line, found.start()


def _write_part(job: tuple[int, Sequence[Path], Path]) -> int:
    number, paths, folder = job
    root = Path(sysconfig.get_path("stdlib"))
    rows = [
        (text, str(path.relative_to(root)), line, column)
        for path in paths
        for text, line, column in tokens_of(path)
    ]
    columns = list(zip(*rows, strict=True)) if rows else [[], [], [], []]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    pq.write_table(pa.table(arrays, schema=SCHEMA), folder / f"part-{number:05d}.parquet", compression="zstd")
    return len(rows)


def build(folder: Path) -> dict[str, object]:
    """Write the corpus unless it is there already for this Python; returns what it holds."""
    note = folder / "_corpus.json"
    version = platform.python_version()
    if note.exists():
        held: dict[str, object] = json.loads(note.read_text())
        if held.get("python") == version:
            return held
    sources = source_files()
    draft = folder.with_name(f".{folder.name}.{os.getpid()}")
    draft.mkdir(parents=True)
    parts = [sources[number::PARTS] for number in range(min(PARTS, len(sources)))]
    rows = 0
    with multiprocessing.get_context("spawn").Pool() as pool:
        jobs = [(number, part, draft) for number, part in enumerate(parts)]
        for done, count in enumerate(pool.imap(_write_part, jobs), start=1):
            rows += count
            if done % 20 == 0 or done == len(parts):
                _say(f"corpus: {done}/{len(parts)} parts, {rows:,} tokens")
    held = {"python": version, "source_files": len(sources), "rows": rows, "parts": len(parts)}
    (draft / "_corpus.json").write_text(json.dumps(held) + "\n")
    shutil.rmtree(folder, ignore_errors=True)
    draft.rename(folder)
    return held


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """``python -m skewless_spark.demo_corpus``: below ``$SKEWLESS_ROOT``, or ``data``."""
    folder = Path(os.environ.get("SKEWLESS_ROOT", "data")) / "corpus" / "python_tokens"
    _say(f"corpus: the tokens of Python {platform.python_version()}'s standard library, in {folder}")
    held = build(folder)
    _say(f"corpus: {held['rows']:,} tokens of {held['source_files']:,} source files in {held['parts']} Parquet files")


if __name__ == "__main__":
    main()
