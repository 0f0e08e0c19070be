"""How a job spreads its rows: the engine, the policy, and how far it may go."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple, Self

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from skewless.document import LARGEST_COUNT, Frozen, unmet

PolicyName = Literal[
    "static",
    "halving",
    "doubling",
    "virtual_tasks",
    "partial_key",
    "d_choices",
    "w_choices",
    "bounded_load",
    "adaptive",
]


class EngineTraits(NamedTuple):
    """What a plan of an engine means; what the engine does with rows is in ``skewless_spark.engines``.

    Attributes:
        in_stages: whether waves are taken in stage by stage, and the plan is made anew after each; if not, one stage
            takes in all rows that are left.
        in_tasks: whether rows are sent to the tasks of the plan; if not, they are reduced where they are read.
        places: whether it takes in all rows in tasks of its own number, on which heavy keys are placed by a sample.
    """

    in_stages: bool = False
    in_tasks: bool = True
    places: bool = False


#: By their names in specs and plans.
ENGINES: dict[str, EngineTraits] = {
    "combine": EngineTraits(in_tasks=False),
    "bypass": EngineTraits(places=True),
    "staged": EngineTraits(in_stages=True),
}


def _one_of(*also: str) -> AfterValidator:
    def known(name: str) -> str:
        *some, last = names = [*also, *ENGINES]
        if name not in names:
            raise ValueError(f"should be {', '.join(map(repr, some))} or {last!r}")
        return name

    return AfterValidator(known)


EngineName = Annotated[str, _one_of()]
#: What a spec may ask for.
AskedEngine = Annotated[str, _one_of("auto"), WithJsonSchema({"enum": ["auto", *ENGINES], "type": "string"})]


#: A wave is at least this part of the input: the smallest says how finely files are cut.
SMALLEST_WAVE = 1e-6
#: Tokens of all reducers, to begin with: a ring is held in memory, and in each plan.
MOST_TOKENS = 1 << 22
#: A ring has two to the power of so many slots. A report has two counts for each slot, so a finer one would only
#: weigh more: of a million slots each of 10,000 reducers owns a hundred.
SMALLEST_RING_BITS, LARGEST_RING_BITS = 4, 20


class Routing(Frozen):
    """How rows are spread over reducers, and how fast the plan may learn."""

    policy: PolicyName = Field(
        default="adaptive",
        description="Who decides where keys go.",
        examples=["d_choices"],
    )
    strict: bool = Field(
        default=False,
        description="A published policy does what its paper says, even where the planner predicts that standing still "
        "costs less; not for static and adaptive, which have no paper.",
        examples=[True],
    )
    reducers: int = Field(default=8, ge=1, le=10_000, description="Reducers on the ring to begin with.", examples=[64])
    min_reducers: int | None = Field(
        default=None, ge=1, le=10_000, description="adaptive may remove reducers down to so many; by default none.",
        examples=[4],
    )  # fmt: skip
    max_reducers: int | None = Field(
        default=None, ge=1, le=10_000, description="adaptive may add reducers up to so many; by default none.",
        examples=[128],
    )  # fmt: skip
    slots: int | None = Field(
        default=None, ge=1, le=100_000,
        description="Tasks that the cluster runs side by side; by default max_reducers, else reducers.",
        examples=[32],
    )  # fmt: skip
    waves: tuple[Annotated[float, Field(gt=0, le=1_000_000)], ...] = Field(
        default=(1, 4, 15, 80),
        min_length=1,
        max_length=32,
        description="Relative sizes of the slices of the input that the stages admit; adaptive may join them.",
        examples=[[1, 4, 15, 80]],
    )
    budget: float | None = Field(
        default=None,
        ge=1.0,
        le=100.0,
        description="Rows a task may reduce in a stage, as a multiple of the fair share of what is queued; "
        "by default the planner chooses.",
        examples=[1.05],
    )
    stage_overhead: float | None = Field(
        default=None, ge=0, le=86_400,
        description="Seconds that a stage costs beside its rows; by default they are measured. 0 plans as many "
        "stages as there are waves, whatever they cost.",
        examples=[0],
    )  # fmt: skip
    budget_seconds: float | None = Field(
        default=None, gt=0, le=86_400,
        description="Seconds that a task may reduce rows in a stage, as far as a fair share takes no longer, by what "
        "rows have cost so far; a guard beside the budget, from the second stage on. By default none.",
        examples=[120],
    )  # fmt: skip
    ring_bits: int | None = Field(
        default=None, ge=SMALLEST_RING_BITS, le=LARGEST_RING_BITS,
        description="The ring has 2 to the power of ring_bits slots; by default as many as reducers and tokens need, "
        "at least 12 bits. A report has two counts for each slot.",
        examples=[16],
    )  # fmt: skip
    tokens: int | None = Field(
        default=None, ge=1, le=4096,
        description="Tokens of each reducer to begin with: by default 64, a power of two for halving and doubling; 1 "
        "for a strict doubling.",
        examples=[64],
    )  # fmt: skip
    head_limit: int = Field(
        default=4096, ge=0, le=100_000, description="At most so many keys are placed one by one.", examples=[10_000]
    )
    threshold: float = Field(
        default=0.2, ge=0, le=100,
        description="halving, doubling, virtual_tasks: how far the longest queue may pass the next one (tau).",
        examples=[0.2],
    )  # fmt: skip
    rounds: int = Field(
        default=4, ge=0, le=50, description="halving, doubling: how often one reducer may be relieved.", examples=[6]
    )
    choices: int = Field(
        default=2, ge=1, le=64, description="partial_key: tasks that each key may go to (d).", examples=[3]
    )
    capacity: float = Field(
        default=1.1, ge=1, le=100, description="bounded_load: rows a task may have, as a multiple of the fair share.",
        examples=[1.25],
    )  # fmt: skip
    max_factor: int = Field(
        default=8, ge=1, le=1024,
        description="virtual_tasks, adaptive: key buckets of one reducer at most; a power of two.",
        examples=[16],
    )  # fmt: skip
    task_states: int | None = Field(
        default=None, ge=1, le=LARGEST_COUNT,
        description="virtual_tasks: states that one task should hold at most; by default no limit.",
        examples=[1_000_000],
    )  # fmt: skip
    approve_forwarding: float | None = Field(
        default=None, ge=0, le=1,
        description="A plan that forwards more than this part of a stage's queued rows waits in Airflow until somebody "
        "approves it; by default none does.",
        examples=[0.1],
    )  # fmt: skip
    warm_start: bool = Field(
        default=True, description="Plan the first stage from the job's last run, if there is one.", examples=[False]
    )
    probe: bool = Field(
        default=False,
        description="For Python aggregates to which keys are unlike, as long as no earlier run has measured what rows "
        "cost: a small stage measures that first or, of few rows, each slot takes several tasks with parts of all "
        "heavy keys.",
        examples=[True],
    )
    key_sample: bool = Field(
        default=True,
        description="Plan the first stage from a sample of the input's keys where no earlier run is a guide.",
        examples=[False],
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.strict and self.policy in {"static", "adaptive"}:
            raise unmet("strict with a published policy that moves something", f"policy: {self.policy}")
        if self.policy == "doubling" and self.strict and self.tokens not in {None, 1}:
            raise unmet("one token each at the start, as doubling has by its paper (strict)", f"tokens: {self.tokens}")
        if self.policy in {"halving", "doubling"} and self.initial_tokens & (self.initial_tokens - 1):
            raise unmet(f"a power of two of tokens, as {self.policy} needs", f"tokens: {self.tokens}")
        if self.max_factor & (self.max_factor - 1):
            raise unmet("a power of two as max_factor", f"max_factor: {self.max_factor}")
        if min(self.waves) < SMALLEST_WAVE * sum(self.waves):
            raise unmet(f"waves of which each is at least {SMALLEST_WAVE:g} of them all", str(self.waves)[:120])
        if (tokens := max(self.reducers, self.max_reducers or 0) * self.initial_tokens) > MOST_TOKENS:
            raise unmet(f"at most {MOST_TOKENS:,} tokens of all reducers together", f"{tokens:,}")
        low, high = self.min_reducers or self.reducers, self.max_reducers or self.reducers
        if not low <= self.reducers <= high:
            raise unmet("min_reducers <= reducers <= max_reducers", f"{low}, {self.reducers}, {high}")
        return self

    @property
    def initial_tokens(self) -> int:
        """Tokens of each reducer on the first ring."""
        return self.tokens or (1 if self.strict and self.policy == "doubling" else 64)

    @property
    def parallelism(self) -> int:
        """Tasks that run side by side: ``slots`` of the spec, or its default."""
        return self.slots or self.max_reducers or self.reducers
