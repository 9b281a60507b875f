"""What a stage takes at least because schemes have to meet: each resource by itself, summed over kernels of a side.

Kernels of two sides (:func:`dfopt.fusion.partitioning.sides`: passes, or kernels that always run alone) share no
partition, so a stage takes no less than the sum over sides of what takes longest there: all compute, all communication,
or the DRAM traffic that no partitioning avoids. One MILP chooses schemes, layouts and conversions as in the inter-chip
problem. It knows no partitions, so its bound holds for all; its schemes are a start.

Suffixes: k kernel, o option, e end, p side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dfopt.fusion.blocks import StageTables
from dfopt.fusion.partitioning import IntraChipLimits, always_moved, least_terms, lower_bound, sides_among
from dfopt.joint.holding import Holding, limit
from dfopt.joint.menu import Menu
from dfopt.milp import Model, Termination, Terms, solve
from dfopt.sharding.layouts import conversions, must_meet, padded
from dfopt.sharding.tables import InterChipTables
from dfopt.terms.sharded_graph import Bools, Floats, Ints

_SAME, _ENOUGH = 1e-9, 1e-3


@dataclass(frozen=True)
class Apart:
    """Seconds that no mapping of a stage beats, and the option of every kernel that comes to it, if of interest."""

    seconds: float
    option_k: Ints | None


def optimize_apart(
    menu: Menu,
    allowed_o: Bools,
    members: Ints,
    stage: StageTables,
    limits: IntraChipLimits,
    weighed_o: Floats | None = None,
    upper: float = np.inf,
    time_limit: float | None = None,
    holdings: Sequence[Holding] = (),
) -> Apart:
    """Choose schemes for the least sum over passes of what takes longest in each.

    Parameters
    ----------
    menu : Menu
        Figures of all options.
    allowed_o : bool array
        Options that are left.
    members : int array
        Kernels of the stage.
    stage, limits : StageTables, IntraChipLimits
        The relaxed stage, every figure at its least over those options.
    weighed_o : float array, optional
        Seconds of one evaluation that the gradient of every option is worth; what is beside the least counts too.
    upper : float
        Seconds from which on no schemes are of interest.
    time_limit : float, optional
        Seconds.
    holdings : sequence of Holding
        Limits on what chips hold; infinite seconds if no schemes keep them.
    """
    tables, model = menu.tables, Model("apart")
    side_k = sides_among(stage, limits.forward_backward, members, tables.kernels)
    y = model.binary("y", (len(tables.kernel_o),))
    model.bound(y, upper=allowed_o.astype(float))
    model.rows("one_scheme", [(padded([y[options] for options in tables.of_kernel]), 1.0)], 1, 1)
    must_meet(model, tables, y[:, None])
    limit(model, y, holdings)
    unit_s = max(lower_bound(stage, limits), 1e-30)
    least = dict(zip(stage.chip.resources, least_terms(stage, limits), strict=True))
    more = _more(menu, allowed_o, members, stage, limits, side_k)
    talk_p = _conversions(model, tables, y, side_k)
    T = model.continuous("T", (len(talk_p),))
    total: Terms = []
    for p, talk in enumerate(talk_p):
        mine, named = side_k[members] == p, dict[str, tuple[Terms, float]]()
        for name in stage.chip.resources:
            more_op = more[name]
            fixed = 0.0 if name == "network" else float(least[name][mine].sum())
            some = np.flatnonzero(more_op[:, p])
            named[name] = [(y[None, some], -more_op[None, some, p] / unit_s)], fixed / unit_s
        named["network"][0].extend((c[None, :], -seconds[None, :] / unit_s) for c, seconds in talk)
        for position, summed in enumerate(stage.chip.rule.sums):
            together = [stage.chip.resources[one] for one in summed]
            terms = [term for name in together for term in named[name][0]]
            model.rows(f"slowest_{p}_{position}", [(T[[p]], 1.0), *terms], sum(named[name][1] for name in together))
        total += [(columns, -np.asarray(coefs)) for terms, _ in named.values() for columns, coefs in terms]
    mine = np.flatnonzero(side_k[tables.kernel_o] >= 0)
    slowest: Terms = [(T, 1.0)]
    if weighed_o is not None:
        slowest.append((y[mine], menu.beyond(weighed_o, allowed_o)[mine] / unit_s))
    model.minimize(slowest)
    found = solve(model, time_limit=time_limit)
    if found.interrupted:
        raise KeyboardInterrupt
    if found.x is None:  # with limits on what chips hold, nothing may keep them
        return Apart(np.inf if holdings and found.termination is Termination.INFEASIBLE else 0.0, None)
    seconds = max(found.objective * (1 - min(found.gap, 1.0)), 0.0) * unit_s
    if seconds >= upper:
        return Apart(seconds, None)
    # among schemes as good by this measure, those with the least work: a better start
    kept: Terms = [(columns[None, :], np.asarray(coefs)) for columns, coefs in slowest]
    model.rows("keep", kept, upper=found.objective * (1 + _SAME) + _SAME)
    model.minimize(total)
    again = solve(model, time_limit=time_limit, start=found.x, gap=_ENOUGH)
    if again.interrupted:
        raise KeyboardInterrupt
    taken = (found.x if again.x is None else again.x)[y] > 0.5
    return Apart(seconds, np.array([options[taken[options]][0] for options in tables.of_kernel]))


def _conversions(model: Model, tables: InterChipTables, y: Ints, side_k: Ints) -> list[list[tuple[Ints, Floats]]]:
    """Columns and seconds of the conversions that each side pays: of its sources, or of those that read again."""
    found: list[list[tuple[Ints, Floats]]] = [[] for _ in range(int(side_k.max()) + 1)]
    for columns, seconds, _, bill in conversions(model, tables, y[:, None]):
        same = np.flatnonzero(tables.bill_t == bill)
        payers = np.unique(side_k[np.where(tables.again_t[same], tables.dst_t[same], tables.src_t[same])])
        if len(payers) == 1 and payers[0] >= 0:
            found[payers[0]].append((columns[:, 0], seconds))
    return found


def _more(
    menu: Menu, allowed_o: Bools, members: Ints, stage: StageTables, limits: IntraChipLimits, side_k: Ints
) -> dict[str, Floats]:
    """Seconds by option and side: compute and memory beside the least, and communication without conversions."""
    kernel_o, count = menu.tables.kernel_o, int(side_k.max()) + 1
    own_op = (side_k[kernel_o][:, None] == np.arange(count)).astype(float)
    compute_o = np.zeros(len(kernel_o)) if stage.sharded.menus else menu.beyond(menu.by_option("compute_s"), allowed_o)
    bytes_op = own_op * menu.beyond(menu.by_option("dram_bytes"), allowed_o)[:, None]
    accessed_o = menu.beyond(menu.accessed_o, allowed_o)
    src_t, share_o, inside = stage.sharded.src_t, menu.beyond(menu.output_o, allowed_o), np.append(members, -1)
    fans = [fan for fan in menu.figures.layer.fan_outs if fan.carried]
    moved = [(k, fan.source, fan.whole * menu.output_o) for fan in fans for k in (fan.source, *fan.kernels)]
    for k, t in zip(*always_moved(stage, limits), strict=True):
        if src_t[t] < stage.kernels:
            full = stage.sharded.moved_t[t] / stage.sharded.output_k[src_t[t]]
            moved.append((int(inside[k]), int(inside[src_t[t]]), full * share_o))
    for kernel, of, bytes_o in moved:
        if kernel >= 0 and side_k[kernel] >= 0:
            bytes_op[:, side_k[kernel]] += np.where(kernel_o == of, menu.beyond(bytes_o, allowed_o), 0.0)
    return {
        "compute": own_op * compute_o[:, None],
        "memory": bytes_op / stage.chip.dram_bandwidth,
        "network": own_op * menu.network_o[:, None],
        "sram": own_op * accessed_o[:, None] / stage.chip.sram_bandwidth,  # of tensors only the least
    }
