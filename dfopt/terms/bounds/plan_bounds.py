"""A lower bound on the step time of a plan that holds for every mapping under it, and on what chips hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from dfopt.documents.plan import Plan
from dfopt.physics.efficiency import most_sustained
from dfopt.setting.instance import Instance, Setting
from dfopt.setting.stages import PipelineStage, stage_places
from dfopt.terms.bounds.table import PlanTable
from dfopt.terms.bounds.work import LeastWork
from dfopt.terms.step.ledger import State, held, left, room_to_save, usable_bytes

__all__ = ["PlanBounds"]


class PlanBounds:
    """Step times that no mapping beats, and what every mapping holds, for any number of plans of a setting.

    The least work of kernels (:class:`LeastWork`), combined as stages run it; then the all-reduce of the gradients at
    the end of the step, and the optimizer's. Of two microbatches that take turns, chip and network have to do all of
    both, each by itself.
    """

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self._known: dict[Setting, LeastWork] = {}  # of the graphs that plans with a second axis see, too

    def _of(self, setting: Setting) -> LeastWork:
        if setting not in self._known:
            self._known[setting] = LeastWork(setting)
        return self._known[setting]

    def tables(self, plans: Iterable[Plan], check_time: Callable[[], None] = lambda: None) -> list[PlanTable]:
        """Some plans as arrays, one for each graph that chips see; ``check_time`` may end it by an exception."""
        alike: dict[Setting, list[Plan]] = {}
        for plan in plans:
            check_time()
            setting = self.setting.seen(plan)
            alike.setdefault(setting, []).append(plan)
        tables = []
        for setting, members in alike.items():
            check_time()
            tables.append(PlanTable(self._of(setting), members))
        return tables

    def seconds(self, instance: Instance) -> float:
        """Seconds per step that no mapping under a plan beats."""
        return float(self._alone(instance).seconds()[0])

    def of_all(self, plans: Iterable[Plan]) -> dict[Plan, float]:
        """The same of many plans."""
        found: dict[Plan, float] = {}
        for table in self.tables(plans):
            found.update(zip(table.plans, table.seconds().tolist(), strict=True))
        return found

    def interval(self, instance: Instance) -> float:
        """Seconds of the slowest stage for one microbatch that no mapping under a plan beats."""
        return float(self._alone(instance).intervals()[0])

    def _alone(self, instance: Instance) -> PlanTable:
        return PlanTable(self._of(instance.setting), [instance.plan])

    def traffic(self, instance: Instance, mean: bool = False) -> tuple[float, float]:
        """Bytes that a chip of every stage moves at least for one microbatch: over DRAM, and to and from SRAM.

        Of the stage with the least of each, or of all chips the mean. Those of SRAM are known where its bandwidth is
        limited, and 0 else.
        """
        work, chip = self._of(instance.setting), instance.system.chip
        kinds, drawn = work.of(instance), work.drawn_stages(instance)
        rates = most_sustained(chip, instance.assumptions) / drawn, (chip.sram.bandwidth or 0.0) / drawn
        seconds = [one.memory_s for one in kinds], [one.sram_s for one in kinds]
        stages = self.stages(instance)
        if mean and instance.graph.folded:
            stages = tuple(stages[place] for place in stage_places(instance.setting.model, instance.plan))
        dram, sram = (
            [rate * sum(times * each[kind] for kind, times in stage.runs) for stage in stages]
            for rate, each in zip(rates, seconds, strict=True)
        )
        return (sum(dram) / len(stages), sum(sram) / len(stages)) if mean else (min(dram), min(sram))

    def check_dram(self, instance: Instance) -> None:
        """Refuse a plan whose stages hold more than the DRAM even when all that they keep is split as far as can be.

        Raises
        ------
        Infeasible
            If the weights, gradients, optimizer state and saved activations of a stage exceed the capacity: with what
            a chip would have to hold, before anything is solved.
        """
        limits = usable_bytes(instance.setting)
        if not limits:
            return
        states, several = self.least_states(instance), len(self._of(instance.setting).kinds) > 1
        books = {stage: held(instance, stage, states) for stage in self.stages(instance)}

        def lacking(stage: PipelineStage) -> float:
            return max(sum(books[stage].get(tier, {}).values()) - most for tier, most in limits.items())

        fullest = max(books, key=lacking)
        left(instance, books[fullest], f"{fullest.name if several else 'the heaviest stage'} needs at least")

    def least_states(self, instance: Instance) -> dict[int, Sequence[State]]:
        """What the kernels of each stage of the mapping keep at least, each state by itself, for :meth:`stages`."""
        return self._of(instance.setting).states(instance)

    def room(self, instance: Instance) -> float:
        """Bytes that a layer may keep for its backward pass beside the least of all else, where layers are equal."""
        return min(room_to_save(instance, stage, self.least_states(instance)) for stage in self.stages(instance))

    def stages(self, instance: Instance) -> tuple[PipelineStage, ...]:
        """The distinct pipeline stages."""
        return self._of(instance.setting).stages(instance)
