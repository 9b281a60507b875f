"""Where a circuit runs under a power budget: voltage, clock, and what ends them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dfopt.documents.technology import Supply
from dfopt.technology.arithmetic import TINY, Numbers, arithmetic_of
from dfopt.technology.voltage import overdrive, power_share, speed

LIMITS = ("off", "area", "power", "perimeter", "V_min", "V_max", "ports", "package area", "dies", "layers", "buffers")
"""What may bind a component; ``off`` has no power."""
OFF, AREA, POWER, PERIMETER, V_MIN, V_MAX, PORTS, PACKAGE_AREA, DIES, LAYERS, BUFFERS = range(len(LIMITS))
_NAMES = np.array(LIMITS)


def limit_names(codes: Numbers) -> Numbers:
    """Name of a limit by code: text for one code, an array of texts for many.

    Examples
    --------
    >>> limit_names(2), limit_names(np.array([4, 5])).tolist()
    ('power', ['V_min', 'V_max'])
    """
    return LIMITS[codes] if isinstance(codes, int) else _NAMES[np.asarray(codes, dtype=int)]


class OperatingPoint(NamedTuple):
    """Voltage, clock and power of a circuit, with the binding limit.

    Attributes
    ----------
    voltage, frequency
        Voltage in V and clock in Hz; both 0 if the circuit is off.
    power
        Dynamic power that is drawn, in W.
    energy
        Energy per operation, as a multiple of that at nominal voltage.
    bound
        Binding limit, one of ``LIMITS``.
    """

    voltage: Numbers
    frequency: Numbers
    power: Numbers
    energy: Numbers
    bound: Numbers


def operating(
    power: Numbers, nominal_power: Numbers, supply: Supply, frequency: float, *, low: bool = False, top: bool = True
) -> OperatingPoint:
    """Operating point of a circuit under a power budget.

    If the power is too small for its lowest voltage, a circuit stays at that voltage, at a clock for which ``f V^2``
    meets the power.

    Parameters
    ----------
    power, nominal_power : float or array, W
        Power budget of the circuit, and its power at nominal voltage and clock.
    supply, frequency
        Voltages of the circuit, and its nominal clock in Hz.
    low : bool
        Whether the voltage may fall below the lowest one, with the same clock, as of DeepFlow's links.
    top : bool
        Whether the highest voltage is respected.

    Examples
    --------
    >>> supply = Supply(nominal_v=0.8, threshold_v=0.2, margin_v=0.35, max_v=1.0)
    >>> for watts in (5.0, 50.0, 500.0):
    ...     at = operating(watts, 50.0, supply, 1e9)
    ...     print(round(at.voltage, 3), round(at.frequency / 1e9, 3), round(at.power, 3), limit_names(at.bound))
    0.55 0.212 5.0 V_min
    0.8 1.0 50.0 power
    1.0 1.422 111.111 V_max
    """
    do = arithmetic_of(power, nominal_power)
    built = nominal_power > 0
    on = built & (power > 0)
    share = do.maximum(power, 0.0) * built / do.where(built, nominal_power, 1.0)
    nominal, threshold, floor = supply.nominal_v, supply.threshold_v, supply.floor
    above = overdrive(share, nominal, threshold)
    most = supply.max_v if top and supply.max_v is not None else None
    if most is not None:
        capped = above > most - threshold
        above = do.where(capped, most - threshold, above)
    v = threshold + above
    multiple = speed(above, nominal, threshold)
    short = v < floor
    kept = do.minimum(v, floor) / max(floor, TINY)
    multiple = multiple * do.where(short, kept * kept, 1.0)
    at = v if low else do.where(short, floor, v)
    bound = do.where(short, V_MIN, POWER)
    if most is not None:
        bound = do.where(capped, V_MAX, bound)
    alive = built if low else on
    at = do.where(alive, at, 0.0)
    multiple = do.where(on, multiple, 0.0)
    return OperatingPoint(
        voltage=at,
        frequency=frequency * multiple,
        power=nominal_power * power_share(at, multiple, nominal),
        energy=(at / nominal) ** 2,
        bound=do.where(on, bound, OFF),
    )
