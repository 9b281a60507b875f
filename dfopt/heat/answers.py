"""Three answers to heat for one plan and sharding: worked out, judged, and put into a report."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final, Literal

import numpy as np

from dfopt.documents.heat import HeatAnswer, HeatName, HeatProof, HeatReport, ShadowPrice, SlowedPartition
from dfopt.documents.mapping import Mapping
from dfopt.errors import PlanError
from dfopt.fusion.priced import PricedPlan
from dfopt.heat.generation import BlockPool
from dfopt.heat.limits import ZERO_C, HeatLimits, Linearization, Rate
from dfopt.heat.period import HeatEffort
from dfopt.heat.settle import HeatSettler, Settled, StackedMapping, fastest, physical
from dfopt.physics.pipeline import step_time

_SAME = 1e-6
_BINDS = 1e-4  # relative: a row that asks for nearly the whole period
_FASTER: Final = 1e-9  # relative: a mapping is faster by more than the rounding of its seconds
_LISTED: Final = 8  # binding limits that an answer names: the dearest


class ThreeAnswers:
    """The three answers on heat (ignore, throttle, heat-aware) for one plan and sharding, computed on demand.

    Parameters
    ----------
    ready : PricedPlan
        The plan with the sharding of the mapping; its system has a stack.
    mapping : Mapping
        Mapping with the plan and the sharding in question.
    effort : HeatEffort
        Limit on the work and time of the solves.
    """

    def __init__(self, ready: PricedPlan, mapping: Mapping, effort: HeatEffort) -> None:
        assert ready.instance.system.stack is not None
        self.began = time.perf_counter()
        self.stack, self.ready, self.effort = ready.instance.system.stack, ready, effort
        self.settler = HeatSettler(ready, HeatLimits(ready, self.stack), effort)
        given = mapping.model_copy(update={"clocks": None, "pauses": None})
        self.known = self._judged(given)
        self.why = ""
        self.pools: dict[float, BlockPool] = {}
        self.starts = [given]
        self.ignore, self.throttle = self.known, self.settler.throttled(given)
        try:
            self._without_heat(physical(self.throttle.score).refresh_rate)
        except PlanError as error:
            self.why = str(error)
        if self.ignore is not self.known:
            self.throttle = self.settler.throttled(self.ignore.mapping)
            self.starts = [self.ignore.mapping, given]
            for pool in self.pools.values():
                pool.add(self.ignore.mapping)
                pool.mappings = self.starts

    def _judged(self, mapping: Mapping) -> StackedMapping:
        return StackedMapping(mapping, self.settler.judge(mapping))

    def _pool(self, rate: float) -> BlockPool:
        if rate not in self.pools:
            self.pools[rate] = BlockPool(self.settler, rate, list(self.starts))
        return self.pools[rate]

    def _without_heat(self, rate: float) -> None:
        """Choose partitions anew for the memory's effective bandwidth, with nominal clocks."""
        settler = self.settler
        blocks, problem, answer = self._pool(rate).choose(settler.without_limits(), True)
        nominal = tuple(np.zeros_like(levels) for levels in answer.choice.levels)
        choice = replace(answer.choice, levels=nominal)
        judged = self._judged(settler.mapping(blocks, problem, choice, problem.period(choice)))
        if judged.step_s < self.ignore.step_s * (1 - _FASTER):
            self.ignore = judged

    def aware(self) -> Settled:
        """The heat-aware mapping, the best over all DRAM refresh rates.

        Raises
        ------
        PlanError
            If the blocks of kernels cannot be listed.
        Infeasible
            If no mapping keeps the limits.
        """
        begin = self.settler.operating(self.throttle.score)
        own = physical(self.throttle.score).refresh_rate

        def at(rate: Rate, best: Settled | None) -> Settled | None:
            pool = self._pool(rate.rate)
            if best is not None and self._slower(pool, rate, begin, best):
                return None
            return self.settler.settle(rate, begin, pool.choose)

        # where the throttled mapping is, a good start is
        rates = sorted(self.settler.limits.rates, key=lambda rate: rate.rate != own)
        return fastest(rates, at, "heat: no mapping was found that keeps the limits")

    def _slower(self, pool: BlockPool, rate: Rate, where: Linearization, best: Settled) -> bool:
        """Whether no choice at another refresh rate is faster than the best mapping, with leakage as at ``where``."""
        beat = physical(best.score).interval_s * (1 - _SAME)
        _, _, answer = pool.choose(self.settler.limits.rows(where, rate), True, beat)
        return answer.bound_s >= beat * (1 - _SAME)

    # ------------------------------------------------------------ report

    def report(self, finite_difference: bool) -> HeatReport:
        """Report of all three answers, the proof, and the worth of one kelvin."""
        stack, ready = self.stack, self.ready
        answers = [self._answer("ignore", self.ignore), self._answer("throttle", self.throttle)]
        proof, price, note = None, None, self.why
        slowed: tuple[SlowedPartition, ...] = ()
        if not note:
            try:
                settled = self.aware()
            except PlanError as error:
                note = str(error)
            else:
                best = self.best_of(settled)
                answers.append(self._answer("aware", best))
                proof = self.proof(settled)
                price = self._price(settled, finite_difference)
                slowed = slowed_partitions(best.mapping)
                if best is not settled:
                    note = "no choice of partitions and levels is faster than the throttled mapping"
        limits = stack.limits
        return HeatReport(
            graph=ready.instance.graph.name,
            system=ready.instance.system.name,
            stack=stack.name,
            plan=ready.instance.plan.label,
            limit_logic_c=None if limits.logic is None else limits.logic - ZERO_C,
            limit_dram_c=None if limits.dram is None else limits.dram - ZERO_C,
            limit_power_w=limits.power,
            answers=tuple(answers),
            proof=proof,
            price=price,
            slowed=slowed,
            note=note,
        )

    def best_of(self, settled: Settled) -> StackedMapping:
        """The better of heat-aware and throttled mapping by the judge."""
        return settled if settled.step_s <= self.throttle.step_s else self.throttle

    def _answer(self, name: HeatName, judged: StackedMapping) -> HeatAnswer:
        mapping, seen = judged.mapping, physical(judged.score)
        runs: dict[int, int] = {}
        for rank in self.ready.instance.pipeline:
            for number, times in rank.runs:
                runs[number] = max(times, runs.get(number, 0))
        clocks = [clock.frequency for clock in mapping.clocks or ()]
        return HeatAnswer(
            name=name,
            mapping=mapping,
            step_time_s=seen.step_time_s,
            interval_s=seen.interval_s,
            pause_s=sum(pause.time * runs.get(pause.stage, 0) for pause in mapping.pauses or ()),
            lowest_frequency=min(clocks, default=1.0),
            partitions=len({(kernel.stage, kernel.partition) for kernel in mapping.kernels}),
            logic_max_c=seen.logic_max_c,
            dram_max_c=seen.dram_max_c,
            refresh_rate=seen.refresh_rate,
            power_w=seen.power_w,
            energy_per_step_j=seen.energy_per_step_j,
            keeps_limits=seen.keeps_limits,
            violations=seen.violations,
        )

    def proof(self, settled: Settled) -> HeatProof:
        """Proof record of a heat-aware mapping."""
        answer = settled.answer
        status: Literal["optimal_per_level", "gap_reached", "limit_with_solution"] = "optimal_per_level"
        if not answer.proven:
            status = "gap_reached" if answer.gap <= self.effort.gap else "limit_with_solution"
        return HeatProof(
            status=status,
            bound_s=answer.bound_s,
            interval_s=answer.period_s,
            gap=0.0 if answer.proven else answer.gap,
            blocks=settled.blocks,
            levels=len(self.stack.levels),
            columns=answer.columns,
            rounds=settled.rounds,
            seconds=time.perf_counter() - self.began,
            note=answer.note,
        )

    def _price(self, settled: Settled, finite_difference: bool) -> ShadowPrice:
        answer, names = settled.answer, settled.rows.names
        unit = step_time(self.ready.instance.plan, self.ready.instance.assumptions, 1.0).total
        by_row = answer.price_ri.sum(axis=0) * unit
        logic = self.stack.logic_die.name
        kind = ["power" if "power of the stack" in n else "logic" if f" die {logic}," in n else "dram" for n in names]
        price_of = {each: float(sum(p for p, k in zip(by_row, kind, strict=True) if k == each)) for each in set(kind)}
        asked = answer.demand_ri.max(axis=0) if len(names) else np.zeros(0)
        binding = [row for row in np.argsort(-by_row, kind="stable").tolist() if by_row[row] > 0]
        binding += [
            row for row in np.flatnonzero(asked >= answer.period_s * (1 - _BINDS)).tolist() if row not in binding
        ]
        gained = None
        if finite_difference:
            gained = self._one_kelvin(settled)
        return ShadowPrice(
            lp_logic_s_per_k=price_of.get("logic", 0.0),
            lp_dram_s_per_k=price_of.get("dram", 0.0),
            lp_power_s_per_w=price_of.get("power", 0.0),
            one_kelvin_more_s=gained,
            binding=tuple(names[row].split(",")[0] + "," + names[row].split(",")[1] for row in binding[:_LISTED]),
        )

    def _one_kelvin(self, settled: Settled) -> float | None:
        """Step time that limits 1 K higher save, at the same leakage and refresh rate; the refresh moves with them."""
        rows = settled.rows
        kelvin = np.array([0.0 if "power of the stack" in name else 1.0 for name in rows.names])
        warmer = replace(rows, budget_ri=rows.budget_ri + kelvin)
        pool = self._pool(settled.rate.rate)
        pool.add(settled.mapping)
        pool.mappings = [settled.mapping, *self.starts]
        _, _, again = pool.choose(warmer, True)
        if again.gap > max(self.effort.gap, _SAME):
            return None  # the time ran out: a bad answer would say that a kelvin is worth nothing
        unit = step_time(self.ready.instance.plan, self.ready.instance.assumptions, 1.0).total
        return max(0.0, (settled.answer.period_s - again.period_s) * unit)


def slowed_partitions(mapping: Mapping) -> tuple[SlowedPartition, ...]:
    """Partitions below the nominal frequency, with their kernels."""
    return tuple(
        SlowedPartition(
            stage=clock.stage,
            partition=clock.partition,
            frequency=clock.frequency,
            kernels=tuple(
                kernel.name
                for kernel in mapping.kernels
                if (kernel.stage, kernel.partition) == (clock.stage, clock.partition)
            ),
        )
        for clock in mapping.clocks or ()
        if clock.frequency < 1
    )
