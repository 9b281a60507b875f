"""What chips hold of kernels under each of their schemes, for limits on memories in a MILP.

Suffixes: k kernel, o option, t tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from dfopt.formulation.held import Held
from dfopt.joint.menu import Menu
from dfopt.milp import Model
from dfopt.setting.instance import Instance
from dfopt.terms.sharded_graph import Floats, Ints
from dfopt.terms.step.ledger import limited

_SLACK: Final = 1e-9  # of a capacity


class Holding(NamedTuple):
    """Bytes of a memory that every option takes of a chip in some pipeline stage, and all that there are."""

    bytes_o: Floats
    capacity: float


def limit(model: Model, columns: Ints, holdings: Sequence[Holding]) -> None:
    """Rows that keep what options, of which these are the columns, take of memories within them."""
    for number, (bytes_o, capacity) in enumerate(holdings):
        unit = max(float(bytes_o.max()), 1e-30)
        model.rows(f"holds_{number}", [(columns[None, :], bytes_o[None, :] / unit)], upper=capacity / unit)


def holding(instance: Instance, menu: Menu) -> list[Holding]:
    """Limits for each memory that has one and each pipeline stage, where kernels have their stage of the mapping.

    One for every kind of layer that may be the one at work.
    """
    layer, table = menu.priced()
    place_o = np.array([instance.graph.kind_of(kernel) for kernel in instance.graph.kernels])[menu.tables.kernel_o]
    held, found = Held(instance, layer, table), []
    for tier, capacity in limited(instance).items():
        for stage in instance.pipeline if np.isfinite(capacity) else ():
            numbers = [number for number, _ in stage.runs]
            held_so = {number: _by_option(menu, held.by_option(tier, stage, number)) for number in numbers}
            alike_o = np.sum([held_so[number][0] * (place_o == number) for number in numbers], axis=0)
            for number in numbers:
                bytes_o = alike_o + held_so[number][1:].sum(axis=0) * (place_o == number)
                found.append(Holding(bytes_o, capacity * (1 + _SLACK)))
    return found


def _by_option(menu: Menu, bytes_sko: list[list[Floats]]) -> Floats:
    """Bytes by option of a menu, from those by kernel and option of its layer; shape (states, options)."""
    left = menu.domain
    return np.stack([np.concatenate([of_k[list(o)] for of_k, o in zip(each, left, strict=True)]) for each in bytes_sko])
