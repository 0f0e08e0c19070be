"""The demo's corpus: the sources of Python's standard library, and their tokens as Parquet.

Every machine that runs Skewless has them, so nothing is downloaded. They are skewed like real data: ``self`` is a key
like any other, but ten thousand times heavier than most.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import re
import shutil
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from examples import data_root, say, whole

#: Folders of the corpus: the unchanged files, and their tokens as Parquet.
SOURCES, TOKENS = "python_sources", "python_tokens"

#: Parquet files of the tokens: enough for a wave of one percent. Each is a mixture of all sources, as in a table that
#: many writers write at once.
PARTS = 128

#: A token: a name or a word, in code, comments and strings alike. A regular expression and not
#: ``tokenize``, because the library's own tests contain files that are broken on purpose.
TOKEN = re.compile(r"[A-Za-z_]\w*")

_NEWLINE = ord("\n")

SCHEMA = pa.schema([("token", pa.string()), ("file", pa.string()), ("line", pa.int32()), ("column", pa.int32())])


def source_files() -> list[Path]:
    """The standard library's own ``.py`` files, sorted, without installed packages."""
    return sorted(path for path in _library().rglob("*.py") if not {"site-packages", "dist-packages"} & {*path.parts})


def tokens_of(path: Path) -> pa.Table:
    """The tokens of a file, in order, with their line from 1 and column from 0."""
    # A byte order mark does not count as a column.
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    found = list(TOKEN.finditer(text))
    starts = np.fromiter((one.start() for one in found), dtype=np.int64, count=len(found))
    line_starts = np.append(0, np.flatnonzero(np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32) == _NEWLINE) + 1)
    lines = np.searchsorted(line_starts, starts, side="right")
    names = pa.array([str(path.relative_to(_library()))]).take(pa.array(np.zeros(len(found), dtype=np.int64)))
    columns = [pa.array([one[0] for one in found], pa.string()), names, lines, starts - line_starts[lines - 1]]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.table(arrays, schema=SCHEMA)


def _library() -> Path:
    return Path(sysconfig.get_path("stdlib"))


def _write_part(job: tuple[int, Sequence[Path], Path]) -> int:
    number, paths, folder = job
    table = pa.concat_tables([SCHEMA.empty_table(), *map(tokens_of, paths)])
    pq.write_table(table, folder / f"part-{number:05d}.parquet", compression="zstd")
    return int(table.num_rows)


def _kept(folder: Path, write: Callable[[list[Path], Path], dict[str, object]]) -> dict[str, object]:
    """Fill a folder from the sources, unless it exists already for this Python; returns facts about its content."""
    note, version = "_corpus.json", platform.python_version()
    if (folder / note).exists():
        held: dict[str, object] = json.loads((folder / note).read_text())
        if held.get("python") == version:
            return held
    sources = source_files()
    with whole(folder) as draft:
        held = {"python": version, "source_files": len(sources), **write(sources, draft)}
        (draft / note).write_text(json.dumps(held) + "\n")
    return held


def build(folder: Path) -> dict[str, object]:
    """Write the tokens, unless they exist already for this Python; returns facts about them."""
    return _kept(folder, _write_tokens)


def copy_sources(folder: Path) -> dict[str, object]:
    """Copy the sources, unless they exist already for this Python; returns facts about them."""
    return _kept(folder, _copy_all)


def _write_tokens(sources: list[Path], draft: Path) -> dict[str, object]:
    parts = [sources[number::PARTS] for number in range(min(PARTS, len(sources)))]
    rows = 0
    with multiprocessing.get_context("spawn").Pool() as pool:
        jobs = [(number, part, draft) for number, part in enumerate(parts)]
        for done, count in enumerate(pool.imap(_write_part, jobs), start=1):
            rows += count
            if done % 20 == 0 or done == len(parts):
                say(f"corpus: {done}/{len(parts)} parts, {rows:,} tokens")
    return {"rows": rows, "parts": len(parts)}


def _copy_all(sources: list[Path], draft: Path) -> dict[str, object]:
    for path in sources:
        target = draft / path.relative_to(_library())
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return {"bytes": sum(path.stat().st_size for path in sources)}


def main(arguments: Sequence[str] | None = None) -> None:
    """``python -m examples.demo_corpus [--tokens]``: writes below ``$SKEWLESS_ROOT``, or ``data``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--tokens", action="store_true", help="also write the tokens as Parquet, for jobs without a map"
    )
    told = parser.parse_args(arguments)
    root = data_root() / "corpus"
    held = copy_sources(root / SOURCES)
    say(
        f"corpus: {held['source_files']:,} source files of Python {held['python']}'s standard library, "
        f"{held['bytes']:,} bytes, in {root / SOURCES}"
    )
    if told.tokens:
        held = build(root / TOKENS)
        say(f"corpus: their {held['rows']:,} tokens in {held['parts']} Parquet files, in {root / TOKENS}")


if __name__ == "__main__":
    main()
