"""What ties the schemes of kernels in different blocks: a tensor lies in one layout, and its readers ask for some.

Suffixes: c class of a source (schemes that leave its output in one layout and size), a set of layouts asked for, as
bits. A *code* says what is known of a group: ``class * SETS + set``, with the number of classes as an unknown class.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from dfopt.joint.menu import Menu
from dfopt.terms.conversions import LAYOUTS
from dfopt.terms.incidence import Incidence, counts
from dfopt.terms.rules.token_blocks import per_byte
from dfopt.terms.sharded_graph import Bools, Floats, Ints
from dfopt.terms.token_blocks import token_rows

SETS = 1 << len(LAYOUTS)


@dataclass(frozen=True, eq=False)
class Group:
    """A fan-out group within a stage: its source, who reads it, and what their schemes mean for each other.

    Attributes
    ----------
    src : int
        Kernel that makes it.
    full : float
        Bytes of the whole tensor.
    tile : float
        Share of it in one tile.
    carried : bool
        Whether it crosses the boundary of the layer: both ends move it to or from DRAM in any partition.
    share_c, layout_c : float, int
        Share that a chip holds, and layout, of each class.
    class_z : int
        Class of each scheme of the source.
    readers : tuple of (kernel, depth, what each of its schemes asks for)
        Those in the stage; a set of one layout, or of none.
    beyond : tuple of int arrays
        What each reader in another stage may ask for.
    seconds_ca : float
        Seconds of the conversions into a set of layouts.
    toll_r : float, optional
        Then blocks that read it pay the conversions, not the one that makes it: what each reader pays at least, which
        the relaxed price holds.
    moved : bool
        Whether blocks move it to and from DRAM; if not, its ends do so as bytes of their own.
    tokens : tuple of (resource, who pays, bytes)
        What blocks pay that take their tokens in blocks, for each byte that a chip holds.
    members, size : int array, int
        Numbers in the layer of the kernels of the stage, and how many kernels the layer has.
    """

    src: int
    full: float
    tile: float
    carried: bool
    share_c: Floats
    layout_c: Ints
    class_z: Ints
    readers: tuple[tuple[int, float, Ints], ...]
    beyond: tuple[Ints, ...]
    seconds_ca: Floats
    toll_r: Floats | None = None
    moved: bool = True
    tokens: tuple[tuple[str, Incidence, float], ...] = ()
    members: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    size: int = 0

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.share_c)

    @cached_property
    def asked_ca(self) -> Ints:
        """The part of a set that costs something for each class, and for a class that is not known for some."""
        bits = np.array([[self.seconds_ca[c, 1 << q] > 0 for q in range(len(LAYOUTS))] for c in range(self.classes)])
        costly = bits @ (1 << np.arange(len(LAYOUTS)))
        costly = np.append(costly, np.bitwise_or.reduce(costly))
        return np.asarray(costly[:, None] & np.arange(SETS)[None, :])

    @cached_property
    def free_ca(self) -> Ints:
        """Layouts that further readers may ask for at no further cost, once a set is paid."""
        found = np.zeros((self.classes, SETS), dtype=np.int64)
        for q in range(len(LAYOUTS)):
            more = self.seconds_ca[:, np.arange(SETS) | 1 << q] <= self.seconds_ca
            found |= more.astype(np.int64) << q
        return found

    @cached_property
    def plain(self) -> bool:
        """Whether nothing about it depends on schemes: then the relaxed stage has its exact price."""
        if self.classes > 1:
            return False
        wanted = [*(asks_z for _, _, asks_z in self.readers), *self.beyond]
        return all(len(set(self.asked_ca[0, asks].tolist())) == 1 for asks in wanted)

    @property
    def sure(self) -> float:
        """Seconds of its conversions where it is plain: the source pays them, and the relaxed price holds them."""
        wanted = [asks for _, _, asks in self.readers] + list(self.beyond)
        asked = np.bitwise_or.reduce([self.asked_ca[0, asks[0]] for asks in wanted])
        return 0.0 if self.toll_r is not None else float(self.seconds_ca[0, asked])

    def paid_by_tokens(self, inside: Bools) -> list[tuple[str, float]]:
        """Resources of ``tokens``, and what a block of kernels of the stage pays of each for every byte on a chip."""
        if not self.tokens:
            return []
        member = np.zeros((1, self.size), dtype=bool)
        member[0, self.members[inside]] = True
        paid_i = counts([incidence for _, incidence, _ in self.tokens], member)[0].tolist()
        return [(name, paid * each) for (name, _, each), paid in zip(self.tokens, paid_i, strict=True)]

    def kernels(self) -> set[int]:
        """Its source and its readers."""
        return {self.src, *(kernel for kernel, _, _ in self.readers)}

    def unions(self, inside: Bools) -> list[int]:
        """Sets of layouts that the readers outside a block may ask for together."""
        outside = [asks_z for kernel, _, asks_z in self.readers if not inside[kernel]]
        found = {0}
        for asks in (*outside, *self.beyond):
            found = {have | one for have in found for one in asks.tolist()}
        unknown = self.asked_ca[self.classes]
        return sorted({int(unknown[one]) for one in found})

    def read_outside(self, inside: Bools) -> bool:
        """Whether a block leaves some reader of it to others."""
        return bool(self.beyond) or not all(inside[kernel] for kernel, _, _ in self.readers)


def groups_of(menu: Menu, allowed_o: Bools, members: Ints, tiles: int) -> list[Group]:
    """The groups whose source lies in a stage, with kernels and schemes numbered as in it.

    Parameters
    ----------
    menu : Menu
        Figures of all options.
    allowed_o : bool array
        Options that are left.
    members : int array
        Kernels of the stage.
    """
    tables, graph = menu.tables, menu.instance.graph
    place = {int(kernel): number for number, kernel in enumerate(members)}
    moved = menu.figures.layer.moves_tensors
    layer = menu.figures.layer.at(tiles)
    depth_t, tile_k = menu.layer.plain.depth_t, layer.output_tile_k
    by_tokens = token_rows(layer) is not None
    inner = len(graph.tensors)
    every = (*graph.tensors, *graph.carried)
    found = []
    for g in range(int(tables.group_t.max(initial=-1)) + 1):
        tensors = np.flatnonzero(tables.group_t == g)
        src = int(tables.src_t[tensors[0]])
        if src not in place:
            continue
        options = np.flatnonzero((tables.kernel_o == src) & allowed_o)
        looks = list(zip(tables.produced_o[options].tolist(), menu.output_o[options].tolist(), strict=True))
        classes = list(dict.fromkeys(looks))
        layout_c = np.array([layout for layout, _ in classes], dtype=np.int64)
        readers, beyond, late, late_beyond = [], [], [], []
        for t in tensors.tolist():
            dst, nothing = int(tables.dst_t[t]), bool(tables.late_t[t])
            asks = 1 << tables.required_to[t, (tables.kernel_o == dst) & allowed_o]
            if dst not in place:
                beyond.append(asks * (not nothing))
                late_beyond += [asks] if nothing else []
                continue
            depth = float(depth_t[t]) if t < inner else 0.0
            readers.append((place[dst], depth, asks * (not nothing)))
            late += [(place[dst], 0.0, asks)] if nothing else []
        group = Group(
            src=place[src],
            full=float(graph.bytes_of(every[tensors[0]])),
            tile=float(tile_k[src]),
            carried=bool(tensors[0] >= inner),
            moved=moved,
            share_c=np.array([part for _, part in classes]),
            layout_c=layout_c,
            class_z=np.array([classes.index(look) for look in looks], dtype=np.int64),
            readers=tuple(readers),
            beyond=tuple(beyond),
            seconds_ca=tables.conversion_tls[tensors[np.argmin(tables.late_t[tensors])]][layout_c],
            tokens=tuple(per_byte(layer, layer.fan_outs[g])) if by_tokens else (),
            members=members,
            size=len(layer.kernels),
        )
        found.append(group)
        apart = tensors[tables.late_t[tensors]]
        if not len(apart):
            continue
        seconds_ca = tables.conversion_tls[apart[0]][layout_c]
        group = replace(
            group, full=0.0, carried=False, readers=tuple(late), beyond=tuple(late_beyond), seconds_ca=seconds_ca
        )
        if not tables.again_t[apart[0]]:
            found.append(group)
        elif late:
            toll_r = np.array([seconds_ca[:, asks].min() for _, _, asks in late])
            found.append(replace(group, beyond=(), toll_r=toll_r))
    return found
