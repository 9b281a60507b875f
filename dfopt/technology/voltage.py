"""Voltage and clock that a power budget buys, in closed form.

The clock goes with ``(V - V_t)^2 / V`` (alpha-power law with alpha = 2: Sakurai and Newton, IEEE JSSC 25(2), 1990) and
dynamic power with ``f V^2``, so power goes with ``V (V - V_t)^2``. DeepFlow (github.com/nanocad-lab/DeepFlow, 566c192)
finds the root of that cubic by iteration; here it is a third of an angle. Voltages are in V, clocks in Hz, power in W.
"""

from __future__ import annotations

import math

from dfopt.technology.arithmetic import TINY, Numbers, arithmetic_of

# Above so much power for its threshold V is cbrt(c) + 2/3 V_t to 16 digits, whereas the angle would overflow.
_FAR = 1e24


def overdrive(share: Numbers, nominal: Numbers, threshold: Numbers) -> Numbers:
    """Voltage above threshold, V, of a circuit at a share of its nominal dynamic power.

    With ``c = share V_n (V_n - V_t)^2`` and ``x = 13.5 c / V_t^3 - 1`` the voltage is
    ``2/3 V_t (1 + cos(acos(x) / 3))``, with cosh and acosh where x is above 1. As a distance from the threshold it
    keeps its digits at small power, where ``V - V_t`` of rounded voltages would lose them.

    Parameters
    ----------
    share : float or array
        Dynamic power relative to nominal.
    nominal, threshold : float or array, V
        Nominal voltage, and threshold voltage below it.

    Examples
    --------
    >>> overdrive(1.0, 0.8, 0.2), overdrive(8.0, 0.5, 0.0), overdrive(0.0, 0.8, 0.2)
    (0.6, 1.0, 0.0)
    """
    do = arithmetic_of(share, nominal, threshold)
    c = share * nominal * (nominal - threshold) ** 2
    y = 6.75 * c / do.maximum(threshold**3, TINY)  # (1 + x) / 2
    # acos(x) = pi - 2 asin(sqrt(y)); cos(a) - cos(pi/3) as a product of sines
    sixth = do.asin(do.sqrt(do.minimum(y, 1.0))) / 3
    slow = 4 / 3 * threshold * do.sin(math.pi / 3 - sixth) * do.sin(sixth)
    fast = 2 / 3 * threshold * (do.cosh(do.acosh(do.maximum(2 * y - 1, 1.0)) / 3) - 0.5)
    far = c ** (1 / 3) - threshold / 3
    near = do.where(y <= 1, slow, fast)
    return do.where((y > _FAR) | ((threshold == 0) & (c > 0)), far, near)


def speed(above: Numbers, nominal: Numbers, threshold: Numbers) -> Numbers:
    """Clock of a circuit relative to nominal.

    Parameters
    ----------
    above : float or array, V
        Voltage above threshold.
    nominal, threshold : float or array, V
        Nominal voltage, and threshold voltage below it.

    Examples
    --------
    >>> speed(0.5, 0.5, 0.0), speed(0.0, 0.5, 0.0)
    (1.0, 0.0)
    """
    do = arithmetic_of(above, nominal, threshold)
    at = do.maximum(above + threshold, TINY)  # without threshold and power: 0 / 0, and the clock is 0
    return above**2 / at * nominal / (nominal - threshold) ** 2


def overdrive_at(multiple: Numbers, nominal: Numbers, threshold: Numbers) -> Numbers:
    """Voltage above threshold, V, for a clock: the inverse of `speed`.

    With ``k = multiple (V_n - V_t)^2 / V_n`` it is the root of ``a^2 = k (a + V_t)`` that is not below 0.

    Parameters
    ----------
    multiple : float or array
        Clock relative to nominal.
    nominal, threshold : float or array, V
        Nominal voltage, and threshold voltage below it.

    Examples
    --------
    >>> round(overdrive_at(speed(0.3, 0.75, 0.25), 0.75, 0.25), 12), overdrive_at(1.0, 0.5, 0.0)
    (0.3, 0.5)
    """
    do = arithmetic_of(multiple, nominal, threshold)
    k = multiple * (nominal - threshold) ** 2 / nominal
    return (k + do.sqrt(k * k + 4 * k * threshold)) / 2


def power_share(at: Numbers, multiple: Numbers, nominal: Numbers) -> Numbers:
    """Dynamic power of a circuit relative to nominal.

    Parameters
    ----------
    at : float or array, V
        Voltage.
    multiple : float or array
        Clock relative to nominal.
    nominal : float or array, V
        Nominal voltage.

    Examples
    --------
    >>> power_share(1.0, 0.5, 0.5)
    2.0
    """
    return multiple * (at / nominal) ** 2
