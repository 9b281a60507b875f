"""Temperatures of a die stack: finite volumes over slabs, under a heat transfer coefficient or a spreader and sink."""

from __future__ import annotations

from dfopt.physics.thermal.cache import Cache
from dfopt.physics.thermal.field import Field, Transient
from dfopt.physics.thermal.influence import Influence, Tile
from dfopt.physics.thermal.model import PowerMap, ThermalModel
from dfopt.physics.thermal.raster import rasterise, tile_weights
from dfopt.physics.thermal.types import Body, HotspotPackage, HtcPackage, Package, PlatesPackage, Rect, Slab

__all__ = [
    "Body", "Cache", "Field", "HotspotPackage", "HtcPackage", "Influence", "Package", "PlatesPackage", "PowerMap",
    "Rect", "Slab", "ThermalModel", "Tile", "Transient", "rasterise", "tile_weights",
]  # fmt: skip
