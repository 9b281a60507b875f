"""Temperatures of a die stack: finite volumes over slabs, under a heat transfer coefficient or a spreader and sink."""

from __future__ import annotations

from dfopt.technology.thermal.cache import Cache
from dfopt.technology.thermal.field import Field, Transient
from dfopt.technology.thermal.influence import Influence, Tile
from dfopt.technology.thermal.model import PowerMap, ThermalModel
from dfopt.technology.thermal.raster import rasterise, tile_weights
from dfopt.technology.thermal.types import Body, HotspotPackage, HtcPackage, Package, PlatesPackage, Rect, Slab

__all__ = [
    "Body", "Cache", "Field", "HotspotPackage", "HtcPackage", "Influence", "Package", "PlatesPackage", "PowerMap",
    "Rect", "Slab", "ThermalModel", "Tile", "Transient", "rasterise", "tile_weights",
]  # fmt: skip
