"""The verdict on a result; and how it differs from another one, key by key, and the same in words."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Self

from pydantic import Field, model_validator

from skewless.document import Count, Document, Frozen, unmet
from skewless.documents.ledger import Ledger
from skewless.documents.nights import Bands, Measured
from skewless.errors import QualityError, counted
from skewless.spec.spec import Shadow

MOST_NAMED = 20
#: What comes before the values that an outcome gives as examples.
BEFORE_EXAMPLES = ", for example "
#: What the checks of every run say, whatever its spec: by subject, expectation and, for the ledger, its column.
_BUILT_IN = {
    ("ledger", "ledger_balances", ""): "the ledger balances",
    ("result", "each_key_once", ""): "each key occurs once",
    ("result", "columns_of_the_spec", ""): "the columns are those of the spec",
    ("result", "expect_table_row_count_to_equal", ""): "rows of the result = keys that were merged",
    ("result", "expect_table_row_count_to_be_between", ""): "no more keys than rows of the input",
    ("result", "expect_column_sum_to_be_between", ""): "{column} adds up to the rows of the input",
    ("result", "expect_column_values_to_not_be_null", ""): "every key has a value of {column}",
    ("result", "rule_of_the_table", ""): "each row is what the table asks for: {column}",
    ("bands", "within_the_band", ""): "{column} as in the nights around",
    ("quarantine", "keys_balance", ""): "keys of the result = keys published + keys in quarantine",
}  # fmt: skip


@dataclass(frozen=True)
class State:
    """How a result, a run or a day stands, by a word of ``STATES``, and what people are told, everywhere the same."""

    word: str
    sentence: str

    @property
    def kind(self) -> str:
        """Whether it is good, a warning or bad, or goes on: its colour on a page and on a terminal."""
        return STATES[self.word]


#: Each state with its kind, the worst first.
STATES: Mapping[str, str] = {
    "failed": "bad", "unreadable": "bad", "missing": "bad", "late": "bad", "running": "busy", "queued": "busy",
    "restarting": "busy", "quarantined": "warn", "differs": "warn", "warned": "warn", "unfinished": "plain",
    "superseded": "plain", "none yet": "plain", "agrees": "good", "passed": "good", "published": "good",
}  # fmt: skip


class FailingKey(Frozen):
    """A key whose row fails an expectation, as text of bounded length, and what was found in it; "" if nothing was."""

    key: str = Field(max_length=200)
    found: str = Field(default="", max_length=200)

    def __str__(self) -> str:
        return f"{self.key}: {self.found}" if self.found else self.key


class Check(Frozen):
    """One expectation's verdict."""

    subject: str
    """One of "input", "ledger", "result", "quarantine", or "bands" that fail."""
    expectation: str
    column: str
    success: bool
    required: str = ""
    """Its arguments, but for the column, as text."""
    observed: str
    """What was observed, as text; "" where nothing is observed but failures."""
    found: str
    keys: tuple[FailingKey, ...] = ()
    """Some of the keys whose rows fail it, the largest values first."""
    severity: Literal["fail", "warn", "quarantine"] = "fail"
    """What it does if it does not hold: the spec's word, or "fail" if it could not be evaluated, or if more keys fail
    it than may."""

    @property
    def fails(self) -> bool:
        """Whether nothing may be published."""
        return not self.success and self.severity == "fail"

    @property
    def verdict(self) -> str:
        """The verdict in a word: passed, failed, warned or quarantined."""
        return "passed" if self.success else f"{self.severity.removesuffix('e')}ed"

    @property
    def sentence(self) -> str:
        """The check as it is called, with its outcome."""
        arguments = ", ".join(filter(None, (self.column, self.required)))
        return f"{self.expectation}({arguments}): {self.found}" if arguments else f"{self.expectation}: {self.found}"

    @property
    def found_in_keys(self) -> str:
        """The outcome with the keys that fail, which say more than the values that it gives as examples."""
        if not self.keys:
            return self.found
        return f"{self.found.partition(BEFORE_EXAMPLES)[0]}; in {'; '.join(map(str, self.keys))}"

    def name(self, *, own: bool) -> str:
        """What it expects, in words.

        Args:
            own: whether it is one of the spec's: ``expect_column_values_to_not_be_null`` is then ``values not null``.
        """
        column = self.column if self.subject == "ledger" else ""
        built_in = None if own else _BUILT_IN.get((self.subject, self.expectation, column))
        if built_in is not None:
            return built_in.replace("{column}", self.column)
        words = self.expectation.removeprefix("expect_")
        for kind in ("column_", "table_"):
            words = words.removeprefix(kind)
        words = words.replace("_to_", "_", 1).replace("_be_", "_", 1).replace("_", " ")
        return f"{self.column}: {words}" if self.column else words


