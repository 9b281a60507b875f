"""A layer that many plans share, under one sharding: fused once, and then mapped under those that are fastest."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from dfopt.documents.mapping import Sharding
from dfopt.documents.plan import Plan
from dfopt.errors import Infeasible, NoSolution, ScoreMismatch
from dfopt.fusion.downsets import Lattice
from dfopt.fusion.intrachip import CutOff
from dfopt.fusion.partitioning import lower_bound
from dfopt.setting.instance import Instance, Setting
from dfopt.solving.candidate import Prepared, given_work, prepare
from dfopt.solving.options import Options
from dfopt.solving.sharing import ChipWork, fuse, given_record
from dfopt.solving.solved import Solved, finish
from dfopt.terms.bounds.table import PlanTable
from dfopt.terms.bounds.work import LeastWork
from dfopt.terms.sharded_graph import Floats, Ints
from dfopt.terms.step.ledger import State

__all__ = ["ShardedLayer"]

_MOST_PLANS: Final = 12  # that are mapped of one layer: the closest estimates, of which the first usually is the best
_ANY: Final = 1e30  # seconds: with a value to beat, what does not fit is given up without a search for reasons
_SCALES: Final = np.geomspace(1.0, 4.0, 4096)  # times its lower bound: where the fusion of a layer may be cut off


class _Priced(LeastWork):
    """What the kernels of a layer hold under one sharding, instead of the least under any."""

    def __init__(self, setting: Setting, states: Mapping[int, Sequence[State]]) -> None:
        super().__init__(setting)
        self._priced = dict(states)

    def states(self, instance: Instance) -> dict[int, Sequence[State]]:
        """The same under every plan."""
        return self._priced


@dataclass
class ShardedLayer:
    """Plans that give a chip the same work, whose kernels have schemes.

    Attributes
    ----------
    plans
        They all have the same :attr:`dfopt.setting.instance.Instance.shared`.
    lattices
        The down-sets that layers of the same graph have, as far as they are listed.
    """

    setting: Setting
    plans: Sequence[Plan]
    schemes: Mapping[str, Sharding]
    options: Options
    lattices: dict[int, Lattice | None]

    def __post_init__(self) -> None:
        instance = self.setting.under(self.plans[0])
        record = given_record("a textbook sharding")
        self.work: ChipWork = given_work(instance, dict(self.schemes), dict.fromkeys(self.schemes, 0), record)
        self.work.lattices = self.lattices

    def _prepared(self, plan: Plan, roomy: bool = False) -> list[Prepared]:
        """The plan in every tile count that fits."""
        instance = self.setting.under(plan)
        return list(prepare(instance, self.options, {instance.shared: self.work}, roomy))

    def fastest(self, beat: float) -> list[tuple[float, Plan]]:
        """Plans that hold what they keep, each with seconds of a step that its fusion does not beat, least first.

        Memory first: that takes milliseconds for all plans, and most layers that fit nowhere are left at that. None
        where no plan can beat a value.
        """
        seconds_of: dict[Plan, float] = {}
        for ready in self._prepared(self.plans[0], roomy=True):
            states = {number: stage.work.states for number, stage in enumerate(ready.stages) if stage.work is not None}
            table = PlanTable(_Priced(ready.instance.setting, states), self.plans)
            if not (fitting := np.flatnonzero(table.used_i <= 1.0)).size:
                continue
            try:
                low_k = self._fused(ready, table, fitting, beat)
            except CutOff:
                continue
            seconds = table.seconds(fitting, low_k)
            for place, value in zip(fitting.tolist(), seconds.tolist(), strict=True):
                plan = self.plans[place]
                seconds_of[plan] = min(value, seconds_of.get(plan, np.inf))
        return sorted(((value, plan) for plan, value in seconds_of.items()), key=lambda pair: pair[0])

    def _fused(self, ready: Prepared, table: PlanTable, which: Ints, beat: float) -> Floats:
        """Seconds of every kind of layer, fused as if DRAM had room for all that waits.

        Raises
        ------
        CutOff
            Whatever is fused, no step beats a value.
        """
        roomy = {
            number: (stage.work, replace(stage.limits, dram_left=np.inf))
            for number, stage in enumerate(ready.stages)
            if stage.work is not None and stage.limits is not None
        }
        seconds = np.zeros(len(ready.stages))
        for number, (work, limits) in roomy.items():
            seconds[number] = lower_bound(work.tables, limits)
        for number, (work, limits) in roomy.items():
            scaled = np.ones_like(seconds)

            def loses(scale: float, number: int = number, scaled: Floats = scaled) -> bool:
                scaled[number] = scale
                return bool(table.seconds(which, seconds * scaled).min() >= beat)

            place = bisect_left(_SCALES, True, key=loses)
            cutoff = float(seconds[number] * _SCALES[place]) if place < len(_SCALES) else _ANY
            fused = fuse(work, limits, self.options, cutoff, None, None)
            if fused.solution.interrupted:
                raise KeyboardInterrupt
            seconds[number] = fused.objective
        return seconds

    def mappings(self, ranked: Sequence[tuple[float, Plan]], beat: Callable[[], float]) -> Iterator[Solved]:
        """What the judge says of the fastest plans, of those that may beat a value.

        Raises
        ------
        KeyboardInterrupt
            Behind a mapping whose fusion was cut short by it.
        """
        for low, plan in ranked[:_MOST_PLANS]:
            if low >= beat():
                return
            try:
                for ready in self._prepared(plan):
                    outcome = finish(ready, self.options, min(beat(), _ANY))
                    if isinstance(outcome, Solved):
                        yield outcome
                        if outcome.interrupted:
                            raise KeyboardInterrupt
            except (Infeasible, NoSolution, CutOff, ScoreMismatch):
                continue
