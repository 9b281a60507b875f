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

    The least work of kernels (:class:`~dfopt.terms.bounds.work.LeastWork`), combined as stages run it; then the
    all-reduce of the gradients at the end of the step, and the optimizer's. Of two microbatches that take turns, chip
    and network have to do all of both, each by itself.

    Methods that are about one plan take it as an instance of the same setting, which ``setting.under(plan)`` makes.
    Bounds of seconds do not ask whether a plan fits the memories: that is for :meth:`check_dram`.

    Parameters
    ----------
    setting : Setting
        Graph, system and resolved assumptions.
    """

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self._known: dict[Setting, LeastWork] = {}  # of the graphs that plans with a second axis see, too

    def _of(self, setting: Setting) -> LeastWork:
        if setting not in self._known:
            self._known[setting] = LeastWork(setting)
        return self._known[setting]

    def tables(self, plans: Iterable[Plan], check_time: Callable[[], None] = lambda: None) -> list[PlanTable]:
        """Tables of arrays of some plans, one for each graph that chips see under them (:meth:`Setting.seen`).

        Plans keep their order within a table. An exception of ``check_time``, which is called for every plan and table,
        ends the work.
        """
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
        """Seconds per step that no mapping beats under each of many plans, by plan."""
        found: dict[Plan, float] = {}
        for table in self.tables(plans):
            found.update(zip(table.plans, table.seconds().tolist(), strict=True))
        return found

    def interval(self, instance: Instance) -> float:
        """Seconds of the slowest pipeline stage for one microbatch, or two that take turns, that no mapping beats."""
        return float(self._alone(instance).intervals()[0])

    def _alone(self, instance: Instance) -> PlanTable:
        return PlanTable(self._of(instance.setting), [instance.plan])

    def traffic(self, instance: Instance, mean: bool = False) -> tuple[float, float]:
        """Bytes that a chip moves at least for one microbatch: over DRAM, and to and from SRAM.

        Parameters
        ----------
        mean : bool
            Whether to take the mean of all chips. False: the least of all pipeline stages, DRAM and SRAM each by
            itself.

        Returns
        -------
        (float, float), B
            Bytes of DRAM and of SRAM. The second is 0 where the chip gives SRAM no bandwidth.
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
        """Refuse a plan whose stages exceed a memory even when all that they keep is split as far as can be.

        Nothing happens where no memory has a limit.

        Raises
        ------
        Infeasible
            If the weights, gradients, optimizer state and saved activations of a stage exceed the capacity: with what a
            chip would have to hold, before anything is solved.
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
        """Least states of the kernels of one layer, by kind of layer, each state at its own least over all schemes.

        They go with the pipeline stages of :meth:`stages`.
        """
        return self._of(instance.setting).states(instance)

    def room(self, instance: Instance) -> float:
        """Bytes that one layer may keep of one microbatch for its backward pass, beside the least of all else.

        The least over all pipeline stages; for layers that are all of one kind. Infinite where the memory has no limit.
        """
        return min(room_to_save(instance, stage, self.least_states(instance)) for stage in self.stages(instance))

    def stages(self, instance: Instance) -> tuple[PipelineStage, ...]:
        """The distinct pipeline stages of a plan, as bounds see them.

        A graph that is not folded has one here, which stands for the heaviest with its average share of all kernels.
        """
        return self._of(instance.setting).stages(instance)
