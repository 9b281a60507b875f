"""Fields of the thermal networks of `dfopt.technology.thermal`: steady ones and transients, for any power map.

What dfopt itself asks of a network are its responses to tiles of power; a `ThermalModel` solves the same network with
the same solvers for watts cell by cell, as the figures of other tools want it.
"""

from thermal_fields.checks import sink_package
from thermal_fields.field import Field, Transient
from thermal_fields.model import PowerMap, ThermalModel
from thermal_fields.raster import Rect, rasterise

__all__ = ["Field", "PowerMap", "Rect", "ThermalModel", "Transient", "rasterise", "sink_package"]
