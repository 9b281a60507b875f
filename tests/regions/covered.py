"""Random worlds that regions cover, and what is asked of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from strategies import ROWS, World, footprint, with_dram, worlds

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.request import Request
from dfopt.setting.instance import Setting

FIXED: dict[str, Any] = {
    "tile_rows": ROWS,
    "compute_model": ["fixed", "fixed", "efficiency"],
    "gradient_overlap": None,
    "empty_partitions": "allow",
    "forward_backward": ["separate", "shared"],
}
"""Assumptions under which the answer is one of regions; all others are drawn."""


@st.composite
def covered(draw: st.DrawFn, **more: Any) -> World:
    """A world whose plans and assumptions are covered; many have little DRAM."""
    world = draw(worlds(**{"most": 5, "least": 2, **FIXED, **more}))
    if draw(st.booleans()):
        size = draw(st.sampled_from([30.0, 12.0, 6.0, 4.0, 2.0, 1.0, 0.6]))
        world = replace(world, system=with_dram(world.system, size * footprint(world.graph)))
    return world


def jointly(world: World) -> Assumptions:
    """Schemes and fusions are chosen together."""
    return world.assumptions.with_(sharding_objective="joint")


def setting_of(world: World) -> Setting:
    """Graph, system and resolved assumptions."""
    return Setting.resolved(world.graph, world.system, jointly(world))


def asked_of(world: World, draw: st.DrawFn) -> dict[str, Any]:
    """What is asked: one stage where kernels are drawn once, and some levels of ZeRO."""
    asked: dict[str, Any] = {"two_batch_overlap": False, **({"pp": 1} if world.graph.repeat == 1 else {})}
    if world.graph.trains:
        asked["zero"] = draw(st.sampled_from([None, None, (0, 1), (2, 3)]))
    return asked


def request_of(world: World, draw: st.DrawFn) -> Request:
    """The same as a request."""
    return Request(**asked_of(world, draw))
