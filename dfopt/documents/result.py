"""What ``optimize`` returns: the mapping, its score, and the record that proves it."""

from __future__ import annotations

from collections.abc import Hashable
from collections.abc import Mapping as Mapping_
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.base import Part, digest_of, problem
from dfopt.documents.experts import routing_of
from dfopt.documents.graph import Graph
from dfopt.documents.heat import STATUS_WORDS, HeatProof
from dfopt.documents.html import facts_html
from dfopt.documents.mapping import Mapping
from dfopt.documents.matrices import Matrices
from dfopt.documents.plan import Plan
from dfopt.documents.question import Question
from dfopt.documents.request import Request
from dfopt.documents.score import Score
from dfopt.documents.sealed import Sealed
from dfopt.documents.space import Space
from dfopt.documents.system import System
from dfopt.interrupts import LIMIT, SIGNALS
from dfopt.units import format as show_unit

Status = Literal["optimal", "optimal_per_level", "gap_reached", "limit_with_solution", "interrupted_with_solution"]
PlanStatus = Literal[
    "solved", "pruned_by_bound", "pruned_per_level", "infeasible", "infeasible_per_level", "limit", "not_reached"
]
"""What ``_per_level`` ends holds for the sharding that was chosen for a plan; another one is not excluded."""


class SolveRecord(Part):
    """One solve: which problem, what the solver proved, how large it was. Times in seconds."""

    problem: Literal["interchip", "intrachip", "joint"]
    stage: int = 0
    formulation: str
    termination: str
    objective: float | None = Field(description="none when the solve proved that nothing beats the best plan")
    bound: float
    gap: float | None
    seconds: float
    nodes: int = 0
    rows: int = 0
    columns: int = 0
    nonzeros: int = 0
    trace: tuple[tuple[float, float | None, float | None], ...] = Field(
        default=(), description="(seconds, incumbent, bound) as the solve went on"
    )
    note: str = ""
    kernel_prices: tuple[float, ...] = Field(
        default=(),
        description="seconds that each kernel of the stage is worth, such that no block is worth more than its time:"
        " their sum proves the bound where blocks were generated on demand",
    )
    partition_price: float = Field(default=0.0, description="seconds that a partition is worth, with the above")


class PlanRecord(Part):
    """What is known of one plan: solved with a proof, pruned by a bound, or infeasible with a reason.

    ``pruned_by_bound``: no mapping under the plan is better than the best; ``infeasible``: none fits.
    ``pruned_per_level`` and ``infeasible_per_level``: the same of the sharding that is optimal for the inter-chip
    problem; under another one a better mapping may exist. Values are in the unit of the objective.
    """

    plan: Plan
    tile_count: int | None = Field(default=None, description="tiles of the streamed axis, where that is a choice")
    status: PlanStatus
    bound: float | None = Field(description="no mapping under this plan has a lower value; none if none is feasible")
    level_bound: float | None = Field(default=None, description="the same with this plan's sharding; none if unknown")
    value: float | None = None
    gap: float | None = Field(default=None, description="relative distance of the value to level_bound")
    seconds: float | None = Field(default=None, description="of earlier versions: what was spent on it")
    solves: tuple[SolveRecord, ...] = ()
    note: str = ""
    variant: str | None = Field(default=None, description="of the graph that it is a plan of")
    agreed: tuple[str, ...] = Field(
        default=(),
        description="kernels about whose outputs partitions had to agree before the bound was proven: a hint for the"
        " check, from which nothing follows",
    )

    def model_post_init(self, context: Any, /) -> None:  # there may be a hundred thousand
        self._intern()

    @model_validator(mode="before")
    @classmethod
    def _from_version_1(cls, data: Any) -> Any:
        """Earlier results had one bound, of the sharding that was chosen, and said ``infeasible`` of that too."""
        if not isinstance(data, dict) or "bound_s" not in data:
            return data
        kept = {key: value for key, value in data.items() if key not in ("bound_s", "step_time_s")}
        status = {"pruned_by_bound": "pruned_per_level", "infeasible": "infeasible_per_level"}
        kept |= {"bound": 0.0, "level_bound": data["bound_s"], "value": data.get("step_time_s")}
        return {**kept, "status": status.get(data.get("status", ""), data.get("status"))}


