"""Solutions of graphs that draw equal layers: the options that are best where one of them stands for all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from dfopt.bnb import Candidate, Clock, Heuristic, Node, View
from dfopt.regions.facts import FactCache
from dfopt.regions.fusing import best_fusions
from dfopt.regions.judged import JudgedMapping, cutoffs_of, judged
from dfopt.regions.region import Branch, Region, listed
from dfopt.regions.space import MappingSpace
from dfopt.setting.plans import asked_plans
from dfopt.setting.unrolled import unrolled
from dfopt.solving.options import Options

_SHARE = 0.25
"""Of the work that is left, at most, for the layer alone."""
_SAME = "axes", "microbatches", "interleave", "modules"
"""What the plans of a layer and of all layers have in common."""


class OneLayer(Heuristic[Branch, JudgedMapping]):
    """Heuristic for unrolled graphs with equal layers: solves one layer and uses its options in all.

    Layers need not be alike to be fastest, and partitions may hold kernels of several.

    Parameters
    ----------
    memory : FactCache
        Facts of regions.
    options : Options
        The request under way.
    after : str
        Name of the last relaxation of a root.
    solve : callable
        The search for the best mapping of a space.
    """

    def __init__(
        self,
        memory: FactCache,
        options: Options,
        after: str,
        solve: Callable[[MappingSpace, Options], JudgedMapping | None],
    ) -> None:
        self._memory, self._options, self._after, self._solve = memory, options, after, solve

    def due(self, node: Node[Branch], after: str) -> bool:
        """Whether a root has all its bounds and some of its blocks are not listed."""
        region = node.region
        return isinstance(region, Region) and after == self._after and region.is_whole and not region.complete

    def propose(self, node: Node[Branch], view: View) -> Iterator[Candidate]:
        """The mapping under the plan with the least step, with the options of the solved layer."""
        [region] = listed([node.region])
        facts, of, cutoff_i = self._memory.of(region), region.of, cutoffs_of(view, region.of)
        if facts.arcs_k is None or region.vectors == 1 or node.bound.value >= view.cutoff:
            return
        place = int(facts.plan_i[facts.steps(facts.layer_k).argmin()])
        option_k = self._options_of(region, place)
        if option_k is not None:
            plan_i, clock = np.array([place]), self._options.clock.share(_SHARE)
            for mapping in best_fusions(of, plan_i, option_k, cutoff_i[plan_i], clock)[0]:
                yield judged(of, mapping, self._options)

    def _options_of(self, region: Region, place: int) -> list[int] | None:
        """The options of all kernels, alike in every layer; none if no layer is drawn twice, or options are pinned."""
        of, asked = region.of, self._options.request
        drawn = unrolled(of.setting.graph)
        if drawn is None or asked.pin_sharding or asked.pin_partition or asked.offload or asked.place:
            return None
        plan, folded = of.plans[place], replace(of.setting, graph=drawn.layer)
        legal, _ = asked_plans(drawn.layer, folded.system, asked, folded.assumptions)
        alike = [other for other in legal if all(getattr(other, name) == getattr(plan, name) for name in _SAME)][:1]
        clock: Clock = self._options.clock.share(_SHARE)
        options = replace(self._options, clock=clock)
        best = self._solve(MappingSpace.of_plans(folded, asked, alike), options) if alike else None
        if best is None or best.solved is None:
            return None
        scheme = {kernel.name: kernel.sharding for kernel in best.solved.mapping.kernels}
        pairs = zip(of.layer.kernels, of.layer.schemes_k, strict=True)
        return [schemes.index(scheme[drawn.kernel[kernel.name]]) for kernel, schemes in pairs]
