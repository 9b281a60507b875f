"""Exact prices: the best plan and partitions under each of some vectors of options.

All blocks are priced under many vectors as products of arrays, then a shortest path is found for each vector. What
waits in DRAM between partitions is looked at only for plans and vectors that would be the best.

Suffixes: v vector of options, k kernel or kind of layer, i plan, c column of amounts, a arc, b block, j down-set.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from dfopt.arrays import Bools, Floats, Ints
from dfopt.bnb import UNLIMITED, Clock
from dfopt.regions.arcs import Arcs, lots
from dfopt.regions.chains import Pipelines
from dfopt.regions.classes import PlanClass
from dfopt.regions.composed import Composed
from dfopt.regions.passes import least_passes, of_block, seconds_of
from dfopt.setting.reads import memoized
from dfopt.terms.blocks import BlockPrices
from dfopt.terms.bounds.transfers import Transfers

Distinct = Literal["plan", "sharding"]
_TOGETHER = 64
"""Plans and vectors whose pipelines are worked out together."""


@dataclass(frozen=True)
class Priced:
    """A mapping with the value that the arrays give; the judge has not scored it yet.

    Attributes
    ----------
    plan : int
        Place among the plans of the class.
    option_k : tuple of int
        Option of every kernel, as a place among its schemes.
    partition_k : tuple of int
        Partition of every kernel, numbered in every stage of the mapping: a kind of layer, or a pipeline stage of
        kernels that are drawn once.
    stage_k : tuple of int
        The stage of the mapping of every kernel.
    step_s : float, s
        Seconds of a step.
    """

    plan: int
    option_k: tuple[int, ...]
    partition_k: tuple[int, ...]
    stage_k: tuple[int, ...]
    step_s: float

    def key(self, distinct: Distinct) -> Hashable:
        """The key that equal mappings of one class share, by plan or by plan and options."""
        return self.plan if distinct == "plan" else (self.plan, self.option_k)


class Best(NamedTuple):
    """The best mappings below a cutoff (``kept``), and a lower bound on those not examined (``others``).

    ``others`` is infinite unless a layer has too many paths to list.
    """

    kept: list[Priced]
    others: float


def best_of(
    of: PlanClass,
    plan_i: Ints,
    arcs_k: Sequence[Arcs],
    option_vk: Ints,
    cutoff_i: Floats,
    top: int = 1,
    distinct: Distinct = "plan",
    clock: Clock = UNLIMITED,
) -> Best:
    """The best mappings over some vectors of options and some plans, with blocks of given lattices.

    Parameters
    ----------
    of : PlanClass
        The class of the plans.
    plan_i : int array
        The plans, as places in the class.
    arcs_k : sequence of Arcs
        Blocks that may be used, by kind of layer.
    option_vk : int array, shape (vectors, kernels)
        Options of all kernels, as places among their schemes.
    cutoff_i : float array, s, shape (plans,)
        Only mappings below these are looked for.
    top : int
        Number of mappings to find.
    distinct : str
        Key that no two of them share: the plan, or the plan and the vector.
    clock : Clock
        Says when to list no more paths where several of a layer matter.

    Returns
    -------
    Best
        The best mapping first.
    """
    best = Best([], np.inf)
    for part in lots(len(option_vk), sum(len(arcs.member_bk) for arcs in arcs_k)):
        some = Lot(of, plan_i, tuple(arcs_k), option_vk[part], clock)
        best = some.best(best, cutoff_i, top, distinct)
    return best


@dataclass(frozen=True, eq=False)
class Lot:
    """A batch of vectors of options that are priced together; arguments as of :func:`best_of`."""

    of: PlanClass
    plan_i: Ints
    arcs_k: tuple[Arcs, ...]
    option_vk: Ints
    clock: Clock = UNLIMITED

    def best(self, best: Best, cutoff_i: Floats, top: int, distinct: Distinct) -> Best:
        """The best mappings among those of ``best`` and those of this batch that are below the cutoffs.

        There are at most ``top``, and no two have the same key ``distinct``.

        Parameters
        ----------
        best : Best
            The best mappings so far.
        cutoff_i : float array, s, shape (plans,)
            Cutoff of the step of every plan.
        top : int
            Number of mappings to keep.
        distinct : str
            Property in which kept mappings differ.
        """
        if not self.may.any():
            return best
        below_v = self._may_be_below(np.minimum(cutoff_i, best.kept[-1].step_s if len(best.kept) == top else np.inf))
        if not below_v.all():  # what passes take is worked out for few vectors
            few = replace(self, option_vk=self.option_vk[below_v])
            return few.best(best, cutoff_i, top, distinct)
        step_iv, (kept, others) = self.step_iv, best
        places = np.argwhere(step_iv < cutoff_i[:, None])
        places = places[np.argsort(step_iv[tuple(places.T)], kind="stable")]
        for first in range(0, len(places), _TOGETHER):
            last = kept[-1].step_s if len(kept) == top else np.inf
            some = [(i, v) for i, v in places[first : first + _TOGETHER].tolist() if step_iv[i, v] < last]
            if not some:  # nor of those that follow
                break
            exact = self._on_paths if self.of.cuts is None else self._in_stages(some)
            for i, v in some:
                alike = self._key(i, v, distinct)
                most = min([float(cutoff_i[i]), *(mapping.step_s for mapping in kept[top - 1 :])])
                most = min([most, *(mapping.step_s for mapping in kept if mapping.key(distinct) == alike)])
                if step_iv[i, v] >= most:
                    continue
                mapping, low = exact(i, v, most)
                others = min(others, low)
                if mapping is not None and mapping.step_s < most:
                    unlike = [each for each in kept if each.key(distinct) != alike]
                    kept = sorted([*unlike, mapping], key=lambda each: each.step_s)[:top]
        return Best(kept, others)

    @cached_property
    def step_iv(self) -> Floats:
        """Lower bound on the step, s, shape (plans, vectors): exact if no layer waits; infinite where nothing fits."""
        step_iv = self.of.steps.of(self.layer_kv, self.beside_layers)[self.plan_i]
        return np.where(self.may, step_iv, np.inf)

    def _may_be_below(self, cutoff_i: Floats) -> Bools:
        """Vectors that may be below the cutoff of some plan, whatever passes take; all where passes do not count."""
        if self.of.by_pass is None:
            return np.ones(len(self.option_vk), dtype=bool)
        alone = self.of.beside_of(self.option_vk, self.amount_vc)
        step_iv = np.where(self.may, self.of.steps.of(self.layer_kv, alone)[self.plan_i], np.inf)
        return np.asarray((step_iv < cutoff_i[:, None]).any(axis=0))

    def _key(self, i: int, v: int, distinct: Distinct) -> Hashable:
        """What mappings with a plan and a vector share with those that are alike."""
        plan = int(self.plan_i[i])
        return plan if distinct == "plan" else (plan, tuple(self.option_vk[v].tolist()))

    def _on_paths(self, i: int, v: int, cutoff: float) -> tuple[Priced | None, float]:
        """The best mapping of a plan and a vector, and what others that were not looked at are not below."""
        if self.of.by_layers or self.of.alone(int(self.plan_i[i])).by_layers:
            return self._with_room(i, v), np.inf
        mapping, low = self._composed(i, v, cutoff)
        return mapping, max(low, float(self.step_iv[i, v]))

    def _composed(self, i: int, v: int, cutoff: float) -> tuple[Priced | None, float]:
        """The same where passes decide what a step takes, or microbatches take turns."""
        of, fits_ka, some_k = self.of.alone(int(self.plan_i[i])), self._fits(i, v), list[tuple[Arcs, Ints, Ints]]()
        for kind, arcs in enumerate(self.arcs_k):
            few = arcs.kept(fits_ka[kind] & np.isfinite(self.price_kvb[kind][v])[arcs.block_a])
            if few is None:
                return None, np.inf
            some_k.append(few)
        priced_k = [of_block(priced, v, blocks) for priced, (_, blocks, _) in zip(self.priced_k, some_k, strict=True)]
        beside_layers = of.beside_of(self.option_vk[[v]], self.amount_vc[[v]])
        value, paths, low = Composed(of, [few[0] for few in some_k], priced_k, beside_layers, self.clock).best(cutoff)
        if paths is None:
            return None, low
        of_all = [arc_a[path] for path, (_, _, arc_a) in zip(paths, some_k, strict=True)]
        return self._priced(value, i, v, of_all), low

    def _with_room(self, i: int, v: int) -> Priced | None:
        """The mapping of a plan and a vector, with the best paths that leave room for what waits; none without."""
        step_s, of_kinds = float(self.step_iv[i, v]), zip(self.arcs_k, self.distance_kvj, self.price_kvb, strict=True)
        paths = [arcs.path(distance_vj[v], price_vb[v]) for arcs, distance_vj, price_vb in of_kinds]
        fits_ka = self._fits(i, v)
        if not all(fits_a[path].all() for fits_a, path in zip(fits_ka, paths, strict=True)):
            triples = zip(self.arcs_k, self.price_kvb, fits_ka, strict=True)
            within = [arcs.shortest(price_vb[v], fits_a) for arcs, price_vb, fits_a in triples]
            layer_k, paths = np.array([seconds for seconds, _ in within]), [path for _, path in within]
            if np.isinf(layer_k).any():
                return None
            beside_layers = self.of.beside_of(self.option_vk[[v]], self.amount_vc[[v]])
            step_s = float(self.of.steps.of(layer_k[:, None], beside_layers)[self.plan_i[i], 0])
        return self._priced(step_s, i, v, paths)

    @cached_property
    def amount_vc(self) -> Floats:
        """Amounts of all charges: float array, shape (vectors, charges)."""
        return self.of.table.exact(self.option_vk)

    @cached_property
    def room_kiv(self) -> Floats:
        """Bytes left for waiting tensors: float array, shape (kinds, plans, vectors)."""
        return self.of.room(self.amount_vc)[:, self.plan_i]

    @cached_property
    def may(self) -> Floats:
        """Whether a plan fits with a vector and its options are compatible: shape (plans, vectors)."""
        together_v = (self.of.illegal(self.amount_vc) == 0) & self.of.are_tiled_so(self.option_vk)
        return np.asarray((self.room_kiv >= 0).all(axis=0) & together_v)

    @cached_property
    def beside_layers(self) -> Transfers:
        """Seconds of transfers in addition to the layers, with the lesser of both passes where passes count."""
        beside_layers, by_pass = self.of.beside_of(self.option_vk, self.amount_vc), self.of.by_pass
        if by_pass is None:
            return beside_layers
        return beside_layers._replace(passes=least_passes(by_pass, self.arcs_k, self.priced_k), exact=self.of.by_layers)

    @cached_property
    def priced_k(self) -> tuple[BlockPrices, ...]:
        """Block prices of every kind of layer."""
        return tuple(self.of.block_prices(arcs, self.amount_vc) for arcs in self.arcs_k)

    @cached_property
    def price_kvb(self) -> tuple[Floats, ...]:
        """By kind of layer, seconds of every block: shape (vectors, blocks)."""
        return tuple(map(seconds_of, self.priced_k))

    @cached_property
    def distance_kvj(self) -> tuple[Floats, ...]:
        """By kind of layer, shortest-path distances, s, to every down-set: shape (vectors, down-sets)."""
        pairs = zip(self.arcs_k, self.price_kvb, strict=True)
        return tuple(arcs.distances(price_vb) for arcs, price_vb in pairs)

    @cached_property
    def layer_kv(self) -> Floats:
        """Least seconds of a layer of every kind: float array, shape (kinds, vectors)."""
        return np.stack([distance_vj[:, -1] for distance_vj in self.distance_kvj])

    def _fits(self, i: int, v: int) -> list[Bools]:
        """Arcs beside which no more waits than there is room for, by kind of layer."""
        if not self.of.holding.counts_waiting:
            return [np.ones(len(arcs.before_a), dtype=bool) for arcs in self.arcs_k]
        pairs = zip(self._waiting(v), self.room_kiv[:, i, v], strict=True)
        return [waiting_a <= room for waiting_a, room in pairs]

    @memoized
    def _waiting(self, v: int) -> list[Floats]:
        """Bytes that wait while the block of each arc runs under a vector, by kind of layer."""
        return [self.of.waiting(arcs, self.amount_vc[v]) for arcs in self.arcs_k]

    def _priced(self, step_s: float, i: int, v: int, paths: Sequence[Ints]) -> Priced:
        parts = [arcs.member_bk[arcs.block_a[path]] for arcs, path in zip(self.arcs_k, paths, strict=True)]
        triples = zip(parts, self.of.numbering_k, self.arcs_k, strict=True)
        numbers = [numbering.along(member_bk[:, arcs.kernels]) for member_bk, numbering, arcs in triples]
        return self._of_blocks(step_s, i, v, parts, numbers)

    def _of_blocks(
        self, step_s: float, i: int, v: int, stages: Sequence[Bools], numbers: Sequence[Sequence[int]]
    ) -> Priced:
        """The mapping of a plan and a vector with some blocks, as rows of kernels, in every stage of the mapping."""
        partition_k, stage_k = np.zeros((2, self.option_vk.shape[1]), dtype=np.int64)
        for stage, (member_bk, of_stage) in enumerate(zip(stages, numbers, strict=True)):
            for member_k, number in zip(member_bk, of_stage, strict=True):
                partition_k[member_k], stage_k[member_k] = number, stage
        options = tuple(self.option_vk[v].tolist())
        return Priced(int(self.plan_i[i]), options, tuple(partition_k.tolist()), tuple(stage_k.tolist()), step_s)

    # -- kernels that are drawn once, in pipeline stages --------------------------------------------------------------

    def _in_stages(self, places: Sequence[tuple[int, int]]) -> Callable[[int, int, float], tuple[Priced | None, float]]:
        """What finds the mapping of one of some plans and vectors below a value, with the best pipeline stages."""
        cuts, v_n = self.of.cuts, np.unique([v for _, v in places])
        assert cuts is not None
        member_bk = cuts.arcs.member_bk
        pipelines = Pipelines(self.of, self.amount_vc[v_n], self.of.figures_of(self.option_vk[v_n]))
        low_in = cache(lambda i: pipelines.least_steps(int(self.plan_i[i])))

        def exact(i: int, v: int, most: float) -> tuple[Priced | None, float]:
            n = int(np.searchsorted(v_n, v))
            pipeline = pipelines.best(int(self.plan_i[i]), n, most) if low_in(i)[n] < most else None
            if pipeline is None:
                return None, np.inf
            (step_s, chain), blocks = pipeline
            stages = [member_bk[of_stage] for of_stage in blocks]
            triples = zip(pairwise(chain), stages, strict=True)
            numbers = [cuts.numbers(*pair, each) for pair, each in triples]
            return self._of_blocks(step_s, i, v, stages, numbers), np.inf

        return exact
