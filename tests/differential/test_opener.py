"""The one way to open Parquet: what a file says is checked, and what pyarrow cannot read as Spark does is not cut."""

import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from pyspark.sql import SparkSession

from skewless.documents.job import Job
from skewless.errors import InputError
from skewless_spark.prepare.prepare import sample_keys
from skewless_spark.sources import worker_files as ranges
from skewless_spark.sources.unit_reading import _for_spark
from tests.differential.rows import rows_of
from tests.differential.ways import job_of, types_of, whole

#: Microseconds and days of 9999-12-31 and 0001-01-01.
LAST, FIRST, FIRST_DAY = 253_402_300_799_999_999, -62_135_596_800_000_000, -719_162
OLD_NOTES = [
    {"org.apache.spark.version": "2.4.8"},
    {"org.apache.spark.version": "4.3.0", "org.apache.spark.legacyDateTime": ""},
]


def write(path: Path, columns: Mapping[str, pa.Array], notes: Mapping[str, str] | None = None, **options: Any) -> Path:
    table = pa.table(columns).replace_schema_metadata(dict(notes or {}))
    pq.write_table(table, path, **{"row_group_size": 2, **options})
    return path


def job_over(path: Path, *, cut: bool) -> Job:
    given = {"path": str(path)}
    return job_of(given, types_of(given, path.parent), path.parent, cut=cut)


def read(job: Job, *names: str) -> pa.Table:
    return pa.Table.from_batches([part for unit in job.units for part in ranges.read_unit(unit, job.source, names)])


def with_claimed_rows(path: Path, claimed: int) -> Path:
    """The same file; but the number of rows in its footer, after the list of its columns, is another one."""
    in_footer(path, [0x16, 2 * pq.read_metadata(path).num_rows, 0x19], [0x16, 2 * claimed, 0x19])
    assert pq.read_metadata(path).num_rows == claimed
    return path


def in_footer(path: Path, old: list[int], new: list[int]) -> None:
    raw = path.read_bytes()
    start = len(raw) - 8 - int.from_bytes(raw[-8:-4], "little")
    assert bytes(old) in raw[start:]
    path.write_bytes(raw[:start] + bytes(new).join(raw[start:].rsplit(bytes(old), 1)))


@pytest.mark.parametrize("claimed", [0, 5, 9])
def test_rows_are_those_of_the_row_groups_whatever_the_footer_claims(tmp_path: Path, claimed: int) -> None:
    """A file of six rows that claims none was an empty day."""
    path = with_claimed_rows(write(tmp_path / "a.parquet", {"id": pa.array(range(6))}), claimed)
    for cut in (False, True):
        job = job_over(path, cut=cut)
        assert (len(job.units) > 1, job.rows) == (cut, 6)
        assert read(job, "id")["id"].to_pylist() == list(range(6))


def test_a_row_group_that_claims_other_rows_than_it_has_is_refused(tmp_path: Path) -> None:
    """Of six rows three were read, and the ledger balanced."""
    path = write(tmp_path / "a.parquet", {"id": pa.array(range(6))}, row_group_size=6)
    in_footer(path, [0x16, 12, 0x26], [0x16, 6, 0x26])
    assert len(pq.read_table(path)) == 3
    with pytest.raises(InputError, match=r"expected a readable Parquet file, but got 6 values of 'id' for 3 rows of a"):
        job_over(path, cut=False)


def test_a_flipped_byte_of_a_cut_file_is_found_by_the_checksum_of_its_page(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.parquet", {"id": pa.array(range(1000, 1006))}, compression="none", use_dictionary=False,
        write_page_checksum=True,
    )  # fmt: skip
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"".join(number.to_bytes(8, "little") for number in (1002, 1003)))] ^= 1
    path.write_bytes(raw)
    job = job_over(path, cut=True)
    for reading in (lambda: read(job, "id"), lambda: sample_keys(job)):
        with pytest.raises(InputError, match=r"input file .*a.parquet: expected readable parquet, but got .*CRC"):
            reading()


def test_int96_holds_all_years(tmp_path: Path) -> None:
    """Beyond those of nanoseconds, 9999 became 1816."""
    times = pa.array([LAST, FIRST, 0, None], pa.int64()).cast(pa.timestamp("us"))
    path = write(tmp_path / "a.parquet", {"at": times}, use_deprecated_int96_timestamps=True)
    job = job_over(path, cut=True)
    assert job.key_types == {"at": "timestamp"}
    assert read(job, "at")["at"].cast(pa.int64()).to_pylist() == [LAST, FIRST, 0, None]
    assert sample_keys(job) is not None
    raw = path.read_bytes()
    hour = (86_400_000_000_000 - 1000).to_bytes(8, "little")  # the last microsecond of a day
    assert hour in raw
    path.write_bytes(raw.replace(hour, (1 << 62).to_bytes(8, "little")))
    with pytest.raises(InputError, match=r"expected times of the years 1 to 9999, but got others in 'at', .* INT96"):
        read(job_over(path, cut=True), "at")