class GraphRecord(Part):
    """A graph all of whose plans were given up together, before any was listed.

    All chips together have too much to do: its work, spread evenly over them, takes at least ``bound`` under any plan.
    """

    microbatch: int = Field(description="of the graph, or of one of the variants, that is meant")
    variant: str | None = Field(default=None, description="of that graph")
    status: Literal["pruned_by_bound", "limit"]
    bound: float = Field(description="no mapping of it has a lower value")
    note: str = ""


class _Valued(Part):
    """A part with a value of the objective."""

    @model_validator(mode="before")
    @classmethod
    def _from_version_1(cls, data: Any) -> Any:
        """Earlier results called it ``step_time_s``, the only objective."""
        names = {"step_time_s": "value"}
        return {names.get(key, key): value for key, value in data.items()} if isinstance(data, dict) else data


DIFFERENT = {
    "plan": "the best mappings are of different plans, microbatches or ways to compute again",
    "sharding": "the best mappings are of different plans, microbatches, ways to compute again or shardings",
}
"""What `top` counts, by what is asked to be distinct, in the words of the proof."""


def different(mapping: Mapping, variant: str | None, distinct: str) -> Hashable:
    """What mappings that are different do not share: a plan has the number of its microbatches."""
    schemes = tuple(kernel.sharding for kernel in mapping.kernels) if distinct == "sharding" else ()
    return (mapping.plan, variant, *schemes)


class Alternative(_Valued):
    """One of the next best mappings, different from those before it."""

    microbatch: int = Field(description="of the graph, or of one of the variants, that it maps")
    variant: str | None = Field(default=None, description="of that graph")
    value: float
    mapping: Mapping


class Sensitivity(_Valued):
    """Value of the objective with 10 % more of one resource, partitions optimised anew on the winning plan.

    ``proven``: optimal for the plan and its sharding.
    """

    resource: Literal["compute", "dram_bandwidth", "link_bandwidth", "sram", "sram_bandwidth"]
    value: float
    speedup: float
    proven: bool


class Provenance(Part):
    """Where the result came from, so that it can be repeated."""

    dfopt: str
    highs: str
    solver: str = Field(default="highs", description="of the MILPs: highs, or pulp:NAME")
    python: str
    graph_digest: str
    system_digest: str
    assumptions_digest: str
    variant_digests: tuple[str, ...] | None = Field(default=None, description="of variants; none: an earlier version's")
    seed: int


