"""What ``optimize`` returns: the mapping, its score, and the record that proves it."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import model_validator

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.base import Sealed, problem
from dfopt.documents.experts import routing_of
from dfopt.documents.frames import Frames
from dfopt.documents.graph import Graph
from dfopt.documents.heat import STATUS_WORDS, HeatProof
from dfopt.documents.html import SUMMARY, facts_html
from dfopt.documents.mapping import Mapping
from dfopt.documents.matrices import Matrices
from dfopt.documents.packed import OrPacked, packed, unpacked
from dfopt.documents.plan import Plan
from dfopt.documents.plan_records import (
    Alternative,
    GraphRecord,
    GroupRecord,
    PlanRecord,
    Provenance,
    Sensitivity,
    UnlistedPlans,
)
from dfopt.documents.question import Question
from dfopt.documents.request import Request
from dfopt.documents.score import Score
from dfopt.documents.space import Space
from dfopt.documents.system import System
from dfopt.errors import shown
from dfopt.interrupts import LIMIT, SIGNALS
from dfopt.units import show_unit

Status = Literal["optimal", "optimal_per_level", "gap_reached", "limit_with_solution", "interrupted_with_solution"]


class Result(Frames, Sealed):
    """A mapping with its score and its proof.

    ``bound`` holds for every mapping in the space that was searched, ``level_bound`` for those with the sharding that
    is optimal for the inter-chip problem of their plan; ``gap`` and ``level_gap`` are the relative distances of
    ``value`` to them. ``status`` is ``optimal`` only when ``gap`` is 0: no mapping in the space is better.
    ``optimal_per_level`` says that ``level_gap`` is 0. In both cases the judge agrees with the value.

    Attributes
    ----------
    status : e.g. optimal
        Proof that the search reached. ``optimal``: no mapping in the space is faster. ``optimal_per_level``: no mapping
        is faster with the sharding that is optimal for its plan; another sharding may be. ``gap_reached``: the search
        stopped at the requested gap. ``limit_with_solution``: a limit, mostly the time limit, ended it.
        ``interrupted_with_solution``: Ctrl-C ended it.
    value : s, e.g. 5.033
        Step time of the best mapping, which the search minimized.
    bound : s, e.g. 5.033
        Proven bound: no mapping in the space that was searched has a lower step time.
    gap : share, e.g. 0.0
        Relative distance of ``value`` to ``bound``. At 0 the mapping is proven optimal.
    level_bound : s, e.g. 5.033
        Proven bound for mappings with the sharding that is optimal for each plan.
    level_gap : share, e.g. 0.0
        Relative distance of ``value`` to ``level_bound``.
    utilization : share, e.g. 0.52
        Work of all kernels without recomputation, divided by step time x chips x peak rate.
    plan : e.g. {microbatches: 16}
        Plan of the best mapping: degrees of parallelism and the shape of the pipeline.
    seconds : s, e.g. 2.3
        Time that the whole search took.
    trace : s, e.g. [[0.5, 5.1, 4.9], [2.3, 5.033, 5.033]]
        Seconds, best value and bound at up to 200 moments of the whole search, the last at its end.
    proof : e.g. "of 18 plans: 2 solved, 16 excluded by a bound on every mapping"
        Sentence that states the proven claim and its space of mappings.
    fixed : e.g. ["tp 8", "mp 1"]
        Restrictions of the space: choices that were asked for, and choices that are searched only on request.
    mapping
        Best mapping that was found.
    score
        Times, traffic and memory of the best mapping, as the judge computes them from scratch.
    heat
        Proof of a heat-aware mapping. The other bounds of the result ignore heat. None: heat was ignored.
    alternatives
        Next best mappings, if ``top`` asked for several. None: there are none.
    plans
        Records of plans: solved, pruned or infeasible. Where there are many, ``unlisted`` has the rest.
    unlisted : e.g. [{microbatch: 2, groups: [{status: pruned_by_bound}], members: 'c$`y8Oia{M0ssZv0hR'}]
        Plans whose record would say no more than a status, where there are many. None: every plan has a record.
    apart : e.g. [{microbatch: 2, status: pruned_by_bound, bound: 6.1}]
        Graphs, such as other microbatch sizes, whose plans were all excluded together and are not listed. None: there
        are none.
    missing : e.g. ["sensitivity: the time limit came"]
        Steps after the search that failed, with the reason. None: all succeeded.
    space
        Size of the space of mappings that was searched.
    matrices
        Assignment matrices of the DFModel paper for each pipeline stage of the best mapping.
    sensitivity
        Speedups from 10 % more of each resource, if they were requested.
    assumptions : e.g. {profile: ideal}
        Assumptions under which times were computed.
    p_max : partitions, e.g. 12
        Largest number of on-chip partitions that the search allowed.
    request : e.g. {gap: 1%, top: 3}
        Choices that were fixed by hand, and options of the search.
    question : e.g. {graph: llama-3.1-8b, system: h100-8}
        Question with the names of documents instead of their contents. None: it was asked with
        documents in Python.
    graph
        Workload that the best mapping maps.
    variants
        Graphs of the same workload that were searched and lost, such as other microbatch sizes. A JSON file has
        several of them as one text: JSON, compressed (zlib), in base 85.
    system
        Machine on which the workload runs.
    provenance
        Versions and digests from which the result can be repeated.
    seal : e.g. 0123456789abcdef
        Digest of the whole result, which shows whether someone edited the file.
    """

    SCHEMA: ClassVar[str] = "dfopt/result/7"

    status: Status
    value: float
    bound: float
    gap: float
    level_bound: float
    level_gap: float
    utilization: float
    plan: Plan
    seconds: float
    trace: tuple[tuple[float, float | None, float], ...]
    proof: str
    fixed: tuple[str, ...]
    mapping: Mapping
    score: Score
    heat: HeatProof | None = None
    alternatives: tuple[Alternative, ...] | None = None
    plans: tuple[PlanRecord, ...]
    unlisted: tuple[UnlistedPlans, ...] | None = None
    apart: tuple[GraphRecord, ...] | None = None
    missing: tuple[str, ...] | None = None
    space: Space
    matrices: tuple[Matrices, ...]
    sensitivity: tuple[Sensitivity, ...] = ()
    assumptions: Assumptions
    p_max: int
    request: Request
    question: Question | None = None
    graph: Graph
    variants: Annotated[tuple[Graph, ...], OrPacked()] = ()
    system: System
    provenance: Provenance
    seal: str = ""

    @model_validator(mode="before")
    @classmethod
    def _unpacks_variants(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not isinstance(packed_graphs := data.get("variants"), str):
            return data
        try:
            return {**data, "variants": unpacked(packed_graphs)}
        except ValueError:
            message = f"found {shown(packed_graphs)}, expected graphs"
            raise problem(message, "keep what dfopt wrote", "$.variants") from None

    def written(self, key: str, value: Any) -> Any:
        """Data of one key as a JSON file has it: graphs of several variants are compressed (`documents.packed`)."""
        return packed(value) if key == "variants" and len(value) > 1 else value

    @model_validator(mode="after")
    def _has_scores(self) -> Self:
        """Pictures and tables take the times of each kernel's partition from the score."""
        scored = {(part.stage, part.partition) for part in self.score.partitions}
        for kernel in self.mapping.kernels:
            if (kernel.stage, kernel.partition) not in scored:
                message = f"found none of stage {kernel.stage}, partition {kernel.partition}, where {kernel.name!r} is"
                raise problem(message, "solve again, or score the mapping", "$.score.partitions")
        if not self.score.stages:
            raise problem("found none, expected the times of pipeline stages", "solve again", "$.score.stages")
        return self

    @property
    def plan_counts(self) -> Counter[str]:
        """Number of plans by final status, unlisted ones included."""
        counts = Counter[str](record.status for record in self.plans)
        counts.update(group.status for plans in self.unlisted or () for group in plans.counts.elements())
        return counts

    @property
    def step_time_s(self) -> float:
        """Step, s, by the judge and without heat."""
        return self.score.step_time_s

    @property
    def step_time(self) -> float:
        """Alias of ``step_time_s``."""
        return self.score.step_time_s

    @property
    def hides_gradients(self) -> bool:
        """Whether gradient reduction overlaps with the backward pass; if that is a choice, whether it pays."""
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
        return facts_html(SUMMARY[0](self)) + self.score._partitions_html()


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
    """What is proven of a result, in the standard words of reports, and which later step failed."""
    return "; without ".join([_proven_words(result), *(result.missing or ())])


