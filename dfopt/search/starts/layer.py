"""A layer that many plans share, under one sharding: fused once, and then mapped under those that are fastest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from dfopt.documents.mapping import Sharding
from dfopt.documents.plan import Plan
from dfopt.errors import Infeasible, NoSolution, ScoreMismatch
from dfopt.fusion.intrachip import CutOff
from dfopt.search.candidate import Prepared, given_work, prepare
from dfopt.search.options import Options
from dfopt.search.sharing import ChipWork, fuse, given_record
from dfopt.search.solved import Solved, finish
from dfopt.setting.bounds.table import PlanTable
from dfopt.setting.bounds.work import Known, LeastWork
from dfopt.setting.instance import Instance, Setting
from dfopt.setting.ledger import State
from dfopt.setting.tables import Floats

__all__ = ["ShardedLayer"]

_MOST_PLANS: Final = 12  # that are mapped of one layer: the closest estimates, of which the first usually is the best
_ANY: Final = 1e30  # seconds: with a value to beat, what does not fit is given up without a search for reasons


class _Priced(LeastWork):
    """What the kernels of a layer hold under one sharding, instead of the least under any."""

    def __init__(self, setting: Setting, known: Known, states: Mapping[int, Sequence[State]]) -> None:
        super().__init__(setting, known)
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
    known
        What was worked out of kernels for other layers.
    """

    setting: Setting
    plans: Sequence[Plan]
    schemes: Mapping[str, Sharding]
    options: Options
    known: Known

    def __post_init__(self) -> None:
        instance = self.setting.under(self.plans[0])
        record = given_record("a textbook sharding")
        self.work: ChipWork = given_work(instance, dict(self.schemes), dict.fromkeys(self.schemes, 0), record)

    def _prepared(self, plan: Plan, roomy: bool = False) -> list[Prepared]:
        """The plan in every tile count that fits."""
        instance = self.setting.under(plan)
        return list(prepare(instance, self.options, {instance.shared: self.work}, roomy))

    def fastest(self) -> list[tuple[float, Plan]]:
        """Plans that hold what they keep, each with seconds of a step that its fusion does not beat, least first.

        Memory first: that takes milliseconds for all plans, and most layers that fit nowhere are left at that.
        """
        seconds_of: dict[Plan, float] = {}
        for ready in self._prepared(self.plans[0], roomy=True):
            states = {number: stage.work.states for number, stage in enumerate(ready.stages) if stage.work is not None}
            table = PlanTable(_Priced(ready.instance.setting, self.known, states), self.plans)
            if not (fitting := np.flatnonzero(table.used_i <= 1.0)).size:
                continue
            seconds = table.seconds(fitting, low_k=self._fused(ready))
            for place, value in zip(fitting.tolist(), seconds.tolist(), strict=True):
                plan = self.plans[place]
                seconds_of[plan] = min(value, seconds_of.get(plan, np.inf))
        return sorted(((value, plan) for plan, value in seconds_of.items()), key=lambda pair: pair[0])

    def _fused(self, ready: Prepared) -> Floats:
        """Seconds of every kind of layer, fused as if DRAM had room for all that waits."""
        seconds = np.zeros(len(ready.stages))
        for number, stage in enumerate(ready.stages):
            if stage.work is not None and stage.limits is not None:
                roomy = replace(stage.limits, dram_left=np.inf)
                fused = fuse(stage.work, roomy, self.options, _ANY, None, None)
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