class Result(Sealed):
    """A mapping with its score and its proof.

    ``bound`` holds for every mapping in the space that was searched, ``level_bound`` for those with the sharding that
    is optimal for the inter-chip problem of their plan; ``gap`` and ``level_gap`` are the relative distances of
    ``value`` to them. ``status`` is ``optimal`` only when ``gap`` is 0: no mapping in the space is better.
    ``optimal_per_level`` says that ``level_gap`` is 0. In both cases the judge agrees with the value.
    """

    SCHEMA: ClassVar[str] = "dfopt/result/6"
    EARLIER: ClassVar[tuple[str, ...]] = tuple(f"dfopt/result/{version}" for version in range(1, 6))

    status: Status
    value: float = Field(description="of the objective: seconds of a step")
    bound: float
    gap: float
    level_bound: float
    level_gap: float
    utilization: float
    plan: Plan
    seconds: float
    proof: str
    mapping: Mapping
    score: Score
    heat: HeatProof | None = Field(default=None, description="of a heat-aware mapping; the result's bounds ignore heat")
    alternatives: tuple[Alternative, ...] | None = Field(default=None, description="the next best mappings asked for")
    plans: tuple[PlanRecord, ...]
    apart: tuple[GraphRecord, ...] | None = Field(
        default=None, description="graphs whose plans are not listed: none of them is of interest"
    )
    missing: tuple[str, ...] | None = Field(
        default=None, description="what a step after the search failed to add to the mapping that was found, and why"
    )
    space: Space | None = Field(default=None, description="of the plans that are listed")
    matrices: tuple[Matrices, ...]
    sensitivity: tuple[Sensitivity, ...] = ()
    assumptions: Assumptions
    p_max: int
    request: Request
    question: Question | None = Field(default=None, description="what was asked, with names instead of documents")
    graph: Graph
    variants: tuple[Graph, ...] = Field(
        default=(),
        description="the workload as it lost: for other microbatch sizes, or computed in another way; their plans are"
        " among the records",
    )
    system: System
    provenance: Provenance
    seal: str = Field(default="", description="digest of all the rest: a result that was edited says so")

    @model_validator(mode="after")
    def _has_scores(self) -> Self:
        """Pictures and tables take the times of each kernel's partition from the score."""
        scored = {(part.stage, part.partition) for part in self.score.partitions}
        for kernel in self.mapping.kernels:
            if (kernel.stage, kernel.partition) not in scored:
                found = f"found none of stage {kernel.stage}, partition {kernel.partition}, where {kernel.name!r} is"
                raise problem(found, "solve again, or score the mapping", "$.score.partitions")
        if not self.score.stages:
            raise problem("found none, expected the times of pipeline stages", "solve again", "$.score.stages")
        return self

    @classmethod
    def from_data(cls, data: Mapping_[str, Any], path: str = "<data>") -> Self:
        """Validate parsed data; a whole result of an earlier version is sealed anew, an edited one is not."""
        made = super().from_data(data, path)
        if not isinstance(data, dict):
            return made
        if data.get("schema") not in cls.EARLIER and "tokens_per_sample" not in data["graph"]:
            return made
        if digest_of({**data, "seal": ""}) != data.get("seal"):
            return made.model_copy(update={"seal": "of an edited file"})
        known = {  # which today's words change
            f"{part}_digest": getattr(made, part).digest()
            for part in ("graph", "assumptions")
            if getattr(made.provenance, f"{part}_digest") == digest_of(data[part])
        }
        return made.model_copy(update={"provenance": made.provenance.model_copy(update=known)}).sealed()

    @classmethod
    def _converted(cls, data: dict[str, Any]) -> dict[str, Any]:
        """Version 1 had one bound, that of the chosen shardings; nothing is known of all mappings.

        Versions 3 and 4 differ in their graphs only. In none before 5 two microbatches took turns; in none before 6 was
        ZeRO tried where nobody asked for it; there an all-to-all took network dims one by one, and masked scores were
        skipped.
        """
        if isinstance(asked := data.get("request"), dict):
            turns = {} if data["schema"] == "dfopt/result/5" else {"two_batch_overlap": False}
            data = {**data, "request": {**turns, "zero": [0], **asked}}
        if isinstance(assumed := data.get("assumptions"), dict):
            rules = {"all_to_all_dims": "in_turn", "masked_scores": "skipped"}
            data = {**data, "assumptions": {**rules, **assumed}}
        data = {**data, "proof": OF_EARLIER + str(data.get("proof"))}
        if data["schema"] in ("dfopt/result/3", "dfopt/result/4", "dfopt/result/5"):
            return data
        if data["schema"] != "dfopt/result/1":
            return data
        if "bound_s" not in data:
            found = f"found {data['schema']!r} without bound_s, which results of that version have"
            raise problem(found, "keep the schema that dfopt wrote", "$.schema")
        kept = {key: value for key, value in data.items() if key not in ("bound_s", "step_time_s")}
        kept |= {"value": data.get("step_time_s"), "bound": 0.0, "gap": 1.0}
        kept |= {"level_bound": data["bound_s"], "level_gap": data.get("gap")}
        return {**kept, "status": {"optimal": "optimal_per_level"}.get(data.get("status", ""), data.get("status"))}

    @property
    def step_time_s(self) -> float:
        """Seconds per step, as the judge has them, without heat."""
        return self.score.step_time_s

    @property
    def step_time(self) -> float:
        """The same as ``step_time_s``."""
        return self.score.step_time_s

    @property
    def hides_gradients(self) -> bool:
        """Whether copies add gradients up behind the backward pass: where that is a choice, if less shows."""
        shown, linked = self.score.gradient_reduction_s, self.score.gradient_link_s
        if linked is None or self.plan.copies == 1:
            return False
        return self.assumptions.gradient_overlap != "calculon_or_none" or shown < linked * (1 - 1e-9)

    def _facts(self) -> list[tuple[str, str]]:
        """What a person wants to see first."""
        keeps = self.score.sustained
        return [
            ("mapping", f"{self.mapping.graph} on {self.mapping.system}"),
            ("plan", self.plan.label),
            ("step time", show_unit(keeps.step_time_s, "time", 6)),
            ("utilization", f"{100 * keeps.utilization:.2f} %"),
            ("status", status_words(self)),
            ("bound by", self.score.bound_by),
            *([("routing", routing)] if (routing := routing_of(self.graph)) else []),
        ]

    def __repr__(self) -> str:
        return f"Result({', '.join(f'{name}: {value}' for name, value in self._facts())})"

    __str__ = __repr__  # of a pydantic model it would be every field of every part

    def _repr_html_(self) -> str:
        return facts_html(self._facts()) + self.score._partitions_html()

    def frame(self) -> Any:
        """A :class:`pandas.DataFrame` with one row per kernel, in graph order.

        ``kernel``; where it runs: ``stage``, ``partition``, ``sharding``, compute ``tiles``; and of its whole
        partition, for one layer and one microbatch on one chip: ``partition_compute_s``, ``partition_memory_s``,
        ``partition_network_s``, ``partition_time_s`` (seconds) and ``bound_by``; with a limited bandwidth of SRAM also
        ``partition_sram_s``.

        Examples
        --------
        >>> import dfopt as df
        >>> result = df.optimize(df.load_graph("gpt2-small"), df.load_system("sn10-8-ring"), tp=8)
        >>> result.frame()[["kernel", "partition", "sharding", "tiles"]].iloc[0].to_dict()
        {'kernel': 'Add_Prev_Layer', 'partition': 0, 'sharding': 'none', 'tiles': 1}
        """
        import pandas as pd

        where = {(part.stage, part.partition): part for part in self.score.partitions}
        places = ("stage", "partition", "sharding", "tiles")
        more = () if self.score.sram_share is None else ("sram_s",)
        times = ("compute_s", "memory_s", "network_s", *more, "time_s")
        rows = (
            {"kernel": kernel.name}
            | {name: getattr(kernel, name) for name in places}
            | {f"partition_{name}": getattr(part, name) for name in times}
            | {"bound_by": part.bound_by}
            for kernel in self.mapping.kernels
            for part in (where[kernel.stage, kernel.partition],)
        )
        return pd.DataFrame(rows)