def _proven_words(result: Result) -> str:
    words, pinned = STATUS_WORDS[result.status], result.request.pinned
    if result.status == "optimal":
        return words.replace("the space", f"the space with {', '.join(pinned)}") if pinned else words
    if result.status == "limit_with_solution":
        words = unproven(result, words)
    if result.gap == 0.0 and result.request.top > 1:
        return f"{words}; no mapping in the space is faster than the best, not all of the next best are proven"
    if result.assumptions.sharding_objective == "joint" and result.gap == result.level_gap:
        return f"{words}; no mapping in the space is more than {100 * result.gap:.3g} % faster"
    level = f", gap {100 * result.level_gap:.3g} %" if result.status != "optimal_per_level" else ""
    return f"{words}{level}; another sharding could be up to {100 * result.gap:.3g} % faster"


def unproven(result: Result, late: str) -> str:
    """Why a search ended without the proof that was asked for: the words for the time limit, or a note of its plans."""
    groups = [group for plans in result.unlisted or () for group in plans.groups]
    records: list[PlanRecord | GraphRecord | GroupRecord] = [*result.plans, *(result.apart or ()), *groups]
    notes = {record.note for record in records if record.status in ("limit", "not_reached")}
    if notes - {TOO_WIDE, TOO_MANY, LOOSE, NEAR} and result.seconds >= _SPENT * result.request.time_limit:
        return late
    return next((note for note in (TOO_WIDE, TOO_MANY) if note in notes), LOOSE)
