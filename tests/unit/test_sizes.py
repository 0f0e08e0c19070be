"""What is to be read does not grow: each figure stays below its ceiling, and a ceiling follows what shrinks."""

from tests.sizes import sizes

CEILINGS = {
    "lines of the product": 47_677,
    "lines of tests": 44_921,
    "words of pages": 49_805,
    "fields of a spec": 88,
    "conditions on an axis": 69,
    "private names of others": 11,
}
#: How far a figure may be below its ceiling before the ceiling is to be lowered.
SLACK = 0.05


def test_what_is_to_be_read_stays_below_its_ceilings_and_they_follow() -> None:
    found = sizes()
    assert {what: figure for what, figure in found.items() if figure > CEILINGS[what]} == {}
    assert {what: figure for what, figure in found.items() if figure < CEILINGS[what] * (1 - SLACK)} == {}
