"""The thermal network of a body: nodes, conductances between them and to ambient, heat capacities.

Two conventions of where a node sits in its sheet. Finite volumes (packages ``htc`` and ``plates``) put it in the centre
of the cell, so between two sheets ``1/G = (t1/2k1 + t2/2k2)/A``. HotSpot puts it at the far face, so ``1/G = (t/k)/A``
of the lower sheet alone. Laterally both have ``G = k t dy/dx``, with the harmonic mean between materials.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dfopt.arrays import Floats, Ints
from dfopt.documents.stack_parts import HtcPackage, SinkPackage
from dfopt.technology.thermal.sheets import Sheet, plates_of, sheets_of
from dfopt.technology.thermal.types import Body


@dataclass(frozen=True)
class Layered:
    """Thermal network of uniform layers: one conductance per layer and direction.

    Conductances (W/K) between neighbours along ``x`` and ``y``, ``up`` to the next sheet (one fewer), ``ground`` of a
    cell to ambient; ``shape`` is (sheets, ny, nx). Each cell of the last sheet has the conductance ``link`` to its node
    of ``beyond``, shape (ny, nx), if there is anything.
    """

    x: Floats
    y: Floats
    up: Floats
    ground: Floats
    shape: tuple[int, int, int]
    link: float
    beyond: Ints | None


@dataclass(frozen=True)
class Network:
    """Thermal network: nodes, conductances and capacities.

    Parameters
    ----------
    edges
        Node pairs, shape (2, links), and ``conductance`` of each link in W/K.
    ground, capacity
        W/K to ambient and J/K of each node.
    slab_nodes
        The node that takes the power and gives the temperature of each cell, shape (slabs, ny, nx).
    layered
        The sheets of the die once more, one number per sheet, when the cells of each are alike. They are the first
        nodes; plates without rims count as sheets of the die.
    """

    edges: Ints
    conductance: Floats
    ground: Floats
    capacity: Floats
    slab_nodes: Ints
    layered: Layered | None

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return self.ground.size


@dataclass
class _Wires:
    """Links being collected."""

    ends: list[Ints] = field(default_factory=list)
    values: list[Floats] = field(default_factory=list)

    def add(self, left: Ints, right: Ints, conductance: Floats | float) -> None:
        """Links between the nodes of two arrays of one shape."""
        left, right = np.broadcast_arrays(left, right)
        self.ends.append(np.stack((left.ravel(), right.ravel())))
        self.values.append(np.broadcast_to(conductance, left.shape).ravel().astype(np.float64))


def _within_sheet(sheet: Sheet) -> tuple[Floats, Floats]:
    """Conductances between neighbours of a sheet along x, (ny, nx - 1), and along y, (ny - 1, nx)."""
    k, t = sheet.conductivity, sheet.thickness
    half_x, half_y = sheet.dx / (2 * k), sheet.dy[:, None] / (2 * k)
    along_x = t * sheet.dy[:, None] / (half_x[:, :-1] + half_x[:, 1:])
    along_y = t * sheet.dx / (half_y[:-1] + half_y[1:])
    return along_x, along_y


def _window(sheet: Sheet, ids: Ints, of: Sheet) -> tuple[slice, slice]:
    """Where the window of a smaller sheet ``of`` lies in ``ids`` of ``sheet``."""
    top, left = of.y0 - sheet.y0, of.x0 - sheet.x0
    assert 0 <= top <= ids.shape[0] - of.shape[0] and 0 <= left <= ids.shape[1] - of.shape[1]
    return slice(top, top + of.shape[0]), slice(left, left + of.shape[1])


def network_of(body: Body, nx: int, ny: int) -> Network:
    """Thermal network of a body.

    Parameters
    ----------
    body
        Slabs and package.
    nx, ny : int
        Cells over the die along its sides.
    """
    package = body.package
    at_face = package.mode == "hotspot"
    sheets = sheets_of(body, nx, ny)
    stacked, die = len(sheets), sheets[0]
    sheets += plates_of(body, die.dx, die.dy)
    starts = np.cumsum([0] + [sheet.areas.size for sheet in sheets])
    ids = [np.arange(a, a + s.areas.size).reshape(s.shape) for a, s in zip(starts, sheets, strict=False)]
    capacity = np.concatenate([(s.heat_capacity * s.thickness * s.areas).ravel() for s in sheets])
    ground = np.zeros(capacity.size)
    # resistance times area from a node to the far face of its sheet, and to the other one
    below = [np.zeros(s.shape) if at_face else s.thickness / (2 * s.conductivity) for s in sheets]
    above = [(1.0 if at_face else 0.5) * s.thickness / s.conductivity for s in sheets]
    wires = _Wires()
    for sheet, nodes in zip(sheets, ids, strict=True):
        along_x, along_y = _within_sheet(sheet)
        wires.add(nodes[:, :-1], nodes[:, 1:], along_x)
        wires.add(nodes[:-1], nodes[1:], along_y)
    links: list[Floats] = []
    for i in range(len(sheets) - 1):
        window = _window(sheets[i + 1], ids[i + 1], sheets[i])
        links.append(sheets[i].areas / (above[i] + below[i + 1][window]))
        wires.add(ids[i], ids[i + 1][window], links[-1])
    last = sheets[-1]
    if isinstance(package, HtcPackage):
        outside = 1.0 / package.htc_w_per_m2k  # K m2/W
    else:
        outside = package.r_convec_k_per_w * package.sink.side**2
    ground[ids[-1]] += last.areas / (above[-1] + outside)
    if body.far_htc > 0:
        ground[ids[0]] += die.areas / (below[0] + 1.0 / body.far_htc)
    if isinstance(package, SinkPackage) and at_face:
        capacity[ids[-1]] += package.c_convec_j_per_k * last.areas / package.sink.side**2
        more_ground, more_capacity = _rims(wires, body, package, ids[-2], ids[-1], capacity.size)
        ground, capacity = np.append(ground, more_ground), np.append(capacity, more_capacity)
    # sheets of the die's own size come first; with rims around them the plates are none of these
    own = len(sheets) if ground.size == starts[-1] and all(s.shape == (ny, nx) for s in sheets) else stacked
    rest = sheets[own] if own < len(sheets) else None
    alike = all(sheet.uniform for sheet in sheets[:own])
    return Network(
        edges=np.concatenate(wires.ends, axis=1),
        conductance=np.concatenate(wires.values),
        ground=ground,
        capacity=capacity,
        slab_nodes=np.stack([nodes for s, nodes in zip(sheets, ids, strict=True) if s.slab >= 0]),
        layered=_layered(sheets[:own], links, ids[own:], ground, rest) if alike else None,
    )


def _layered(own: list[Sheet], links: list[Floats], beyond: list[Ints], ground: Floats, rest: Sheet | None) -> Layered:
    """One number per sheet for sheets whose cells are alike; ``rest`` is the first sheet beyond them."""
    ny, nx = own[0].shape
    sheet_k = np.array([s.conductivity[0, 0] * s.thickness for s in own])
    dx, dy = own[0].dx[0], own[0].dy[0]
    shape = (len(own), ny, nx)
    cells = len(own) * ny * nx
    return Layered(
        x=sheet_k * dy / dx,
        y=sheet_k * dx / dy,
        up=np.array([link[0, 0] for link in links[: len(own) - 1]]),
        ground=ground[:cells].reshape(shape)[:, 0, 0],
        shape=shape,
        link=0.0 if rest is None else float(links[len(own) - 1][0, 0]),
        beyond=None if rest is None else beyond[0][_window(rest, beyond[0], own[0])],
    )


def _rims(
    wires: _Wires, body: Body, package: SinkPackage, spreader: Ints, sink: Ints, first: int
) -> tuple[Floats, Floats]:
    """The lumped nodes around the die, as in HotSpot; returns their conductance to ambient and heat capacity.

    Four nodes for the spreader outside the die, four for the sink outside the die and over the spreader, four for the
    sink outside the spreader, each a quarter of its ring. Lateral lengths are a quarter of the difference of the sides
    over the width at the middle of the trapezoid (package.c, populate_package_R, of HotSpot 6.0). A ring without area
    has no nodes.
    """
    side = (body.side_x, body.side_y)
    inner, outer = package.spreader, package.sink
    s_sp, s_hs = inner.side, outer.side
    sheet_sp, sheet_hs = inner.conductivity * inner.thickness, outer.conductivity * outer.thickness
    # K m2/W from a sink node to ambient, and J/m2K of such a node
    column = outer.thickness / outer.conductivity + package.r_convec_k_per_w * s_hs**2
    stored = outer.heat_capacity * outer.thickness + package.c_convec_j_per_k / s_hs**2
    ny, nx = spreader.shape
    cells = (body.side_x / nx, body.side_y / ny)
    ground: list[float] = []
    capacity: list[float] = []

    def node(to_ambient: float, heat: float) -> Ints:
        ground.append(to_ambient)
        capacity.append(heat)
        return np.array(first + len(ground) - 1)

    for axis, edge in ((0, (slice(None), 0)), (0, (slice(None), -1)), (1, (0, slice(None))), (1, (-1, slice(None)))):
        own, other = side[axis], side[1 - axis]
        count = (ny, nx)[axis]  # cells along this edge
        half = cells[axis] / (2 * cells[1 - axis])  # half a cell, in squares
        squares = max(0.0, s_sp - own) / (s_sp + 3 * other)
        ring = max(0.0, (s_sp + other) * (s_sp - own) / 4)  # m2 over the spreader, outside the die
        beyond = max(0.0, (s_hs**2 - s_sp**2) / 4)  # m2 outside the spreader
        outer_sink = s_hs > s_sp
        inner_sink = outer_sink or s_sp > own
        middle = node(ring / column, ring * stored) if inner_sink else None
        if middle is not None:
            wires.add(sink[edge], middle, sheet_hs / (half + count * squares))
        if s_sp > own:
            assert middle is not None
            rim = node(0.0, ring * inner.heat_capacity * inner.thickness)
            wires.add(spreader[edge], rim, sheet_sp / (half + count * squares))
            wires.add(rim, middle, ring * inner.conductivity / inner.thickness)
        if outer_sink:
            assert middle is not None
            outside = node(beyond / column, beyond * stored)
            length = max(0.0, s_sp - own) / (3 * s_sp + other) + (s_hs - s_sp) / (s_hs + 3 * s_sp)  # in squares
            wires.add(middle, outside, sheet_hs / length)
    return np.array(ground), np.array(capacity)
