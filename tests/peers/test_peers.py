"""Files and tables that other projects test with: each is read as others read it, or refused in a sentence."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.peers.cases import cases_in, unpacked
from tests.peers.verdict import DIFFERENT, TRACEBACK, as_text, verdicts

#: Beside the checkout; not everybody has it.
PEERS = Path(__file__).parents[3] / "shared" / "peers"


@pytest.mark.long
@pytest.mark.skipif(not PEERS.is_dir(), reason=f"there is no folder {PEERS}")
def test_nothing_is_read_otherwise_than_others_read_it(spark: SparkSession, tmp_path: Path) -> None:
    found = [one for case in cases_in(unpacked(PEERS, tmp_path)) for one in verdicts(spark, case)]
    assert len(found) > 200
    faults = [as_text(one) for one in found if one.kind in {DIFFERENT, TRACEBACK}]
    assert not faults, "\n".join(faults)
