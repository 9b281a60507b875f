"""A model as layers in a row: sections of a pattern of layers, and how often each repeats.

A *kind* of layer is drawn once, as kernels and tensors of its own, however often a model has it: dense layers and
layers of experts, local and global attention, the embedding in front and the head behind. A pipeline stage is a
contiguous run of layers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from pydantic import Field

from dfopt.arrays import Ints
from dfopt.documents.base import Part, problem
from dfopt.errors import shown

Where = Literal["every_layer", "first", "last"]
LAYER = "layer"
"""The kind of kernels that name none."""


class Section(Part):
    """A pattern of layers with its number of repeats.

    Attributes
    ----------
    layers : e.g. [local, local, global]
        Kinds of layers of one repetition, in the order of their evaluation.
    repeat : repetitions, e.g. 8
        Number of times that the pattern of layers repeats.

    Examples
    --------
    Five local layers and a global one, eight times:

    >>> Section(layers=("local",) * 5 + ("global",), repeat=8).count
    48
    """

    layers: tuple[str, ...] = Field(default=(LAYER,), min_length=1, max_length=10000)
    repeat: int = Field(default=1, ge=1, le=10**6)

    @property
    def count(self) -> int:
        """Number of layers over all repeats."""
        return len(self.layers) * self.repeat


@dataclass(frozen=True, eq=False)
class Layers:
    """The layers of a model in order, each as the number of its kind.

    Counted are those that repeat or hand a tensor on to the next. A layer that does neither (an embedding, a head)
    goes with its neighbour: with the next counted layer, or behind the last one with that. Kinds are numbered as
    stages of the mapping: those of counted layers first, in the order in which they first appear, and behind these the
    kinds that they are recomputed as.

    ``order``: kind of every counted layer; ``at``: for every other kind, the number of counted layers before it;
    ``recomputed``: for kinds of counted layers, the kind that each is when it is recomputed.
    """

    kinds: tuple[str, ...]
    counted: int
    order: Ints
    at: tuple[tuple[int, ...], ...]
    recomputed: tuple[tuple[int, int], ...] = ()

    @property
    def count(self) -> int:
        """Number of counted layers."""
        return len(self.order)

    @cached_property
    def _before(self) -> Ints:
        """Layers of each counted kind before each layer."""
        is_kind = self.order[:, None] == np.arange(self.counted)
        return np.concatenate([np.zeros((1, self.counted), np.int64), np.cumsum(is_kind, axis=0)])

    @cached_property
    def _by_recomputed(self) -> dict[tuple[int, tuple[int, int, int], int], Layers]:
        return {}

    def under(self, stages: int, sizes: tuple[int, int, int], recomputed: int | None) -> Layers:
        """The layers with the first ``recomputed`` of every pipeline stage as the kind that recomputes.

        Parameters
        ----------
        stages, sizes : int, (int, int, int)
            Pipeline stages, and layers of the first, each middle and the last stage.
        recomputed : int, optional
            Recomputed layers of each stage, its first ones.

        Examples
        --------
        >>> from dfopt.documents.sections import Section, layers_of
        >>> layers = layers_of([Section(repeat=6)], recomputed={"layer": "again"})
        >>> layers.kinds, layers.under(2, (3, 0, 3), 2).order.tolist()
        (('layer', 'again'), [1, 1, 0, 1, 1, 0])
        """
        if not recomputed or not self.recomputed:
            return self
        key = stages, sizes, recomputed
        if key not in self._by_recomputed:
            first, most, last = sizes
            held = [most] if stages == 1 else [first, *[most] * (stages - 2), last]
            begins = np.concatenate([[0], np.cumsum(held)[:-1]])
            again, order = dict(self.recomputed), self.order.copy()
            for begin, size in zip(begins.tolist(), held, strict=True):
                for place in range(begin, min(begin + min(recomputed, size), self.count)):
                    order[place] = again.get(int(order[place]), int(order[place]))
            self._by_recomputed[key] = replace(self, order=order)
        return self._by_recomputed[key]

    def between(self, first: int, end: int) -> tuple[tuple[int, int], ...]:
        """Kinds of layers that a stage from layer ``first`` up to ``end`` runs, with their counts.

        Other layers before all counted ones, or behind them, are those of the first and of the last stage
        (:meth:`ends`). A stage without any layer names the kind of its neighbour, with 0.

        Examples
        --------
        >>> from dfopt.documents.sections import Section, layers_of
        >>> sections = [Section(layers=("embed",)), Section(layers=("a",)), Section(layers=("a", "b"), repeat=2)]
        >>> layers = layers_of(sections, carrying=["a", "b"])
        >>> layers.kinds, layers.order.tolist(), layers.between(0, 2), layers.between(2, 5), layers.ends(True, False)
        (('a', 'b', 'embed'), [0, 0, 1, 0, 1], ((0, 2),), ((0, 1), (1, 2)), ((2, 1),))
        """
        times = self._before[end] - self._before[first]
        runs = [(kind, int(n)) for kind, n in enumerate(times) if n]
        runs = runs or [(int(self.order[min(first, self.count - 1)]), 0)]
        inner = ((kind, sum(max(first, 1) <= i < end for i in at)) for kind, at in enumerate(self.at, self.counted))
        return (*runs, *((kind, n) for kind, n in inner if n))

    def ends(self, first: bool, last: bool) -> tuple[tuple[int, int], ...]:
        """Uncounted layers before all others in the first stage, and after all in the last, with their counts."""
        places = [place for place, here in ((0, first), (self.count, last)) if here]
        return tuple((k, sum(map(at.count, places))) for k, at in enumerate(self.at, self.counted) if {*places} & {*at})

    def times(self, kind: int) -> int:
        """Number of layers of a kind in the model."""
        return len(self.at[kind - self.counted]) if kind >= self.counted else int(self._before[-1][kind])

    def where(self, kind: int) -> Where:
        """Position of a kind relative to the counted layers: before, after, or among them."""
        if kind < self.counted:
            return "every_layer"
        places = set(self.at[kind - self.counted])
        return "first" if places == {0} else "last" if places == {self.count} else "every_layer"


def layers_of(
    sections: Sequence[Section] | None, carrying: Collection[str] = (), recomputed: Mapping[str, str] | None = None
) -> Layers:
    """The layers of some sections; None is a single layer.

    Parameters
    ----------
    sections : sequence of Section or None
        The sections; None: a single layer.
    carrying : collection of str
        Kinds of layers with carried tensors; their sections count even if they have a single layer.
    recomputed : mapping of str to str
        Kinds of layers, and the kind that each is when it is recomputed.

    Examples
    --------
    >>> layers_of([Section(repeat=4), Section(layers=("head",))]).where(1)
    'last'
    """
    sections = sections or (Section(),)
    counts = [section.repeat > 1 or len(section.layers) > 1 or section.layers[0] in carrying for section in sections]
    if not any(counts):
        counts = [True] * len(sections)
    repeated = [section.layers for section, counted in zip(sections, counts, strict=True) if counted]
    kinds = dict.fromkeys(kind for layers in repeated for kind in layers)
    kinds |= dict.fromkeys(again for kind, again in (recomputed or {}).items() if kind in kinds)
    number = {kind: place for place, kind in enumerate(kinds)}
    first, parts, alone = len(number), list[Ints](), dict[str, list[int]]()
    before = 0
    for section, counted in zip(sections, counts, strict=True):
        if counted:
            parts.append(np.tile(np.array([number[kind] for kind in section.layers], dtype=np.int64), section.repeat))
            before += section.count
        elif section.layers[0] in number:  # a kind that repeats elsewhere is counted everywhere
            parts.append(np.array([number[section.layers[0]]], dtype=np.int64))
            before += 1
        else:
            alone.setdefault(section.layers[0], []).append(before)
    pairs = ((number[kind], number[again]) for kind, again in (recomputed or {}).items() if kind in number)
    return Layers((*number, *alone), first, np.concatenate(parts), tuple(map(tuple, alone.values())), tuple(pairs))


def repeated(count: int) -> tuple[Section, ...] | None:
    """Sections of ``count`` equal layers; None for one, which is an unrolled graph.

    Examples
    --------
    >>> repeated(1), repeated(2)[0].count
    (None, 2)
    """
    return (Section(repeat=count),) if count > 1 else None


def add_repeat(schema: dict[str, Any]) -> None:
    """Add the short form ``repeat`` of sections to the JSON Schema of a graph."""
    about = "Number of equal layers, short for sections: [{repeat: N}]. The kernels then are one layer."
    schema["properties"]["repeat"] = {"type": "integer", "minimum": 1, "maximum": 10**6, "description": about}


def spelled_out(data: Any) -> Any:
    """Data of a graph with the short form ``repeat`` expanded to sections."""
    if not isinstance(data, Mapping) or "repeat" not in data:
        return data
    repeat = data["repeat"]
    kept = {key: value for key, value in data.items() if key != "repeat"}
    if isinstance(repeat, float) and repeat.is_integer():
        repeat = int(repeat)
    if isinstance(repeat, bool) or not isinstance(repeat, int) or not 1 <= repeat <= 10**6:
        message = f"found {shown(repeat)}, expected a whole number from 1 to 1000000"
        raise problem(message, "write how many layers the drawn one stands for", "$.repeat")
    if kept.get("sections") is not None:
        raise problem("found both repeat and sections", "leave repeat out", "$.repeat")
    return {**kept, "sections": ({"repeat": repeat},)} if repeat > 1 else kept


def of_version_1(data: dict[str, Any]) -> dict[str, Any]:
    """Data of a ``dfopt/graph/1`` file converted to the current form of layers before and after the repeat."""
    kernels, repeat = data.get("kernels"), data.get("repeat", 1)
    listed = kernels if isinstance(kernels, list | tuple) else ()
    mappings = [kernel for kernel in listed if isinstance(kernel, Mapping)]
    if not any("runs" in kernel for kernel in mappings) or len(mappings) != len(kernels or ()):
        return data
    runs = {kernel.get("runs") for kernel in mappings} & {"first", "last"} if repeat != 1 else set[Any]()
    moved = []
    for kernel in mappings:
        kept = {key: value for key, value in kernel.items() if key != "runs"}
        place = kernel.get("runs", "every_layer")
        valid = place in ("first", "last", "every_layer")
        moved.append(({**kept, "layer": place} if place in runs else kept) if valid else kernel)
    if not runs:
        return {**data, "kernels": tuple(moved)}
    ends = [({"layers": (place,)},) if place in runs else () for place in ("first", "last")]
    kept = {key: value for key, value in data.items() if key not in ("repeat", "kernels")}
    return {**kept, "kernels": tuple(moved), "sections": (*ends[0], {"repeat": repeat}, *ends[1])}
