"""From a mapping by arrays to a mapping that the judge has valued: only these count as solutions."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dfopt.arrays import Floats, Ints
from dfopt.bnb import Candidate, LeafAnswer, View
from dfopt.documents.plan_records import SolveRecord
from dfopt.documents.request import Request
from dfopt.fusion.partitioning import objective
from dfopt.fusion.priced import PricedPlan
from dfopt.milp import Termination, closed_form
from dfopt.regions.classes import PlanClass
from dfopt.regions.plan_group import PlanGroup
from dfopt.regions.pricing import Priced
from dfopt.solving.options import Options, record_of
from dfopt.solving.priced import priced_plan
from dfopt.solving.solved import Pruned, Solved, scored
from dfopt.terms.step.offload import moves
from dfopt.terms.step.overlap import exchanges_behind

_NOTE = "a shortest path over all blocks of kernels, found for plans of a class together"
_OF_SOME = "of more blocks of kernels than are listed; what is proven is on record of the plan"


@dataclass(frozen=True)
class JudgedMapping:
    """A mapping scored by the judge; equal to another one unless they differ in what the request distinguishes.

    Attributes
    ----------
    different : hashable
        Key by which mappings count as different, see :func:`~dfopt.documents.plan_records.different`.
    solved : Solved, optional
        The mapping with its score; none where only its value is known.
    """

    different: Hashable
    solved: Solved | None = field(compare=False)

    @classmethod
    def of(cls, solved: Solved, request: Request) -> JudgedMapping:
        """Wrap a solved mapping with the key by which the request distinguishes mappings."""
        return cls(solved.different(request.distinct_in), solved)

    @classmethod
    def answer(cls, solved: Solved | Pruned, low: float, request: Request) -> LeafAnswer:
        """The leaf answer for a region decided by a program, with ``low`` as the bound of all members.

        Parameters
        ----------
        solved : Solved or Pruned
            The mapping that the program found.
        low : float, s
            Lower bound on every member of the region.
        request : Request
            Says which mappings count as distinct.
        """
        low = max(low, solved.bound)
        if isinstance(solved, Pruned):
            return LeafAnswer([], low)
        candidate, others = Candidate(solved.value, cls.of(solved, request)), min(low, solved.value)
        return LeafAnswer([candidate], others, interrupted=solved.interrupted)


def cutoffs_of(view: View, of: PlanGroup) -> Floats:
    """By plan of a class, the value at or above which its mappings are of no interest: float array, shape (plans,).

    If several mappings of different plans are requested, the cutoff of a plan with a kept mapping is that mapping.
    """
    cutoff_i = np.full(len(of.plans), view.cutoff)
    for candidate in view.kept:
        own = view.cutoff_of(candidate.value)
        if own < view.cutoff and (place := of.places.get(candidate.solution.different)) is not None:
            cutoff_i[place] = own
    return cutoff_i


def judged(of: PlanClass, mapping: Priced, options: Options) -> Candidate:
    """Score a mapping with the judge and check that its value agrees with the table of charges.

    Parameters
    ----------
    of : PlanClass
        Class with the plan of the mapping.
    mapping : Priced
        The mapping, with its figures from the table.
    options : Options
        The request under way.

    Raises
    ------
    ScoreMismatch
        If the judge values it otherwise, or finds that it does not fit: that is a bug.
    """
    ready = priced(of, mapping.plan, mapping.option_k, options, mapping.stage_k)
    partition_k = np.array(mapping.partition_k, dtype=np.int64)
    solves = () if of.sharded_first is None else (of.sharded_first.record, *_fusions(of, ready, partition_k))
    most = max(numbering.limits.p_max for numbering in of.numbering_k)
    expected = mapping.step_s if of.is_exact else None
    solved = scored(ready, partition_k, expected, mapping.step_s, solves, most)
    return Candidate(solved.value, JudgedMapping.of(solved, options.request))


def priced(
    of: PlanGroup,
    plan: int,
    option_k: Sequence[int],
    options: Options,
    stage_k: Sequence[int] | None = None,
    *,
    listed: bool = False,
) -> PricedPlan:
    """The stages of one plan, priced under given options.

    Parameters
    ----------
    of, plan : PlanGroup, int
        The plans, and the index of one of them.
    option_k : sequence of int
        Option of every kernel, as a place among its schemes.
    options : Options
        The request under way.
    stage_k : sequence of int, optional
        Pipeline stage of every kernel of an unrolled graph.
    listed : bool
        Whether to add the down-sets of every stage, where they are few enough.

    Raises
    ------
    Infeasible
        If a kernel, or data that must stay in DRAM, does not fit the chip.
    """
    places = [0] * len(option_k) if stage_k is None else stage_k
    return priced_plan(of.instance(plan), of.schemes(option_k), places, of.tiles, options, listed=listed)


def _fusions(of: PlanClass, ready: PricedPlan, partition_k: Ints) -> Iterator[SolveRecord]:
    """What is on record of the second level: the fusion of every kind of layer.

    Nothing where passes decide what a step takes, or microbatches take turns: no fusion is solved by itself there.
    """
    if exchanges_behind(ready.instance) or moves(ready.instance) or ready.instance.plan.two_batch_overlap:
        return
    for number, stage in ready.stages.items():
        if stage.tables.chip.fused:
            seconds = objective(stage.tables, partition_k[stage.members])
            proof, low, note = closed_form(seconds, 0.0, _NOTE), seconds, _NOTE
            if not all(arcs.complete for arcs in of.arcs_k):
                proof, low, note = replace(proof, termination=Termination.LIMIT_WITH_SOLUTION, gap=1.0), 0.0, _OF_SOME
            yield record_of("intrachip", number, "columns", proof, seconds, low, note)
