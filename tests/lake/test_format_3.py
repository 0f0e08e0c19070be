"""An Iceberg table of format 3, as Iceberg's Java core writes it: its deletion vectors are in Puffin files."""

import datetime as dt
import json
import subprocess
import sys
from pathlib import Path

import pytest

from skewless.errors import SpecError
from skewless.spec.input import Input
from skewless.spec.part import Part
from skewless.spec.result import Output
from skewless_lake.publication import require_fitting
from skewless_lake.staged_files import OutputPart
from skewless_spark.sources.lake.iceberg import snapshot_of
from skewless_spark.sources.lake.snapshot import deleted_positions
from skewless_spark.sources.lake.table_inputs import LakeTable
from tests.lake.java_format_3 import ROWS
from tests.lake_tables import lake

pytestmark = pytest.mark.long

DAY = Part(dt.date(2026, 11, 20))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("root")
    deletes = [{"a.parquet": [0, 7, 99], "b.parquet": [5], "c.parquet": []}, {"c.parquet": [1, 2]}]
    (folder / "t").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "tests.lake.java_format_3", str(folder / "t")], input=json.dumps(deletes),
        cwd=Path(__file__).parents[2], check=True, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert lake(folder).register_table("db.clicks", done.stdout).format_version == 3
    return folder


def test_rows_deleted_by_vectors_in_puffin_files_are_left_out(root: Path) -> None:
    given = Input.model_validate({"format": "iceberg", "path": "local.db.clicks"})
    snapshot = snapshot_of(given, DAY, str(root), "")
    found = {Path(one.path).name: deleted_positions(one.path, one.deletes, {}).tolist() for one in snapshot.files}
    assert found == {"a.parquet": [0, 7, 99], "b.parquet": [5], "c.parquet": [1, 2]}
    assert {one.split(".")[-1] for file in snapshot.files for one in file.deletes} == {"puffin"}
    assert [ROWS - unit.rows for unit in LakeTable(snapshot, str(root)).listing(0.01).units] == [3, 1, 2]
    second = lake(root).load_table("db.clicks").snapshots()[1].snapshot_id
    before = snapshot_of(given.model_copy(update={"at": second}), DAY, str(root), "")
    assert [unit.rows for unit in LakeTable(before, str(root)).listing(0.01).units] == [ROWS - 3, ROWS - 1, ROWS]


def test_a_table_of_format_3_is_refused_as_an_output(root: Path) -> None:
    output = OutputPart(Output(format="iceberg", path="local.db.clicks"), "iceberg://local.db.clicks", str(root), DAY)
    with pytest.raises(SpecError, match="expected a table of format 1 or 2, but got one of format 3; pyiceberg reads"):
        require_fitting(output)
