"""Where a graph whose kernels are drawn once may be cut into pipeline stages, and the partitions between two cuts.

A *cut* is the set of the kernels of all stages in front of it. Tensors go to later stages, those between two kernels
of the backward pass to earlier ones, and some kernels have to be in one stage: so cuts are down-sets, too, of another
order than that in which partitions run. What lies between two cuts is a stage, whose partitions are a path through a
lattice of its own. All these lattices together are one set of arcs, a *forest*, so that the shortest paths of all
stages are found at once.

Suffixes: u cut, k kernel of the graph, a arc, b block, j down-set, s stage, v vector of options.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from dfopt.arrays import Bools, Floats, Ints, stable_order
from dfopt.documents.graph import Graph
from dfopt.documents.request import Request
from dfopt.regions.arcs import Arcs
from dfopt.regions.lattices import arcs_among
from dfopt.regions.numbering import Numbering
from dfopt.setting.instance import Instance
from dfopt.terms.chip import chip_of

_MOST_CUTS = 400
"""Cuts of a graph, at most: there are as many stages as pairs of them."""
_MOST_ARCS = 2_000_000
"""Arcs of all stages, at most."""
_KEPT = 256
"""Stages of which the arcs are kept, those that were asked for last."""


class TooMany(Exception):
    """Raised where a graph has more cuts, stages or partitions of stages than are listed."""


class _Tree(NamedTuple):
    """A lattice that begins at a cut.

    Attributes
    ----------
    arcs : Arcs
        Its blocks are not those of others.
    first : int
        The cut.
    set_of : dict of int to int
        The down-set that each further cut is reached at, by the number of the cut.
    numbering : Numbering
        Numbers of the partitions up to each of these cuts.
    """

    arcs: Arcs
    first: int
    set_of: dict[int, int]
    numbering: Numbering


@dataclass(frozen=True, eq=False)
class Cuts:
    """All cuts of a graph into pipeline stages, with the lattices of partitions between them.

    Attributes
    ----------
    set_uk : bool array, shape (cuts, kernels)
        Kernels of every cut: the first has none, the last all.
    arcs : Arcs
        All blocks. Paths are orders of the partitions of any number of stages, and possibly others.
    forest : Arcs
        Lattices that begin at the cuts; down-sets have the kernels of the stage that have run. Blocks are those of
        ``arcs``.
    root_j : int array
        The down-sets that lattices begin at.
    tree_j : int array, shape (down-sets,)
        The lattice of each down-set: its place in ``root_j``.
    end_s, first_s, last_s : int arrays, shape (stages,)
        Down-set that each stage that is not empty ends at, and the cuts in front of and behind it.
    numbering_s : tuple of Numbering
        Numbers of the partitions of each of these stages.
    """

    set_uk: Bools
    arcs: Arcs
    forest: Arcs
    root_j: Ints
    tree_j: Ints
    end_s: Ints
    first_s: Ints
    last_s: Ints
    numbering_s: tuple[Numbering, ...]

    def seconds(self, price_vb: Floats) -> Floats:
        """Least seconds of the partitions of every stage, by the cuts in front of it and behind it.

        Parameters
        ----------
        price_vb : float array, s, shape (vectors, blocks)
            Seconds of every block of :attr:`arcs`. Infinite: it may not be used.

        Returns
        -------
        float array, s, shape (vectors, cuts, cuts)
            0 of a stage without kernels. Infinite where there is no stage, or no path.
        """
        count = len(self.set_uk)
        seconds_vuu = np.full((len(price_vb), count, count), np.inf)
        seconds_vuu[:, np.arange(count), np.arange(count)] = 0.0
        seconds_vuu[:, self.first_s, self.last_s] = self.forest.distances(price_vb, self.root_j)[:, self.end_s]
        return seconds_vuu

    def numbers(self, first: int, last: int, member_bk: Bools) -> list[int]:
        """Partition numbers of one stage, in running order; empty for an empty stage.

        Parameters
        ----------
        first, last : int
            The cuts in front of the stage and behind it.
        member_bk : bool array, shape (partitions, kernels)
            Kernels of every partition.
        """
        inside_k = self.set_uk[last] & ~self.set_uk[first]
        return self.numbering_s[self._number(first, last)].along(member_bk[:, inside_k]) if inside_k.any() else []

    def _number(self, first: int, last: int) -> int:
        """Of a stage that is not empty."""
        [s] = np.flatnonzero((self.first_s == first) & (self.last_s == last)).tolist()
        return int(s)

    @cached_property
    def stage(self) -> Callable[[int, int], Arcs]:
        """Function from the cuts (in front, behind) to the lattice of that stage; it must exist and not be empty."""
        return lru_cache(maxsize=_KEPT)(self._stage)

    def _stage(self, first: int, last: int) -> Arcs:
        forest, end = self.forest, self.end_s[self._number(first, last)]
        inside_j = (self.tree_j == self.tree_j[end]) & ~forest.set_jk[:, ~forest.set_jk[end]].any(axis=1)
        mine_a = inside_j[forest.after_a]
        ends = np.concatenate([forest.before_a[mine_a], forest.after_a[mine_a]])
        sets, place = np.unique(ends, return_inverse=True)
        before_a, after_a = np.split(place.ravel(), 2)
        return Arcs(self.arcs.member_bk, forest.set_jk[sets], before_a, after_a, forest.block_a[mine_a])


def cuts_of(instance: Instance, lattice: Arcs | None, numbering: Numbering, asked: Request) -> Cuts | None:
    """All cuts of an unrolled graph into pipeline stages.

    Parameters
    ----------
    instance : Instance
        Setting, and a plan whose dims do not matter here.
    lattice : Arcs, optional
        Arcs of the lattice of all kernels; None if no partitions of one stage keep the limits.
    numbering : Numbering
        Numbers of their partitions.
    asked : Request
        Limits on the partitions of every stage.

    Returns
    -------
    Cuts or None
        None: no partitions of any stages keep the limits.

    Raises
    ------
    TooMany
        If there are very many, or a stage has too many partitions to list.
    """
    if lattice is not None and not lattice.complete:
        raise TooMany
    graph, chip = instance.graph, chip_of(instance.system, instance.assumptions, bounding=True)
    set_uk = _down_sets(graph)
    counted = lattice is None or numbering.limits.are_counted(len(graph.kernels), numbering.forward_k)
    if lattice is not None and chip.fused and not (graph.trains or counted):  # stages are parts of this lattice
        trees, arcs = _parts(lattice, numbering, set_uk), lattice
    elif stage_trees := [*_stage_trees(instance, set_uk, asked)]:
        trees, arcs = _joined(stage_trees, set_uk)
    else:
        return None
    leads = arcs.kept(np.ones(len(arcs.before_a), dtype=bool)) is not None
    return _forest(trees, set_uk, arcs) if leads else None


def _down_sets(graph: Graph) -> Bools:
    """Kernels that may be all of the stages in front of a cut, smaller sets first."""
    index, forward_k = graph.index(), [kernel.pass_ == "forward" for kernel in graph.kernels]
    needs = [{k} for k in range(len(forward_k))]  # kernels that are in no later stage
    for tensor in graph.tensors:
        ends = index[tensor.src], index[tensor.dst]
        first, last = ends if any(forward_k[k] for k in ends) else ends[::-1]
        needs[last].add(first)
    for k, kernel in enumerate(graph.kernels):
        if kernel.stage_with is not None:
            needs[k].add(index[kernel.stage_with])
            needs[index[kernel.stage_with]].add(k)
    need_kk = np.array([[k in of for k in range(len(needs))] for of in needs])
    for k in range(len(needs)):  # what is needed by what is needed, too
        need_kk |= need_kk[:, [k]] & need_kk[k]
    set_of_key: dict[bytes, Bools] = {}
    fresh = [np.zeros(len(needs), dtype=bool)]
    while fresh:
        set_of_key |= {each.tobytes(): each for each in fresh}
        if len(set_of_key) > _MOST_CUTS:
            raise TooMany
        larger = [each | need_kk[k] for each in fresh for k in np.flatnonzero(~each).tolist()]
        fresh = list({each.tobytes(): each for each in larger if each.tobytes() not in set_of_key}.values())
    sets = np.array(list(set_of_key.values()))
    return np.asarray(sets[np.argsort(sets.sum(axis=1), kind="stable")])


def _parts(lattice: Arcs, numbering: Numbering, set_uk: Bools) -> list[_Tree]:
    """The lattices of what is left behind every cut, where these are parts of the lattice of all kernels."""
    number = {each.tobytes(): j for j, each in enumerate(lattice.set_jk)}
    set_u = [number[each.tobytes()] for each in set_uk]
    trees = list[_Tree]()
    for u, first in enumerate(set_u[:-1]):
        inside_j = (lattice.set_jk | ~set_uk[u]).all(axis=1)
        place_j, keep_a = np.cumsum(inside_j) - 1, inside_j[lattice.before_a]
        set_jk = lattice.set_jk[inside_j] & ~set_uk[u]
        ends = place_j[lattice.before_a[keep_a]], place_j[lattice.after_a[keep_a]]
        tree = Arcs(lattice.member_bk, set_jk, *ends, lattice.block_a[keep_a])
        assert place_j[first] == 0, "smaller sets are first"
        ends_of = {v: int(place_j[j]) for v, j in enumerate(set_u) if j != first and inside_j[j]}
        trees.append(_Tree(tree, u, ends_of, numbering))
    return trees


def _stage_trees(instance: Instance, set_uk: Bools, asked: Request) -> Iterator[_Tree]:
    """The lattice of every stage by itself, if its partitions can be as asked for; very many are not gone through."""
    count = 0
    for u, first_k in enumerate(set_uk):
        for v, last_k in enumerate(set_uk):
            if u != v and not (first_k & ~last_k).any():
                arcs, numbering = arcs_among(instance, last_k & ~first_k, 0, asked)
                if arcs is not None and not arcs.complete:
                    raise TooMany
                if arcs is not None:
                    count += len(arcs.before_a)
                    if count > _MOST_ARCS:
                        raise TooMany
                    yield _Tree(arcs, u, {v: len(arcs.set_jk) - 1}, numbering)


def _joined(trees: Sequence[_Tree], set_uk: Bools) -> tuple[list[_Tree], Arcs]:
    """The same with common numbers of blocks, and arcs through all of them, one stage after another."""
    every_bk = np.concatenate([tree.arcs.member_bk for tree in trees])
    member_bk, place_b = np.unique(every_bk, axis=0, return_inverse=True)
    numbers = np.split(place_b.ravel(), np.cumsum([len(tree.arcs.member_bk) for tree in trees])[:-1])
    joined = [
        tree._replace(arcs=replace(tree.arcs, member_bk=member_bk, block_a=of[tree.arcs.block_a]))
        for tree, of in zip(trees, numbers, strict=True)
    ]
    sets, places, count = [set_uk], list[Ints](), len(set_uk)
    for tree in joined:
        [last] = tree.set_of
        inner = tree.arcs.set_jk[1:-1] | set_uk[tree.first]
        places.append(np.array([tree.first, *range(count, count + len(inner)), last]))
        sets.append(inner)
        count += len(inner)
    return joined, _union([tree.arcs for tree in joined], places, np.concatenate(sets))[0]


def _forest(trees: Sequence[_Tree], set_uk: Bools, arcs: Arcs) -> Cuts:
    """All lattices beside one another."""
    sizes = [len(tree.arcs.set_jk) for tree in trees]
    if sum(len(tree.arcs.before_a) for tree in trees) > _MOST_ARCS:
        raise TooMany
    first_t = np.cumsum([0, *sizes])[:-1]
    places = [first + np.arange(size) for first, size in zip(first_t.tolist(), sizes, strict=True)]
    forest, rank_j = _union([tree.arcs for tree in trees], places, np.concatenate([tree.arcs.set_jk for tree in trees]))
    tree_j = np.zeros(len(rank_j), dtype=np.int64)
    tree_j[rank_j] = np.repeat(np.arange(len(trees)), sizes)
    pairs = zip(first_t.tolist(), trees, strict=True)
    ends = [(rank_j[first + j], tree.first, u) for first, tree in pairs for u, j in tree.set_of.items()]
    end_s, first_s, last_s = np.array(ends, dtype=np.int64).T
    numbering_s = tuple(tree.numbering for tree in trees for _ in tree.set_of)
    return Cuts(set_uk, arcs, forest, rank_j[first_t], tree_j, end_s, first_s, last_s, numbering_s)


def _union(parts: Sequence[Arcs], places: Sequence[Ints], set_jk: Bools) -> tuple[Arcs, Ints]:
    """Arcs of several lattices between some down-sets, which are sorted by size; and the new number of each.

    ``places``: for every lattice the numbers of its down-sets.
    """
    order = np.argsort(set_jk.sum(axis=1), kind="stable")
    rank_j = np.argsort(order)
    pairs = list(zip(parts, places, strict=True))
    before_a = np.concatenate([rank_j[place[part.before_a]] for part, place in pairs])
    after_a = np.concatenate([rank_j[place[part.after_a]] for part, place in pairs])
    block_a = np.concatenate([part.block_a for part in parts])
    order_a = stable_order(after_a)
    union = Arcs(parts[0].member_bk, set_jk[order], before_a[order_a], after_a[order_a], block_a[order_a])
    return union, rank_j