@pytest.mark.parametrize("notes", OLD_NOTES)
@pytest.mark.parametrize("kind", ["date", "instant", "int96"])
def test_what_is_in_the_old_calendar_is_left_to_spark(tmp_path: Path, notes: dict[str, str], kind: str) -> None:
    """One date was two keys, as one file was cut and another was not."""
    if kind == "int96":
        notes = {**notes, "org.apache.spark.legacyINT96": ""}
    stored = pa.date32() if kind == "date" else pa.timestamp("us", None if kind == "int96" else "UTC")
    numbers = pa.array([FIRST_DAY, 0, 1, 2], pa.int32()) if kind == "date" else pa.array([FIRST, 0, 1, 2])
    columns = {"at": numbers.cast(stored)}
    path = write(tmp_path / "a.parquet", columns, notes, use_deprecated_int96_timestamps=kind == "int96")
    job = job_over(path, cut=True)
    assert [unit.span for unit in job.units] == [None]
    assert _for_spark(job, job.units[0])
    assert sample_keys(job) is None
    with pytest.raises(InputError, match=r"in the calendar of before 1582, which only Spark converts, but got .* 'at'"):
        read(job, "at")
    (tmp_path / "folder").mkdir()
    path.rename(tmp_path / "folder" / "a.parquet")
    new = {"at": pa.array([0, 1]).cast(pa.int32() if kind == "date" else pa.int64()).cast(stored)}
    write(tmp_path / "folder" / "b.parquet", new, compression="brotli", use_deprecated_int96_timestamps=kind == "int96")
    job = job_over(tmp_path / "folder", cut=True)
    assert [_for_spark(job, unit) for unit in job.units] == [True, False]
    assert sample_keys(job) is None


def test_only_what_spark_may_convert_keeps_a_file_whole(tmp_path: Path) -> None:
    local = pa.array([FIRST] * 4).cast(pa.timestamp("us"))  # without a zone, Spark never converts it
    assert len(job_over(write(tmp_path / "a.parquet", {"local": local}, OLD_NOTES[0]), cut=True).units) == 2
    old = {"day": pa.array([FIRST_DAY] * 4, pa.int32()).cast(pa.date32())}
    new = write(tmp_path / "b.parquet", old, {"org.apache.spark.version": "3.5.0"})
    assert len(job_over(new, cut=True).units) == 2


def test_integers_that_duckdb_packed_are_left_to_spark(tmp_path: Path) -> None:
    """It takes differences in 64 bits, which pyarrow refuses."""
    path = tmp_path / "a.parquet"
    select = "SELECT (hash(range) // 2::UBIGINT ** 32 - 2 ** 31)::INT AS id FROM range(5000)"
    duckdb.sql(f"COPY ({select}) TO '{path}' (FORMAT parquet, PARQUET_VERSION V2, ROW_GROUP_SIZE 2048)")
    assert pq.read_metadata(path).num_row_groups > 1
    job = job_over(path, cut=True)
    assert [unit.span for unit in job.units] == [None]
    assert sample_keys(job) is None
    with pytest.raises(InputError, match=r"expected readable parquet, but got"):
        read(job, "id")


def test_times_in_nanoseconds_are_read_if_microseconds_hold_them(tmp_path: Path) -> None:
    """As pandas wrote them for years; Spark refuses such a column."""
    exact = pa.array([1000, 2_001_000, None, -1000])
    columns = {
        "id": pa.array(range(4)), "at": exact.cast(pa.timestamp("ns", "UTC")), "local": exact.cast(pa.timestamp("ns")),
        "finer": pa.array([0, 0, 0, 1]).cast(pa.timestamp("ns")),
        "some": pa.array([[1000], [], None, [2000]], pa.list_(pa.timestamp("ns"))),
    }  # fmt: skip
    path = write(tmp_path / "a.parquet", columns, version="2.6")
    for cut in (False, True):
        job = job_over(path, cut=cut)
        assert not any(_for_spark(job, unit) for unit in job.units)
        found = read(job, "id", "at", "local", "some")
        for name in ("at", "local"):
            assert found[name].cast(pa.int64()).to_pylist() == [1, 2001, None, -1]
        assert rows_of(found, ["some"]) == {((1,),): 1, ((),): 1, (None,): 1, ((2,),): 1}
        with pytest.raises(InputError, match=r"expected times of whole microseconds.* but got nanoseconds in 'finer'"):
            read(job, "finer")


