"""Partitions of one stage chosen anew within budgets: of a mapping, and over many shardings at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dfopt.documents.mapping import Mapping
from dfopt.errors import Infeasible, NoSolution, PlanError
from dfopt.fusion.partitioning import objective
from dfopt.search.budgets import Budget, Fitted, fit
from dfopt.setting.instance import Setting
from dfopt.solving.candidate import Prepared, Stage, prepare_mapping
from dfopt.solving.options import Options
from dfopt.solving.solved import Pruned, Solved, scored
from dfopt.terms.sharded_graph import Ints

__all__ = ["Fitter"]


@dataclass(frozen=True, eq=False)
class Fitter:
    """Budgets over one stage of the mappings of a setting.

    Attributes
    ----------
    setting, options : Setting, Options
        What is mapped, and how it is asked.
    budgets : sequence of Budget
        Sums that are limited.
    stage : int
        The stage that they are about.
    fitted : dict
        What was solved, by digest of the mapping that it makes.
    """

    setting: Setting
    options: Options
    budgets: Sequence[Budget]
    stage: int
    fitted: dict[str, Fitted] = field(default_factory=dict)

    def within(self, mapping: Mapping, cut: float) -> Solved | Pruned:
        """A mapping with the partitions of the stage chosen anew.

        Raises
        ------
        Infeasible, PlanError, NoSolution
        """
        ready = prepare_mapping(self.setting, mapping, self.options.asking(pin_sharding={}))
        stage = _checked(ready.stages, self.stage)
        place = {kernel.name: kernel.partition for kernel in mapping.kernels}
        partition_k: Ints = np.array([place[name] for name in ready.sharded.names], dtype=np.int64)
        times = [0.0 if one.tables is None else objective(one.tables, partition_k[one.members]) for one in ready.stages]
        upper = ready.cutoff(self.stage, cut, times)
        most = np.inf if upper is None else upper
        fitted = fit(stage, self.budgets, times[self.stage], self.options, most) if most > 0 else None
        if fitted is None:
            return Pruned(cut, ())
        partition_k[stage.members] = fitted.partition_k
        lows = [*times]
        times[self.stage], lows[self.stage] = fitted.seconds, fitted.low
        found = scored(
            ready, partition_k, ready.reached(times, partition_k), ready.value_of(lows), (), len(partition_k)
        )
        self.fitted[found.mapping.digest()] = fitted
        return found

    def raise_low(self, ready: Prepared, lows: list[float], cut: float) -> None:
        """Raise what the stage takes at least by what the rows say of all shardings at once.

        Parameters
        ----------
        ready : Prepared
            A plan with every figure at its least.
        lows : list of float, s
            What each stage is shown to take at least; that of the budgets is raised.
        cut : float, s
            Value from which on nothing matters.
        """
        stage = ready.stages[self.stage]
        if stage.lattice is None:
            return
        upper = ready.cutoff(self.stage, cut, lows)
        most = np.inf if upper is None else upper
        try:
            fitted = fit(stage, self.budgets, lows[self.stage], self.options, most, every=True)
            low = most if fitted is None else fitted.low
        except Infeasible:
            low = np.inf
        except NoSolution as error:
            low = error.bound
        lows[self.stage] = max(lows[self.stage], low)


def _checked(stages: Sequence[Stage], number: int) -> Stage:
    """A stage whose blocks can be listed.

    Raises
    ------
    PlanError
    """
    held = [n for n, stage in enumerate(stages) if stage.tables is not None]
    if number not in held:
        raise PlanError(f"optimize_within: found stage {number}, expected one of {', '.join(map(str, held))}")
    stage = stages[number]
    if stage.tables is not None and not stage.tables.chip.fused:
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
