"""Check a certificate of Skewless: was what is published made of the input, with nothing lost, doubled or altered?

    python check_certificate.py CERTIFICATE.json [KEYS [SEED]]

KEYS, 20 unless said, are drawn of the result and computed anew from the input. It needs pyarrow, numpy and DuckDB only.
Each line says what is good, WRONG or not checked; the exit code is 1 if anything is wrong.

The hash of a row is XXH64 with seed 42 over its columns, each hash being the seed of the next (nulls are passed over),
then over 32-bit numbers whose bits say which are null, of 31 columns each, the last of fewer. Its upper 32 bits count,
signed. The hash of rows is their sum modulo 2**32, in any order.
"""

import hashlib
import json
import math
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem, LocalFileSystem

Array = npt.NDArray[Any]
_PRIMES = "9E3779B185EBCA87 C2B2AE3D27D4EB4F 165667B19E3779F9 85EBCA77C2B2AE63 27D4EB2F165667C5"
_1, _2, _3, _4, _5 = (np.uint64(int(prime, 16)) for prime in _PRIMES.split())
_STEPS: dict[int, Callable[[Array, Array], Array]] = {  # how a hash takes in the next bytes, by their number
    8: lambda h, k: _rotated(h ^ (_rotated(k * _2, 31) * _1), 27) * _1 + _4,
    4: lambda h, k: _rotated(h ^ (k * _1), 23) * _2 + _3,
    1: lambda h, k: _rotated(h ^ (k * _5), 11) * _1,
}


def _rotated(h: Array, by: int) -> Array:
    return (h << np.uint64(by)) | (h >> np.uint64(64 - by))


def _xxh64(data: Array, starts: Array, sizes: Array, seed: Array) -> Array:
    def words(at: Array, size: int) -> Array:
        return data[at[:, None] + np.arange(size)].view(f"<u{size}")[:, 0].astype(np.uint64)

    hashes, done, long = seed + _5, np.zeros(len(starts), np.int64), np.flatnonzero(sizes >= 32)
    lanes = [seed[long] + _1 + _2, seed[long] + _2, seed[long], seed[long] - _1]
    for stripe in range(0, int(sizes.max(initial=0)) - 31, 32):
        on = sizes[long] >= stripe + 32
        for number, lane in enumerate(lanes):
            lane[on] = _rotated(lane[on] + words(starts[long][on] + stripe + 8 * number, 8) * _2, 31) * _1
    merged = np.sum([_rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)], axis=0)
    for lane in lanes:
        merged = (merged ^ (_rotated(lane * _2, 31) * _1)) * _1 + _4
    hashes[long], done[long] = merged, sizes[long] & ~31
    hashes += sizes.astype(np.uint64)
    for size, step in _STEPS.items():
        while len(rest := np.flatnonzero(sizes - done >= size)):
            hashes[rest] = step(hashes[rest], words(starts[rest] + done[rest], size))
            done[rest] += size
    for by, factor in ((33, _2), (29, _3), (32, np.uint64(1))):
        hashes = (hashes ^ (hashes >> np.uint64(by))) * factor
    return hashes


def _numbers(v: Array, seed: Array) -> Array:
    return _xxh64(v.view(np.uint8), np.arange(len(v)) * v.itemsize, np.full(len(v), v.itemsize), seed)


def _of_column(column: pa.Array, seed: Array) -> Array:
    kind = column.type
    if pa.types.is_decimal(kind):
        low_words = np.frombuffer(column.buffers()[1], np.int64)[2 * column.offset :: 2][: len(column)]
        return _numbers(low_words.copy(), seed)  # of at most 18 digits
    if kind in {pa.string(), pa.binary()}:
        text = column.cast(pa.large_binary())
        ends = np.frombuffer(text.buffers()[1], np.int64)[text.offset :][: len(text) + 1]
        return _xxh64(np.frombuffer(text.buffers()[2] or b"", np.uint8), ends[:-1], np.diff(ends), seed)
    if pa.types.is_floating(kind):
        values = column.fill_null(0).to_numpy(zero_copy_only=False)
        return _numbers(np.where(np.isnan(values), np.nan, values + 0).astype(values.dtype), seed)  # one NaN, one zero
    return _numbers(column.cast(f"int{max(32, kind.bit_width)}").fill_null(0).to_numpy(zero_copy_only=False), seed)


