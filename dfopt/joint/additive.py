"""What a stage takes at least where the layouts of its tensors have to meet, but not those of its partitions.

The relaxed stage takes the least of every figure: the cheap end of a conversion on one side and on the other.
Elimination makes both ends meet, but knows no partitions. Where communication adds to the time, each bounds what the
other leaves out:

    T  >=  least(communication)  +  path(the rest, every figure at its least)
    T  >=  least(communication + E / B)  +  path(the same, less compute)

with E the bytes beyond their least of tensors that cross from the forward to the backward pass, at least once each way,
wherever no partition has kernels of both, and B the DRAM bandwidth. With ``overlap: none`` compute is eliminated too.
Where compute and memory overlap, a block takes max(C, M + E / B) - E / B >= max(C - E_most / B, M) beside its
communication, and SRAM traffic is like C; a tensor whose E_most is large for what its E tells is better left out of E.
:mod:`dfopt.joint.dual` needs no down-sets and knows what hides behind what; this knows partitions.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dfopt.bnb import Clock
from dfopt.fusion.blocks import StageTables, derived
from dfopt.fusion.downsets import Lattice
from dfopt.fusion.intrachip import greedy
from dfopt.fusion.lattice import ShortestPath
from dfopt.fusion.partitioning import IntraChipLimits, objective
from dfopt.joint.dual import Resources
from dfopt.joint.menu import Menu
from dfopt.joint.relaxation import Relaxation
from dfopt.terms.sharded_graph import Bools, Floats, ShardedGraph


def least_of_both(
    menu: Menu,
    allowed_o: Bools,
    stage: StageTables,
    limits: IntraChipLimits,
    lattice: Lattice,
    clock: Clock,
) -> Relaxation:
    """Seconds of one evaluation of the only stage of a plan, at least, whatever its schemes and partitions are.

    Parameters
    ----------
    menu : Menu
        Figures of all options.
    allowed_o : bool array
        Options that are left.
    stage, limits, lattice : StageTables, IntraChipLimits, Lattice
        The relaxed stage, and its down-sets.
    clock : Clock
        When it is over, what is shown so far is returned.

    Returns
    -------
    Relaxation
        Seconds, 0 where communication may hide behind the rest, and schemes that are good by the same measure.

    Raises
    ------
    OutOfTime
    """
    tables, sharded, rule = menu.tables, stage.sharded, stage.chip.rule
    if rule.hides_all or not stage.chip.fused:
        return Relaxation(0.0, None)
    joined = rule.hides_nothing and not sharded.menus
    added = ("network", "compute") if joined else ("network",)  # the rest, on tiles or overlapping, stays in the path
    resources = Resources.of_stage(menu, allowed_o, stage, limits, np.arange(stage.kernels))

    def path(rest: ShardedGraph) -> float:
        priced = replace(stage, sharded=rest, **derived(rest, stage.chip))
        free = replace(limits, dram_left=np.inf)
        start = greedy(priced, free, clock)
        upper = np.inf if start is None else objective(priced, start)
        return ShortestPath(priced, free, lattice, upper).run(clock).bound

    silent = replace(
        sharded,
        net_k=np.zeros_like(sharded.net_k),
        toll_x=np.zeros_like(sharded.toll_x),
        compute_k=np.zeros_like(sharded.compute_k) if joined else sharded.compute_k,
    )
    option_k = resources.least(added, tables.held_o / stage.chip.dram_bandwidth).option_k  # what schemes move: a start
    found = Relaxation(resources.least(added).seconds + path(silent), option_k)
    if sharded.menus or limits.forward_backward == "shared":
        return found
    saved = _crossing(menu, allowed_o, _saved(stage))

    def beyond(some: list[tuple[Floats, Floats]]) -> float:
        bytes_o = sum((bytes_o for bytes_o, _ in some), np.zeros(len(tables.kernel_o)))
        most_k = sum((most_k for _, most_k in some), np.zeros(tables.kernels))
        rest = silent
        if not joined:
            hidden_k = most_k / stage.chip.dram_bandwidth
            rest = replace(silent, compute_k=silent.compute_k - hidden_k)
            if "sram" in stage.chip.resources:
                rest = replace(rest, accessed_k=rest.accessed_k - hidden_k * stage.chip.sram_bandwidth)
        return resources.least(added, bytes_o / stage.chip.dram_bandwidth).seconds + path(rest)

    least_s = beyond(saved)
    for one in [] if joined else list(saved):
        fewer = [other for other in saved if other is not one]
        if (more_s := beyond(fewer)) > least_s:
            least_s, saved = more_s, fewer
    return Relaxation(max(found.seconds, least_s), option_k)


def _saved(stage: StageTables) -> Bools:
    """Tensors of fan-out groups that go from the forward to the backward pass, by tensor."""
    sharded = stage.sharded
    inside = (sharded.src_t < stage.kernels) & (sharded.dst_t < stage.kernels)
    forward_k = np.append(sharded.forward_k, False)
    crosses = inside & forward_k[sharded.src_t] & ~forward_k[sharded.dst_t]
    return np.isin(sharded.group_t, sharded.group_t[crosses])


def _crossing(menu: Menu, allowed_o: Bools, saved_t: Bools) -> list[tuple[Floats, Floats]]:
    """Bytes beyond their least that each saved tensor moves at least, by option of its source; at most, by kernel.

    It is written in the block of its source and read in that of its first reader in the backward pass. Those that may
    move most come first.
    """
    tables, plain = menu.tables, menu.layer.plain
    share_o = np.where(allowed_o, menu.beyond(menu.output_o, allowed_o), 0.0)
    found = []
    for g in np.unique(plain.group_t[saved_t]).tolist():
        members = np.flatnonzero(plain.group_t == g)
        bytes_o = np.where(tables.kernel_o == plain.src_t[members[0]], menu.layer.whole_t[members[0]] * share_o, 0.0)
        reader = next(k for k in plain.dst_t[members].tolist() if not plain.forward_k[k])
        most_k = np.zeros(tables.kernels)
        most_k[[plain.src_t[members[0]], reader]] = bytes_o.max()
        if bytes_o.any():
            found.append((2.0 * bytes_o, most_k))
    return sorted(found, key=lambda one: -float(one[1].max()))
