"""How a job spreads its rows: the engine, the policy, and how far it may go."""

from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, WithJsonSchema, field_validator, model_validator

from skewless.document import Section, Tagged, one_of, unmet


class EngineTraits(NamedTuple):
    """What a plan of an engine means; what the engine does with rows is in ``skewless_spark.engines``."""

    in_stages: bool = False
    """Whether waves are taken in stage by stage, and the plan is made anew after each; if not, one stage takes in all
    rows that are left."""
    in_tasks: bool = True
    """Whether rows are sent to the tasks of the plan; if not, they are reduced where they are read."""
    places: bool = False
    """Whether it takes in all rows in tasks of its own number, on which heavy keys are placed by a sample."""


#: By their names in specs and plans.
ENGINES: dict[str, EngineTraits] = {
    "combine": EngineTraits(in_tasks=False),
    "bypass": EngineTraits(places=True),
    "staged": EngineTraits(in_stages=True),
}


EngineName = Annotated[str, one_of(ENGINES)]
#: What a spec may ask for.
AskedEngine = Annotated[str, one_of(("auto",), ENGINES), WithJsonSchema({"enum": ["auto", *ENGINES], "type": "string"})]


#: A wave is at least this part of the input: the smallest says how finely files are cut.
SMALLEST_WAVE = 1e-6
MOST_REDUCERS = 10_000
#: Tokens of all reducers, to begin with: a ring is held in memory, and in each plan.
MOST_TOKENS = 1 << 22


#: The policies by their names in specs, with the fields of ``Policy`` that not all of them have.
POLICY_FIELDS: dict[str, tuple[str, ...]] = {
    "static": (),
    "halving": ("strict", "threshold"),
    "doubling": ("strict", "threshold"),
    "virtual_tasks": ("strict", "threshold"),
    "partial_key": ("strict",),
    "d_choices": ("strict",),
    "w_choices": ("strict",),
    "bounded_load": ("strict", "capacity"),
    "adaptive": ("reducer_range",),
}
PolicyName = Annotated[str, one_of(POLICY_FIELDS), WithJsonSchema({"enum": [*POLICY_FIELDS], "type": "string"})]


class Policy(Tagged):
    """Who decides where keys go, with what its decisions depend on.

    `policy: partial_key` is short for `policy: {name: partial_key}`.
    """

    TAG, WORD = "name", "policy"
    FIELDS_OF: ClassVar = POLICY_FIELDS

    name: PolicyName = Field(examples=["partial_key"])
    """What places keys, by its name."""
    strict: bool = Field(default=False, examples=[True])
    """It does what its paper says, even where the planner predicts that standing still costs less."""
    threshold: float = Field(default=0.2, ge=0, le=100, examples=[0.2])
    """How far the longest queue may pass the next one (tau)."""
    capacity: float = Field(default=1.1, ge=1, le=100, examples=[1.25])
    """Rows a task may have, as a multiple of the fair share."""
    reducer_range: tuple[Annotated[int, Field(ge=1, le=MOST_REDUCERS)], ...] | None = Field(
        default=None, min_length=2, max_length=2, examples=[[4, 128]]
    )
    """It may remove reducers down to the first, and add some up to the second; by default neither."""


class Routing(Section):
    """How rows are spread over reducers, and how fast the plan may learn."""

    policy: Policy = Field(
        default=Policy(name="adaptive"),
        examples=["d_choices", {"name": "bounded_load", "capacity": 1.25}],
        json_schema_extra={"default": "adaptive"},
    )
    """Who decides where keys go."""
    reducers: int = Field(default=8, ge=1, le=MOST_REDUCERS, examples=[64])
    """Reducers on the ring to begin with."""
    slots: int | None = Field(default=None, ge=1, le=100_000, examples=[32])
    """Tasks that run side by side; by default as many as the Spark application runs in each stage."""
    waves: tuple[Annotated[float, Field(gt=0, le=1_000_000)], ...] = Field(
        default=(1, 4, 15, 80), min_length=1, max_length=32, examples=[[1, 4, 15, 80]]
    )
    """Relative sizes of the slices of the input that the stages admit; adaptive may join them."""
    budget: float | None = Field(default=None, ge=1.0, le=100.0, examples=[1.05])
    """Rows a task may reduce in a stage, as a multiple of the fair share of what is queued; by default the planner
    chooses."""
    stage_overhead: float | None = Field(default=None, ge=0, le=86_400, examples=[0])
    """Seconds that a stage costs beside its rows; by default they are measured. 0 plans as many stages as there are
    waves, whatever they cost."""
    tokens: int | None = Field(default=None, ge=1, le=4096, examples=[64])
    """Tokens of each reducer to begin with: by default 64, a power of two for halving and doubling; 1 for a strict
    doubling."""
    head_limit: int = Field(default=4096, ge=0, le=100_000, examples=[10_000])
    """At most so many keys are placed one by one."""
    first_plan: tuple[Literal["last_run", "sample", "probe"], ...] = Field(
        default=("last_run", "sample"), max_length=3, examples=[["last_run"], ["last_run", "sample", "probe"], []]
    )
    """What the first stage is planned from: the job's last run, if there is one, and else a sample of the input's keys;
    of neither, the plain ring. With probe, for Python aggregates to which keys are unlike, and as long as no earlier
    run has measured what rows cost, a small stage measures that first or, of few rows, each slot takes several tasks
    with parts of all heavy keys."""

    @field_validator("policy", mode="before", json_schema_input_type=PolicyName | Policy)
    @classmethod
    def _named(cls, policy: Any) -> Any:
        return {"name": policy} if isinstance(policy, str) else policy

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        policy = self.policy
        if policy.name == "doubling" and policy.strict and self.tokens not in {None, 1}:
            raise unmet("one token each at the start, as doubling has by its paper (strict)", f"tokens: {self.tokens}")
        if policy.name in {"halving", "doubling"} and self.initial_tokens & (self.initial_tokens - 1):
            raise unmet(f"a power of two of tokens, as {policy.name} needs", f"tokens: {self.tokens}")
        if min(self.waves) < SMALLEST_WAVE * sum(self.waves):
            raise unmet(f"waves of which each is at least {SMALLEST_WAVE:g} of them all", str(self.waves)[:120])
        if (tokens := self.most_reducers * self.initial_tokens) > MOST_TOKENS:
            raise unmet(f"at most {MOST_TOKENS:,} tokens of all reducers together", f"{tokens:,}")
        if not self.least_reducers <= self.reducers <= self.most_reducers:
            came = f"{self.reducers} and {list(policy.reducer_range or ())}"
            raise unmet("reducers within reducer_range", came)
        return self

    def under(self, policy: str) -> "Routing":
        """The same with another policy, by its name."""
        if policy == self.policy.name:
            return self
        return self.model_copy(update={"policy": Policy.model_construct(name=policy)})

    @property
    def least_reducers(self) -> int:
        """The policy may leave so few reducers."""
        return self.policy.reducer_range[0] if self.policy.reducer_range else self.reducers

    @property
    def most_reducers(self) -> int:
        """The policy may have so many reducers."""
        return self.policy.reducer_range[1] if self.policy.reducer_range else self.reducers

    @property
    def initial_tokens(self) -> int:
        """Tokens of each reducer on the first ring."""
        return self.tokens or (1 if self.policy.strict and self.policy.name == "doubling" else 64)
