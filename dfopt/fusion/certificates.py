"""Prices of kernels as a proof of a bound: what column generation leaves behind, and how it is checked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dfopt.bnb import Clock, OutOfTime
from dfopt.fusion.blocks import StageTables, price_each, singles
from dfopt.fusion.classes import interchangeable
from dfopt.fusion.one_block import TOLERANCE, Listed, OneBlock, pricing
from dfopt.fusion.partitioning import IntraChipLimits
from dfopt.milp import Termination
from dfopt.terms.sharded_graph import Floats


@dataclass(frozen=True)
class Certificate:
    """Prices that prove a bound: no block is worth more than its time, so all kernels together bound all blocks.

    ``price_k``: seconds that each kernel is worth; ``partition``: seconds that a partition is worth (never positive
    where there may be fewer than ``p_max``).
    """

    price_k: Floats
    partition: float


def slack(model: OneBlock | Listed) -> float:
    """Seconds that a bound may be too high because the MILP calls a block that is worth next to nothing none."""
    most = min(model.limits.p_max, model.tables.kernels)
    return TOLERANCE * model.unit_s * most


def certified(tables: StageTables, limits: IntraChipLimits, certificate: Certificate, clock: Clock) -> float:
    """Check prices from whatever source: the bound in seconds that they prove.

    It is 0 when a block is worth more than its time, or when that could not be settled before the clock was over.
    """
    try:
        return _proven(tables, limits, certificate, clock)
    except OutOfTime:
        return 0.0


def _proven(tables: StageTables, limits: IntraChipLimits, certificate: Certificate, clock: Clock) -> float:
    price_k = np.asarray(certificate.price_k, dtype=np.float64)
    counted = limits.exactly or limits.p_max < tables.kernels
    if price_k.shape != (tables.kernels,) or not np.isfinite(price_k).all() or not np.isfinite(certificate.partition):
        return 0.0
    if (certificate.partition != 0.0 and not counted) or (certificate.partition > 0.0 and not limits.exactly):
        return 0.0  # it would count on partitions that need not be there
    classes = interchangeable(tables, clock)
    price_c = price_k[classes.first_c]
    if not np.array_equal(price_c[classes.class_k], price_k):
        return 0.0
    alone = price_each(tables, singles(tables)).time
    tiled = tables.parts_k > 1  # blocks of their own, which the model of a block leaves out
    if (price_k[tiled] + certificate.partition > alone[tiled] * (1 + 1e-9)).any():
        return 0.0
    model = pricing(tables, limits, classes, clock)
    solution, _ = model.search(price_c, -certificate.partition, clock)
    if solution.termination is not Termination.INFEASIBLE:
        return 0.0
    return float(price_k.sum()) + certificate.partition * (limits.p_max if counted else 0) - slack(model)
