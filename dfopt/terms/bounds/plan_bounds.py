"""A lower bound on the step time of a plan that holds for every mapping under it, and on what chips hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.plan import Plan
from dfopt.physics.efficiency import most_sustained
from dfopt.setting.instance import Instance, Setting
from dfopt.setting.stages import PipelineStage, stage_places
from dfopt.terms.bounds.plan_arrays import bounded_stages
from dfopt.terms.bounds.plan_table import PlanTable
from dfopt.terms.bounds.work_bounds import WorkBounds
from dfopt.terms.step.ledger import State, held, left, usable_bytes


class PlanBounds:
    """Lower bounds on step and memory for many plans of a setting, valid for every mapping of kernels.

    A mapping is the sharding scheme and the on-chip partition of every kernel. A step time bound has the least work of
    kernels (:class:`~dfopt.terms.bounds.work_bounds.WorkBounds`), combined as stages run it, then the exchange of
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

    def tables(self, plans: Iterable[Plan]) -> list[PlanTable]:
        """Group plans by the assumptions that hold under them, and make one :class:`PlanTable` for each.

        A plan with ``tensor_overlap`` changes that assumption (:meth:`dfopt.setting.instance.Setting.seen`). Tables are
        in the order of their first plans, and plans keep their order within a table. No plans: an empty list.

        Parameters
        ----------
        plans : iterable of Plan
            Plans of the setting. Each is in one table.

        Raises
        ------
        Unsplit
            If a module of the graph cannot take the scheme that a plan with ``modules`` gives it.
        """
        alike: dict[Assumptions, list[Instance]] = {}
        for plan in plans:
            instance = self.setting.under(plan)
            alike.setdefault(instance.assumptions, []).append(instance)
        return [PlanTable(instances) for instances in alike.values()]

    def seconds(self, instance: Instance) -> float:
        """Lower bound on the seconds per step of one plan, under every mapping, whether or not the plan fits memory.

        A mapping is the sharding scheme and the on-chip partition of every kernel.

        Parameters
        ----------
        instance : Instance
            The plan in its setting: ``setting.under(plan)``.
        """
        return float(self._alone(instance).least_i[0])

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
        return PlanTable([instance])

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
        table, chip = self._alone(instance), instance.system.chip
        places: Sequence[int] = range(len(table.plan_r))
        if mean and instance.graph.folded:
            places = stage_places(instance.setting.model, instance.plan)
        dram = most_sustained(chip, instance.assumptions) * table.stage_seconds("memory")[[*places]]
        sram = (chip.sram.bandwidth or 0.0) * table.stage_seconds("sram")[[*places]]
        return (float(dram.mean()), float(sram.mean())) if mean else (float(dram.min()), float(sram.min()))

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
        states, several = self.least_states(instance), len(instance.graph.kernels_by_kind) > 1
        books = {stage: held(instance, stage, states) for stage in bounded_stages(instance)}

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
        :func:`~dfopt.terms.step.ledger.held`, together with the stages of
        :func:`dfopt.terms.bounds.plan_arrays.bounded_stages`.

        Parameters
        ----------
        instance : Instance
            The plan in its setting: ``setting.under(plan)``.
        """
        return WorkBounds(instance).states
