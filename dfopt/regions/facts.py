"""What is shown of one region: least amounts, what fits, the dual of each kind of layer, and shortest paths.

Everything is a lower bound over the region's members, whatever is known elsewhere. Suffixes: i plan of the class, k
kernel of the graph or kind of layer, o option of a kernel, c column of amounts, a arc, b block, j down-set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from dfopt.arrays import Bools, Floats, Ints
from dfopt.bnb import Clock
from dfopt.regions.arcs import Arcs, chain_of
from dfopt.regions.capacity import Cut, best_price, stages_by_cut
from dfopt.regions.chains import Pipelines
from dfopt.regions.dual import Dual, Resources, resources_of
from dfopt.regions.factors import OF_SECONDS
from dfopt.regions.fusing import Fused, for_blocks, fused
from dfopt.regions.passes import seconds_of
from dfopt.regions.region import Region
from dfopt.terms.blocks import BlockPrices
from dfopt.terms.bounds.transfers import Transfers
from dfopt.terms.incidence import Exactly

_SLACK = 1e-9
"""Share of a memory that bounds leave open: sums of bytes are rounded."""
_PLANS = 4
"""Plans of a region that are raised by cuts, at most: one cut raises all plans of a class."""
_TOGETHER = 0.25
"""Of the work that is left, at most, for the blocks and options of one region: most need no more than that."""
_KEPT = 128
"""Regions of which facts are kept, those that were asked about last: others are worked out again."""


@dataclass(frozen=True, eq=False)
class Facts:
    """Lower bounds on the members of a region, each computed on first use.

    Attributes
    ----------
    region : Region
        The region.
    """

    region: Region

    # -- what fits ----------------------------------------------------------------------------------------------------

    @cached_property
    def least_c(self) -> Floats:
        """Least amount of every charge over the remaining options: float array, shape (charges,)."""
        return self.region.of.table.least(self.region.domain)

    @cached_property
    def room_ki(self) -> Floats:
        """Upper bound on the bytes left for waiting tensors: shape (kinds, plans left)."""
        return self.region.of.room(self.least_c[None], _SLACK)[:, self.region.plan_i, 0]

    @cached_property
    def plan_i(self) -> Ints:
        """The remaining plans whose states may fit: int array of places in the class."""
        return self.region.plan_i[(self.room_ki >= 0).all(axis=0)]

    @cached_property
    def _without_passes(self) -> Transfers:
        """Seconds beside the layers, at least, without those of passes."""
        return self.region.of.least_beside(self.region.domain, self.least_c)

    @cached_property
    def beside_layers(self) -> Transfers:
        """Lower bound on the seconds of transfers in addition to the layers, passes included."""
        region = self.region
        if region.of.by_pass is None:
            return self._without_passes
        return self._without_passes._replace(passes=region.of.least_passes(self.some, self._priced_k, region.domain))

    def steps(self, layer_k: Floats) -> Floats:
        """Lower bound on the step, s, under each plan of :attr:`plan_i`, from layer seconds by kind and from cuts."""
        return self._steps(layer_k[:, None], np.maximum(self._by_cuts_r, self._slowest_r)[:, None])[:, 0]

    def _steps(self, layer_kv: Floats, stage_rv: Floats) -> Floats:
        """The same for several choices, from seconds of layers and of stages: shape (plans, choices)."""
        steps = self.region.of.steps
        return np.asarray(steps.of(layer_kv, self.beside_layers, stage_rv)[self.plan_i])

    @cached_property
    def _slowest_r(self) -> Floats:
        """Seconds of the slowest stage of every plan that is left at least, if kernels that are drawn once are shared
        out as well as they can be, every block at its least price."""
        of = self.region.of
        slowest_i = np.full(len(of.plans), -np.inf)
        if of.cuts is not None:
            pipelines = Pipelines(of, self.least_c[None], of.least_figures(self.region.domain), _SLACK)
            slowest_i[self.plan_i] = [pipelines.slowest(i)[0] for i in self.plan_i.tolist()]
        return slowest_i[of.table_of_plans.plan_r]

    def least_step(self, layer_k: Floats) -> float:
        """Least lower bound on the step, s, over the plans, from layer seconds by kind."""
        return float(self.steps(layer_k).min(initial=np.inf))

    @property
    def by_dual(self) -> float:
        """Lower bound on the step, s, from the dual; infinite where no member fits."""
        if self.arcs_k is None:
            return np.inf
        beside_layers = self._without_passes
        step_i = self.region.of.steps.of(self.by_dual_k[:, None], beside_layers, self._by_cuts_r[:, None])[self.plan_i]
        return float(step_i.min(initial=np.inf))

    @property
    def by_all(self) -> float:
        """Lower bound on the step, s, from all bounds of the region; infinite where no member fits."""
        return np.inf if self.arcs_k is None else self.least_step(self.layer_k)

    # -- capacity -----------------------------------------------------------------------------------------------------

    @cached_property
    def cuts(self) -> dict[int, Cut]:
        """By plan, the capacity cut with the highest bound so far on its fullest stage; :meth:`tighten` adds them."""
        return {}

    @cached_property
    def _by_cuts_r(self) -> Floats:
        """Seconds of the layers of every stage at least, by all cuts that were met; raised in place."""
        return np.full(len(self.region.of.table_of_plans.plan_r), -np.inf)

    @cached_property
    def room_mr(self) -> Floats:
        """Upper bound on the bytes left for what options decide: shape (memories, stages)."""
        holding = self.region.of.holding
        room_mr = holding.room_of_layers(self.region.of.held(self.least_c[None]))[:, :, 0]
        return np.asarray(room_mr + _SLACK * holding.capacity_m[:, None])

    def tighten(self, cutoff: float) -> None:
        """Add capacity cuts for the plan with the least step, then for others, while capacity binds below a cutoff."""
        of = self.region.of
        if self.arcs_k is None or not of.holding.limited or self.region.is_path:
            return
        for _ in range(_PLANS):
            step_i = self.steps(self.layer_k)
            plan = int(self.plan_i[step_i.argmin()])
            if step_i.min() >= cutoff or plan in self.cuts:
                return
            fullest = self._fullest(plan)
            solve = [resources.dual for resources in self.resources_k]
            cuts = best_price(of, solve, self._free, fullest, float(self.room_mr[fullest]))
            if not cuts:
                return
            self.cuts[plan] = cuts[-1]
            for cut in cuts:
                by_cut_r = stages_by_cut(of, self.room_mr, cut.price_kh, cut.value_k[:, None])[:, 0]
                np.maximum(self._by_cuts_r, by_cut_r, out=self._by_cuts_r)

    def _fullest(self, plan: int) -> tuple[int, int]:
        """The memory, and the stage of a plan, in which the options of the dual exceed the room most."""
        of = self.region.of
        stages = np.flatnonzero(of.table_of_plans.plan_r == plan)
        held_hk = np.zeros((len(of.held_ho), of.kinds))
        for kind, dual in enumerate(self.dual_k):
            option_o = dual.option_k[of.kind_k == kind]
            held_hk[:, kind] = of.held_ho[:, option_o].sum(axis=1)
        over_mr = np.einsum("mrkh,hk->mr", of.holding.of_layers[:, stages], held_hk) - self.room_mr[:, stages]
        memory, place = np.unravel_index(int(over_mr.argmax()), over_mr.shape)
        return int(memory), int(stages[place])

    @property
    def _free(self) -> Cut:
        """The duals without prices."""
        of = self.region.of
        return Cut(np.zeros((of.kinds, len(of.held_ho))), self.dual_k)

    @cached_property
    def arcs_k(self) -> tuple[Arcs, ...] | None:
        """Lattices left by kind of layer, without blocks that exceed the room of every plan; None if nothing fits."""
        of, kept_k = self.region.of, list[Arcs]()
        if not len(self.plan_i):
            return None
        if not of.holding.counts_waiting or of.cuts is not None:  # what waits in a stage depends on where that begins
            return self.region.arcs_k
        for arcs, room_i in zip(self.region.arcs_k, self.room_ki, strict=True):
            if not arcs.complete or of.most_waiting(arcs, self.least_c) <= room_i.max():
                kept_k.append(arcs)
                continue
            fits_a = of.waiting(arcs, self.least_c) <= room_i.max()
            few = (arcs,) if fits_a.all() else arcs.kept(fits_a)
            if few is None:
                return None
            kept_k.append(few[0])
        return tuple(kept_k)

    @property
    def some(self) -> tuple[Arcs, ...]:
        """Like :attr:`arcs_k`, for a region known to have a member that may fit."""
        assert self.arcs_k is not None, "no member of the region fits: nothing more is asked about it"
        return self.arcs_k

    # -- the dual -----------------------------------------------------------------------------------------------------

    @cached_property
    def dual_k(self) -> tuple[Dual, ...]:
        """Lagrangean dual of every kind of layer, see :mod:`dfopt.regions.dual`."""
        return tuple(resources.dual() for resources in self.resources_k)

    @cached_property
    def resources_k(self) -> tuple[Resources, ...]:
        """Resource factors of every kind of layer."""
        of, domain = self.region.of, self.region.domain
        of_seconds = (charge.incidence for charge in of.table_of_blocks.charges if charge.resource in OF_SECONDS)
        counted = [incidence for incidence in of_seconds if not isinstance(incidence, Exactly)]
        counts_of = ((arcs, arcs.least_counts(counted).__getitem__) for arcs in self.some)
        return tuple(resources_of(of, domain, arcs.side_k, counts) for arcs, counts in counts_of)

    @property
    def by_dual_k(self) -> Floats:
        """Dual bound on the seconds of every kind of layer; 0 if one vector is left, as the path bound is tighter."""
        if self.region.is_path:
            return np.zeros(self.region.of.kinds)
        return np.array([dual.seconds for dual in self.dual_k])

    @cached_property
    def marginal_ko(self) -> tuple[Floats, ...]:
        """Min-marginals: by kernel, least seconds of its kind of layer under each remaining option."""
        if self.region.is_path:
            return tuple(np.zeros(1) for _ in self.region.domain)
        return self._marginals(self.dual_k)

    def _marginals(self, dual_k: Sequence[Dual]) -> tuple[Floats, ...]:
        marginal_ko = [np.zeros(len(left)) for left in self.region.domain]
        for arcs, dual in zip(self.some, dual_k, strict=True):
            for k in arcs.kernels.tolist():
                marginal_ko[k] = dual.elimination.marginals_ko[k]
        return tuple(marginal_ko)

    @cached_property
    def step_ko(self) -> tuple[Floats, ...]:
        """Min-marginals of the step, s: by kernel, lower bounds under each remaining option, with and without cuts."""
        region, of = self.region, self.region.of
        kind_v = np.repeat(of.kind_k, list(map(len, region.domain)))
        layer_kv, stage_rv = self._with(self.layer_k, self.marginal_ko, kind_v), self._by_cuts_r[:, None]
        for cut in self.cuts.values():
            value_kv = self._with(cut.value_k, self._marginals(cut.dual_k), kind_v)
            stage_rv = np.maximum(stage_rv, stages_by_cut(of, self.room_mr, cut.price_kh, value_kv))
        step_v = self._steps(layer_kv, stage_rv).min(axis=0, initial=np.inf)
        return tuple(np.split(step_v, np.cumsum(list(map(len, region.domain)))[:-1]))

    def _with(self, value_k: Floats, marginal_ko: Sequence[Floats], kind_v: Ints) -> Floats:
        """Seconds of layers of every kind with each option: those of its own kind are raised."""
        value_kv = np.repeat(value_k[:, None], len(kind_v), axis=1)
        own = kind_v, np.arange(len(kind_v))
        value_kv[own] = np.maximum(value_kv[own], np.concatenate(marginal_ko))
        return value_kv

    @cached_property
    def rounded_vk(self) -> Ints:
        """Vectors of options that attain the duals, with and without cuts: shape (vectors, kernels)."""
        if self.region.is_path:
            return self.region.of.table.vectors(self.region.domain)
        duals = [self.dual_k, *(cut.dual_k for cut in self.cuts.values())]
        return np.array([self._rounded(each) for each in duals])

    def _rounded(self, dual_k: Sequence[Dual]) -> Ints:
        option_k, of = np.array([left[0] for left in self.region.domain], dtype=np.int64), self.region.of
        for dual, arcs in zip(dual_k, self.some, strict=True):
            option_k[arcs.kernels] = (dual.option_k - of.first_k)[arcs.kernels]
        return option_k

    # -- paths --------------------------------------------------------------------------------------------------------

    @cached_property
    def _priced_k(self) -> tuple[BlockPrices, ...]:
        """Least prices of every block, by kind of layer."""
        return tuple(self.region.of.least_block_prices(arcs, self.least_c[None]) for arcs in self.some)

    @cached_property
    def price_kb(self) -> tuple[Floats, ...]:
        """Least seconds of every block, by kind of layer; infinite where a block never fits the chip."""
        return tuple(seconds_of(priced)[0] for priced in self._priced_k)

    @cached_property
    def distance_kj(self) -> tuple[Floats, ...]:
        """Shortest-path distances, s, from the empty down-set to each one, by kind of layer."""
        pairs = zip(self.some, self.price_kb, strict=True)
        return tuple(arcs.distances(price_b[None])[0] for arcs, price_b in pairs)

    @property
    def by_path_k(self) -> Floats:
        """Path bound on the seconds of every kind of layer, or the bound of generated blocks (:meth:`generate`)."""
        listed = (arcs.complete for arcs in self.some)
        seconds = (self.distance_kj[k][-1] if each else self._by_blocks_k[k] for k, each in enumerate(listed))
        return np.fromiter(seconds, dtype=np.float64)

    @cached_property
    def _by_blocks_k(self) -> Floats:
        """Seconds of a layer of every kind by blocks that were generated; raised in place."""
        return np.zeros(self.region.of.kinds)

    @cached_property
    def partition_ks(self) -> dict[int, Ints]:
        """By kind of layer, the partitions that attain the bound :attr:`by_path_k`."""
        return {}

    @property
    def attained(self) -> tuple[Arcs, ...]:
        """By kind of layer, the blocks that attain the bound if not all are listed; otherwise all that are left."""
        return tuple(
            chain_of(arcs, self.partition_ks[kind]) if kind in self.partition_ks else arcs
            for kind, arcs in enumerate(self.some)
        )

    @cached_property
    def together_k(self) -> dict[int, Mapping[int, int]]:
        """By kind of layer solved with :meth:`choose_together`, the option of each kernel."""
        return {}

    def choose_together(self, cutoff: float, clock: Clock) -> float:
        """Optimize options and blocks together where not all blocks are listed; return a lower bound on the step, s."""

        from dfopt.regions.pieces import best_together  # not for those who never ask

        def chosen(kind: int, most: float) -> Fused:
            attained = best_together(self.region.of, kind, self.region.domain, most, clock.share(_TOGETHER))
            if not attained.blocks:
                return Fused(attained.low)
            self.together_k[kind] = attained.option_k
            return Fused(attained.low, attained.partition_k(self.some[kind].kernels))

        return self._where_unlisted(cutoff, chosen)

    def generate(self, cutoff: float, clock: Clock) -> float:
        """Generate blocks on demand where not all are listed; return a lower bound on the step, s."""
        of, left = self.region.of, self.region.domain
        return self._where_unlisted(cutoff, lambda kind, most: fused(of, kind, left, most, for_blocks(clock)))

    def _where_unlisted(self, cutoff: float, shown: Callable[[int, float], Fused]) -> float:
        if self.arcs_k is None:
            return np.inf
        for kind, arcs in enumerate(self.some):
            if arcs.complete or self.by_all >= cutoff:
                continue
            most = float(self.most_k(cutoff)[kind])
            fusion = shown(kind, most)
            if fusion.low >= most:  # which is a little more than what a step below the cutoff leaves
                return cutoff
            self._by_blocks_k[kind] = max(self._by_blocks_k[kind], fusion.low)
            if fusion.partition_k is not None:
                self.partition_ks[kind] = fusion.partition_k
        return self.by_all

    @property
    def layer_k(self) -> Floats:
        """Best lower bound on the seconds of every kind of layer: float array, shape (kinds,)."""
        return np.maximum(self.by_path_k, self.by_dual_k)

    @cached_property
    def through_ka(self) -> tuple[Floats, ...]:
        """Least seconds of a path through each arc, by kind of layer."""
        pairs = zip(self.some, self.price_kb, strict=True)
        return tuple(arcs.through(price_b)[1] for arcs, price_b in pairs)

    def path(self, kind: int) -> Ints:
        """Arcs of a shortest path of one kind of layer, in order."""
        return self.some[kind].path(self.distance_kj[kind], self.price_kb[kind])

    # -- what a cutoff leaves -----------------------------------------------------------------------------------------

    def most_k(self, cutoff: float) -> Floats:
        """By kind, layer seconds at which every plan reaches ``cutoff`` while the other kinds are at their least."""
        steps, layer_k = self.region.of.steps, self.layer_k
        most = [steps.most(cutoff, layer_k, kind, self.beside_layers)[self.plan_i] for kind in range(len(layer_k))]
        return np.array([each.max(initial=-1.0) for each in most])

    def kept_a(self, kind: int, most: float) -> Bools:
        """Mask of the arcs of a kind of layer that lie on some path of at most ``most`` seconds."""
        through_a = self.through_ka[kind]
        return np.asarray((through_a <= max(most, float(self.by_path_k[kind]))) & np.isfinite(through_a))


class FactCache:
    """Cache of the bounds of the regions used last.

    Its contents affect only speed: facts that are missing are computed again.
    """

    def __init__(self) -> None:
        self._facts = lru_cache(maxsize=_KEPT)(Facts)

    def of(self, region: Region) -> Facts:
        """The bounds of a region, from the cache or new."""
        return self._facts(region)
