"""The figures of Partial Key Grouping, at a small size."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks import partial_key
from benchmarks.peers.measurement import Stream, measure
from benchmarks.peers.routes import pkg_global, pkg_local
from benchmarks.workloads import zipf


def test_each_figure_is_played_judged_and_on_the_page() -> None:
    found = partial_key.measure(partial_key.Size(30_000, 3_000))
    assert [len(found[f"figure_{number}"]) for number in (4, 6, 8, 9)] == [8, 30, 16, 45]
    judged = partial_key.verdicts(found)
    assert [one.cell for one in judged[:3]] == ["figure 4", "figure 6", "figure 8"]
    one_more = {**found, "figure_9": [line for line in found["figure_9"] if line["tasks"] != 5]}
    assert [one.met for one in partial_key.verdicts(one_more) if "5 workers" in one.cell] == [False]
    page = partial_key.page(found)
    assert page.count("## Figure") == 4
    assert f"| 5 | 20 | {found['figure_8'][3]['largest']:.2g} |" in page


def test_a_source_knows_what_it_has_sent_itself_and_no_more() -> None:
    even = Stream.of(zipf(100, 0.5, 10_000, 1), 4, sources=3)
    alone = replace(even, uneven=np.zeros(10_000, np.int32))
    assert (pkg_local(alone) == pkg_global(even)).all()
    uneven = replace(even, uneven=(np.arange(10_000) % 7 // 3).astype(np.int32))
    assert not (pkg_local(uneven) == pkg_local(even)).all()
    assert measure("L", uneven, pkg_local(uneven)).imbalance_fraction < 1e-2