class Quarantine(Frozen):
    """The keys that are left out of the published result, and lie beside it."""

    keys: Count
    """How many rows of the result these are; a row of several windows counts in each."""
    rows: Count | None = None
    """Of the input that they stand for; None if the result does not count them."""
    accepted: Count = 0
    """Keys that fail as well, and are published, as ``quality.accept`` has them."""
    unmatched: Count = 0
    """Keys of ``quality.accept`` that fail nothing."""

    @property
    def sentence(self) -> str:
        """What is left out, or was, for people."""
        rows = "" if self.rows is None or not self.keys else f", of {counted(self.rows, 'row')} of the input"
        accepted = f"; {self.accepted:,} that fail are accepted" if self.accepted else ""
        unmatched = f"; {self.unmatched:,} that are accepted fail nothing" if self.unmatched else ""
        return f"{counted(self.keys, 'key')} in quarantine{rows}{accepted}{unmatched}"


class InputChecks(Document):
    """The checks of the input, made before anything of it was read; those of a run that went on are in its report."""

    checks: tuple[Check, ...]


class QualityReport(Document):
    """All checks of a run, in the order they were run, with the ledger they are about."""

    success: bool
    """Whether the result may be published: no check failed of those that are no warning; a report that says otherwise
    than its checks is refused."""
    keys: Count
    """Rows of the result: those that are published, and those in quarantine."""
    checks: tuple[Check, ...]
    ledger: Ledger
    columns: dict[str, str] = Field(default_factory=dict)
    """The Spark SQL type of each column of the result."""
    quarantine: Quarantine | None = None
    """What is left out; None if nothing is."""
    figures: dict[str, Measured] = Field(default_factory=dict)
    """What later nights are compared with, if the run is published."""
    bands: Bands | None = None
    """The figures beside those of the nights around; None if the spec switches that off."""

    @property
    def published_keys(self) -> int:
        """Rows of the result that are published."""
        return self.keys - self.quarantined_keys

    @property
    def quarantined_keys(self) -> int:
        """Rows of the result that are in quarantine."""
        return self.quarantine.keys if self.quarantine else 0

    @property
    def verdict(self) -> State:
        """The verdict: failed, passed, passed with 1 warning, or 120,000 rows withheld, which readers feel most."""
        bands = self.bands.checks if self.bands else ()
        warned = sum(one.verdict == "warned" for one in self.checks) + sum(one.outcome == "warned" for one in bands)
        if not self.success:
            return State("failed", "failed")
        words = f"passed with {counted(warned, 'warning')}" if warned else "passed"
        if (left := self.quarantine) is None or not left.keys:
            return State("warned" if warned else "passed", words)
        withheld = counted(left.keys, "key") if left.rows is None else counted(left.rows, "row")
        return State("quarantined", f"{f'{words}, ' if warned else ''}{withheld} withheld")

    def warnings(self, own: int, *, values: bool = True) -> list[str]:
        """What a published result does not hold, and what is left out of it; ``own`` as for ``named``.

        Args:
            values: whether keys and values may be in them, which not everybody may see who sees counts.
        """
        left_out = [self.quarantine.sentence] if self.quarantine else []
        told = [
            words
            for check, words in self._not_held(own, values=values)
            if not check.fails and (check.severity == "warn" or self.quarantined_keys)
        ]
        return left_out + told[:MOST_NAMED]

    def named(self, own: int) -> tuple[tuple[str, Check], ...]:
        """The checks with what they expect in words.

        Args:
            own: how many of them the spec asks for; these are the last ones.
        """
        first = len(self.checks) - own
        return tuple((check.name(own=place >= first), check) for place, check in enumerate(self.checks))

    def failures(self, own: int) -> list[str]:
        """What each check that failed expects and has found; ``own`` as for ``named``."""
        return [words for check, words in self._not_held(own) if check.fails]

    def _not_held(self, own: int, *, values: bool = True) -> list[tuple[Check, str]]:
        found = []
        for place, (name, check) in enumerate(self.named(own), start=own - len(self.checks)):
            asked = place >= 0 or check.subject == "input"
            required = f", {check.required}" if asked and check.required else ""
            if not check.success:
                verdict = "" if check.severity == "fail" else f"{check.verdict}: "
                told = check.found_in_keys if values else check.found.partition(BEFORE_EXAMPLES)[0]
                found.append((check, f"{verdict}{name}{required} ({told})"))
        return found

    def failed_words(self, own: int) -> tuple[str, str]:
        """How many checks failed, and what the first of them found; ``own`` as for ``named``."""
        failed = self.failures(own)
        more = [f"and {len(failed) - MOST_NAMED:,} more"] if len(failed) > MOST_NAMED else []
        return f"{len(failed):,} of {len(self.checks):,} checks failed", "; ".join([*failed[:MOST_NAMED], *more])

    @model_validator(mode="after")
    def _verdict_of_its_checks(self) -> Self:
        if self.quarantine and self.quarantine.keys > self.keys:
            raise unmet(f"a quarantine of at most {self.keys:,} keys", f"{self.quarantine.keys:,}")
        failed = sum(check.fails for check in self.checks)
        if self.success != (not failed):
            raise unmet(f"a verdict that follows from its checks, of which {failed} failed", f"success: {self.success}")
        return self


