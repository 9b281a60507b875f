"""Textbook mappings, the most promising first: graphs, and the layers that their plans share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from dfopt.bnb import UNITS_PER_S, OutOfTime
from dfopt.documents.axes import AXES, Dims
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.errors import PlanError
from dfopt.interrupts import interruptible
from dfopt.physics.collectives import Collective
from dfopt.physics.network import communication_seconds
from dfopt.regions.arcs import Arcs
from dfopt.regions.fusing import best_fused
from dfopt.regions.judged import judged
from dfopt.regions.region import Region
from dfopt.regions.space import Space
from dfopt.search.starts.textbook import narrowed, shardings, textbook_plans
from dfopt.search.state import SearchState
from dfopt.setting.instance import Setting
from dfopt.setting.plans import asked_plans
from dfopt.setting.shares import divisors
from dfopt.solving import work
from dfopt.terms.bounds import PlanTable
from dfopt.terms.step.roofline import least_step

__all__ = ["begin", "is_large"]

_LARGE: Final = 3_500_000  # pairs of kernels of all graphs x free degrees of axes; below, a search takes seconds
_SHARE: Final = 0.8  # of the time, at most,
_PATIENCE: Final = 0.1  # and of it for the plans of one layer: the fusion of wide graphs takes minutes
_LAYERS: Final = 60  # that are valued, at most
_ARCS: Final = 4, 50  # that a unit of work lists and prices for the first time, and later


def begin(state: SearchState, spaces: Sequence[Space]) -> None:
    """Give a search mappings to beat, where its spaces are large; not where the sharding comes first.

    Parameters
    ----------
    state : SearchState
        What the search shares; it gets the mappings, and is stopped by an interrupt.
    spaces : sequence of Space
        The mappings of each graph. What is worked out of them stays there.
    """
    if is_large([space.setting for space in spaces], state.request) and state.request.formulation != "assignment":
        try:
            with interruptible(), suppress(OutOfTime):
                _Starts(state, spaces).run()
        except KeyboardInterrupt:
            state.stop()


def is_large(settings: Sequence[Setting], request: Request) -> bool:
    """Whether starts are worth their seconds: whether the spaces of some graphs are large."""
    fixed = [degree for axis, degree in request.on_axes.items() if axis in AXES]
    degrees = divisors(max(settings[0].system.chips // math.prod(fixed), 1))
    ways: int = len(degrees) ** max(len(AXES) - 2 - len(fixed), 0)  # the second axis counts not; the last has the rest
    return ways * sum(len(each.graph.kernels) ** 2 for each in settings) > _LARGE


@dataclass(frozen=True, eq=False)
class _Layer:
    """Plans of a graph under which a chip has the same work, with about the seconds of a step.

    While the plans of a graph are not listed there are none, and the seconds are what all chips have to do at least.
    """

    space: Space
    estimate: float
    plans: PlanTable | None = None


def _estimated(setting: Setting, bounds: Mapping[Plan, float]) -> dict[Plan, float]:
    """Seconds that a step may take: what is proven of plans, and of a layer's usual communication the rest.

    A layer's usual communication are two all-reduces of what layers hand on, and two of their gradients (Shoeybi et
    al., arXiv:1909.08053, section 3), as if nothing hid them. It only says where to look first.
    """
    graph, once = setting.graph, dict[Dims, float]()
    for dims in {plan.shard_dims for plan in bounds}:
        sent = (graph.bytes_of(tensor) for tensor in graph.handed_on[0]) if graph.folded else ()
        once[dims] = 2.0 * sum(
            communication_seconds(Collective.ALL_REDUCE, size, dims, setting.system, setting.assumptions)
            for size in sent
        )
    return {
        plan: low + plan.microbatches * plan.layers_per_stage * once[plan.shard_dims] for plan, low in bounds.items()
    }


class _Starts:
    """Mappings of some searches of one workload, found before anything is proven.

    Estimates rank layers. They only say where to look first: what is found is what the judge says of it.
    """

    def __init__(self, state: SearchState, spaces: Sequence[Space]) -> None:
        self.state, self.spaces, self.options = state, spaces, state.options
        self.request = narrowed(self.options.request)
        work = min(self.options.clock.work_left, self.options.request.time_limit * UNITS_PER_S)
        self.clock, self.patience = self.options.clock.allowance(_SHARE * work), _PATIENCE * work
        self.priced = set[Arcs]()
        self.of_graphs: list[float] = []  # what was estimated of the best layer of each, by its least

    def run(self) -> None:
        """Look for mappings while estimates are below the best that is known, and there is time."""
        open_ = [_Layer(space, least_step(space.setting)) for space in self.spaces]
        valued = 0
        while open_ and valued < _LAYERS:
            self.clock.check()
            self.state.report()
            layer = min(open_, key=self._guess)
            if self._guess(layer) >= self.state.incumbent:
                break
            open_.remove(layer)
            if layer.plans is None:
                open_ += self._layers(layer)
            else:
                self._value(layer.space, layer.plans)
                valued += 1

    def _guess(self, layer: _Layer) -> float:
        """Its estimate, or one from the least that all chips have to do."""
        return layer.estimate * (min(self.of_graphs, default=1.0) if layer.plans is None else 1.0)

    def _layers(self, graph: _Layer) -> list[_Layer]:
        """The layers that plans of a graph share, those that may fit."""
        setting = graph.space.setting
        listing = replace(
            textbook_plans(setting.graph, setting.system, self.options.request), check_time=self.clock.check
        )
        charge = self.clock.charge
        layers = list[_Layer]()
        try:
            plans, _ = asked_plans(setting.graph, setting.system, self.request, setting.assumptions, listing)
            tables = graph.space.bounds.tables([plan for plan in plans if plan.stages == 1 or setting.graph.folded])
        except (PlanError, OutOfTime):
            return layers
        charge(work.LISTED * len(plans))
        for table in tables:
            charge(work.TABLE * len(table.settings) + work.BOUNDED * len(table.plans))
            fitting = (table.used_i <= 1.0).nonzero()[0]
            if not fitting.size:
                continue
            seconds = table.seconds()[fitting].tolist()
            about = _estimated(setting, dict(zip((table.plans[i] for i in fitting.tolist()), seconds, strict=True)))
            shared_i = table.shared_g[table.group_i[fitting]]
            for shared in dict.fromkeys(shared_i.tolist()):
                members = table.of_some(fitting[shared_i == shared].tolist())
                least = min(map(about.__getitem__, members.plans))
                layers.append(_Layer(graph.space, least, members))
        if layers:
            self.of_graphs.append(min(layer.estimate for layer in layers) / graph.estimate)
        return layers

    def _value(self, space: Space, plans: PlanTable) -> None:
        """Fuse a layer under the usual sharding in every number of tiles, and keep the best mappings of its plans."""
        request = self.options.request
        schemes = shardings(space.setting.under(plans.plans[0]), request)
        if schemes is None:
            return
        menu, clock = space.menu(plans.instances[0]), self.clock.allowance(self.patience)
        for region in space.regions_of(plans, menu, menu.tiled(schemes)):
            if not isinstance(region, Region):
                continue
            self.clock.charge(work.OPENED)
            for arcs in region.arcs_k:
                self.clock.charge(len(arcs.before_a) / _ARCS[arcs in self.priced])
                self.priced.add(arcs)
            for best in best_fused(region, self.state.incumbent, request.top, clock):
                found = judged(region.of, best, self.options).solution.solved
                self.clock.charge(work.JUDGED)
                if found is not None and found.value < self.state.incumbent:
                    self.state.accept(found)
