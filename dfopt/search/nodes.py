"""What no mapping beats under a plan while schemes are still open: plans with some schemes left for every kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from dfopt.bnb import Clock
from dfopt.documents.plan import Plan
from dfopt.errors import Infeasible
from dfopt.fusion.intrachip import CutOff, optimize_intrachip
from dfopt.fusion.partitioning import IntraChipLimits
from dfopt.joint.layer import LayerSearch
from dfopt.joint.menu import Menu
from dfopt.milp import Termination
from dfopt.search import work
from dfopt.search.candidate import Stage, given_work, prepare, with_starts
from dfopt.search.closing import closes, least_of_plan
from dfopt.search.node import Node
from dfopt.search.options import Options
from dfopt.search.relaxed import RelaxedPlans, open_record
from dfopt.search.sharing import ChipWork
from dfopt.search.shown import Shown, meet, weighed_gradients
from dfopt.search.solved import Pruned, Solved, finish
from dfopt.search.sums import meeting, meets
from dfopt.search.waiting import paths
from dfopt.setting.instance import Instance, Setting
from dfopt.terms.sharded_graph import Bools, Floats, Ints

_BLOCKS = 0.25  # of the work that is left, for blocks generated on demand
_MATTERS = 0.2  # share of a step from which on a kind of layer is looked at by itself first


class Nodes(RelaxedPlans):
    """Opens, bounds and splits nodes of one setting; what plans share is worked out once.

    ``every``: also schemes that another one replaces at no cost in time, where more than time matters;
    ``at_once``: what has to be proven is known, so trials look at all paths below it from the start.
    """

    def __init__(
        self,
        setting: Setting,
        options: Options,
        every: bool = False,
        at_once: bool = False,
        hints: Mapping[Plan, frozenset[str]] | None = None,
    ) -> None:
        super().__init__(setting, options, every)
        self.at_once = at_once
        self.given: dict[tuple[Menu, tuple[int, ...]], ChipWork] = {}
        self.hints = hints or {}  # what blocks had to agree about before
        self.shown = Shown(options, self.menu)

    def least_of_plan(self, node: Node, options: Options, cutoff: float) -> tuple[float, Ints | None]:
        """What no mapping of a node's plan and tile count is below, and the options of one, by its MILP.

        0 where that would be large, or does not say all of a step.
        """
        instance, tiles = node.ready.instance, node.ready.sharded.tile_count
        limits = [stage.limits or IntraChipLimits(0) for stage in node.ready.stages]
        if not closes(instance, limits):
            return 0.0, None
        return least_of_plan(instance, options, self.menu(instance), tiles, limits, cutoff)

    def open(self, plan: Plan) -> list[Node]:
        """A node for each tile count of a plan, with every scheme.

        Raises
        ------
        Infeasible
            If nothing fits whatever the schemes.
        """
        return self.of(self.setting.under(plan))

    def of(self, instance: Instance, *, every: bool = False) -> list[Node]:
        """The same of a setting under a plan; ``every``: none where some do not fit, as if memories had no limit."""
        found: list[Node] = []
        refused: Infeasible | None = None
        for counts, allowed_o in self.domains_of(instance):
            self.options.clock.charge(work.OPENED)
            try:
                found += list(self._nodes(instance, allowed_o, counts, 0.0, whole=True, roomy=every))
            except Infeasible as error:
                refused = refused or error  # of the first, which leaves most schemes
        if not found or (every and self._some_refused(instance, found)):
            raise refused or Infeasible("the pinned schemes leave partial sums that nothing adds up")
        return found

    def _some_refused(self, instance: Instance, found: list[Node]) -> bool:
        """Whether some tile count of some schemes was left out: under another plan it may fit."""
        opened = {(node.allowed_o.tobytes(), node.ready.sharded.tile_count) for node in found}
        return any((left.tobytes(), one) not in opened for counts, left in self.domains_of(instance) for one in counts)

    def _nodes(
        self,
        instance: Instance,
        allowed_o: Bools,
        counts: tuple[int, ...],
        bound: float,
        *,
        whole: bool,
        roomy: bool = False,
    ) -> Iterator[Node]:
        for ready in self.priced(instance, allowed_o, counts, roomy=roomy):
            lows = [stage.floor for stage in ready.stages]
            yield Node(ready, allowed_o, whole, lows, max(bound, ready.value_of(lows)))

    def improve(self, node: Node, cut: float, clock: Clock) -> bool:
        """Prove more of a node, a step at a time; whether every stage has its best schemes.

        Raises
        ------
        OutOfTime
        """
        ready, open_, listed = node.ready, [], True
        if not node.heard:
            self._hear(node, cut)
            return False
        for number, stage in enumerate(ready.stages):
            if stage.tables is None:
                continue
            upper = ready.cutoff(number, cut, node.lows)
            most = np.inf if upper is None else upper
            search = self._search(node, number, stage)
            if search is None:
                self._without_lattice(node, number, stage, most)
                listed = False
                continue
            if node.rooted and not node.met:  # what no stage with every figure at its least knows: layouts have to meet
                meet(search, self.shown.apart(node, stage), stage, most)
                meet(search, self.shown.both(node, stage, clock), stage, most)
                if search.low < most and search.answer is None:
                    meet(search, self.shown.listed(node, stage, most), stage, most)
            if not search.low:
                started = with_starts(ready, self.options.clock).stages[number]
                search.root(min(most, started.best_known * (1 + 1e-9)), started.start, stage.floor, clock)
            node.lows[number] = search.low = max(node.lows[number], search.low)
            if search.answer is None:
                open_.append((search, number, most))
            node.proven()
            if node.bound >= cut:  # whatever the other stages take
                break
        node.proven()
        if not node.rooted or node.bound >= cut or not open_:
            node.rooted = True
            return listed and node.bound < cut and not open_ and self.options_of(node) is not None
        if not node.met:  # that may be enough for others to come first
            node.met = True
            return False
        search, number, most = max(open_, key=lambda one: one[0].low * ready.instance.pipeline[0].runs[0][1])
        search.trial(most, clock, at_once=self.at_once)
        node.agreed |= search.agreed
        node.lows[number] = max(node.lows[number], search.low)
        node.proven()
        return False

    def fitting(self, node: Node, options_k: Ints) -> Ints | None:
        """Prove of a node whose best schemes, which are given, do not fit what those that do take; these, if any.

        Raises
        ------
        OutOfTime
        """
        found = None
        for number, stage in enumerate(node.ready.stages):
            if stage.tables is None:
                continue
            least = self.shown.fitting(node, stage)
            node.lows[number] = max(node.lows[number], least.seconds)
            if least.option_k is not None:
                found = options_k.copy() if found is None else found
                found[stage.members] = least.option_k[stage.members]
        node.proven()
        return found

    def _hear(self, node: Node, cut: float) -> None:
        """Prove what is cheap to show: that rules most nodes out before any of their blocks is priced."""
        if (ahead_s := self.shown.forward(node)) > 0:
            node.ready = replace(node.ready, forward_s=ahead_s)
        self.hear(node, cut)

    def hear(self, node: Node, cut: float) -> None:
        """The same of what a layer takes, and not of what exchanges are hidden behind."""
        ready, node.heard = node.ready, True
        if self.menu(ready.instance).figures.layer.by_cycles:  # there are many tile counts: others may come first
            return
        times = Counter[int]()
        for one in ready.instance.pipeline:
            times |= Counter(dict(one.runs))
        share = [low * times[number] for number, low in enumerate(node.lows)]
        for number, stage in enumerate(ready.stages):
            if stage.tables is not None and share[number] >= _MATTERS * sum(share) and node.bound < cut:
                node.lows[number] = max(node.lows[number], self.shown.apart(node, stage).seconds)
                node.proven()

    def _without_lattice(self, node: Node, number: int, stage: Stage, most: float) -> None:
        """Too many down-sets to list: at first what the sharding alone proves, then blocks generated on demand."""
        assert stage.tables is not None and stage.limits is not None and stage.work is not None
        if not node.rooted:
            node.lows[number] = max(node.lows[number], self.shown.apart(node, stage).seconds)
            return
        limits = replace(stage.limits, dram_left=np.inf)
        cutoff = most if np.isfinite(most) else None
        try:
            found = optimize_intrachip(stage.tables, limits, clock=self.options.clock.share(_BLOCKS), cutoff=cutoff)
            node.lows[number] = max(node.lows[number], found.bound)
        except CutOff as proof:
            node.lows[number] = max(node.lows[number], proof.seconds)
        node.exhausted = True

    def _search(self, node: Node, number: int, stage: Stage) -> LayerSearch | None:
        """The search of a stage's schemes and fusion; none where its down-sets are too many to list."""
        assert stage.tables is not None and stage.limits is not None and stage.work is not None
        limits, lattice = paths(number, stage, self.chains)
        if lattice is None:
            return None
        weighed_o = weighed_gradients(node.ready, self.menu(node.ready.instance), node.allowed_o)
        left = stage.limits.dram_left if node.tight else np.inf
        key = weighed_o.tobytes(), left
        if key not in stage.work.joint:
            menu, hints = self.menu(node.ready.instance), self.hints.get(node.plan, frozenset())
            within = replace(limits, dram_left=left)
            choices = menu, node.allowed_o, stage.members, stage.tables, within, lattice, weighed_o, hints
            stage.work.joint[key] = LayerSearch(*choices)
        return stage.work.joint[key]

    def options_of(self, node: Node) -> Ints | None:
        """The option of every kernel that the best known of each stage has; none where nothing is known of a stage."""
        menu = self.menu(node.ready.instance)
        found = menu.first_k.copy()
        for number, stage in enumerate(node.ready.stages):
            if stage.tables is None:
                continue
            search = self._search(node, number, stage)
            best = None if search is None else search.answer or search.known
            if search is None and (options_k := self.shown.start(node, stage)) is not None:
                found[stage.members] = options_k[stage.members]
                continue
            if search is None or best is None or np.isinf(best[0]):
                return None
            for k, z in best[1].items():
                found[stage.members[k]] = search.options[k][z]
        return found

    def exact(self, node: Node, options_k: Ints, cut: float) -> Solved | Pruned:
        """The best fusion of all stages under schemes of all kernels.

        Raises
        ------
        Infeasible, NoSolution
        """
        instance, menu = node.ready.instance, self.menu(node.ready.instance)
        key = menu, tuple(options_k.tolist())
        if not meets(menu, options_k):
            raise Infeasible("partial sums that nothing adds up")
        if key not in self.given:
            names = [kernel.name for kernel in self.setting.graph.kernels]
            sharding = {name: menu.tables.scheme_o[o] for name, o in zip(names, options_k.tolist(), strict=True)}
            work = given_work(instance, sharding, dict.fromkeys(names, 0), open_record(Termination.LIMIT_WITH_SOLUTION))
            work.lattices = self.lattices
            self.given[key] = work
        known, tiles = self.given[key], node.ready.sharded.tile_count
        for ready in prepare(instance, self.options, {instance.shared: known}):
            # a sharding that shares no tiles has smaller ones of its own, which only save SRAM
            if ready.sharded.tile_count == tiles or known.counts == (ready.sharded.tile_count,):
                return finish(with_starts(ready, self.options.clock), self.options, cut)
        raise Infeasible("no tile count fits")

    def split(self, node: Node, options_k: Ints) -> list[Node]:
        """The node with one kernel's schemes told apart: that which sends too much on, else whose bytes differ most."""
        menu = self.menu(node.ready.instance)
        free = [k for k in range(menu.tables.kernels) if (node.allowed_o & (menu.tables.kernel_o == k)).sum() > 1]
        sums = {k for pair in menu.tables.partial_kk for k in pair} if not meets(menu, options_k) else set()
        bytes_o, sent_k = self._bytes(menu), np.zeros(menu.tables.kernels)
        if not node.tight and node.plan.stages > 1:  # to the next stage, beside the least
            graph, share_o = self.setting.graph, menu.beyond(menu.output_o, node.allowed_o)
            for tensor in graph.carried:
                k = graph.index()[tensor.src]
                sent_k[k] += graph.bytes_of(tensor) * share_o[options_k[k]]

        def spread(k: int) -> tuple[bool, float, float]:
            mine = bytes_o[node.allowed_o & (menu.tables.kernel_o == k)]
            return k in sums, float(sent_k[k]), float(np.ptp(mine))

        kernel = max(free, key=spread)
        found: list[Node] = []
        for option in np.flatnonzero(node.allowed_o & (menu.tables.kernel_o == kernel)):
            allowed = node.allowed_o & ((menu.tables.kernel_o != kernel) | (np.arange(len(node.allowed_o)) == option))
            kept = meeting(menu, allowed)
            if kept is None:
                continue
            try:
                counts = (node.ready.sharded.tile_count,)
                made = self._nodes(node.ready.instance, kept, counts, node.bound, whole=False)
                found += [replace(one, tight=node.tight) for one in made]
            except Infeasible:  # whatever the other kernels do
                continue
        return found

    def fixed(self, node: Node) -> bool:
        """Whether one scheme is left for every kernel."""
        return int(node.allowed_o.sum()) == self.menu(node.ready.instance).tables.kernels

    def lean(self, node: Node) -> Ints:
        """The option of every kernel with which it holds and makes least."""
        menu = self.menu(node.ready.instance)
        bytes_o = np.where(node.allowed_o, self._bytes(menu), np.inf)
        return np.array([of[np.argmin(bytes_o[of])] for of in menu.tables.of_kernel])

    @staticmethod
    def _bytes(menu: Menu) -> Floats:
        """Of each option: weight, its gradient, caches and output on a chip."""
        graph = menu.instance.graph
        full = np.array([graph.output_bytes(k) for k in range(menu.tables.kernels)])
        made_o = full[menu.tables.kernel_o] * menu.output_o
        return np.asarray(menu.weight_o + menu.gradient_o + menu.by_option("cached_bytes") + made_o)
