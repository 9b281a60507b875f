"""Budgets over one stage: partitions chosen anew within them, of a mapping and over many shardings at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from dfopt.bnb import Candidate, Clock, LeafAnswer, Relaxation
from dfopt.documents.mapping import Mapping
from dfopt.documents.plan import Plan
from dfopt.errors import Infeasible, NoSolution, PlanError
from dfopt.fusion.blocks import StageTables
from dfopt.fusion.downsets import Lattice
from dfopt.fusion.partitioning import objective
from dfopt.fusion.priced import PricedPlan, PricedStage
from dfopt.regions.facts import FactCache
from dfopt.regions.judged import JudgedMapping
from dfopt.regions.problem import one_by_one
from dfopt.regions.region import Branch, Region, listed
from dfopt.search.budgets import Budget, Fitted, fit
from dfopt.setting.instance import Instance, Setting
from dfopt.setting.stages import is_cut
from dfopt.solving.options import Options
from dfopt.solving.passes import least_of_stages
from dfopt.solving.priced import lattice_of, priced_mapping
from dfopt.solving.solved import Pruned, Solved, check_stage, scored
from dfopt.terms.bounds import PlanBounds
from dfopt.terms.bounds.steps import StepBounds
from dfopt.terms.bounds.transfers import OptionFigures, Transfers


@dataclass(frozen=True, eq=False)
class Fitter:
    """Optimizes one stage of the mappings of a setting within budgets.

    Attributes
    ----------
    setting, options : Setting, Options
        The workload and the machine, and the options of the request.
    budgets : sequence of Budget
        Sums that are limited.
    stage : int
        The stage that they are about.
    fitted : dict
        Solved fits, by digest of the resulting mapping.
    """

    setting: Setting
    options: Options
    budgets: Sequence[Budget]
    stage: int
    fitted: dict[str, Fitted] = field(default_factory=dict)

    def within(self, mapping: Mapping, cutoff: float) -> Solved | Pruned:
        """Re-optimize the partitions of the stage of a mapping within the budgets.

        Parameters
        ----------
        mapping : Mapping
            The mapping; all but the partitions of the stage stays.
        cutoff : float, s
            Step at or above which a mapping is of no interest.

        Raises
        ------
        Infeasible, PlanError, NoSolution
            See :mod:`dfopt.errors`.
        """
        ready = priced_mapping(self.setting, mapping, self.options, listed=True)
        stage = _checked(ready.stages, self.stage)
        partition_k = ready.partitions(mapping)
        times = {
            number: objective(priced.tables, partition_k[priced.members]) for number, priced in ready.stages.items()
        }
        layer_k = np.array([*times.values()])
        rule = None if is_cut(ready.instance.graph, ready.instance.plan) else self._step_rule(ready)
        most = np.inf if rule is None else float(rule[0].most(cutoff, layer_k, self.stage, rule[1])[0])
        fitted = fit(stage, self.budgets, times[self.stage], self.options, most) if most > 0 else None
        if fitted is None:
            return Pruned(cutoff, ())
        partition_k[stage.members] = fitted.partition_k
        tokens_k = ready.fastest_tokens(partition_k)
        tokens_k[stage.members] = fitted.tokens_k
        times[self.stage] = fitted.seconds
        solved = scored(ready, partition_k, None, 0.0, (), len(partition_k), tokens_k)
        for number, seconds in times.items():
            check_stage(solved.score, number, seconds)
        self.fitted[solved.mapping.digest()] = fitted
        if rule is not None:
            layer_k[self.stage] = fitted.low
            return replace(solved, bound=float(rule[0].of(layer_k[:, None], rule[1])[0, 0]))
        # if all that takes time took a smaller share of it, so would a step
        return replace(solved, bound=solved.value * fitted.low / fitted.seconds)

    def best(self, plan: Plan, own: Solved | None) -> tuple[Solved | None, float]:
        """The best mapping of a plan within the budgets, and a lower bound on all others; infinite if none keeps them.

        Parameters
        ----------
        plan : Plan
            The plan; its pipeline stages are not open.
        own : Solved, optional
            A mapping within them that is known.
        """

        def candidate(mapping: Solved) -> Candidate:
            return Candidate(mapping.value, JudgedMapping.of(mapping, self.options.request))

        def within(free: Solved, cutoff: float) -> LeafAnswer:
            answer = self.within(free.mapping, cutoff)
            if isinstance(answer, Pruned):
                return LeafAnswer([], answer.bound)
            return LeafAnswer([candidate(answer)], answer.bound, interrupted=answer.interrupted)

        kept = [] if own is None else [candidate(own)]
        outcome = one_by_one({self.setting: [plan]}, within, self.options, kept, lambda memory: Rows(memory, self))
        return None if outcome.solution is None else outcome.solution.solved, outcome.bound

    def least(self, stage: PricedStage, low: float, most: float) -> float:
        """Lower bound on the seconds of the stage, from those budget rows that hold for many shardings at once.

        Parameters
        ----------
        stage : PricedStage
            The stage with every figure at its least.
        low : float, s
            Lower bound on the seconds without the rows.
        most : float, s
            Seconds from which on nothing matters.
        """
        if stage.lattice is None or most <= low:
            return low
        try:
            fitted = fit(stage, self.budgets, low, self.options, most, every=True)
        except Infeasible:
            return np.inf
        except NoSolution as error:
            return max(low, error.bound)
        return max(low, most if fitted is None else fitted.low)

    def _step_rule(self, ready: PricedPlan) -> tuple[StepBounds, Transfers]:
        """What makes a step of the seconds of layers, and what is beside them; of passes what they take at least."""
        [table] = self._bounds.tables([ready.instance.plan])
        sharded, priced = ready.sharded, [(stage.tables, stage.limits) for stage in ready.stages.values()]
        shares, gradients, weights = sharded.output_k[None], sharded.gradient_k[None], sharded.weight_k[None]
        extra = table.steps.messages.of(OptionFigures(shares, gradients, weights, least=False))
        return table.steps, extra._replace(passes=least_of_stages(priced, ready.instance))

    @cached_property
    def _bounds(self) -> PlanBounds:
        return PlanBounds(self.setting)


class Rows(Relaxation[Branch, float]):
    """Relaxation of a region by budget rows over the stage, with every figure at its least."""

    name = "rows of budgets"

    def __init__(self, memory: FactCache, fitter: Fitter) -> None:
        self._memory, self._fitter = memory, fitter
        self._lattices = dict[Instance, Lattice | None]()

    def applies(self, region: Branch) -> bool:
        """Whether the plans of the region are in a class."""
        return isinstance(region, Region)

    def answers(self, regions: Sequence[Branch], cutoff: float, clock: Clock) -> list[float]:
        """Lower bounds on the step, s, over the plans of each region.

        Parameters
        ----------
        regions, cutoff, clock
            As for :meth:`dfopt.bnb.entries.Relaxation.answers`.
        """
        return [min(self._of_plan(region, i, cutoff) for i in region.plans) for region in listed(regions)]

    def _of_plan(self, region: Region, plan: int, cutoff: float) -> float:
        of, facts, number = region.of, self._memory.of(region), self._fitter.stage
        if facts.arcs_k is None or plan not in facts.plan_i:
            return np.inf
        try:
            tables_k = [of.stage(kind, region.domain) for kind in range(of.kinds)]
        except Infeasible:
            return np.inf
        room = float(facts.room_ki[number, region.plans.index(plan)])
        tables, limits = tables_k[number], replace(of.numbering_k[number].limits, dram_left=room)
        members = np.flatnonzero(of.kind_k == number).astype(np.int64)
        stage = PricedStage(members, tables, limits, self._lattice(of.instance(plan), tables))
        layer_k = facts.layer_k.copy()
        most = float(of.steps.most(cutoff, layer_k, number, facts.beside_layers)[plan])
        layer_k[number] = self._fitter.least(stage, float(layer_k[number]), most)
        return float(of.steps.of(layer_k[:, None], facts.beside_layers)[plan, 0])

    def _lattice(self, instance: Instance, tables: StageTables) -> Lattice | None:
        """Down-sets of the stage, which no option changes."""
        shared = instance.on_chip
        if shared not in self._lattices:
            self._lattices[shared] = lattice_of(instance, tables)
        return self._lattices[shared]


def _checked(stages: dict[int, PricedStage], number: int) -> PricedStage:
    """A stage whose blocks can be listed.

    Raises
    ------
    PlanError
    """
    if number not in stages:
        raise PlanError(f"optimize_within: found stage {number}, expected one of {', '.join(map(str, stages))}")
    stage = stages[number]
    if not stage.tables.chip.fused:
        raise PlanError(
            "optimize_within: the chip runs kernel by kernel, so there are no partitions to choose; use a dataflow"
            " chip (assumption execution: dataflow)"
        )
    if stage.lattice is None:
        raise PlanError(
            f"optimize_within: stage {number} has too many down-sets to list its blocks; expected at most 20000:"
            " draw fewer layers (repeat) or fewer parallel branches"
        )
    return stage
