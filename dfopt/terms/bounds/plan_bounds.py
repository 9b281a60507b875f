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
    """Step times that no mapping beats, and bytes that every mapping holds, for any number of plans of a setting.

    A step time bound has the least work of kernels (:class:`~dfopt.terms.bounds.work.LeastWork`), combined as pipeline
    stages run it, then the exchange of gradients and the optimizer's step. Of two microbatches that take turns
    (``two_batch_overlap``), a stage takes at least the work of both, and at least the communication of both.

    Methods that are about one plan take an instance of the same setting, which ``setting.under(plan)`` makes. Bounds of
    seconds do not ask whether a plan fits the memories: :meth:`check_dram` does.

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
        """Tables of arrays of some plans: one table for all plans under which chips see the same graph.

        Plans under which a chip has another part of the graph are in another table (:meth:`Setting.seen`). Tables are
        in the order of their first plans, and plans keep their order within a table. No plans: an empty list.

        Parameters
        ----------
        plans : iterable of Plan
            Plans of the setting. Each is in one table.
        check_time : callable
            Called without arguments before every plan and every table. An exception that it raises ends the work.
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
        """Seconds per step that no mapping under the plan of `instance` beats, whether or not the plan fits memory."""
        return float(self._alone(instance).seconds()[0])

    def of_all(self, plans: Iterable[Plan]) -> dict[Plan, float]:
        """Seconds per step that no mapping beats under each of many plans, by plan."""
        found: dict[Plan, float] = {}
        for table in self.tables(plans):
            found.update(zip(table.plans, table.seconds().tolist(), strict=True))
        return found

    def interval(self, instance: Instance) -> float:
        """Least seconds of a plan's slowest pipeline stage for one microbatch: no mapping under the plan beats them.

        With ``two_batch_overlap`` they are those of two microbatches, which take turns. Messages between stages are not
        included.
        """
        return float(self._alone(instance).intervals()[0])

    def _alone(self, instance: Instance) -> PlanTable:
        return PlanTable(self._of(instance.setting), [instance.plan])

    def traffic(self, instance: Instance, mean: bool = False) -> tuple[float, float]:
        """Least bytes that a chip moves for one microbatch in all its layers: over DRAM, and to and from SRAM.

        Parameters
        ----------
        mean : bool
            Whether to take the mean over all chips. False: the chip that moves least, which for SRAM may be in another
            pipeline stage than for DRAM. A graph that is not folded has the mean in either case.

        Returns
        -------
        (float, float), B
            Bytes of DRAM and bytes of SRAM; neither includes the other. The second is 0, which means not known, where
            the chip gives SRAM no bandwidth.
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
        """Refuse a plan if some stage exceeds a memory of the chip even with the least bytes of every state.

        Returns nothing if all stages fit, or if no memory has a limit.

        Raises
        ------
        Infeasible
            If the weights, gradients, optimizer state, saved activations and other states of a stage exceed the usable
            bytes of a memory. The message has the bytes that a chip of the fullest stage holds at least.
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
        """What the kernels of one layer keep in memory at least, for one microbatch, by kind: ``{kind: states}``.

        Bytes of each state are the least over all sharding schemes; another state may need another scheme. If the graph
        is not folded, the only kind, 0, has the average of the plan's pipeline stages. Pass them to functions of
        :mod:`dfopt.terms.step.ledger` together with the stages of :meth:`stages`.
        """
        return self._of(instance.setting).states(instance)

    def room(self, instance: Instance) -> float:
        """Most bytes of saved activations, per layer and microbatch on one chip, with which a plan may fit memory.

        The bytes are those that a layer keeps from its forward to its backward pass. All other states (weights,
        gradients, optimizer and others) take their least bytes. A chip holds saved activations of all its layers and
        all microbatches in flight, whose backward pass is still to come. The pipeline stage with the least room
        decides. So a mapping that saves more bytes for a layer does not fit.

        The graph must have one kind of layer. If it is not folded, all kernels of the average pipeline stage count as
        one layer.

        Returns
        -------
        float, B
            Infinite if no memory that holds saved activations has a limit, or if none are saved. 0 if the other states
            alone fill such a memory.
        """
        return min(room_to_save(instance, stage, self.least_states(instance)) for stage in self.stages(instance))

    def stages(self, instance: Instance) -> tuple[PipelineStage, ...]:
        """The distinct pipeline stages of a plan, as bounds see them.

        For a graph that is not folded, one stage stands for all: it runs the average of the kernels, and the heaviest
        stage runs that or more.
        """
        return self._of(instance.setting).stages(instance)
