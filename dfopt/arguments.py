"""What the words of the command line mean: KEY=VALUE pairs, pins, choices. Errors name the option."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from dfopt.documents.scalars import parse_scalar
from dfopt.errors import PlanError, UnitError

if TYPE_CHECKING:
    from dfopt.documents.exploration_request import DesignLimits

_ZERO_C = 273.15


def pairs(items: list[str] | None, option: str) -> dict[str, str]:
    """Parse KEY=VALUE words to a dict; a key with two values is an error."""
    words: dict[str, str] = {}
    for item in items or []:
        key, equals, value = item.partition("=")
        if not equals or not key or not value:
            raise PlanError(f"{option}: expected KEY=VALUE, found {item!r}")
        if words.setdefault(key.strip(), value.strip()) != value.strip():
            raise PlanError(f"{option}: {key.strip()!r} is given twice, {words[key.strip()]!r} and {value.strip()!r}")
    return words


def values(items: list[str] | None, option: str) -> dict[str, Any]:
    """Parse KEY=VALUE words, with values as YAML scalars: numbers, booleans, words."""
    return {key: parse_scalar(value) for key, value in pairs(items, option).items()}


def numbers(option: str, words: str, expected: str) -> list[int]:
    """Parse distinct positive integers separated by commas, such as 1,2,4.

    Parameters
    ----------
    option, words
        Name of the option, and its value.
    expected : str
        What it should be, for messages.

    Raises
    ------
    PlanError
        For any other text.
    """
    counts = [count.strip() for count in words.split(",")]
    if not all(count.isdigit() and int(count) for count in counts):
        raise PlanError(f"{option}: expected {expected}, found {words!r}")
    return list(dict.fromkeys(map(int, counts)))


def replicas(words: str) -> Any:
    """Parse ``--zero-replicas``: positive integers, or all.

    Examples
    --------
    >>> replicas("2,4"), replicas("all")
    ((2, 4), 'all')
    """
    return words if words == "all" else tuple(numbers("--zero-replicas", words, "numbers such as 1,2,4"))


def levels(words: str) -> tuple[int, ...]:
    """Parse ``--zero``: distinct ZeRO levels, or ``all``.

    Examples
    --------
    >>> levels("0,1,0"), levels("all")
    ((0, 1), (0, 1, 2, 3))
    """
    chosen = [choice("--zero", word.strip(), (*"0123", "all")) for word in words.split(",")]
    if "all" in chosen and len({*chosen}) > 1:
        raise PlanError(f"--zero: found {words!r}, expected some of them or all, not both")
    return tuple(map(int, "0123" if "all" in chosen else dict.fromkeys(chosen)))


def ratio(option: str, words: str) -> float:
    """Parse a ratio, such as 0.01 or 1%."""
    from dfopt.units import parse

    try:
        share = parse(words, "ratio")
    except UnitError:
        share = -1.0
    if not 0 <= share <= 1:
        raise PlanError(f"{option}: expected a number from 0 to 1 such as 0.01, or 1%, found {words!r}")
    return share


def design_limits(
    step: str | None, power: str | None, cost: float | None, degc: float | None = None, mm2: float | None = None
) -> DesignLimits | None:
    """Design limits that options set; None if none is given.

    Parameters
    ----------
    step, power : str, optional
        ``--step-limit`` and ``--power-limit``: quantities with units.
    cost : float, optional
        ``--cost-limit``, in USD.
    degc : float, optional
        ``--temperature-limit``, in degrees Celsius.
    mm2 : float, optional
        ``--area-limit``, in mm2.

    Examples
    --------
    >>> design_limits("50ms", None, 2e6).words
    'step time at most 50 ms, price at most 2,000,000 USD'
    """
    from dfopt.documents.exploration_request import DesignLimits

    limits = {
        "step_time": _limit("--step-limit", step, "time"),
        "power": _limit("--power-limit", power, "power"),
        "price": cost,
        "temperature": None if degc is None else degc + _ZERO_C,
        "area_mm2": mm2,
    }
    for option, most in (("--cost-limit", cost), ("--area-limit", mm2)):
        if most is not None and not most > 0:
            raise PlanError(f"{option}: expected more than 0, found {most:g}")
    if degc is not None and not -_ZERO_C < degc < 1000:
        raise PlanError(f"--temperature-limit: expected degC such as 85, found {degc:g}")
    return DesignLimits(**limits) if any(most is not None for most in limits.values()) else None


def _limit(option: str, words: str | None, dimension: Literal["time", "power"]) -> float | None:
    """The most of a figure, in SI units."""
    from dfopt.units import parse

    if words is None:
        return None
    try:
        most = parse(words, dimension)
    except UnitError as error:
        raise PlanError(f"{option}: {error}") from None
    if not most > 0:
        raise PlanError(f"{option}: expected more than 0, found {words!r}")
    return most


def batch(words: str) -> Any:
    """Parse ``--batch``: a positive integer, several separated by commas, or max."""
    counts = [] if words == "max" else numbers("--batch", words, "a number from 1 on, or max")
    return words if not counts else counts if "," in words else counts[0]


def choice(option: str, value: str, allowed: tuple[str, ...]) -> Any:
    """Check that a value is one of those allowed, and return it.

    Parameters
    ----------
    option, value
        Name of the option, and its value.
    allowed : tuple of str
        Values that it may have.

    Raises
    ------
    PlanError
        For any other value.
    """
    if value not in allowed:
        raise PlanError(f"{option}: expected one of {', '.join(allowed)}, found {value!r}")
    return value


def partitions(items: list[str]) -> dict[str, int]:
    """Parse ``--pin`` KERNEL=PARTITION words."""
    pinned = {}
    for kernel, value in pairs(items, "--pin").items():
        if not value.isdigit():
            raise PlanError(f"--pin: expected a partition number for {kernel!r}, found {value!r}")
        pinned[kernel] = int(value)
    return pinned


def schemes(items: list[str]) -> dict[str, Any]:
    """Parse ``--shard`` KERNEL=SCHEME words."""
    from dfopt.physics.ops import SCHEMES

    return {kernel: choice(f"--shard {kernel}", value, SCHEMES) for kernel, value in pairs(items, "--shard").items()}


def modules(items: list[str]) -> dict[str, Any]:
    """Parse ``--module`` MODULE=SCHEME words.

    Examples
    --------
    >>> modules(["mixer=n", "experts=outer"])
    {'mixer': 'n', 'experts': 'outer'}
    """
    from dfopt.documents.modules import SCHEMES, Modules

    names, given = tuple(Modules.model_fields), pairs(items, "--module")
    return {choice("--module", name, names): choice(f"--module {name}", v, SCHEMES) for name, v in given.items()}


def places(items: list[str]) -> dict[str, str]:
    """Parse ``--place`` ITEM=MEMORY words.

    Examples
    --------
    >>> places(["experts=DDR"])
    {'experts': 'DDR'}
    """
    from dfopt.documents.placement import ITEMS

    return {choice("--place", item, ITEMS): memory for item, memory in pairs(items, "--place").items()}


def offloads(text: str) -> tuple[str, ...] | str | None:
    """Parse ``--offload``: items separated by commas, any or none.

    Examples
    --------
    >>> offloads("optimizer,activations"), offloads("any"), offloads("none")
    (('optimizer', 'activations'), 'any', None)
    """
    from dfopt.documents.placement import TRAINED

    if text in ("none", "any"):
        return None if text == "none" else text
    return tuple(choice("--offload", item.strip(), (*TRAINED, "any", "none")) for item in text.split(","))


def given(options: dict[str, Any]) -> dict[str, Any]:
    """Options with a value."""
    return {key: value for key, value in options.items() if value is not None}


def fields(options: dict[str, Any]) -> dict[str, Any]:
    """Request fields from the words of their options.

    Examples
    --------
    >>> fields({"tp": 8, "tp_dims": "x,y[4]", "dp_dims": "", "zero": "0,1", "module": ["mixer=n"], "gap": "1%"})
    {'tp': 8, 'tp_dims': ('x', 'y[4]'), 'dp_dims': (), 'zero': (0, 1), 'module': {'mixer': 'n'}, 'gap': 0.01}
    """
    from dfopt.documents.names import in_documents
    from dfopt.documents.request import Request

    readers: dict[str, Callable[[Any], Any]] = {
        "zero": levels, "zero_replicas": replicas, "gap": lambda words: ratio("--gap", words), "offload": offloads,
        "module": modules, "place": places, "pin": partitions, "shard": schemes,
    }  # fmt: skip
    read = {}
    for name, words in options.items():
        [key] = in_documents({name: words})
        kind = Request.model_fields[key].annotation if key in Request.model_fields else None
        choices = [word for each in (kind, *get_args(kind)) if get_origin(each) is Literal for word in get_args(each)]
        if name in readers:
            read[name] = readers[name](words)
        elif choices:
            read[name] = choice(f"--{name.replace('_', '-')}", words, tuple(choices))
        else:
            read[name] = tuple(filter(None, words.split(","))) if name.endswith("_dims") else words
    return read
