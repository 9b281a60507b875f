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
    """Lower bounds on step time and held memory for any number of plans of a setting, whatever the mapping of kernels.

    A mapping is the sharding scheme and the on-chip partition of every kernel. A step time bound has the least work of
    kernels (:class:`~dfopt.terms.bounds.work.LeastWork`), combined as pipeline stages run it, then the exchange of
    gradients and the optimizer's step. Of two microbatches that take turns (``two_batch_overlap``), a stage takes at
    least the work of both, and at least the communication of both.

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
        """Group plans by the graph and assumptions that hold under them, and make one :class:`PlanTable` for each.

        A plan with a second parallel axis (``modules``) lets a chip see a part of the graph, and one with
        ``tensor_overlap`` changes that assumption (:meth:`dfopt.setting.instance.Setting.seen`). Tables are in the
        order of their first plans, and plans keep their order within a table. No plans: an empty list.

        Parameters
        ----------
        plans : iterable of Plan
            Plans of the setting. Each is in one table.
        check_time : callable
            Called without arguments before every plan and every table. An exception that it raises ends the work.

        Raises
        ------
        Unsplit
            If a module of the graph cannot take the scheme that a plan with ``modules`` gives it.
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
        """Lower bound on the seconds per step of one plan, under every mapping, whether or not the plan fits memory.

        A mapping is the sharding scheme and the on-chip partition of every kernel.

        Parameters
        ----------
        instance : Instance
            The plan in its setting: ``setting.under(plan)``.
        """
        return float(self._alone(instance).seconds()[0])

    def of_all(self, plans: Iterable[Plan]) -> dict[Plan, float]:
        """Lower bounds on the seconds per step of many plans, by plan. Each holds for every mapping under the plan.

        A mapping is the sharding scheme and the on-chip partition of every kernel.

        Parameters
        ----------
        plans : iterable of Plan
            Plans of the setting. Whether they fit memory is not asked. No plans: an empty dict.

        Raises
        ------
        Unsplit
            If a module of the graph cannot take the scheme that a plan with ``modules`` gives it.
        """
        found: dict[Plan, float] = {}
        for table in self.tables(plans):
            found.update(zip(table.plans, table.seconds().tolist(), strict=True))
        return found

    def interval(self, instance: Instance) -> float:
        """Lower bound on the seconds of a plan's slowest pipeline stage for one microbatch, under every mapping.

        A mapping is the sharding scheme and the on-chip partition of every kernel. With ``two_batch_overlap`` the
        seconds are those of two microbatches, which take turns. Messages between stages are not included.

        Parameters
        ----------
        instance : Instance
            The plan in its setting: ``setting.under(plan)``.
        """
        return float(self._alone(instance).intervals()[0])

    def _alone(self, instance: Instance) -> PlanTable:
        return PlanTable(self._of(instance.setting), [instance.plan])

    def traffic(self, instance: Instance, mean: bool = False) -> tuple[float, float]:
        """Least bytes that a chip moves for one microbatch in all its layers: over DRAM, and to and from SRAM.

        Parameters
        ----------
        instance : Instance
            The plan in its setting: ``setting.under(plan)``.
        mean : bool
            Whether to take the mean over all chips. False: the chip that moves least, which for SRAM may be in another
            pipeline stage than for DRAM. A graph that is not *folded* (it draws the whole model, not each distinct
            layer once) has the mean in either case.

        Returns
        -------
        (float, float), B
            Bytes of DRAM and bytes of SRAM; neither includes the other. If the graph does not train, a byte in a slower
            memory than the fastest counts as several bytes of DRAM, by the ratio of bandwidths. The second is 0, which
            means not known, where the chip gives SRAM no bandwidth.
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
        """Raise an error if some pipeline stage exceeds a memory of its chips even with the least bytes it can hold.

        Returns nothing if all stages fit, or if no memory has a limit.

        Parameters
        ----------
        instance : Instance
            The plan in its setting: ``setting.under(plan)``.

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
        """Least bytes that one layer keeps in memory for one microbatch, by kind of layer: ``{kind: states}``.

        A :class:`~dfopt.terms.step.ledger.State` is data that stays in a memory, such as weights or saved activations.
        Bytes of each state are the least over all sharding schemes; another state may need another scheme. If the graph
        is not *folded* (it draws the whole model, not each distinct layer once), the only kind, 0, has the average of
        the plan's pipeline stages. Pass the result to functions of :mod:`dfopt.terms.step.ledger`, such as
        :func:`~dfopt.terms.step.ledger.held`, together with the stages of :meth:`stages`.

        Parameters
        ----------
        instance : Instance
            The plan in its setting: ``setting.under(plan)``.
        """
        return self._of(instance.setting).states(instance)

    def room(self, instance: Instance) -> float:
        """Most bytes of saved activations, per layer and microbatch on one chip, with which a plan may fit memory.

        The bytes are those that a layer keeps from its forward to its backward pass. All other states (weights,
        gradients, optimizer and others) take their least bytes. A chip holds saved activations of all its layers and
        all microbatches in flight, whose backward pass is still to come. The pipeline stage with the least room
        decides. So a mapping that saves more bytes for a layer does not fit.

        Parameters
        ----------
        instance : Instance
            The plan in its setting: ``setting.under(plan)``. The graph must have one kind of layer. If it is not
            *folded* (it draws the whole model, not each distinct layer once), all kernels of the average pipeline
            stage count as one layer.

        Returns
        -------
        float, B
            Infinite if no memory that holds saved activations has a limit, or if none are saved. 0 if the other states
            alone fill such a memory.
        """
        return min(room_to_save(instance, stage, self.least_states(instance)) for stage in self.stages(instance))

    def stages(self, instance: Instance) -> tuple[PipelineStage, ...]:
        """Distinct pipeline stages of a plan for which bounds are computed, in the order of the pipeline.

        An entry is one stage, or stands for several that are alike. For a graph that is not *folded* (it draws the
        whole model, not each distinct layer once) the tuple has one entry, which stands for all stages. Bounds give it
        the average of the kernels' work and bytes: the heaviest stage has that or more.

        Parameters
        ----------
        instance : Instance
            The plan in its setting: ``setting.under(plan)``.
        """
        return self._of(instance.setting).stages(instance)
