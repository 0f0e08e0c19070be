"""What somebody who means no good, or a disk that means nothing, makes of a good document or spec."""

import copy
import json
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st

from skewless.errors import SkewlessError

#: A search for new examples: how many, in the place of the few that are the same in every run.
_SEARCHED = int(os.environ.get("SKEWLESS_FUZZ", "0"))


def fuzz(examples: int = 10) -> settings:
    """How an input is fuzzed: some examples, the same ones in every run; ``SKEWLESS_FUZZ=5000`` looks for new ones."""
    return settings(max_examples=_SEARCHED or examples, deadline=None, derandomize=not _SEARCHED)


#: No sentence is longer: it has to be read.
LONGEST_SENTENCE = 1_500

_NUMBERS = st.sampled_from([
    0, -1, 1, 3, 2**31 - 1, 2**31, 2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**64, 10**40, 0.5, -0.5, 1e308,
    5e-324,
    float("nan"), float("inf"), float("-inf"),
])  # fmt: skip
_TEXTS = st.sampled_from([
    "", "\0", "a\nb", "../x", "/etc/passwd", "..", "a" * 5_000, "日本🙂", "<img src=x onerror=alert(1)>", "0-0-1",
    "1-1-1", "-1-0-1", "__import__('os').system('true')", "!!python/object:os.system", "{date.__class__}", "1e999",
])  # fmt: skip
_PLAIN = st.one_of(st.none(), st.booleans(), _NUMBERS, _TEXTS, st.integers(), st.text(max_size=5))
#: Anything that JSON can hold.
VALUES = st.recursive(
    _PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn, good: Any, most: int = 3) -> Any:
    """A good tree in which a few things are not what they were: changed, taken away, added, doubled, or exchanged."""
    tree = copy.deepcopy(good)
    for _ in range(draw(st.integers(1, most))):
        places = list(_places(tree))
        if not places:
            break
        holder, name = draw(st.sampled_from(places))
        tree_change = draw(st.sampled_from([_change, _nudge, _take_away, _add, _double, _bury]))
        tree_change(draw, holder, name)
    return tree


@st.composite
def miscounted(draw: st.DrawFn, good: Any) -> Any:
    """A good tree in which some numbers are others: most of them such as there could be."""
    tree = copy.deepcopy(good)
    places = [
        (holder, name)
        for holder, name in _places(tree)
        if isinstance(holder[name], int | float) and not isinstance(holder[name], bool)
    ]
    for holder, name in draw(st.lists(st.sampled_from(places), max_size=4, unique_by=str)):
        holder[name] = draw(st.integers(0, 20) | st.sampled_from([2**31, 2**40, 2**53 - 1, 2**53, 1e-9, 0.5, 1e300]))
    return tree


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a tree, as its holder and its name there; of long lists the first few."""
    names = list(tree) if isinstance(tree, dict) else range(min(len(tree), 4)) if isinstance(tree, list) else ()
    for name in names:
        yield tree, name
        yield from _places(tree[name])


def _change(draw: st.DrawFn, holder: Any, name: Any) -> None:
    holder[name] = draw(VALUES)


def _nudge(draw: st.DrawFn, holder: Any, name: Any) -> None:
    if isinstance(holder[name], int | float):
        holder[name] += draw(st.sampled_from([-1, 1, 2**40, -(2**40)]))
    else:
        _change(draw, holder, name)


def _take_away(_draw: st.DrawFn, holder: Any, name: Any) -> None:
    del holder[name]


def _add(draw: st.DrawFn, holder: Any, name: Any) -> None:
    if isinstance(holder, dict):
        names = st.sampled_from([f"{name}s", "7", "-1", "99999999", "version"])
        holder[draw(st.text(max_size=4) | names)] = draw(VALUES)
    else:
        holder.append(draw(VALUES))


def _double(_draw: st.DrawFn, holder: Any, name: Any) -> None:
    if isinstance(holder, list):
        holder.append(copy.deepcopy(holder[name]))
    else:
        holder[f"{name} "] = copy.deepcopy(holder[name])


def _bury(draw: st.DrawFn, holder: Any, name: Any) -> None:
    deep = holder[name]
    for _ in range(draw(st.sampled_from([1, 3, 250]))):
        deep = [deep]
    holder[name] = deep


def as_json(tree: Any) -> bytes:
    """A tree as somebody's text: numbers that are none stand in it as Python writes them."""
    return json.dumps(tree).encode()


def require_sentence(err: SkewlessError) -> None:
    """One sentence on one line that says where and what, and is not too long to be read."""
    text = str(err)
    assert re.fullmatch(r"[^\n]+: [^\n]+[.?]", text), text
    assert "Traceback" not in text
    assert len(text) <= LONGEST_SENTENCE, f"{len(text)} characters: {text[:300]}"


def refused(kind: type[SkewlessError], act: Callable[[], Any]) -> str:
    with pytest.raises(kind) as raised:
        act()
    require_sentence(raised.value)
    return str(raised.value)