def hash_of(batch: pa.RecordBatch) -> int:
    """The hash of rows, see above."""
    hashes, nulls = np.full(len(batch), 42, np.uint64), np.zeros((batch.num_columns // 31 + 1, len(batch)), np.int32)
    for at, column in enumerate(batch.columns):
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        hashes = np.where(valid, _of_column(column, hashes), hashes)
        nulls[at // 31] |= (~valid).astype(np.int32) << at % 31
    for number in nulls:
        hashes = _numbers(number, hashes)
    return int((hashes.view(np.int64) >> 32).sum()) % 2**32


def _opened(path: str) -> Any:
    fs, inner = FileSystem.from_uri(path.replace("s3a://", "s3://")) if "://" in path else (LocalFileSystem(), path)
    return fs.open_input_file(inner)


def batches_of(path: str, file: Mapping[str, Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The columns of a Parquet file in some types; of one that it lacks, the value that its path has, or null."""
    parquet = pq.ParquetFile(_opened(path))
    own = {name.lower(): name for name in parquet.schema_arrow.names}
    there = [own.get((file["inner"].get(name, name) or "").lower()) for name in schema.names]
    for batch in parquet.iter_batches(1 << 18, columns=[*filter(None, there)]):
        made = [(batch[name] if name else pa.array([file["values"].get(field.name)] * len(batch), pa.string()))
                .cast(field.type, safe=False) for name, field in zip(there, schema, strict=True)]  # fmt: skip
        yield pa.RecordBatch.from_arrays(made, schema=schema)


class Audit:
    """A certificate held against what is there: lines that begin with ``good``, ``WRONG`` or ``not checked``."""

    def __init__(self, text: str, keys: int = 20, seed: int | None = None) -> None:
        import duckdb  # noqa: PLC0415  # who only hashes rows needs none

        self.db = duckdb.connect().execute("SET TimeZone = 'UTC'; SET enable_external_access = false")
        self.keys, self.chance, self.lines = keys, random.Random(seed), list[str]()  # noqa: S311
        (body, _, seal), c = text.rpartition(',"checksum":"'), json.loads(text)
        self._say(hashlib.sha256(f"{body}}}\n".encode()).hexdigest() == seal[:64], "the certificate itself")
        for one in c["balances"]:
            of, made = ([sum(total[n] for total in one[side].values()) for n in (0, 1)] for side in ("of", "made"))
            self._say(of[0] == made[0] and (of[1] - made[1]) % 2**32 == 0, f"{one['what']}: {of[0]:,}")
        self.chosen, self.total, self.c = list[dict[str, Any]](), [0, 0], c
        self._files(c["result"], self._draw)
        if c["rows"]["unchecked"]:
            self._say(None, f"what was made of the input's rows: {c['rows']['unchecked']}")
            self._files(c["input"], lambda _: None)
            return
        self.mapped, names = self._schema(c["rows"]["columns"]), c["result"]["keys"]
        rows = [{name: row.get(own) for name, own in names.items()} for row in self.chosen]
        self.db.register("chosen", pa.Table.from_pylist(rows, pa.schema([self.mapped.field(name) for name in names])))
        self.db.register("rows", self.mapped.empty_table()).execute("CREATE TABLE kept AS FROM rows")
        if self._files(c["input"], self._take):
            self._say(self.total == c["rows"]["total"], f"the rows that were aggregated: {self.total[0]:,}")
            self._compute_anew()

    def _say(self, good: bool | None, what: str) -> None:
        self.lines.append(f"{'not checked' if good is None else 'good' if good else 'WRONG'}: {what}")

    def _schema(self, columns: Mapping[str, str]) -> pa.Schema:
        kinds = (f'CAST(NULL AS {kind}) AS "{name}"' for name, kind in columns.items())
        return self.db.sql(f"SELECT {', '.join(kinds)}").to_arrow_table().schema

    def _files(self, of: Mapping[str, Any], each: Callable[[pa.RecordBatch], None]) -> bool:
        for file in of["files"]:
            path, rows, hashed = file["path"], 0, 0
            try:
                if file["sha256"]:
                    digest = hashlib.file_digest(_opened(path), "sha256").hexdigest()
                    self._say(digest == file["sha256"], f"bytes of {path}")
                for batch in () if file["unchecked"] else batches_of(path, file, self._schema(of["columns"])):
                    rows, hashed = rows + len(batch), (hashed + hash_of(batch)) % 2**32
                    each(batch)
            except Exception as err:  # noqa: BLE001  # whatever a reader says, the file is not good
                self._say(False, f"{path} cannot be read: {err}")
            same = None if file["unchecked"] else [rows, hashed] == [file["rows"], file["rows_hash"]]
            self._say(same, f"{path}: {file['unchecked'] or f'{rows:,} rows'}")
        return not any(file["unchecked"] for file in of["files"])

    def _draw(self, batch: pa.RecordBatch) -> None:
        drawn = batch.take(self.chance.sample(range(len(batch)), min(self.keys, len(batch))))
        try:
            self.chosen += [row for row in drawn.to_pylist() if row.items() >= self.c["result"]["where"].items()]
        except (OverflowError, ValueError) as err:  # Python's dates end with the year 9999
            self._say(None, f"keys that were drawn: {err}")
        self.chosen = self.chance.sample(self.chosen, min(self.keys, len(self.chosen)))

    def _take(self, batch: pa.RecordBatch) -> None:
        self.db.register("input", pa.Table.from_batches([batch]))
        rows = self.db.sql(self.c["rows"]["duckdb"]).to_arrow_table().select(self.mapped.names).cast(self.mapped)
        for part in rows.to_batches():
            self.total = [self.total[0] + len(part), (self.total[1] + hash_of(part)) % 2**32]
        same = " AND ".join(f'r."{name}" IS NOT DISTINCT FROM c."{name}"' for name in self.c["result"]["keys"])
        self.db.register("rows", rows).execute(f"INSERT INTO kept FROM rows AS r SEMI JOIN chosen AS c ON {same}")

    def _compute_anew(self) -> None:
        keys, owns = ", ".join(f'"{name}"' for name in self.c["result"]["keys"]), self.c["result"]["keys"].values()
        for name, value in self.c["result"]["values"].items():
            asked = f"SELECT {keys}, {value['duckdb']} FROM kept GROUP BY {keys}"  # noqa: S608
            found = [] if value["unchecked"] else self.db.sql(asked).fetchall()
            odd = [f": not {row}" for row in self.chosen if not any(
                _alike(row[name], of[-1], **value["within"]) for of in found if all(map(_alike, map(row.get, owns), of))
            )]  # fmt: skip
            of_keys = f"{len(self.chosen)} keys, computed anew{''.join(odd[:1])}"
            self._say(None if value["unchecked"] else not odd, f"column {name}: {value['unchecked'] or of_keys}")


def _alike(ours: Any, theirs: Any, **within: float) -> bool:
    near = within and None not in (ours, theirs) and math.isclose(ours, theirs, **within)
    return bool(near or ours == theirs or str(ours) == str(theirs))  # there is one zero and one NaN


if __name__ == "__main__":
    _, path, *numbers = sys.argv if len(sys.argv) > 1 else sys.exit(__doc__)
    sys.tracebacklimit = 0  # a file that is no certificate is told in one line
    lines = Audit(_opened(path).read().decode(), *map(int, numbers)).lines
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.exit(any(line.startswith("WRONG") for line in lines))
