"""What is proven of the work of some chips, for others that lie along other network dims: their share of it.

Plans whose chips share kernels in groups of the same size, along other dims, give a chip the same kernels under the
same schemes; only communication takes another time. Blocks add up what they communicate or overlap it with the rest,
and a conversion is the least of some collectives. So if every collective that a layer may ask for takes at least ``r``
times as long (r <= 1) along some dims as along others, so does every mapping, and with it a layer: at least ``r`` times
what is shown of it along the others. What is hidden behind a product (:func:`dfopt.physics.tiled.beside_s`) shrinks
faster than ``r``; there this is used with r = 1 only, as it never falls when the collective takes longer.

A machine has many ways to lay sixteen chips, most of them slow: few of these have to be looked at by themselves.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import numpy as np

from dfopt.documents.axes import AXES
from dfopt.physics.collectives import Collective
from dfopt.physics.tiled import usage_of
from dfopt.setting.instance import Instance
from dfopt.terms.layer import Layer
from dfopt.terms.rules.network import inherent
from dfopt.terms.sharded_graph import Floats

__all__ = ["Faster"]


class Faster:
    """Which chips communicate faster than others, among the work of chips under many plans.

    Parameters
    ----------
    among : iterable of Instance
        What chips do in one evaluation under them, see :attr:`dfopt.setting.instance.Instance.shared`; it may grow.
    """

    def __init__(self, among: Iterable[Instance]) -> None:
        self._among, self._seen = among, set[Instance]()
        self._alike: dict[Hashable, dict[Instance, Floats]] = {}
        self._asked: dict[Hashable, list[tuple[Collective, float]]] = {}
        self._known: dict[Instance, dict[Instance, float]] = {}

    def first(self, shared: Instance) -> Instance:
        """That of all whose collectives take the least."""
        alike = self._alike_to(shared)
        return min(alike, key=lambda one: float(alike[one].sum()))  # of equal ones the first

    def than(self, shared: Instance) -> dict[Instance, float]:
        """Of other work the share of what is proven of it that holds for this, where that is anything."""
        alike = self._alike_to(shared)
        if shared not in self._known:
            shares = {one: _share(alike[shared], alike[one], shared) for one in alike if one is not shared}
            self._known[shared] = {one: share for one, share in shares.items() if share > 0}
        return self._known[shared]

    def _alike_to(self, shared: Instance) -> dict[Instance, Floats]:
        if shared not in self._seen:
            for one in self._among:
                if one not in self._seen:
                    self._seen.add(one)
                    self._alike.setdefault(_but_dims(one), {})[one] = self._seconds(one)
            self._known = {}
        return self._alike[_but_dims(shared)]

    def _seconds(self, one: Instance) -> Floats:
        """Of everything that layers may ask for, and the share of a processor that sees to it.

        Nothing where kernels list communications of their own.
        """
        if any(kernel.communications for kernel in one.graph.kernels):
            return np.zeros(0)
        if (key := _but_dims(one)) not in self._asked:
            self._asked[key] = asked_for(one)
        dims = one.plan.shard_dims
        seconds = [one.communication_s(kind, volume, dims) for kind, volume in self._asked[key]]
        return np.array([*seconds, usage_of(one.system, dims)])


def _share(mine: Floats, others: Floats, shared: Instance) -> float:
    """At most 1; 0 where it says nothing."""
    some = others > 0
    share = min(float((mine[some] / others[some]).min(initial=1.0)), 1.0) if len(others) else 0.0
    return share if shared.assumptions.tensor_overlap is None or share == 1.0 else 0.0


def asked_for(one: Instance) -> list[tuple[Collective, float]]:
    """Collectives of chips that share kernels, with bytes of the whole tensor, under whatever schemes."""
    graph, layer = one.graph, Layer(one, 1)
    found: dict[tuple[Collective, float], None] = {}
    for k in range(len(graph.kernels)):
        for kind in inherent(layer, k):
            if kind is not None:
                found[kind, float(graph.output_bytes(k))] = None
    for tensor in (*graph.tensors, *graph.carried):
        for kind in (Collective.ALL_GATHER, Collective.ALL_TO_ALL):  # what layouts are converted with
            found[kind, float(graph.bytes_of(tensor))] = None
    return list(found)


def _but_dims(one: Instance) -> Hashable:
    """All that decides what a chip does but where the chips lie that share kernels."""
    dims = {axis.dims_key for axis in AXES.values() if axis.splits == "kernels"}
    said = tuple(sorted((key, value) for key, value in one.plan.on_axes.items() if key not in dims))
    return one.setting, said, *(getattr(one.plan, name) for name in type(one.plan).model_fields)
