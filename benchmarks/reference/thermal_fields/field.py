"""Temperatures that a solve found, with the figures one asks of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dfopt.arrays import Floats
from dfopt.technology.thermal.types import Body
from thermal_fields.checks import slab_index
from thermal_fields.raster import Rect, tile_weights

__all__ = ["Field", "Transient"]


@dataclass(frozen=True, eq=False)
class Field:
    """A temperature field.

    Parameters
    ----------
    body
        What it is the field of.
    temperature_k
        Kelvin, shape (slabs, ny, nx), far face first.
    plates_k
        Kelvin of the package's ``spreader`` and ``sink`` over the die, shape (ny, nx) each; the mean over their
        thickness. Empty for a package without plates.
    state_k
        Kelvin of every node of the network, what a transient starts from.
    power_w, to_ambient_w
        Watts put in, and watts that leave to ambient in this state. Equal when it is steady.
    """

    body: Body
    temperature_k: Floats
    plates_k: dict[str, Floats]
    state_k: Floats
    power_w: float
    to_ambient_w: float

    def of(self, slab: str) -> Floats:
        """Kelvin of a slab or plate by name, (ny, nx)."""
        if slab in self.plates_k:
            return self.plates_k[slab]
        return np.asarray(self.temperature_k[slab_index(self.body, slab)])

    def max(self, slab: str | None = None) -> float:
        """Kelvin of the hottest cell of a slab or plate, or of all slabs."""
        return float(self.temperature_k.max() if slab is None else self.of(slab).max())

    def min(self, slab: str) -> float:
        """Kelvin of the coolest cell of a slab or plate."""
        return float(self.of(slab).min())

    def mean(self, slab: str) -> float:
        """Kelvin, mean over the cells of a slab or plate."""
        return float(self.of(slab).mean())

    def tile_means(self, slab: str, rects: Sequence[Rect]) -> Floats:
        """Kelvin, mean over each tile by area."""
        weights = self._weights(rects)
        return np.tensordot(weights, self.of(slab), axes=2)

    def tile_maxima(self, slab: str, rects: Sequence[Rect]) -> Floats:
        """Kelvin of the hottest cell that each tile touches."""
        weights = self._weights(rects)
        return np.asarray(np.where(weights > 0, self.of(slab), -np.inf).max(axis=(1, 2)))

    def _weights(self, rects: Sequence[Rect]) -> Floats:
        _, ny, nx = self.temperature_k.shape
        return tile_weights(rects, nx, ny, self.body.side_x, self.body.side_y)


@dataclass(frozen=True, eq=False)
class Transient:
    """Temperatures at the end of each step of a transient.

    ``times_s`` has shape (steps,), ``temperature_k`` (steps, slabs, ny, nx); ``final`` is the last state, from which a
    further transient can start.
    """

    times_s: Floats
    temperature_k: Floats
    final: Field

    def of(self, slab: str) -> Floats:
        """Kelvin of a slab by name, (steps, ny, nx)."""
        return np.asarray(self.temperature_k[:, slab_index(self.final.body, slab)])

    def max(self, slab: str) -> Floats:
        """Kelvin of the hottest cell of a slab after each step."""
        return np.asarray(self.of(slab).max(axis=(1, 2)))

    def mean(self, slab: str) -> Floats:
        """Kelvin, mean over a slab after each step."""
        return np.asarray(self.of(slab).mean(axis=(1, 2)))
