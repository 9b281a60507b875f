"""What is shown of a node before its blocks are looked at: by communication, by each resource, by what adds up."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from dfopt.documents.axes import Dims
from dfopt.documents.plan import Plan
from dfopt.errors import Infeasible
from dfopt.fusion.clock import OutOfTime
from dfopt.joint.additive import least_of_both
from dfopt.joint.apart import Apart, optimize_apart
from dfopt.joint.dual import stage_dual
from dfopt.joint.holding import Holding, holding
from dfopt.joint.layer import LayerSearch
from dfopt.joint.listed import least_listed
from dfopt.joint.menu import Menu
from dfopt.physics.copies import exchanged
from dfopt.physics.network import adds_up_at_once
from dfopt.physics.overlap import hides_weights
from dfopt.physics.pipeline import hides_all, step_time
from dfopt.physics.window import by_window
from dfopt.search.candidate import Prepared, Stage
from dfopt.search.node import Node
from dfopt.search.options import Options
from dfopt.search.unrolled import schemes_of_one
from dfopt.setting.instance import Instance
from dfopt.sharding import interchip
from dfopt.terms.sharded_graph import Bools, Floats, Ints
from dfopt.terms.step.optimizer import optimizer_seconds

_AFFINE = _SAME = 1e-9
_PART = 0.1  # of the time that is left, for one MILP


class Shown:
    """Bounds of the stages of nodes; what plans share is worked out once.

    Parameters
    ----------
    options : Options
        The request under way.
    menu : callable
        Figures of all options under a plan.
    """

    def __init__(self, options: Options, menu: Callable[[Instance], Menu]) -> None:
        self.options, self.menu = options, menu
        self.ahead: dict[tuple[Menu, bytes], float] = {}
        self.alike: dict[Plan, Ints | None] = {}

    def within(self, node: Node, room: float) -> tuple[float, Ints | None]:
        """Seconds of the only stage at least by compute and communication, with limited room for what it keeps.

        A layer keeps so many bytes at most for its backward pass. Also the options that come to it. Infinite if none
        keep so little.
        """
        instance, menu = node.ready.instance, self.menu(node.ready.instance)
        tables, way = menu.tables, "max" if hides_all(instance.assumptions) else "sum"
        if menu.figures.layer.by_cycles:  # a share of peak says nothing there
            tables = replace(tables, compute_o=np.zeros_like(tables.compute_o))
        left = self.options.left() * _PART
        try:
            return interchip.least_seconds(tables, node.allowed_o, left, way, menu.by_option("saved_bytes"), room)
        except Infeasible:
            if np.isfinite(room):
                return np.inf, None
            raise

    def apart_within(self, node: Node, room: float) -> tuple[float, Ints | None]:
        """The same with what hides behind what: by each resource for itself, or with blocks that are listed.

        0 if nothing is found.
        """
        [stage], menu = node.ready.stages, self.menu(node.ready.instance)
        assert stage.tables is not None and stage.limits is not None
        given = menu, node.allowed_o, stage.members, stage.tables, stage.limits
        left, held = (
            self.options.left() * _PART,
            [Holding(menu.by_option("saved_bytes"), room)] if np.isfinite(room) else [],
        )
        found = optimize_apart(*given, time_limit=left, holdings=held)
        if found.option_k is not None:
            nothing_o, until = np.zeros(len(menu.tables.kernel_o)), time.perf_counter() + left
            try:
                closer = least_listed(*given, nothing_o, np.inf, left, until, held)
            except OutOfTime:  # while the MILP was built: what is shown of each resource stands
                return found.seconds, found.option_k
            if closer.seconds > found.seconds:
                found = closer
        return found.seconds, found.option_k

    def forward(self, node: Node) -> float:
        """Seconds of the only stage's forward pass at least by compute and communication.

        Tensors that are converted where they are made are its own; those that every reader brings together again are
        left out where the backward pass reads them too.
        """
        instance, menu = node.ready.instance, self.menu(node.ready.instance)
        if not node.whole or instance.mapped_stages > 1 or node.ready.exchanges is None:
            return 0.0
        key = menu, node.allowed_o.tobytes()
        if key not in self.ahead:
            tables, forward_k = menu.tables, node.ready.sharded.forward_k
            compute_o = 0.0 * tables.compute_o if menu.figures.layer.by_cycles else tables.compute_o
            forward_o, back_t = forward_k[tables.kernel_o], ~forward_k[tables.dst_t]
            again_t = np.isin(tables.bill_t, tables.bill_t[tables.again_t & back_t])
            mine_t = (forward_k[tables.src_t] & ~again_t)[:, None, None]
            tables = replace(
                tables,
                compute_o=compute_o * forward_o,
                network_o=tables.network_o * forward_o,
                conversion_tll=tables.conversion_tll * mine_t,
            )
            way = "max" if hides_all(instance.assumptions) else "sum"
            left = self.options.left() * _PART
            self.ahead[key], _ = interchip.least_seconds(tables, node.allowed_o, left, way)
        return self.ahead[key]

    def both(self, node: Node, stage: Stage, deadline: float) -> Apart:
        """Seconds of a stage at least where communication adds to what its partitions take."""
        assert stage.tables is not None and stage.limits is not None and stage.work is not None
        work, instance = stage.work, node.ready.instance
        if not node.whole or instance.mapped_stages > 1 or stage.lattice is None:
            return Apart(0.0, None)
        if work.both is None:
            given = self.menu(instance), node.allowed_o, stage.tables, stage.limits, stage.lattice
            work.both = least_of_both(*given, self.options.left() * _PART, deadline)
        return work.both

    def listed(self, node: Node, stage: Stage, upper: float, deadline: float) -> Apart:
        """What a stage takes at least, blocks and all, where its blocks can be listed: most often what it does take."""
        assert stage.tables is not None and stage.limits is not None and stage.work is not None
        given = self.menu(node.ready.instance), node.allowed_o, stage.members, stage.tables, stage.limits

        def show(weighed_o: Floats) -> Apart:
            return least_listed(*given, weighed_o, upper, self.options.left() * _PART, deadline)

        return self._known(stage.work.listed, node, upper, show)

    def fitting(self, node: Node, stage: Stage, deadline: float) -> Apart:
        """The same with schemes that fit the memories, if nothing waits there; 0 if blocks are not listed."""
        assert stage.tables is not None and stage.limits is not None
        instance, menu = node.ready.instance, self.menu(node.ready.instance)
        if not instance.graph.folded and instance.plan.stages > 1:  # a kernel may be in any stage
            return Apart(0.0, None)
        weighed_o = weighed_gradients(node.ready, menu, node.allowed_o)
        given = menu, node.allowed_o, stage.members, stage.tables, stage.limits, weighed_o, np.inf
        return least_listed(*given, self.options.left() * _PART, deadline, holding(instance, menu))

    def start(self, node: Node, stage: Stage) -> Ints | None:
        """Options of all kernels where down-sets are too many to list: of one layer, if equal ones are drawn."""
        instance = node.ready.instance
        if node.whole and node.plan not in self.alike:
            schemes = schemes_of_one(instance.setting, node.plan, self.options)
            self.alike[node.plan] = None if schemes is None else self.menu(instance).options_of(schemes)
        option_k = self.alike.get(node.plan)
        return self.apart(node, stage).option_k if option_k is None else option_k

    def apart(self, node: Node, stage: Stage) -> Apart:
        """What a stage takes at least by each resource for itself, whatever its partitions; and options for that."""
        assert stage.tables is not None and stage.limits is not None and stage.work is not None
        menu, known = self.menu(node.ready.instance), stage.work.apart
        weighed_o = weighed_gradients(node.ready, menu, node.allowed_o)
        if (key := weighed_o.tobytes()) not in known:
            dual = stage_dual(menu, node.allowed_o, stage.tables, stage.limits, stage.members, weighed_o)
            options_k = np.searchsorted(menu.tables.place_o, dual.options_k + menu.figures.first_k)
            known[key] = Apart(dual.seconds, options_k.astype(np.int64))
        return known[key]

    def _known(self, known: dict[bytes, Apart], node: Node, upper: float, show: Callable[[Floats], Apart]) -> Apart:
        """What is known, by seconds of gradients; shown anew where no schemes were looked for and more is asked for."""
        weighed_o = weighed_gradients(node.ready, self.menu(node.ready.instance), node.allowed_o)
        found = known.get(key := weighed_o.tobytes())
        if found is None or (found.option_k is None and 0 < found.seconds < upper):
            known[key] = show(weighed_o)
        return known[key]


def meet(search: LayerSearch, apart: Apart, stage: Stage, most: float) -> None:
    """Take up what is shown of a stage where layouts have to meet, and its schemes."""
    search.low = max(search.low, min(apart.seconds, most))
    if apart.option_k is not None and search.answer is None and (key := apart.option_k.tobytes()) not in search.tried:
        search.tried.add(key)
        mine = apart.option_k[stage.members].tolist()
        schemes = {k: int(np.searchsorted(search.options[k], option)) for k, option in enumerate(mine)}
        real = search.exactly(schemes, min(most, search.known[0]))
        if real < search.known[0]:
            search.known = real, schemes
        if search.known[0] <= search.low * (1 + _SAME):
            search.low, search.answer = search.known[0], search.known


def weighed_gradients(ready: Prepared, menu: Menu, allowed_o: Bools) -> Floats:
    """Seconds of one evaluation of the only stage that the gradient and the optimizer's step of every option are worth.

    Nothing where the time of adding them up is not affine. Behind a backward pass only that of one layer is certain to
    be charged; where that of all is, more time of the layer is worth less than here, and a bound stays one. Nothing
    for what plans of a family share, either: how often a step has a layer is for each of them to say.
    """
    instance, weighed_o = ready.instance, np.zeros(len(menu.tables.kernel_o))
    of_family = instance.graph.folded and instance.shared is instance
    if instance.mapped_stages > 1 or adds_up_at_once(instance.assumptions) or of_family:
        return weighed_o
    once, word_k = step_time(ready.plan, instance.assumptions, 1.0).total, instance.setting.weight_word_k
    weighed_o += optimizer_seconds(instance, menu.tables.kernel_o, menu.weight_o) / once
    if ready.plan.zero and np.ptp(word_k) > 0:
        return weighed_o
    word, layers = float(word_k[0]), 1 if ready.exchanges is None else ready.pipeline[0].runs[0][1]

    def charged(dims: Dims, volume: float) -> float:
        """Of a layer; an exchange that is charged for one layer only has its share."""
        if layers == 1:
            return exchanged(ready.plan, dims, volume, volume * word, instance.communication_s)
        if by_window(instance.assumptions, instance.graph):
            return exchanged(ready.plan, dims, volume, volume * word, instance.communication_s) / layers
        gradients = exchanged(ready.plan, dims, volume, 0.0, instance.communication_s)
        weights = exchanged(ready.plan, dims, 0.0, volume * word, instance.communication_s)
        hidden = hides_weights(instance.assumptions, instance.graph, ready.plan)
        return gradients / layers + weights / (layers if hidden else 1)

    for dims, share_k in instance.adding:
        volume_o = menu.gradient_o * share_k[menu.tables.kernel_o]
        least, most = menu.least(volume_o, allowed_o).sum(), -menu.least(-volume_o, allowed_o).sum()
        if not 0 < least < most:
            continue
        volumes = (least, (least + most) / 2, most)
        at = [charged(dims, v) for v in map(float, volumes)]
        if abs(at[0] + at[2] - 2 * at[1]) <= _AFFINE * at[2]:
            weighed_o += volume_o * (float((at[2] - at[0]) / (most - least)) / once)
    return weighed_o
