"""A derived chip in plain data, component by component: what is printed, and written as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from dfopt.technology.chip_price import ChipPrice
from dfopt.technology.derive import Derived
from dfopt.technology.operating import limit_names

_LIMITS = ("bound", "count_bound", "link_bound")


def plain_figures(chip: Derived, layered: bool = False) -> dict[str, Any]:
    """Figures of all components of a chip by name, in SI units and mm2.

    Parameters
    ----------
    chip : Derived
        Derived chip of a single design.
    layered : bool
        Whether its DRAM dies are ``layers``, not ``stacks``.

    Examples
    --------
    >>> from dfopt.technology.components import Links
    >>> from dfopt.technology.operating import AREA, POWER
    >>> links = Links(4.0, 0.5, 1e9, 2e9, 1e-11, 0.5, 0.0, 0.25, 0.0, AREA, POWER)
    >>> core = links._replace(bound=AREA)  # of the same figures, for once
    >>> chip = Derived(core, {}, links, {"in_package": links})  # type: ignore[arg-type]
    >>> figures = plain_figures(chip)
    >>> figures["in_package"]["links"], figures["in_package"]["bound"], figures["core"]["bound"]
    (4, 'power', 'area')
    """
    parts: dict[str, Any] = {"core": chip.core, **chip.sram, "dram": chip.dram}
    parts |= {str(role): part for role, part in chip.links.items()}
    word = {"stacks": "layers"} if layered else {}
    return {
        name: {word.get(key, key): _plain(key, value) for key, value in part._asdict().items()}
        for name, part in parts.items()
    }


def plain_price(price: ChipPrice | None) -> dict[str, Any] | None:
    """Areas, yield and price (USD) of a chip by name; unknown ones are None.

    Examples
    --------
    >>> plain_price(ChipPrice(2, 400.0, 120.0, 0.64, 220.0, None, None))["die_usd"]
    220.0
    """
    if price is None:
        return None
    parts = {"package": price.package, "stack": price.stack}
    return {
        **asdict(price), **{name: part and part._asdict() for name, part in parts.items()}, "usd": price.usd,
    }  # fmt: skip


def _plain(key: str, value: Any) -> Any:
    if key in _LIMITS:
        return limit_names(int(value))
    if isinstance(value, dict):
        return {name: _plain("", entry) for name, entry in value.items()}
    number = float(value)
    return int(number) if number.is_integer() and abs(number) < 1e6 else number
