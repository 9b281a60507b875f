"""What copies exchange behind the backward pass, as rows of a MILP: :mod:`dfopt.physics.overlap` over columns.

A step takes ``(n - o) T + max(o T, max_s (w_s + o max(T_s + last_s, ends_s)))`` beside what is charged once: every part
is a maximum of sums that are linear in the columns, so rows hold it up from below.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dfopt.arrays import Ints
from dfopt.milp import Model, Terms
from dfopt.physics.copies import reductions
from dfopt.physics.overlap import hides_weights
from dfopt.setting.instance import Instance
from dfopt.setting.stages import in_order

LayerSeconds = dict[str, Terms]
"""Seconds of one evaluation of a layer, by what takes them: passes, exchanges and the optimizer; terms of one row."""
_LayerColumns = Sequence[tuple[int, int, int]]
"""Columns of what is done first and then for a layer, and how many such layers follow one another."""


def step_terms(
    model: Model,
    instance: Instance,
    parts: Sequence[LayerSeconds],
    T: Ints,
    T_s: Ints,
    hop_s: Sequence[Terms],
    rounds: float,
) -> Terms:
    """Linear terms of the step where the backward pass hides exchanges, from stage and exchange times.

    Parameters
    ----------
    model : Model
        Gets columns and rows.
    instance : Instance
        The plan.
    parts : sequence of LayerSeconds
        Seconds of every kind of layer: ``forward``, ``backward``, ``gradients``, ``weights`` and ``optimizer``.
    T, T_s : int arrays
        Columns of the slowest stage, and of each distinct one.
    hop_s : sequence of Terms
        Seconds that each of these sends in addition to its work, as terms of one row.
    rounds : float
        Number of times that the slowest stage counts in a step.

    Returns
    -------
    Terms
        Linear terms of the step, in the unit of the parts.
    """
    o = reductions(instance.plan)
    hidden = hides_weights(instance.assumptions, instance.graph, instance.plan)
    column_of = [{name: _column(model, terms) for name, terms in of_kind.items()} for of_kind in parts]
    nothing = _column(model, [])
    # gradients are added up so often in a step: each time takes its share
    reduce = [_column(model, [(np.array([[kind["gradients"]]]), 1 / o)]) for kind in column_of]
    gathers = [kind["weights"] if hidden else nothing for kind in column_of]
    U = model.continuous("until", (1,), 0.0)
    model.rows("until_slowest", [(U, 1.0), (T, -float(o))], lower=0)
    for place, stage in enumerate(instance.pipeline):
        order = [run for run in in_order(instance.setting.model, instance.plan, stage.number) if run[1]]
        if not order:
            continue
        first = order[0][0]
        back = _after(model, [(column_of[kind]["backward"], reduce[kind], times) for kind, times in reversed(order)])
        ahead = _after(model, [(gathers[kind], column_of[kind]["forward"], times) for kind, times in order])
        shown = ("optimizer",) if hidden else ("optimizer", "weights")
        once = [(column_of[kind][name], -float(times)) for kind, times in order for name in shown]
        last: Terms = [(T_s[[place]], -o), (np.array([[reduce[first], gathers[first]]]), -o)]
        ends: Terms = [(np.array([[back, ahead]]), -o), *((columns, -o * np.asarray(v)) for columns, v in hop_s[place])]
        columns, times_of = (np.array([each]) for each in zip(*once, strict=True))
        for name, least in (("last", last), ("ends", ends)):
            model.rows(f"until_{place}_{name}", [(U, 1.0), (columns, times_of), *least], lower=0)
    return [(T, rounds - o), (U, 1.0)]


def _column(model: Model, terms: Terms) -> int:
    """A column that is at least a sum."""
    column = model.continuous(f"part_{len(model.row_blocks)}", (1,), 0.0)
    less: Terms = [(columns, -np.asarray(values)) for columns, values in terms]
    model.rows(f"part_{len(model.row_blocks)}", [(column[:, None], 1.0), *less], lower=0)
    return int(column[0])


def _after(model: Model, layers: _LayerColumns) -> int:
    """A column of the closed form of :mod:`dfopt.physics.overlap`: of every layer one thing, and then the other."""
    passed, finished = list[tuple[int, float]](), -1
    for first, then, times in layers:
        F = int(model.continuous(f"after_{len(model.row_blocks)}", (1,), 0.0)[0])
        rows = [[*passed, (first, 1.0), (then, float(times))], [*passed, (first, float(times)), (then, 1.0)]]
        rows += [[(finished, 1.0), (then, float(times))]] if finished >= 0 else []
        for row in rows:
            columns, values = np.array([[column for column, _ in row]]), np.array([[value for _, value in row]])
            model.rows(f"after_{len(model.row_blocks)}", [(np.array([[F]]), 1.0), (columns, -values)], lower=0)
        passed, finished = [*passed, (first, float(times))], F
    return finished
