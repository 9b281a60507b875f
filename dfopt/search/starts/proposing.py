"""Textbook mappings, the most promising first: graphs, the layers that their plans share, variations of the best."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from dfopt.bnb import UNITS_PER_S, OutOfTime
from dfopt.divisors import divisors
from dfopt.documents.axes import AXES, Dims
from dfopt.documents.mapping import Sharding
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
from dfopt.regions.space import MappingSpace
from dfopt.search.starts.greedy import accept_greedily, is_wide, propose_greedily
from dfopt.search.starts.textbook import VARIATIONS, narrowed, shardings, textbook_plans
from dfopt.search.state import SearchState
from dfopt.setting.instance import Setting
from dfopt.setting.plans import asked_plans
from dfopt.solving import work
from dfopt.terms.bounds import PlanTable
from dfopt.terms.step.roofline import least_step

_LARGE: Final = 3_500_000  # pairs of kernels of all graphs x free degrees of axes; below, a search takes seconds
_SHARE: Final = 0.8  # of the time, at most,
_PATIENCE: Final = 0.1  # and of it for the plans of one layer: the fusion of wide graphs takes minutes
_NEAR: Final = 1.05  # estimates up to so much above the best are valued before the best layers are varied,
_FAR: Final = 1.2  # and up to so much after that
_LAYERS: Final = 60  # that are valued, at most
_VARIED: Final = 3  # of the best layers, so many,
_CLOSE: Final = 1.06  # up to so much above the best of all
_TRUST: Final = 0.6, 1.7  # least and most that an estimate is corrected by
_ARCS: Final = 4, 50  # that a unit of work lists and prices for the first time, and later
_OPTIMISM: Final = 0.98  # for each factor of two between what is estimated and what was valued
_FARTHEST: Final = 5.0  # factors of two, at most, that count for this


def begin(state: SearchState, spaces: Sequence[MappingSpace]) -> None:
    """Give a search starting mappings to beat, if its spaces or layers are large and sharding is not chosen first.

    Parameters
    ----------
    state : SearchState
        State of the search; it receives the mappings, and an interrupt stops it.
    spaces : sequence of MappingSpace
        The mapping space of each graph; tables computed here stay in its caches.
    """
    if state.request.formulation == "assignment":
        return
    try:
        with interruptible():
            if is_large([space.setting for space in spaces], state.request):
                _Starts(state, spaces).run()
            elif is_wide(spaces[0].setting):
                propose_greedily(state, spaces[0])
    except KeyboardInterrupt:
        state.stop()


def is_large(settings: Sequence[Setting], request: Request) -> bool:
    """Whether the spaces of some graphs are so large that starting mappings are worth their time."""
    fixed = [degree for axis, degree in request.on_axes.items() if axis in AXES]
    degrees = divisors(max(settings[0].system.chips // math.prod(fixed), 1))
    ways: int = len(degrees) ** max(len(AXES) - 2 - len(fixed), 0)  # the second axis counts not; the last has the rest
    return ways * sum(len(each.graph.kernels) ** 2 for each in settings) > _LARGE


@dataclass(frozen=True, eq=False)
class _Graph:
    """A graph whose plans are not listed yet, with what all chips have to do at least."""

    space: MappingSpace
    estimate: float
    degrees: tuple[int, int] = 1, 1

    @property
    def place(self) -> tuple[float, float, float, str | None]:
        """Where it lies among others, by factors of two."""
        graph = self.space.setting.graph
        shards, members = self.degrees
        return math.log2(graph.microbatch), 2 * math.log2(shards), 2 * math.log2(members), graph.variant


@dataclass(frozen=True, eq=False)
class _WorkClass(_Graph):
    """Plans of a graph under which a chip has the same work."""

    plans: PlanTable = field(kw_only=True)


def _distance(item: _Graph, other: _Graph) -> float:
    *here, variant = item.place
    *there, another = other.place
    return sum(abs(a - b) for a, b in zip(here, there, strict=True)) + (variant != another)


def _ratio(ratios: Mapping[_WorkClass, float], item: _Graph) -> float:
    """What an estimate is to be corrected by: as that of the nearest was, and a little less the farther that is."""
    if not ratios:
        return 1.0
    near = min(ratios, key=lambda other: _distance(item, other))
    return min(max(ratios[near], _TRUST[0]), _TRUST[1]) * float(_OPTIMISM ** min(_distance(item, near), _FARTHEST))


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

    Estimates rank layers; each is corrected by what was reached of the nearest that has a value. They only say where to
    look first: what is found is what the judge says of it.
    """

    def __init__(self, state: SearchState, spaces: Sequence[MappingSpace]) -> None:
        self.state, self.spaces, self.options = state, spaces, state.options
        self.request = narrowed(self.options.request)
        work = min(self.options.clock.work_left, self.options.request.time_limit * UNITS_PER_S)
        self.clock, self.patience = self.options.clock.allowance(_SHARE * work), _PATIENCE * work
        self.valued: dict[_WorkClass, float] = {}  # the best value of each, infinite if none
        self.tried = set[tuple[_WorkClass, tuple[Sharding, ...]]]()
        self.priced = set[Arcs]()
        self.of_graphs: list[float] = []  # what was estimated of the best layer of each, by its least
        self.of_layers: dict[_WorkClass, float] = {}  # what was reached of each, by its estimate

    def _beat(self) -> float:
        return self.state.incumbent

    def run(self) -> None:
        """Look for mappings while estimates are near the best that is known, and there is time."""
        with suppress(OutOfTime):
            self._run()

    def _run(self) -> None:
        open_: list[_Graph] = [_Graph(space, least_step(space.setting)) for space in self.spaces]
        varied = False
        while open_ and len(self.valued) < _LAYERS:
            self.clock.check()
            self.state.report()
            guesses = [self._guess(item) for item in open_]
            number = min(range(len(open_)), key=guesses.__getitem__)
            if guesses[number] > _FAR * self._beat():
                break
            if guesses[number] > _NEAR * self._beat() and not varied:
                self._vary()
                varied = True
                continue
            item = open_.pop(number)
            if isinstance(item, _WorkClass):
                self._value(item, VARIATIONS[0])
            else:
                open_ += self._layers(item)
        if not varied:
            self._vary()

    def _guess(self, item: _Graph) -> float:
        """Its estimate, corrected by what came of the nearest layers; of a graph that is not listed yet, at least."""
        guess = item.estimate * _ratio(self.of_layers, item)
        return guess if isinstance(item, _WorkClass) else guess * min(self.of_graphs, default=1.0)

    def _layers(self, item: _Graph) -> list[_Graph]:
        """The layers that plans of a graph share, those that may fit."""
        setting = item.space.setting
        listing = replace(
            textbook_plans(setting.graph, setting.system, self.options.request), check_time=self.clock.check
        )
        charge = self.clock.charge
        layers: list[_Graph] = []
        try:
            plans, _ = asked_plans(setting.graph, setting.system, self.request, setting.assumptions, listing)
            tables = item.space.bounds.tables([plan for plan in plans if plan.stages == 1 or setting.graph.folded])
        except (PlanError, OutOfTime):
            return layers
        charge(work.LISTED * len(plans))
        for table in tables:
            charge(work.TABLE * len(table.settings) + work.BOUNDED * len(table.plans))
            fitting = (table.used_i <= 1.0).nonzero()[0]
            if not fitting.size:
                continue
            seconds = table.least_i[fitting].tolist()
            about = _estimated(setting, dict(zip((table.plans[i] for i in fitting.tolist()), seconds, strict=True)))
            shared_i = table.shared_g[table.group_i[fitting]]
            for shared in dict.fromkeys(shared_i.tolist()):
                members = table.of_some(fitting[shared_i == shared].tolist())
                degrees = members.plans[0].shards, members.plans[0].members
                least = min(map(about.__getitem__, members.plans))
                layers.append(_WorkClass(item.space, least, degrees, plans=members))
        if layers:
            self.of_graphs.append(min(layer.estimate for layer in layers) / item.estimate)
        return layers

    def _value(self, layer: _WorkClass, variation: str) -> None:
        """Fuse a layer under one sharding, and keep the best mappings of its plans."""
        self.valued.setdefault(layer, math.inf)
        usual, request = variation == VARIATIONS[0], self.options.request
        if not self.state.incumbents.kept and is_wide(layer.space.setting):
            accept_greedily(self.state, layer.space.setting, layer.plans.plans[int(layer.plans.least_i.argmin())])
        cutoff, clock = math.inf if usual else self._beat(), self.clock.allowance(self.patience)
        for region in self._sharded(layer, variation):
            self.clock.charge(work.OPENED)
            for arcs in region.arcs_k:
                self.clock.charge(len(arcs.before_a) / _ARCS[arcs in self.priced])
                self.priced.add(arcs)
            best = best_fused(region, cutoff, request.top, clock)
            for fused in best:
                if fused.step_s < self._beat():
                    solved = judged(region.of, fused, self.options).solution.solved
                    self.clock.charge(work.JUDGED)
                    if solved is not None and solved.value < self._beat():
                        self.state.accept(solved)
            self.valued[layer] = min([self.valued[layer], *(fused.step_s for fused in best)])
        if usual and math.isfinite(self.valued[layer]):
            self.of_layers[layer] = self.valued[layer] / layer.estimate

    def _sharded(self, layer: _WorkClass, variation: str) -> Iterator[Region]:
        """A layer under a sharding, in every number of tiles; nothing if that was looked at, or is not allowed."""
        space, plans = layer.space, layer.plans
        instance = plans.instances[0]
        schemes = shardings(space.setting.under(plans.plans[0]), self.options.request, variation)
        if schemes is None or (key := (layer, tuple(schemes.values()))) in self.tried:
            return
        self.tried.add(key)
        menu = space.menu(instance)
        for region in space.regions_of(plans, menu, menu.tiled(schemes)):
            if isinstance(region, Region):
                yield region

    def _vary(self) -> None:
        """Other shardings of the best layers, as far as they are close to the best of all."""
        best = sorted(self.valued, key=self.valued.__getitem__)[:_VARIED]
        for variation in VARIATIONS[1:]:
            for layer in best:
                self.clock.check()
                if layer.degrees[0] > 1 and self.valued[layer] <= _CLOSE * self._beat():
                    self._value(layer, variation)
