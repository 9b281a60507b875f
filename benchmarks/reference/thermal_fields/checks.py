"""What must hold of a body before it is solved; of stack documents dfopt checks it itself."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import numpy as np

from dfopt.documents.stack_parts import HtcPackage, Plate, SinkPackage
from dfopt.errors import Issue, SystemSpecError, did_you_mean, json_path, shown
from dfopt.technology.thermal.types import Body

__all__ = ["check", "sink_package", "slab_index"]


def sink_package(
    mode: Literal["hotspot", "plates"] = "hotspot",
    *,
    r_convec: float,
    s_sink: float,
    t_sink: float,
    s_spreader: float,
    t_spreader: float,
    k_sink: float = 400.0,
    k_spreader: float = 400.0,
    cv_sink: float = 3.55e6,
    cv_spreader: float = 3.55e6,
    c_convec: float = 140.4,
) -> SinkPackage:
    """A spreader and a sink by the names that HotSpot gives them; what is left out is as in its hotspot.config."""
    return SinkPackage(
        mode=mode,
        r_convec_k_per_w=r_convec,
        c_convec_j_per_k=c_convec,
        spreader=Plate(side=s_spreader, thickness=t_spreader, conductivity=k_spreader, heat_capacity=cv_spreader),
        sink=Plate(side=s_sink, thickness=t_sink, conductivity=k_sink, heat_capacity=cv_sink),
    )


def check(body: Body, nx: int, ny: int) -> None:
    """Raise a `SystemSpecError` with all that is wrong of a body on a grid."""
    issues = list(_issues(body, nx, ny))
    if issues:
        raise SystemSpecError("", issues)


def slab_index(body: Body, name: str, where: str = "$.slab") -> int:
    """Place of a slab in the stack; an error with the near names if there is none."""
    if name not in body.names:
        remedy = did_you_mean(name, body.names, f"slabs are {', '.join(body.names)}")
        raise SystemSpecError("", [Issue(where, f"found {name!r}, expected the name of a slab", remedy)])
    return body.names.index(name)


def _positive(where: str, value: object) -> Iterator[Issue]:
    """The issue of a value that is not a finite number (or array of them) above 0."""
    array = np.asarray(value)
    if array.dtype.kind not in "iuf" or not array.size or not bool(np.all(np.isfinite(array) & (array > 0))):
        found = shown(value) if array.ndim == 0 else f"an array of shape {array.shape} with other values"
        yield Issue(where, f"found {found}, expected finite numbers above 0")


def _issues(body: Body, nx: int, ny: int) -> Iterator[Issue]:
    for key, cells in (("nx", nx), ("ny", ny)):
        if cells < 1:
            yield Issue(f"$.{key}", f"found {cells}, expected at least 1 cell")
    for key in ("side_x", "side_y", "ambient_k"):
        yield from _positive(f"$.{key}", getattr(body, key))
    if not (math.isfinite(body.far_htc) and body.far_htc >= 0):
        yield Issue("$.far_htc", f"found {body.far_htc}, expected a finite number, 0 or more", "0 is adiabatic")
    if not body.slabs:
        yield Issue("$.slabs", "found none, expected at least one slab")
    known: set[str] = set()
    package = body.package
    taken = ("lid",) if isinstance(package, HtcPackage) else ("spreader", "sink")
    for index, slab in enumerate(body.slabs):
        where = json_path("slabs", index)
        for key in ("thickness_m", "conductivity", "heat_capacity"):
            yield from _positive(f"{where}.{key}", getattr(slab, key))
        for key in ("conductivity", "heat_capacity"):
            shape = np.shape(getattr(slab, key))
            if shape not in ((), (ny, nx)):
                yield Issue(f"{where}.{key}", f"found shape {shape}, expected a number or shape {(ny, nx)}")
        if slab.source_thickness_m is not None and not 0 < slab.source_thickness_m <= slab.thickness_m:
            message = f"found {slab.source_thickness_m}, expected above 0 and at most thickness_m {slab.thickness_m}"
            yield Issue(f"{where}.source_thickness_m", message)
        if slab.name in known:
            yield Issue(f"{where}.name", f"found {slab.name!r} a second time", "give every slab a name of its own")
        if slab.name in taken:
            yield Issue(f"{where}.name", f"found {slab.name!r}, which is a plate of the package", "rename the slab")
        known.add(slab.name)
    side = max(body.side_x, body.side_y)
    # A plate made as large as the die by adding 1 nm, as floorplan files need it, is not refused for rounding.
    if isinstance(package, SinkPackage) and package.spreader.side < side * (1 - 1e-9):
        message = f"found {package.spreader.side} m, expected at least {side} m, the side of the die"
        yield Issue("$.package.spreader.side", message)
