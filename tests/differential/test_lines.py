"""Lines that need no place are read by Spark's own scan: the same ones as by pyarrow, for all line ends and bytes."""

from __future__ import annotations

import bz2
import gzip
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from skewless.documents.job import Job
from skewless_spark.sources.reading import scanned_bytes, source_rows
from tests.differential.ways import job_of

#: By the name of a file: its bytes. The first ones are scanned by Spark; of the others Spark would lose or add lines.
SCANNED = {
    "unix.txt": b"a\nb\n\nc",
    "windows.log": b"a\r\nb\r\n\r\nc\r\n",
    "old.mac": b"a\rb\r\rc\r",
    "mixed": b"\n\r\n\ra\n\n\rb\r\r\nc",
    "marked.csv": b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n",
    "other bytes.txt": b"\xff\xfea\n\x00\nb\x85c\xe2\x80\xa8d\x0be\x0cf\n",
    "empty": b"",
    "one line end": b"\n",
    "glob [a]*{b}?.txt": b"x\n",
    "long.txt": b"\n".join(b"%d" % number * (number % 97) for number in range(400)),
}
LEFT = {
    "squeezed.gz": gzip.compress(b"a\nb\n"),
    "squeezed.bz2": bz2.compress(b"a\nb\n"),
    "named as if.deflate": b"a\nb\n",
    "named as if.snappy": b"a\nb\n",
    "named as if.lz4": b"a\nb\n",
}
TYPES = {"value": "string"}


def job_over(root: Path, files: dict[str, bytes], *, cut: bool) -> Job:
    folder = root / "input"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return job_of({"path": str(folder), "format": "text"}, TYPES, root, cut=cut)


def lines_of(spark: SparkSession, job: Job, ordinals: range, *, located: bool) -> Counter[bytes]:
    rows = source_rows(spark, job, ordinals, ["value"], located=located)
    return Counter(bytes(row[0]) for row in rows.selectExpr("CAST(s0 AS BINARY)").collect())


def by_hand(content: bytes) -> list[bytes]:
    text = content.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return text.removesuffix(b"\n").split(b"\n") if text else []


@pytest.mark.parametrize("cut", [False, True])
def test_spark_scans_the_same_lines(spark: SparkSession, tmp_path: Path, *, cut: bool) -> None:
    job = job_over(tmp_path, SCANNED, cut=cut)
    units = range(len(job.units))
    assert len(units) > len(SCANNED) if cut else len(units) == len(SCANNED)
    assert sum(scanned_bytes(spark, job, units, ["value"], located=False)) == sum(map(len, SCANNED.values()))
    expected = Counter(line for content in SCANNED.values() for line in by_hand(content))
    before = spark.conf.get("spark.sql.files.maxPartitionBytes")
    spark.conf.set("spark.sql.files.maxPartitionBytes", 5_000)
    try:
        assert lines_of(spark, job, units, located=False) == expected
    finally:
        spark.conf.set("spark.sql.files.maxPartitionBytes", str(before))
    assert lines_of(spark, job, units, located=True) == expected
    assert scanned_bytes(spark, job, units, ["value"], located=True) == []


def test_a_file_of_which_a_part_is_asked_is_not_scanned_whole(spark: SparkSession, tmp_path: Path) -> None:
    job = job_over(tmp_path, {"long.txt": SCANNED["long.txt"]}, cut=True)
    some = range(1, len(job.units))
    assert scanned_bytes(spark, job, some, ["value"], located=False) == []
    found = lines_of(spark, job, some, located=False) + lines_of(spark, job, range(1), located=False)
    assert found == Counter(by_hand(SCANNED["long.txt"]))


def test_what_spark_would_decompress_by_its_name_is_left_to_pyarrow(spark: SparkSession, tmp_path: Path) -> None:
    job = job_over(tmp_path, LEFT, cut=False)
    assert scanned_bytes(spark, job, range(len(LEFT)), ["value"], located=False) == []
    assert lines_of(spark, job, range(len(LEFT)), located=False) == Counter({b"a": len(LEFT), b"b": len(LEFT)})


def test_no_setting_makes_spark_pass_over_lines_or_files(spark: SparkSession, tmp_path: Path) -> None:
    job = job_over(tmp_path, {"a.txt": b"a" * 100 + b"\nb\n", "b.txt": b"c\n"}, cut=False)
    longest = "mapreduce.input.linerecordreader.line.maxlength"
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set(longest, "10")
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        assert lines_of(spark, job, range(2), located=False) == Counter([b"a" * 100, b"b", b"c"])
        rows = source_rows(spark, job, range(2), ["value"], located=False)
        (tmp_path / "input" / "b.txt").unlink()
        with pytest.raises(Exception, match=r"FILE_NOT_EXIST|does not exist"):
            rows.collect()
    finally:
        hadoop.unset(longest)
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")
