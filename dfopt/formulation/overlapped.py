"""What copies exchange behind the backward pass, as rows of a MILP: :mod:`dfopt.physics.overlap` over columns.

A step takes ``(n - o) T + max(o T, max_s (w_s + o max(T_s + last_s, ends_s)))`` beside what is charged once: every part
is a maximum of sums that are linear in the columns, so rows hold it up from below.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dfopt.arrays import Bools, Ints
from dfopt.formulation.block_rows import Terms
from dfopt.milp import Model
from dfopt.physics.copies import reductions
from dfopt.physics.overlap import hides_weights
from dfopt.setting.instance import Instance
from dfopt.setting.stages import in_order

__all__ = ["Parts", "of_passes", "step_terms"]

Parts = dict[str, Terms]
"""Seconds of one evaluation of a layer, by what takes them: passes, exchanges and the optimizer; terms of one row."""
_Layers = Sequence[tuple[int, int, int]]
"""Columns of what is done first and then for a layer, and how many such layers follow one another."""


def step_terms(
    model: Model, instance: Instance, parts: Sequence[Parts], T: Ints, T_s: Ints, hop_s: Sequence[Terms], rounds: float
) -> Terms:
    """What a step takes of times of stages and of exchanges, where the backward pass hides some of them.

    Parameters
    ----------
    model : Model
        Gets columns and rows.
    instance : Instance
        The plan.
    parts : sequence of Parts
        Of every kind of layer: ``forward``, ``backward``, ``gradients``, ``weights`` and ``optimizer``.
    T, T_s : int arrays
        Columns of the slowest stage, and of each distinct one.
    hop_s : sequence of Terms
        What each of these sends beside its work.
    rounds : float
        How often a step has the time of the slowest stage.

    Returns
    -------
    Terms
        In the unit of the parts.
    """
    o = reductions(instance.plan)
    hidden = hides_weights(instance.assumptions, instance.graph, instance.plan)
    column_of = [{name: _column(model, terms) for name, terms in of_kind.items()} for of_kind in parts]
    U = model.continuous("until", (1,), 0.0)
    model.rows("until_slowest", [(U, 1.0), (T, -float(o))], lower=0)
    for place, stage in enumerate(instance.pipeline):
        order = [run for run in in_order(instance.setting.model, instance.plan, stage.number) if run[1]]
        if not order:
            continue
        # gradients are added up so often in a step: each time takes its share
        reduce = [_scaled(model, kind["gradients"], 1 / o) for kind in column_of]
        back = _after(model, [(column_of[kind]["backward"], reduce[kind], times) for kind, times in reversed(order)])
        ends: Terms = [(np.array([back]), 1.0), *hop_s[place]]
        once: Terms = [(np.array([column_of[kind]["optimizer"]]), float(times)) for kind, times in order]
        last: Terms = [(np.array([reduce[order[0][0]]]), 1.0)]
        brought = [(column_of[kind]["weights"], times) for kind, times in order]
        if hidden:
            ahead = [(column_of[kind]["weights"], column_of[kind]["forward"], times) for kind, times in order]
            ends.append((np.array([_after(model, ahead)]), 1.0))
            last.append((np.array([brought[0][0]]), 1.0))
        else:
            ahead = [(_zero(model), column_of[kind]["forward"], times) for kind, times in order]
            ends.append((np.array([_after(model, ahead)]), 1.0))
            once += [(np.array([column]), float(times)) for column, times in brought]
        for name, least in (("last", [(T_s[[place]], 1.0), *last]), ("ends", ends)):
            rows: Terms = [
                (U, 1.0),
                *((c, -np.asarray(v)) for c, v in once),
                *((c, -o * np.asarray(v)) for c, v in least),
            ]
            model.rows(
                f"until_{place}_{name}", [(np.reshape(c, (1, -1)), np.reshape(v, (1, -1))) for c, v in rows], lower=0
            )
    return [(T, rounds - o), (U, 1.0)]


def of_passes(time_b: Ints, stage_b: Ints, forward_b: Bools, kind: int) -> Parts:
    """Columns of the times of blocks with something of the forward pass, and of those without."""
    mine = stage_b == kind
    return {
        "forward": [(time_b[mine & forward_b][None, :], 1.0)],
        "backward": [(time_b[mine & ~forward_b][None, :], 1.0)],
    }


def _column(model: Model, terms: Terms) -> int:
    """A column that is at least a sum."""
    column = model.continuous(f"part_{len(model.row_blocks)}", (1,), 0.0)
    less: Terms = [(columns, -np.asarray(values)) for columns, values in terms if np.size(columns)]
    model.rows(f"part_{len(model.row_blocks)}", [(column[:, None], 1.0), *less], lower=0)
    return int(column[0])


def _scaled(model: Model, column: int, scale: float) -> int:
    return _column(model, [(np.array([[column]]), scale)])


def _zero(model: Model) -> int:
    return int(model.continuous(f"nothing_{len(model.column_blocks)}", (1,), 0.0, 0.0)[0])


def _after(model: Model, layers: _Layers) -> int:
    """A column of :func:`dfopt.physics.overlap.reduced_after_s`: of every layer one thing, and then the other."""
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
