"""What a stage takes at least where its blocks can be listed: schemes and blocks chosen together by one MILP.

A chip that runs kernel by kernel, with or without the kernels of a library, has few blocks: every kernel alone, and
what one kernel of the library does at once. With a binary column for each of them the MILP of a whole plan
(:mod:`dfopt.joint.assignment`) needs no order and no places, only

    sum of z_b over the blocks b of a kernel = 1,    A_kb = z_b where b has kernel k, else 0

and prices blocks, conversions and gradients by the same rows (:mod:`dfopt.joint.figures`). What it leaves out is what
waits in DRAM between blocks, and what chips keep unless limits are given. So its least is a bound on every mapping, and
the time of one wherever that does not matter. Of a memory that is slower for fewer bytes, kernels alone have the
seconds of their bytes, and blocks of several those of the most that is sustained, which is a bound.

Suffixes: k kernel, o option, b block.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from dfopt.fusion.blocks import StageTables
from dfopt.fusion.library import several
from dfopt.fusion.partitioning import IntraChipLimits, lower_bound
from dfopt.joint.apart import Apart
from dfopt.joint.figures import Figures
from dfopt.joint.holding import Holding, limit
from dfopt.joint.menu import Menu
from dfopt.milp import Model, Termination, solve
from dfopt.setting.tables import Bools, Floats, Ints
from dfopt.sharding.layouts import conversions, must_meet, padded

_MOST: Final = 20_000  # columns of options in blocks: beyond it a model takes seconds


def listed_blocks(stage: StageTables, members: Ints, menu: Menu, deadline: float) -> Bools | None:
    """Blocks as a membership matrix (kernels, blocks) over the graph; none where there are too many, or tiles are open.

    Kernels outside of the stage are alone in theirs: what they cost is another stage's.

    Raises
    ------
    OutOfTime
    """
    count, options = menu.tables.kernels, len(menu.tables.kernel_o)
    if stage.sharded.menus or (stage.chip.fused and not stage.chip.library) or count * options > _MOST:
        return None
    found = [np.array([k]) for k in range(count)]
    if stage.chip.library:
        found += [members[block] for block in several(stage.sharded, deadline) if len(block) <= stage.chip.tiles]
    if len(found) * options > _MOST:
        return None
    member_kb = np.zeros((count, len(found)), dtype=bool)
    for b, kernels in enumerate(found):
        member_kb[kernels, b] = True
    return member_kb


def least_listed(
    menu: Menu,
    allowed_o: Bools,
    members: Ints,
    stage: StageTables,
    limits: IntraChipLimits,
    weighed_o: Floats,
    upper: float,
    time_limit: float,
    deadline: float,
    holdings: Sequence[Holding] = (),
) -> Apart:
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
    time_limit : float
        Seconds, for the MILP.
    deadline : float
        On the clock of `time.perf_counter`, for building it.
    holdings : sequence of Holding
        Limits on what chips hold.

    Returns
    -------
    Apart
        Seconds, 0 where blocks are not listed and infinite where nothing fits, and the options of the least, if they
        are of interest.

    Raises
    ------
    OutOfTime
    KeyboardInterrupt
    """
    member_kb = listed_blocks(stage, members, menu, deadline)
    if member_kb is None:
        return Apart(0.0, None)
    tables, model = menu.tables, Model("listed")
    z = model.binary("z", (member_kb.shape[1],))
    A: Ints = np.where(member_kb, z, -1)
    s = model.binary("s", (len(tables.kernel_o),))
    model.bound(s, upper=allowed_o.astype(float))
    model.rows("one_block", [(A, 1.0)], 1, 1)
    model.rows("one_scheme", [(padded([s[options] for options in tables.of_kernel]), 1.0)], 1, 1)
    inside_b = member_kb[members].any(axis=0)
    fewest = limits.p_max if limits.exactly else 0
    model.rows("partitions", [(z[None, inside_b], 1.0)], fewest, limits.p_max)
    must_meet(model, tables, s[:, None])
    limit(model, s, holdings)
    unit_s = max(lower_bound(stage, limits), 1e-30) / 4  # block times are a few of them
    figures = Figures(model, menu, stage.chip, stage.sharded.tile_count, A, s, deadline, menu.slower)
    blocks = figures.blocks(limits.forward_backward == "separate", (unit_s, stage.chip.sram))
    time_b = blocks.times(
        [(c.T, (talk_s / unit_s)[None, :]) for c, talk_s, *_ in conversions(model, tables, figures.y_op)]
    )
    inside_o = np.isin(tables.kernel_o, members)
    more_o = menu.beyond(weighed_o, allowed_o)[inside_o] / unit_s
    model.minimize([(time_b[inside_b], 1.0), (s[inside_o], more_o)])
    # a kernel outside that does not fit alone says nothing of the stage
    alone = inside_b.all() and np.isfinite(upper)
    found = solve(model, time_limit=time_limit, cutoff=upper / unit_s if alone else None)
    if found.interrupted:
        raise KeyboardInterrupt
    if found.termination is Termination.INFEASIBLE:
        return Apart(upper if inside_b.all() else 0.0, None)
    option_k = None
    if found.x is not None:
        taken = found.x[s] > 0.5
        option_k = np.array([options[taken[options]][0] for options in tables.of_kernel])
    return Apart(max(found.bound, 0.0) * unit_s, option_k)
