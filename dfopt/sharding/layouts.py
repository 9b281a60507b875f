"""What layouts cost and which schemes must meet, as rows of a MILP over the places of options.

Suffixes: o option (a kernel with one of its sharding schemes), t tensor (carried ones included), p place (a pipeline
stage, or one of its partitions), l layout (RR, SR, RS), w options of one kernel.

The cost of a layout conversion depends on two choices; instead of a product or a big-M, one continuous ``w_tllp`` per
(produced, required) layout carries the pair with its marginal rows, which is integral in practice (section 1 of our
formulation note).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dfopt.arrays import Floats, Ints
from dfopt.milp import Model, Terms
from dfopt.physics.ops import split_axis
from dfopt.sharding.tables import InterChipTables


def padded(lists: Sequence[Sequence[int] | Ints]) -> Ints:
    """Ragged lists of columns as one int array, padded with -1."""
    width = max((len(entry) for entry in lists), default=0)
    columns = np.full((len(lists), max(width, 1)), -1, dtype=np.int64)
    for row, entry in enumerate(lists):
        columns[row, : len(entry)] = entry
    return columns


def must_meet(model: Model, tables: InterChipTables, y_op: Ints) -> None:
    """Add rows: kernels that leave partial sums are split only where a reduction follows; layers pass on one layout.

    Parameters
    ----------
    model, tables
        The model, and the tables of the plan.
    y_op : int array, shape (options, places)
        Columns of the choice of an option in a place.
    """
    for position, (k, other) in enumerate(tables.alike_kk):
        ends = [(tables.of_kernel[k], 1.0), (tables.of_kernel[other], -1.0)]
        for layout in range(3):
            terms: Terms = [(y_op[o[tables.produced_o[o] == layout]].reshape(1, -1), sign) for o, sign in ends]
            if any(columns.size for columns, _ in terms):
                model.rows(f"handed_on_{position}_{layout}", [term for term in terms if term[0].size], 0, 0)
    for position, (k, into) in enumerate(tables.partial_kk):
        split = [o for o in tables.of_kernel[k] if split_axis(tables.scheme_o[o]) in ("outer", "k")]
        host = [o for o in tables.of_kernel[into] if split_axis(tables.scheme_o[o]) == "k"]
        columns = y_op[split].reshape(1, -1), y_op[host].reshape(1, -1)
        model.rows(f"partial_sums_{position}", [(columns[0], 1.0), (columns[1], -1.0)], upper=0)


def conversions(model: Model, tables: InterChipTables, y_op: Ints) -> list[tuple[Ints, Floats, Floats, int]]:
    """Add columns for layout conversions that may cost time: (columns by place, seconds, bytes, bill) of each.

    Parameters
    ----------
    model, tables
        The model, and the tables of the plan.
    y_op : int array, shape (options, places)
        Columns of the choice of an option in a place.
    """
    places = y_op.shape[1]
    options_kw = padded(tables.of_kernel)
    makers_tw, takers_tw = options_kw[tables.src_t], options_kw[tables.dst_t]
    needed_tw = np.take_along_axis(tables.required_to, takers_tw, axis=1)
    layouts = np.arange(3).reshape(1, 3, 1)
    makes_tlw = (tables.produced_o[makers_tw][:, None] == layouts) & (makers_tw >= 0)[:, None]
    takes_tlw = (needed_tw[:, None] == layouts) & (takers_tw >= 0)[:, None]
    possible_tll = makes_tlw.any(axis=2)[:, :, None] & takes_tlw.any(axis=2)[:, None, :]
    costly = np.flatnonzero((possible_tll & (tables.conversion_bytes_tll > 0)).any(axis=(1, 2)))
    if not len(costly):
        return []
    w = model.continuous("w", (len(costly), 3, 3, places), 0.0, 1.0)
    y_tlwp = np.where(makes_tlw[costly][..., None], y_op[makers_tw[costly]][:, None], -1)
    z_tlwp = np.where(takes_tlw[costly][..., None], y_op[takers_tw[costly]][:, None], -1)
    # of whoever pays by place, of the other end over all places
    for again in np.unique(tables.again_t[costly]).tolist():
        some, name = tables.again_t[costly] == again, "_again" if again else ""
        _marginals(model, f"layout_produced{name}", w[some], y_tlwp[some], by_place=not again)
        _marginals(model, f"layout_required{name}", w[some].transpose(0, 2, 1, 3), z_tlwp[some], by_place=again)
    return _grouped(model, tables, costly, w)


def _marginals(model: Model, name: str, w_tllp: Ints, y_tlwp: Ints, by_place: bool) -> None:
    """Pairs with a layout at one end, as many as options of the kernel there that have it."""
    if by_place:
        w_tllp, y_tlwp = w_tllp.transpose(0, 1, 3, 2), y_tlwp.transpose(0, 1, 3, 2)
    rows = math.prod(w_tllp.shape[: 3 if by_place else 2])
    model.rows(name, [(w_tllp.reshape(rows, -1), 1.0), (y_tlwp.reshape(rows, -1), -1.0)], 0, 0)


def _grouped(model: Model, tables: InterChipTables, costly: Ints, w: Ints) -> list[tuple[Ints, Floats, Floats, int]]:
    """Charge a conversion once for all tensors of a bill; each layout, or an all-gather that serves all of them."""
    places = w.shape[-1]
    members: dict[int, list[int]] = {}
    for position, t in enumerate(costly):
        members.setdefault(int(tables.bill_t[t]), []).append(position)
    charged: list[tuple[Ints, Floats, Floats, int]] = []
    for bill, positions in members.items():
        t = int(costly[positions[0]])
        cost, size = tables.conversion_tll[t].ravel(), tables.conversion_bytes_tll[t].ravel()
        pairs = np.flatnonzero(size > 0)
        if len(positions) == 1:
            columns = w[positions[0]].reshape(9, places)[pairs]
        else:
            columns = model.continuous(f"conversion_{bill}", (len(pairs), places), 0.0, 1.0)
            gather = np.searchsorted(pairs, pairs - pairs % 3)  # the all-gather from the same layout
            serves = np.where(((pairs % 3 > 0) & tables.gathers)[:, None], columns[gather], -1)
            for position in positions:
                own = w[position].reshape(9, places)[pairs].ravel()
                terms: Terms = [(columns.ravel(), 1.0), (own, -1.0)]
                terms += [(serves.ravel(), 1.0)] if tables.gathers else []
                model.rows(f"once_{bill}_{position}", terms, lower=0)
        charged.append((columns, cost[pairs], size[pairs], bill))
    return charged
