"""Bound the plans of a result again, from its inputs: what ``dfopt check`` believes.

Nothing is taken from the file but what only makes a bound stronger when it is true: prices of kernels, where blocks
were generated on demand, are shown to be valid by one MILP.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dfopt.bnb import Clock
from dfopt.documents.plan import Plan
from dfopt.documents.plan_records import SolveRecord
from dfopt.documents.result import Result
from dfopt.errors import Infeasible, NoSolution
from dfopt.fusion.blocks import StageTables
from dfopt.fusion.certificates import Certificate, certified
from dfopt.fusion.downsets import Lattice
from dfopt.fusion.intrachip import CutOff, optimize_intrachip
from dfopt.fusion.lattice import ShortestPath
from dfopt.fusion.partitioning import IntraChipLimits
from dfopt.fusion.pieces import piecewise
from dfopt.search.candidate import Prepared, Stage, prepare, with_starts
from dfopt.search.options import Options
from dfopt.search.region_proof import RegionProof
from dfopt.search.sharing import Memo, StageWork, nothing_else_fits
from dfopt.search.solved import finish
from dfopt.search.unit_state import Unit
from dfopt.setting.instance import Setting
from dfopt.terms.bounds import PlanBounds

Sizes = frozenset[int | None]
NONE: Sizes = frozenset()
PROOF = 1e-6  # relative: what judge and problems may differ by (architecture, law 5)


@dataclass(frozen=True)
class Low:
    """What could be shown of a plan: no mapping, and none with its sharding, has a lower value; none: none fits.

    ``whole``: there is only one sharding, or it is chosen with the fusion, so both are the same. ``fits``: tile counts
    (none where that is no choice) of which some mapping is known, ``open_`` others of which it was not decided;
    ``of_size``: what could be shown of single ones.
    """

    every: float | None
    level: float | None
    why: str
    whole: bool = False
    fits: Sizes = NONE
    open_: Sizes = NONE
    of_size: Mapping[int | None, float] = field(default_factory=dict)


def least_of(lows: Sequence[Low]) -> Low:
    """What is shown of several together: the least, unless none fits any."""
    if len(lows) == 1:
        return lows[0]
    levels = [one.level for one in lows if one.level is not None]
    some = [one for one in lows if one.every is not None]
    least = min(some, key=lambda one: one.every or 0.0, default=lows[0])
    fits, open_ = NONE.union(*(one.fits for one in lows)), NONE.union(*(one.open_ for one in lows))
    level, whole = min(levels, default=None), all(one.whole for one in lows)
    return replace(least, level=level, whole=whole, fits=fits, open_=open_, of_size={})


def plan_low(
    result: Result, plan: Plan, bounds: PlanBounds, memo: Memo, options: Options, value: float, empty: Sizes = NONE
) -> Low:
    """Lower bounds on the value of one plan, at least the claimed value if the plan cannot beat it.

    ``empty``: tile counts that no mapping is said to fit under (none: whatever the tile count).
    """
    instance = bounds.setting.under(plan)
    first = bounds.seconds(instance)
    try:
        bounds.check_dram(instance)
    except Infeasible as error:
        return Low(None, None, str(error.report), whole=True)
    if first >= value and not empty:
        return Low(first, first, "")
    late = Low(first, first, "no time left", open_=frozenset({None}))
    if options.clock.over:
        return late
    level, why, only, fits, of_size = np.inf, "", False, set(), dict[int | None, float]()
    try:
        for variant in prepare(instance, options, memo):
            only = variant.only_sharding
            if empty & {None, variant.tile_count}:
                try:
                    finish(with_starts(variant, options.clock), options, np.inf)
                except Infeasible as error:
                    why = why or str(error.report)
                    continue
                fits.add(variant.tile_count)
            low, reason = (first, "") if first >= value else _variant_low(result, variant, options, value)
            of_size[variant.tile_count] = max(low, first)
            if max(low, first) < level:
                level, why = max(low, first), reason
    except NoSolution:
        return late
    except Infeasible as error:
        only, why = nothing_else_fits(memo, instance), str(error.report)
    shown = level if np.isfinite(level) else None
    return Low(shown if only else first, shown, why, whole=only, fits=frozenset(fits), of_size=of_size)


def joint_lows(
    setting: Setting,
    legal: list[Plan],
    options: Options,
    claims: Mapping[Unit, float],
    value: float,
    listed: Mapping[Hashable, float],
) -> tuple[dict[Plan, Low], dict[int, Lattice | None]]:
    """What can be shown of plans whose schemes are chosen with the fusion, see :class:`RegionProof`.

    And the down-sets of every stage, as far as they were listed.
    """
    proof = RegionProof(setting, options, legal, claims, value, listed)
    proof.prove()
    if proof.search.state.stopped:  # nobody waits for what is not shown yet
        raise KeyboardInterrupt
    found: dict[Plan, Low] = {}
    for record in proof.graph.records:
        why = record.note or "a faster mapping may exist"
        low = found.get(record.plan, Low(None, None, why, whole=True))
        if record.bound is not None:
            least = record.bound if low.every is None else min(record.bound, low.every)
            low = replace(low, every=least, level=least, why=why if least == record.bound else low.why)
            sort = "fits" if record.value is not None else "open_"
            low = replace(low, **{sort: getattr(low, sort) | {record.tile_count}})
        low = replace(low, of_size={**low.of_size, record.tile_count: np.inf if record.bound is None else record.bound})
        found[record.plan] = low
    return found, proof.graph.lattices()


def _solves(result: Result, variant: Prepared, stage: int) -> list[SolveRecord]:
    """Fusions of the file that say something about this one: of all plans that give a chip the same work."""
    setting, key = variant.instance.setting, variant.instance.shared
    return [
        solve
        for record in result.plans
        if record.tile_count == variant.tile_count
        for solve in record.solves
        if solve.problem == "intrachip" and solve.stage == stage and setting.under(record.plan).shared is key
    ]


def _variant_low(result: Result, variant: Prepared, options: Options, value: float) -> tuple[float, str]:
    """Lower bound on the value under one sharding: stage by stage, until one alone shows the claimed value.

    Each stage of the mapping is searched with the time that the claim leaves it, when the others take what they are
    shown to take at least. If it takes more, no mapping under this sharding is faster than the claim.
    """
    floor = variant.floor()
    if floor >= value * (1 - PROOF):
        return floor, ""
    if not variant.sharding_proven:
        return floor, "its sharding was not proven in time"
    priced = [number for number, stage in enumerate(variant.stages) if stage.tables is not None]
    if not any(_of(stage).tables.chip.fused for stage in (variant.stages[n] for n in priced)):
        return with_starts(variant).best_known(), ""  # kernel by kernel the start is all there is
    if len(priced) > 1:  # a start says which stage decides, and what it takes at most
        variant = with_starts(variant)
    lows = [stage.floor for stage in variant.stages]

    def pressed(number: int) -> float:
        left = variant.cutoff(number, value, lows)
        assert left is not None  # the claimed time has an end
        return -(variant.stages[number].best_known / left if left > 0 else np.inf)

    reasons = []
    for number in sorted(priced, key=pressed):
        cutoff = variant.cutoff(number, value, lows)
        assert cutoff is not None
        lows[number], reason = _stage_low(result, variant, number, options, cutoff * (1 - PROOF))
        if lows[number] >= cutoff * (1 - PROOF):
            return value, ""
        reasons += [reason] if reason else []
    low = variant.value_of(lows)
    return max(low, floor), reasons[0] if reasons else "a faster mapping exists"


@dataclass(frozen=True)
class _Priced:
    """A stage that has kernels."""

    tables: StageTables
    limits: IntraChipLimits
    work: StageWork


def _of(stage: Stage) -> _Priced:
    assert stage.tables is not None and stage.limits is not None and stage.work is not None
    return _Priced(stage.tables, stage.limits, stage.work)


def _stage_low(result: Result, variant: Prepared, number: int, options: Options, cutoff: float) -> tuple[float, str]:
    """Seconds that no fusion of a stage beats, at least the cutoff if none is faster; and why they are no more."""
    stage = variant.stages[number]
    mine = _of(stage)
    if mine.work.low_s >= cutoff:  # another plan with the same layer has shown it
        return mine.work.low_s, ""
    if stage.lattice is None:
        return _certified_low(result, variant, number, options, cutoff)
    # of several stages only one decides: a cutoff near what the start takes keeps the search of the others short
    least = min(cutoff, stage.best_known * (1 + PROOF))
    relaxed = replace(mine.limits, dram_left=np.inf)
    path = ShortestPath(mine.tables, relaxed, stage.lattice, least).run(options.clock)
    if path.complete:
        mine.work.low_s = max(mine.work.low_s, least if path.partition_k is None else path.objective)
        if path.partition_k is not None and mine.limits != relaxed:
            path = ShortestPath(mine.tables, mine.limits, stage.lattice, least).run(options.clock)
    if not path.complete:
        return max(mine.work.low_s, path.bound), "the time limit"
    return least if path.partition_k is None else path.objective, ""


def _certified_low(
    result: Result, variant: Prepared, number: int, options: Options, cutoff: float
) -> tuple[float, str]:
    """The bound that the prices in the file prove: one MILP shows whether a block is worth more than its time."""
    mine, solves = _of(variant.stages[number]), _solves(result, variant, number)
    if not solves:
        return mine.work.low_s, "too many down-sets to search, and no solve in the file that proves more"
    if any(solve.formulation == "assignment" for solve in solves):
        return _solved_low(mine, options.clock, cutoff)
    found = piecewise(mine.tables, replace(mine.limits, dram_left=np.inf), cutoff, options.clock)
    if found is not None:
        mine.work.low_s = max(mine.work.low_s, min(found.bound, cutoff))
    if mine.work.low_s >= cutoff * (1 - PROOF):
        return cutoff, ""
    for prices in {(solve.kernel_prices, solve.partition_price) for solve in solves if solve.kernel_prices}:
        proven = certified(mine.tables, mine.limits, Certificate(np.array(prices[0]), prices[1]), options.clock)
        mine.work.low_s = max(mine.work.low_s, proven)
    return mine.work.low_s, "the prices in the file do not prove more"


def _solved_low(mine: _Priced, clock: Clock, cutoff: float) -> tuple[float, str]:
    """The bound that the matrices prove once more: nothing but a solve of its own shows what a MILP has shown."""
    try:
        found = optimize_intrachip(mine.tables, mine.limits, clock=clock, formulation="assignment", cutoff=cutoff)
    except CutOff as proof:
        # of plans with more DRAM left this says nothing, unless the limit could not matter
        if mine.tables.bytes_g.sum() <= mine.limits.dram_left:
            mine.work.low_s = max(mine.work.low_s, proof.seconds)
        return max(mine.work.low_s, cutoff), ""
    except NoSolution:
        return mine.work.low_s, "the time limit"
    return found.bound, ""