OF_EARLIER = "as an earlier version said: "
"""Before the sentence of proof of a result that it wrote: its words were others."""
TOO_WIDE = "too many down-sets to list, nothing more can be proven"
"""The note of a plan whose schemes are chosen with a fusion that was bounded without them."""
TOO_MANY = "too many plans to list, nothing more can be proven"
"""The note of a graph whose plans are not listed beside those of others."""
LOOSE = "all was searched, nothing more can be proven"
"""The note of a plan of which nothing is left to search, though its bound is below its best mapping."""
ENDED = LIMIT, *SIGNALS
"""The notes of what was given up when the search ended."""
NEAR = "as near to the best as was asked for"
"""The note of a plan that could be better by no more than the gap that was asked for."""
_SPENT = 0.4  # share of the time limit: the least after which it can have ended a search, as a sharding has half of it


def status_words(result: Result) -> str:
    """What is proven of a result, in the words that every report uses, and what failed after that."""
    return "; without ".join([_proven_words(result), *(result.missing or ())])


def _proven_words(result: Result) -> str:
    words, pinned = STATUS_WORDS[result.status], result.request.pinned
    if result.status == "optimal":
        return words.replace("the space", f"the space with {', '.join(pinned)}") if pinned else words
    if result.status == "limit_with_solution":
        words = _ended(result, words)
    if result.gap == 0.0 and result.request.top > 1:
        return f"{words}; no mapping in the space is faster than the best, not all of the next best are proven"
    if result.assumptions.sharding_objective == "joint" and result.gap == result.level_gap:
        return f"{words}; no mapping in the space is more than {100 * result.gap:.3g} % faster"
    level = f", gap {100 * result.level_gap:.3g} %" if result.status != "optimal_per_level" else ""
    return f"{words}{level}; another sharding could be up to {100 * result.gap:.3g} % faster"


def _ended(result: Result, late: str) -> str:
    """What ended a search without the proof that was asked for: time, or that nothing is left to do."""
    records: list[PlanRecord | GraphRecord] = [*result.plans, *(result.apart or ())]
    notes = {record.note for record in records if record.status in ("limit", "not_reached")}
    if notes - {TOO_WIDE, TOO_MANY, LOOSE, NEAR} and result.seconds >= _SPENT * result.request.time_limit:
        return late
    return next((note for note in (TOO_WIDE, TOO_MANY) if note in notes), LOOSE)
