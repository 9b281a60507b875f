"""The orders in which an axis may use its network dims, as far as one of them can be better than another."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Container, Hashable, Iterator

from dfopt.arrays import ROUNDING
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.axes import AXES, Dims, groups
from dfopt.documents.dim_names import block_name, split_part_name
from dfopt.documents.graph import Graph
from dfopt.documents.plan import Plan
from dfopt.documents.system import System
from dfopt.physics.collectives import Collective
from dfopt.physics.copies import exchanges
from dfopt.physics.network import affine, parts_of_messages
from dfopt.setting.shares import AxisDims
from dfopt.setting.zero import Replicas, grouped

_ON_SHARDS = (Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.ALL_TO_ALL)  # what shardings ask for

OrderPrice = dict[Hashable, tuple[float, float]]
"""Coefficients of collectives, by what each is for."""


class Orders:
    """Orders in which plan axes may use network dims, reduced to those that can be better than all others.

    Every collective of a plan takes ``per_byte * volume + fixed`` seconds over the dims of an axis, and no time that
    is made of them falls when one of them rises (but one, which is priced beside them:
    :func:`dfopt.physics.network.parts_of_messages`). So of two orders with equal coefficients one is enough, and an
    order with no larger and some smaller coefficient is better for any volumes. `of` returns the orders that remain.

    Its collectives are the communications that kernels state, and in training those of data-parallel replicas: of all
    replicas, and of the requested groups of replicas (`replicas`). An order that cannot be cut into such groups is
    never better than another.

    Two dims of an axis that are among `gridded` may also be used as one: the ring around the block of both
    (:meth:`dfopt.documents.network.NetworkDim.around`), which is an order like any other.
    """

    def __init__(
        self,
        graph: Graph,
        system: System,
        assumptions: Assumptions,
        gridded: Container[str] = (),
        replicas: Replicas = None,
    ) -> None:
        self._system, self._assumptions, self._gridded = system, assumptions, gridded
        self._trains, self._replicas = graph.trains, replicas
        ends = (Collective.REDUCE_SCATTER,) if assumptions.splits_tokens else ()
        asked = {"kernels": (*_ON_SHARDS, *ends), "layers": (Collective.POINT_TO_POINT,)}
        asked["modules"] = *_ON_SHARDS, Collective.REDUCE_SCATTER
        # axes that collectives are over, which of the dims of each, collectives
        self._priced: list[tuple[tuple[str, ...], slice, tuple[Collective, ...]]] = [
            (tuple(axis.name for axis in AXES.values() if axis.splits == splits), slice(None), kinds)
            for splits, kinds in asked.items()
        ]
        self._priced += [  # tokens on their way to experts
            ((axis.name,), which, (Collective.ALL_TO_ALL,))
            for axis in AXES.values()
            if axis.splits == "modules"
            for which in (slice(1), slice(1, None))
        ]
        for over, kind in sorted({(c.over, c.kind) for kernel in graph.kernels for c in kernel.communications}):
            axes, which = groups()[over]
            self._priced.append((tuple(axis.name for axis in axes), which, (Collective(kind),)))
        # axes that no collective has in common are put in order on their own
        joined = [names for names, _, _ in self._priced]
        if graph.trains:  # chips of the second axis add up gradients together with the copies
            joined.append(tuple(axis.name for axis in AXES.values() if axis.splits in ("modules", "batch")))
        group = {axis: {axis} for axis in AXES}
        for names in joined:
            joint = set[str]().union(*(group[name] for name in names))
            group |= dict.fromkeys(joint, joint)
        self._together = list(dict.fromkeys(tuple(axis for axis in AXES if axis in group[name]) for name in AXES))
        self._known: dict[tuple[tuple[str, Dims], ...], list[AxisDims]] = {}

    def of(self, shared: AxisDims, fixed: Collection[str] = ()) -> list[AxisDims]:
        """Non-dominated orders of the dims of all axes; of equal ones the first.

        ``fixed``: axes with a requested order.
        """
        orders: list[AxisDims] = [{}]
        for axes in self._together:
            best = self._best(tuple((axis, shared[axis]) for axis in axes), fixed)
            orders = [before | order for before in orders for order in best]
        return orders

    def _best(self, given: tuple[tuple[str, Dims], ...], fixed: Collection[str]) -> list[AxisDims]:
        if all(len(dims) < 2 or axis in fixed for axis, dims in given):
            return [dict(given)]
        if given not in self._known:
            kept: list[tuple[AxisDims, OrderPrice]] = []
            ways = [[dims] if axis in fixed else self.ways(dims) for axis, dims in given]
            for dims_of_axis in itertools.product(*ways):
                order = {axis: dims for (axis, _), dims in zip(given, dims_of_axis, strict=True)}
                price = self._price(order)
                if not any(_no_more(other, price) for _, other in kept):
                    kept = [(held, other) for held, other in kept if not _no_more(price, other)]
                    kept.append((order, price))
            self._known[given] = [order for order, _ in kept]
        return self._known[given]

    def ways(self, dims: Dims) -> list[Dims]:
        """All permutations of some dims, followed by those with two dims joined as a block (where that is allowed)."""
        used = [dims, *self._with_blocks(dims)]
        return [order for names in used for order in itertools.permutations(names)]

    def _with_blocks(self, dims: Dims) -> Iterator[Dims]:
        """Dims in which two lie together as a block, for each two that can."""
        for i, j in itertools.combinations(range(len(dims)), 2):
            if not all(split_part_name(dims[at])[0] in self._gridded for at in (i, j)):
                continue
            block = block_name((dims[i], dims[j]))
            try:
                self._system.dim(block)
            except ValueError:  # an odd number of chips, or links that have little in common
                continue
            before, rest = dims[:i], (*dims[i + 1 : j], *dims[j + 1 :])
            yield (*before, block, *rest)
            yield from ((*before, block, *more) for more in self._with_blocks(rest))

    def _price(self, order: AxisDims) -> OrderPrice:
        """Coefficients of all collectives over some axes, by what they are for."""
        price: OrderPrice = {}
        for number, (axes, which, kinds) in enumerate(self._priced):
            if axes and axes[0] in order:
                dims = tuple(name for axis in axes for name in order[axis][which])
                price |= {(number, kind): self._coefficients(kind, dims) for kind in kinds}
        splits = {AXES[axis].splits for axis in order}
        if "kernels" in splits:
            dims = tuple(name for axis, names in order.items() if AXES[axis].splits == "kernels" for name in names)
            price["parts of messages"] = parts_of_messages(dims, self._system, self._assumptions)
        if self._trains and "batch" in splits:
            price |= self._price_of_copies(order)
        return price

    def _price_of_copies(self, order: AxisDims) -> OrderPrice:
        """The price of what copies of the batch exchange at any level of ZeRO, alone and with the second axis."""
        members, copies = (
            {axis: dims for axis, dims in order.items() if AXES[axis].splits == splits}
            for splits in ("modules", "batch")
        )
        plan = Plan.model_validate(
            {AXES[axis].dims_key: dims for axis, dims in copies.items()}
            | {axis: math.prod(self._system.dim(name).size for name in dims) for axis, dims in copies.items()}
        )
        ways = [(0, plan)]
        for hybrid in grouped(plan, self._system, self._assumptions, self._replicas):
            count = 1 if hybrid is None else hybrid.replicas
            # further levels exchange the same more often
            ways.append((count, plan.model_copy(update={"zero": 1, "hybrid": hybrid})))
        own = tuple(name for dims in members.values() for name in dims)
        price: OrderPrice = {}
        for count, way in ways:
            for extra in ((), own):
                each = list(exchanges(way, (*extra, *plan.copy_dims)))
                costs = [affine(sent.kind, sent.dims, self._system, self._assumptions) for sent in each]
                for of in ("gradients", "weights"):
                    some = [(sent.share, cost) for sent, cost in zip(each, costs, strict=True) if sent.of == of]
                    price[count, bool(extra), of] = (
                        sum(share * cost.per_byte for share, cost in some), sum(cost.fixed for _, cost in some)
                    )  # fmt: skip
                price[count, bool(extra), "of every microbatch"] = costs[0]
        return price

    def _coefficients(self, kind: Collective, dims: Dims) -> tuple[float, float]:
        """Seconds for as many bytes as there are chips, since volumes grow with these, and seconds beside them."""
        chips = math.prod(self._system.dim(name).size for name in dims)
        per_byte, fixed = affine(kind, dims, self._system, self._assumptions)
        return per_byte * chips, fixed


def _no_more(some: OrderPrice, others: OrderPrice) -> bool:
    """Whether an order can do all that another one can, and takes no longer for any of it."""
    return all(
        use in some and all(a <= b + ROUNDING * abs(b) for a, b in zip(some[use], seconds, strict=True))
        for use, seconds in others.items()
    )