class Sides(Frozen):
    """A value of both results, as text."""

    here: str
    there: str


class DifferingKey(Frozen):
    """A key that differs."""

    key: dict[str, str]
    state: str = ""
    """``only here``, ``only there`` or ``twice there``; empty if each result has it once."""
    columns: dict[str, Sides] = Field(default_factory=dict)

    def __str__(self) -> str:
        columns = [f"{name} {both.here} here, {both.there} there" for name, both in self.columns.items()]
        key = ", ".join(f"{name} {value}" for name, value in self.key.items())
        return f"{key}: {'; '.join([self.state, *columns] if self.state else columns)}"


class Comparison(Document):
    """How a result differs from another one."""

    beside: str
    """The other result, as it was named."""
    keys: Count
    """How many keys there are in either."""
    differ: Count
    """How many of them differ in any way."""
    only_here: Count
    only_there: Count
    twice_there: Count
    """How many have several rows in the other result."""
    columns: dict[str, Count]
    """For each aggregate that both have, how many keys have another value: of exact ones any other one, of floats see
    ``tolerance``, of approximate ones a value that is further away than both stated errors."""
    within_error: tuple[str, ...]
    """The aggregates that are compared within their stated errors."""
    lacking: tuple[str, ...]
    types: dict[str, tuple[str, str]]
    """The aggregates whose types cannot be compared: ours and theirs."""
    more: tuple[str, ...]
    examples: tuple[DifferingKey, ...]
    """The first keys that differ."""
    tolerance: float = Field(ge=0)
    """Of floating-point numbers, relative to the larger one."""
    seconds: float = Field(ge=0)

    @property
    def found(self) -> bool:
        """Whether anything differs."""
        return bool(self.differ or self.lacking or self.types)

    @property
    def verdict(self) -> str:
        """All of it in a line: how many keys differ, and how many columns could not be compared."""
        untold = len(self.lacking) + len(self.types)
        more = f", {counted(untold, 'column')} lacking or of another type" if untold else ""
        return f"{counted(self.keys, 'key')}, {self.differ:,} differ{more}"

    @property
    def facts(self) -> Iterator[str]:
        """What differs, a line each, without the keys: first how many keys, then where."""
        for count, words in (
            (self.only_here, "not in the other result"),
            (self.only_there, "in the other result only"),
            (self.twice_there, "with several rows in the other result"),
        ):
            if count:
                yield f"{counted(count, 'key')} {words}"
        for name, count in self.columns.items():
            within = " by more than both stated errors" if name in self.within_error else ""
            yield f"{name}: {counted(count, 'key')} differ{'s' if count == 1 else ''}{within}"
        for name in self.lacking:
            yield f"{name}: the other result has no such column"
        for name, (ours, theirs) in self.types.items():
            yield f"{name}: {theirs} in the other result, {ours} here, which cannot be compared (a query may cast it)"
        if self.more:
            yield f"not compared: {', '.join(self.more)}, which only the other result has"

    @property
    def lines(self) -> Iterator[str]:
        """The report, a line each."""
        yield self.verdict
        yield from self.facts
        yield from map(str, self.examples)

    def allowed_by(self, shadow: Shadow | None) -> bool:
        """Whether the spec lets a run end well with what differs."""
        return not (self.found and shadow is not None and shadow.differences == "fail")

    def require_allowed(self, shadow: Shadow | None, where: str) -> None:
        """Refuse differences where the spec says that they fail the run.

        Raises:
            QualityError: says how many there are.
        """
        if not self.allowed_by(shadow):
            raise QualityError.saying(
                where, f"{self.verdict} beside {self.beside}", "nothing was published; skewless show names the keys"
            )