def test_spark_scans_a_file_whose_odd_columns_are_not_read(tmp_path: Path) -> None:
    columns = {"id": pa.array(range(4)), "at": pa.array([1] * 4, pa.timestamp("ns"))}
    path = write(tmp_path / "a.parquet", columns, version="2.6")
    job = job_of({"path": str(path)}, {"id": "bigint"}, tmp_path, cut=False)
    assert all(_for_spark(job, unit) for unit in job.units)


def test_a_logical_type_that_is_yet_to_come_is_left_to_pyarrow(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"id": pa.array(["a"]), "n": pa.array([1])}, store_schema=False)
    in_footer(path, [0x4C, 0x1C, 0, 0], [0x4C, 0xFC, 0, 0])  # the fifteenth type, which nobody has written yet
    assert str(pq.read_metadata(path).schema.column(0).logical_type) == "Undefined"
    job = job_over(path, cut=False)
    assert not any(_for_spark(job, unit) for unit in job.units)


def test_times_and_intervals_that_orc_has_as_numbers_are_told_by_the_notes_of_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = spark.sql(
        "SELECT TIMESTAMP_NTZ '2026-01-02 03:04:05.123456' AS wall, TIMESTAMP '2026-01-02 03:04:05' AS t, 7L AS id, "
        "array(TIMESTAMP_NTZ '2026-01-02 03:04:05') AS l, INTERVAL '1' YEAR AS y, INTERVAL '1' DAY AS d, "
        "'x' AS s, array('y') AS ls"
    )
    rows.coalesce(1).write.orc(str(tmp_path / "in"))
    given = {"path": str(tmp_path / "in"), "format": "orc"}
    types = types_of(given, tmp_path)
    assert types == {"wall": "timestamp_ntz", "t": "timestamp", "id": "bigint", "s": "string", "ls": "array<string>"}
    found = whole(spark, job_of(given, types, tmp_path, cut=False), ["wall", "id"])
    assert found.to_pylist() == [{"wall": dt.datetime(2026, 1, 2, 3, 4, 5, 123456), "id": 7}]  # noqa: DTZ001


@pytest.mark.parametrize(("codec", "groups"), [("brotli", 1), ("lz4", 1), ("lz4", 2)])
def test_a_codec_that_spark_lacks_is_left_to_pyarrow(tmp_path: Path, codec: str, groups: int) -> None:
    path = write(tmp_path / "a.parquet", {"id": pa.array(range(4))}, compression=codec, row_group_size=4 // groups)
    if codec == "lz4":  # the old one, without the frames that Hadoop gave it, in the last row group
        in_footer(path, [0x15, 2 * 7, 0x16], [0x15, 2 * 5, 0x16])
    job = job_over(path, cut=False)
    assert not any(_for_spark(job, unit) for unit in job.units)
    assert read(job, "id")["id"].to_pylist() == [0, 1, 2, 3]


class _Open(pe.KmsClient):
    def __init__(self, _: pe.KmsConnectionConfig) -> None:
        super().__init__()

    def wrap_key(self, key_bytes: bytes, _: str) -> bytes:
        return key_bytes.hex().encode()

    def unwrap_key(self, wrapped_key: bytes, _: str) -> bytes:
        return bytes.fromhex(wrapped_key.decode())


def with_a_secret(path: Path) -> Path:
    config = pe.EncryptionConfiguration(footer_key="k", column_keys={"k": ["secret"]}, plaintext_footer=True)
    properties = pe.CryptoFactory(_Open).file_encryption_properties(pe.KmsConnectionConfig(), config)
    return write(path, {"id": pa.array(range(4)), "secret": pa.array(range(4))}, encryption_properties=properties)


def test_an_encrypted_column_is_told_as_that_and_the_others_are_read_beside_it(tmp_path: Path) -> None:
    """Arrow ended the process of whoever asked for the codec of such a column."""
    job = job_over(with_a_secret(tmp_path / "a.parquet"), cut=True)
    assert read(job, "id")["id"].to_pylist() == [0, 1, 2, 3]
    with pytest.raises(InputError, match=r"input file .*a.parquet: expected readable parquet, but got .*decrypt"):
        read(job, "secret")
