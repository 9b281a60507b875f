"""What is shown of a node before its blocks are looked at: by communication, by each resource, by what adds up."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dfopt.bnb import Clock, OutOfTime
from dfopt.documents.axes import Dims
from dfopt.documents.plan import Plan
from dfopt.joint.additive import least_of_both
from dfopt.joint.dual import Resources
from dfopt.joint.holding import Holding, holding
from dfopt.joint.layer import LayerSearch
from dfopt.joint.listed import least_listed
from dfopt.joint.menu import Menu
from dfopt.joint.relaxation import Relaxation
from dfopt.physics.copies import exchanged
from dfopt.physics.network import adds_up_at_once
from dfopt.physics.overlap import hides_weights
from dfopt.physics.pipeline import step_time
from dfopt.physics.window import by_window
from dfopt.search import work
from dfopt.search.candidate import Prepared, Stage
from dfopt.search.node import Node
from dfopt.search.options import Options
from dfopt.search.unrolled import schemes_of_one
from dfopt.setting.instance import Instance
from dfopt.terms.sharded_graph import Bools, Floats, Ints
from dfopt.terms.step.optimizer import optimizer_seconds

_AFFINE = _SAME = 1e-9
_PART = 0.1  # of the work that is left, for one MILP


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
        self.ahead: dict[tuple[Menu, int, bytes], float] = {}
        self.alike: dict[Plan, Ints | None] = {}

    def within(self, node: Node, room: float) -> Relaxation:
        """What the only stage takes at least where a layer keeps so many bytes at most for its backward pass.

        Also options that keep so little; infinite if none do.
        """
        self.options.clock.charge(work.DUAL)
        [stage], saved_o = node.ready.stages, self.menu(node.ready.instance).by_option("saved_bytes")
        dual = self._resources(node, stage).dual_within(saved_o, room)
        return dual if np.isfinite(dual.seconds) else Relaxation(np.inf, None)

    def listed_within(self, node: Node, room: float) -> Relaxation:
        """The same with blocks that are listed, where they can be."""
        [stage], menu = node.ready.stages, self.menu(node.ready.instance)
        assert stage.tables is not None and stage.limits is not None
        found = self.within(node, room)
        if found.option_k is None:
            return found
        given = menu, node.allowed_o, stage.members, stage.tables, stage.limits
        held = [Holding(menu.by_option("saved_bytes"), room)] if np.isfinite(room) else []
        nothing_o = np.zeros(len(menu.tables.kernel_o))
        try:
            closer = least_listed(*given, nothing_o, np.inf, self.options.clock.share(_PART), held)
        except OutOfTime:  # while the MILP was built: what is shown of each resource stands
            return found
        return closer if closer.seconds > found.seconds else found

    def forward(self, node: Node) -> float:
        """Seconds at least of all partitions of the only stage that hold kernels of the forward pass; 0 if unknown."""
        ready = node.ready
        if not node.whole or ready.instance.mapped_stages > 1 or ready.exchanges is None:
            return 0.0
        [stage] = ready.stages
        if stage.tables is None:
            return 0.0
        key = self.menu(ready.instance), stage.tables.sharded.tile_count, node.allowed_o.tobytes()
        if key not in self.ahead:
            self.options.clock.charge(work.DUAL)
            ahead_s = self._resources(node, stage, ready.sharded.forward_k).dual().seconds
            self.ahead[key] = ahead_s if np.isfinite(ahead_s) else 0.0  # no options go together: said elsewhere
        return self.ahead[key]

    def both(self, node: Node, stage: Stage, clock: Clock) -> Relaxation:
        """Seconds of a stage at least where communication adds to what its partitions take."""
        assert stage.tables is not None and stage.limits is not None and stage.work is not None
        work, instance = stage.work, node.ready.instance
        if not node.whole or instance.mapped_stages > 1 or stage.lattice is None:
            return Relaxation(0.0, None)
        if work.both is None:
            given = self.menu(instance), node.allowed_o, stage.tables, stage.limits, stage.lattice
            work.both = least_of_both(*given, clock)
        return work.both

    def listed(self, node: Node, stage: Stage, upper: float) -> Relaxation:
        """What a stage takes at least, blocks and all, where its blocks can be listed: most often what it does take."""
        assert stage.tables is not None and stage.limits is not None and stage.work is not None
        given = self.menu(node.ready.instance), node.allowed_o, stage.members, stage.tables, stage.limits
        weighed_o, known = weighed_gradients(node.ready, given[0], node.allowed_o), stage.work.listed
        found = known.get(key := weighed_o.tobytes())
        if found is None or (found.option_k is None and 0 < found.seconds < upper):  # no schemes, and more is asked for
            known[key] = least_listed(*given, weighed_o, upper, self.options.clock.share(_PART))
        return known[key]

    def fitting(self, node: Node, stage: Stage) -> Relaxation:
        """The same with schemes that fit the memories, if nothing waits there; 0 if blocks are not listed."""
        assert stage.tables is not None and stage.limits is not None
        instance, menu = node.ready.instance, self.menu(node.ready.instance)
        if not instance.graph.folded and instance.plan.stages > 1:  # a kernel may be in any stage
            return Relaxation(0.0, None)
        weighed_o = weighed_gradients(node.ready, menu, node.allowed_o)
        given = menu, node.allowed_o, stage.members, stage.tables, stage.limits, weighed_o, np.inf
        return least_listed(*given, self.options.clock.share(_PART), holding(instance, menu))

    def start(self, node: Node, stage: Stage) -> Ints | None:
        """Options of all kernels where down-sets are too many to list: of one layer, if equal ones are drawn."""
        instance = node.ready.instance
        if node.whole and node.plan not in self.alike:
            schemes = schemes_of_one(instance.setting, node.plan, self.options)
            self.alike[node.plan] = None if schemes is None else self.menu(instance).options_of(schemes)
        option_k = self.alike.get(node.plan)
        return self.apart(node, stage).option_k if option_k is None else option_k

    def apart(self, node: Node, stage: Stage) -> Relaxation:
        """What a stage takes at least by each resource for itself, whatever its partitions; and options for that."""
        assert stage.tables is not None and stage.limits is not None and stage.work is not None
        menu, known = self.menu(node.ready.instance), stage.work.apart
        weighed_o = weighed_gradients(node.ready, menu, node.allowed_o)
        if (key := weighed_o.tobytes()) not in known:
            inside_o = np.isin(menu.tables.kernel_o, stage.members)  # the least of each kernel is charged elsewhere
            self.options.clock.charge(work.DUAL)
            beside_o = inside_o * menu.beyond(weighed_o, node.allowed_o)
            known[key] = self._resources(node, stage).dual(beside_o)
        return known[key]

    def _resources(self, node: Node, stage: Stage, holding_k: Bools | None = None) -> Resources:
        assert stage.tables is not None and stage.limits is not None
        given = self.menu(node.ready.instance), node.allowed_o, stage.tables, stage.limits, stage.members
        return Resources.of_stage(*given, holding_k)


def meet(search: LayerSearch, apart: Relaxation, stage: Stage, most: float) -> None:
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
