"""How hot a chip with DRAM layers is by one resistance, and the clock at which it keeps a limit: DeepStack's model.

DeepStack (arXiv:2604.04750), figure 18: T = 35 degC + (0.56 + 0.01 layers) K/W x the watts of a device, a warning at
85 degC, throttling at 95 degC. Throttled, it runs all clocks slower by the cube root of the power that is too much, as
power goes with the cube of the clock, and divides the throughput by as much. Watts are those of a chip in full use.
"""

from __future__ import annotations

from typing import Final

from dfopt.arrays import ROUNDING

WARNING_C: Final = 85.0
LIMIT_C: Final = 95.0
_AMBIENT_C: Final = 35.0
_K_PER_W, _K_PER_W_OF_LAYER = 0.56, 0.01


def temperature_c(watts: float, layers: int) -> float:
    """Temperature in degC of a device of ``layers`` layers that draws ``watts`` at its nominal clock (lumped model).

    Examples
    --------
    >>> round(temperature_c(100.0, 4), 9)
    95.0
    """
    return _AMBIENT_C + (_K_PER_W + _K_PER_W_OF_LAYER * layers) * watts


def clock(watts: float, layers: int, limit_c: float = LIMIT_C) -> float:
    """Largest share of the nominal clock at which a device stays below ``limit_c`` degC; 0 if it never does.

    Parameters
    ----------
    watts : float, W
        Power of the device at its nominal clock.
    layers : int
        Number of stacked layers, which share one way to the ambient.
    limit_c : float, degC
        Temperature that must not be passed.

    Examples
    --------
    >>> clock(100.0, 4), round(clock(800.0, 4), 9)
    (1.0, 0.5)
    """
    kelvin = limit_c - _AMBIENT_C
    if kelvin <= 0:
        return 0.0
    rise = temperature_c(watts, layers) - _AMBIENT_C
    return 1.0 if rise <= kelvin * (1 + ROUNDING) else float((kelvin / rise) ** (1 / 3))
