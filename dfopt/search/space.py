"""How many mappings a search covers: plans x shardings x pipeline stages x fusions x tile sizes, as powers of ten."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np

from dfopt.arrays import Bools
from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.documents.space import Space
from dfopt.fusion.downsets import Lattice
from dfopt.fusion.partitioning import IntraChipLimits
from dfopt.physics import ops
from dfopt.setting.instance import Setting
from dfopt.setting.reads import ByReads
from dfopt.terms.sharded_graph import tile_counts

FREE: Final = Request()
_COUNTED = 3000  # down-sets: their pairs are counted in a fraction of a second


def search_space(
    setting: Setting,
    plans: Sequence[Plan],
    lattices: Mapping[int, Lattice | None],
    placements: int = 1,
    asked: Request = FREE,
) -> Space:
    """Size of the space of mappings under some plans, before capacity limits, as powers of ten.

    Under each plan every kernel takes any of its legal sharding schemes, or the pinned one. Kernels of an unrolled
    graph go to pipeline stages. On a dataflow chip, the kernels of a stage are cut into consecutive partitions, in any
    order that keeps the data flow and the limits on their number and pins: these are the paths through the lattice of
    down-sets. A library allows fewer, which is not taken into account.

    Parameters
    ----------
    setting : Setting
        The workload and the machine.
    plans : sequence of Plan
        All legal plans.
    lattices : dict
        Down-sets of the whole graph as 0, or of each of its kinds of layers by their number. Without
        them, or with too many, only cuts of one topological order are counted, and the figure is a lower bound.
    placements : int
        Number of placements that each of the plans stands for.
    asked : Request, optional
        Pins, and the limit on the number of partitions.

    Returns
    -------
    Space
        Logarithms to base ten of each factor and of the whole.
    """
    graph, assumptions = setting.graph, setting.assumptions
    kernels = len(graph.kernels)
    tiles = len(tile_counts(graph, assumptions))
    fusions, exact = _log10_fusions(setting, lattices, asked)
    answers = defaultdict[Setting, ByReads](ByReads)  # of every graph that plans see

    def shardings(plan: Plan, graph: Graph) -> float:
        free = [k for k in graph.kernels if plan.shards == 1 or k.name not in asked.pin_sharding]
        return math.fsum(math.log10(len(ops.legal_schemes(k, plan.shards, assumptions))) for k in free)

    stages: dict[int, float] = {1: 0.0}
    totals, log10_shardings = [], 0.0
    for plan in plans:
        seen = setting.seen(plan)
        ways: float = answers[seen].answer(plan, partial(shardings, graph=seen.graph))
        log10_shardings = max(log10_shardings, ways)
        cut = 1 if graph.folded else plan.stages
        if cut not in stages:  # cuts of one topological order into stages, some of them empty
            stages[cut] = _log10_choose(kernels + cut - 1, cut - 1)
        exact = exact and cut == 1
        totals.append(ways + stages[cut] + fusions)
    return Space(
        plans=len(plans) * placements,
        log10_shardings=log10_shardings,
        log10_stages=max(stages.values()),
        log10_fusions=fusions,
        tile_counts=tiles,
        log10_total=_log10_sum(np.array(totals)) + math.log10(tiles * placements) if totals else 0.0,
        exact=exact,
    )


def _log10_fusions(setting: Setting, lattices: Mapping[int, Lattice | None], asked: Request) -> tuple[float, bool]:
    """Ways to cut the kernels of a stage into partitions, and whether that is how many there are."""
    graph, assumptions = setting.graph, setting.assumptions
    fusions, exact = 0.0, assumptions.execution != "library"
    for kind, of_kind in enumerate(graph.kernels_by_kind if assumptions.execution == "dataflow" else ()):
        forward = np.array([kernel.pass_ == "forward" for kernel in of_kind])
        separate = assumptions.forward_backward == "separate" and bool(forward.any()) and not forward.all()
        lattice = lattices.get(kind)
        if lattice is not None and len(lattice.size) <= _COUNTED and lattice.member.shape[1] == len(forward):
            ways = log10_paths(lattice, forward if separate else None, _limits(setting, of_kind, asked))
            if np.isfinite(ways):
                fusions += ways
            else:  # all kernels need more partitions than one stage may have, but pipeline stages have theirs each
                exact = False
            continue
        exact, cuts = False, len(forward) - 1 - separate
        most = cuts + 1 if asked.p_max is None else min(asked.p_max, cuts + 1)
        if not asked.pin_partition:
            fusions += _log10_sum(np.array([_log10_choose(cuts, blocks) for blocks in range(most)]))
    return fusions, exact


def together(spaces: Sequence[Space]) -> Space:
    """The space of several searches, such as those of several microbatch sizes; empty if no plan was listed."""
    return Space(
        plans=sum(space.plans for space in spaces),
        log10_shardings=max((space.log10_shardings for space in spaces), default=0.0),
        log10_stages=max((space.log10_stages for space in spaces), default=0.0),
        log10_fusions=max((space.log10_fusions for space in spaces), default=0.0),
        tile_counts=max((space.tile_counts for space in spaces), default=1),
        log10_total=_log10_sum(np.array([space.log10_total for space in spaces])) if spaces else 0.0,
        exact=bool(spaces) and all(space.exact for space in spaces),
    )


def _limits(setting: Setting, kernels: Sequence[Kernel], asked: Request) -> IntraChipLimits | None:
    """What is asked of the partitions of a kind of layers; none if nothing is."""
    pins = [
        (k, asked.pin_partition[kernel.name]) for k, kernel in enumerate(kernels) if kernel.name in asked.pin_partition
    ]
    if asked.p_max is None and not pins:
        return None
    most = len(kernels) if asked.p_max is None else min(asked.p_max, len(kernels))
    return IntraChipLimits(most, setting.assumptions.empty_partitions == "forbid", pins=tuple(pins))


def log10_paths(lattice: Lattice, forward: Bools | None = None, limits: IntraChipLimits | None = None) -> float:
    """Logarithm of the number of paths from the empty to the full down-set: ordered partitions into convex blocks.

    Parameters
    ----------
    lattice : Lattice
        Down-sets, by size.
    forward : bool array, shape (kernels,), optional
        Mask of the forward kernels, if no block may mix them with others.
    limits : IntraChipLimits, optional
        Limits on the number of blocks, and pins of kernels to blocks.

    Examples
    --------
    >>> chain = Lattice(np.tri(4, 3, -1, dtype=bool), np.arange(4))
    >>> round(10 ** log10_paths(chain))
    4
    """
    count = len(lattice.size)
    words = lattice.words
    log = np.full(count, -np.inf)
    log[0] = 0.0
    if forward is None:
        forward = np.ones(lattice.member.shape[1], dtype=bool)
    reached: list[Bools] = [np.zeros(0, dtype=bool)]  # of each, from which smaller ones it is a block further
    open_: Bools = ~np.asarray(np.all(lattice.member[:, forward], axis=1))
    backward: Bools = np.asarray(np.any(lattice.member[:, ~forward], axis=1))
    for j in range(1, count):
        before = int(np.searchsorted(lattice.size, lattice.size[j]))
        inside = ~(words[:before] & ~words[j]).any(axis=1)
        if backward[j]:
            inside &= ~open_[:before]
        log[j] = _log10_sum(log[:before][inside])
        reached.append(inside)
    return float(log[-1]) if limits is None else _log10_limited(lattice, reached, limits)


def _log10_limited(lattice: Lattice, reached: Sequence[Bools], limits: IntraChipLimits) -> float:
    """The same of paths with so many blocks, in which pinned kernels are in their own block."""
    log, ends = np.full(len(reached), -np.inf), []
    log[0] = 0.0
    for block in range(limits.p_max):
        log = np.array([_log10_sum(log[: len(inside)][inside]) for inside in reached])
        for kernel, pinned in limits.pins:
            log[lattice.member[:, kernel] != (pinned <= block)] = -np.inf
        ends.append(log[-1])
    return float(ends[-1]) if limits.exactly else _log10_sum(np.array(ends))


def _log10_sum(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    """Logarithm of the sum of powers of ten, which may be larger than any float."""
    top = float(values.max(initial=-np.inf))
    return top if np.isinf(top) else top + math.log10(float(np.sum(10.0 ** (values - top))))


def _log10_choose(n: int, k: int) -> float:
    return (math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)) / math.log(10)
