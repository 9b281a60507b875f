"""What a stage takes at least where its blocks can be listed: schemes and blocks chosen together by one MILP.

A chip that runs kernel by kernel, with or without the kernels of a library, has few blocks: every kernel alone, and
what one kernel of the library does at once. The program of one evaluation over these (:mod:`dfopt.formulation`) leaves
out what waits in DRAM between blocks, and what chips keep unless limits are given. So its least is a bound on every
mapping, and the time of one wherever that does not matter.

Suffixes: k kernel, o option, b block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from dfopt.bnb import Clock
from dfopt.formulation.block_rows import BlockRows
from dfopt.formulation.choices import Choices
from dfopt.formulation.places import Listed, Structure, listed
from dfopt.fusion.blocks import StageTables
from dfopt.fusion.partitioning import IntraChipLimits, lower_bound
from dfopt.joint.holding import Holding, limit
from dfopt.joint.menu import Menu
from dfopt.joint.relaxation import Relaxation
from dfopt.milp import Model, Termination, solve
from dfopt.terms.chip import Chip
from dfopt.terms.sharded_graph import Bools, Floats, Ints

_MOST: Final = 20_000  # columns of options in blocks: beyond it a model takes seconds


def least_listed(
    menu: Menu,
    allowed_o: Bools,
    members: Ints,
    stage: StageTables,
    limits: IntraChipLimits,
    weighed_o: Floats,
    upper: float,
    clock: Clock,
    holdings: Sequence[Holding] = (),
) -> Relaxation:
    """Seconds of one evaluation of a stage at least, whatever its schemes and blocks are.

    Parameters
    ----------
    menu : Menu
        Figures of all options.
    allowed_o : bool array
        Options that are left.
    members : int array
        Kernels of the stage.
    stage, limits : StageTables, IntraChipLimits
        The relaxed stage.
    weighed_o : float array
        Seconds of one evaluation that the gradient of every option is worth; what is beside the least counts too.
    upper : float
        Seconds from which on nothing is of interest.
    clock : Clock
        For building the MILP and solving it.
    holdings : sequence of Holding
        Limits on what chips hold.

    Returns
    -------
    Relaxation
        Seconds, 0 where blocks are not listed and infinite where nothing fits, and the options of the least, if they
        are of interest.

    Raises
    ------
    OutOfTime
    KeyboardInterrupt
    """
    chip = menu.slower or stage.chip
    blocks = None if stage.sharded.menus else _blocks(menu, members, chip, limits, clock)
    if blocks is None:
        return Relaxation(0.0, None)
    layer, table = menu.priced(stage.sharded.tile_count)
    left_ko = [options[allowed_o[options]] for options in menu.tables.of_kernel]
    allowed = [np.flatnonzero(allowed_o[options]).tolist() for options in menu.tables.of_kernel]
    domain = tuple(tuple(of_k[o] for o in left) for of_k, left in zip(menu.domain, allowed, strict=True))
    model, (structure, member_kb) = Model("listed"), blocks
    places = Listed(model, structure, member_kb, ordered=False)
    choices = Choices(model, domain, places.A_kb)
    unit_s = max(lower_bound(stage, limits), 1e-30) / 4  # block times are a few of them
    time_b = BlockRows(choices, table, chip, layer.latency_l, unit_s, clock).times()
    left_o = np.flatnonzero(allowed_o)
    limit(model, choices.s_o, [one._replace(bytes_o=one.bytes_o[left_o]) for one in holdings])
    inside_b = member_kb[members].any(axis=0)
    inside_o = np.isin(menu.tables.kernel_o[left_o], members)
    more_o = menu.beyond(weighed_o, allowed_o)[left_o][inside_o] / unit_s
    model.minimize([(time_b[inside_b], 1.0), (choices.s_o[inside_o], more_o)])
    # a kernel outside that does not fit alone says nothing of the stage
    alone = inside_b.all() and np.isfinite(upper)
    found = solve(model, clock=clock, cutoff=upper / unit_s if alone else None)
    if found.interrupted:
        raise KeyboardInterrupt
    if found.termination is Termination.INFEASIBLE:
        return Relaxation(upper if inside_b.all() else 0.0, None)
    option_k = None
    if found.x is not None:
        option_k = np.array([left[o] for left, o in zip(left_ko, choices.taken(found.x), strict=True)])
    return Relaxation(max(found.bound, 0.0) * unit_s, option_k)


def _blocks(
    menu: Menu, members: Ints, chip: Chip, limits: IntraChipLimits, clock: Clock
) -> tuple[Structure, Bools] | None:
    """Blocks that can be listed under the limits of one stage; kernels outside of it are alone in theirs."""
    kernels = menu.instance.graph.kernels
    stage_k = np.ones(len(kernels), dtype=np.int64)
    stage_k[members] = 0
    others = IntraChipLimits(len(kernels), forward_backward=limits.forward_backward)
    structure = Structure(menu.instance.graph, chip, (replace(limits, pins=()), others), stage_k)
    member_kb = listed(structure, clock)
    if member_kb is None or max(member_kb.shape) * len(menu.tables.kernel_o) > _MOST:
        return None
    outside = (member_kb & (stage_k == 1)[:, None]).any(axis=0)
    return structure, member_kb[:, ~outside | (member_kb.sum(axis=0) == 1)]
