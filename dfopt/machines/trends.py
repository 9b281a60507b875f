"""Price and power of chips by their peak, fitted to part files: DFModel, section VI.C and Fig. 9."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from dfopt.documents.parts import ChipPart
from dfopt.documents.zoo import find

__all__ = ["STUDY_CHIPS", "trend"]

STUDY_CHIPS: Final = ("tpu-v4", "sn30", "h100", "wse-2")  # DFModel, table V


def trend(quantity: Literal["power_w", "price_usd"], chips: Sequence[str] = STUDY_CHIPS) -> tuple[float, float, float]:
    """The least-squares parabola of the power or the price of chips over their peak.

    Parameters
    ----------
    quantity : {"power_w", "price_usd"}
        Field of the part files.
    chips : sequence of str
        Three or more chips of the zoo that have it; the default are those of DFModel's table V.

    Returns
    -------
    (a, b, c)
        Of ``a X^2 + b X + c`` in kW or kUSD with X in TFLOP/s: what `dfopt.physics.cost.power_of_compute` and
        `price_of_compute` take. The largest chip sets ``a``; for small ones the parabola is off by its residuals.

    Raises
    ------
    ValueError
        For fewer than three different peaks, or a chip without the quantity.

    Examples
    --------
    >>> a, b, c = trend("power_w")  # DFModel, Fig. 9, prints 3e-7, 4.3e-4 (with a minus) and 0.04
    >>> f"{a:.0e} {b:.1e} {c:.2f}"
    '3e-07 4.2e-04 0.04'
    """
    import numpy as np

    parts = {name: ChipPart.load(find("chips", name)) for name in chips}
    bare = [name for name, part in parts.items() if getattr(part, quantity) is None]
    if bare:
        raise ValueError(f"{', '.join(bare)}: no {quantity} in the part file; add it, or leave the chip out")
    peaks = np.array([part.peak_flops / 1e12 for part in parts.values()])
    if len(set(peaks.tolist())) < 3:
        raise ValueError(f"found {len(set(peaks.tolist()))} different peaks, expected 3 or more for a parabola")
    values = np.array([getattr(part, quantity) / 1e3 for part in parts.values()])
    a, b, c = np.polyfit(peaks, values, 2)
    return float(a), float(b), float(c)
