"""``"900 GB/s"`` <-> float: unit strings exist in files and in printing, floats in SI everywhere else.

The arithmetic between text and float is decimal and exact, with one rounding at the end. So the shortest
decimal of a float, shifted to another prefix, reads back as the same float: ``parse(exact(x, d), d) == x``.

A field of a document declares its dimension through its type::

    class Dram(Part):
        capacity: Bytes
        bandwidth: Bandwidth
        efficiency: Annotated[Ratio, Field(le=1)] = 1.0
        drift: Annotated[float, Unit("time", signed=True)]
"""

from __future__ import annotations

import decimal
import math
import numbers
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import CoreSchema, SchemaSerializer, core_schema

from dfopt.errors import Issue, UnitError, did_you_mean, shown

__all__ = [
    "DIMENSIONS", "UNITS_REQUIRED", "Bandwidth", "Bytes", "Dimension", "Dollars", "Flop", "FlopRate", "Hertz",
    "Joules", "JoulesPerByte", "Kelvin", "Metres", "Ratio", "Seconds", "Unit", "UnitJsonSchema", "Watts",
    "WattsPerBandwidth", "exact", "format", "parse",
]  # fmt: skip

Dimension = Literal[
    "bytes", "bandwidth", "flop", "flop_rate", "time", "power", "energy", "frequency", "temperature",
    "length", "money", "energy_per_byte", "power_per_bandwidth", "ratio",
]  # fmt: skip
DIMENSIONS: Final[tuple[Dimension, ...]] = get_args(Dimension)

# The validation context of everything read from a file: there a bare number has no unit, so it is refused.
# Without it (a document built in Python) a number is SI.
UNITS_REQUIRED: Final = {"units": "required"}

_PREFIX = {
    "f": "1e-15", "p": "1e-12", "n": "1e-9", "u": "1e-6", "m": "1e-3", "c": "1e-2", "": "1",
    "k": "1e3", "M": "1e6", "G": "1e9", "T": "1e12", "P": "1e15", "E": "1e18", "Z": "1e21",
}  # fmt: skip
_BINARY = {prefix: Decimal(1024**power) for power, prefix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi"), start=1)}
# 120 digits hold the product of any accepted number (100 characters) with any unit: only float() rounds.
_EXACT = decimal.Context(prec=120, Emin=-99999, Emax=99999, traps=[decimal.Overflow, decimal.Underflow])
_NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_QUANTITY = re.compile(rf"\s*(\$?)\s*({_NUMBER})\s*(.*?)\s*", re.DOTALL)
_LONGEST = 100


@dataclass(frozen=True)
class _Kind:
    """One dimension: every accepted unit with its size in SI, and the units that are written."""

    units: dict[str, Decimal]
    ladder: tuple[str, ...]  # the units dfopt prints, ascending
    typical: str  # the unit of the example in messages
    compact: tuple[str, ...] = ()  # written to files only where they are shorter: '80 GiB', not '85.89934592 GB'


def _si(symbol: str, prefixes: str, size: Decimal | int = 1) -> dict[str, Decimal]:
    """The units of a symbol under one-letter prefixes; a space among the prefixes stands for no prefix."""
    return {p.strip() + symbol: Decimal(_PREFIX[p.strip()]) * size for p in prefixes}


def _decimal(symbol: str, prefixes: str, typical: str, extra: dict[str, Decimal] | None = None) -> _Kind:
    units = _si(symbol, prefixes)
    return _Kind(units | (extra or {}), tuple(units), typical)


def _kinds() -> dict[str, _Kind]:
    big = " kMGTP"
    bits = _si("bit", big, Decimal("0.125")) | _si("b", big[1:], Decimal("0.125"))
    binary = {prefix + "B": size for prefix, size in _BINARY.items()}
    byte = _si("B", big + "E")
    size = byte | binary | bits
    speed = {unit + "/s": value for unit, value in size.items()}
    speed |= {unit + "ps": value for unit, value in (_si("B", big[1:]) | _si("b", big[1:], Decimal("0.125"))).items()}
    flop = _si("FLOP", big + "EZ")
    rate = {unit + "/s": value for unit, value in flop.items()}
    spelled = {unit + tail: value for unit, value in flop.items() for tail in ("S", "s/s")}
    wh = _si("Wh", " kMG", 3600)
    hours = {"min": Decimal(60), "h": Decimal(3600), "day": Decimal(86400)}
    per_byte = _si("J/B", "fpnum ") | _si("J/bit", "fpnum ", 8)
    watts = {
        f"{w}/({b})": x / y for w, x in _si("W", "um k").items() for b, y in speed.items() if b in ("GB/s", "TB/s")
    }
    per_gb = ("uW/(GB/s)", "mW/(GB/s)", "W/(GB/s)", "kW/(GB/s)")
    return {
        "bytes": _Kind(size, tuple(byte), "GB", tuple(binary)),
        "bandwidth": _Kind(speed, tuple(u + "/s" for u in byte), "GB/s", tuple(u + "/s" for u in binary)),
        "flop": _Kind(flop | {u + "s": v for u, v in flop.items()}, tuple(flop), "GFLOP"),
        "flop_rate": _Kind(rate | spelled, tuple(rate), "TFLOP/s"),
        "time": _decimal("s", "pnum ", "us", hours),
        "power": _decimal("W", "num kMG", "W"),
        "energy": _decimal("J", "fpnum kMG", "pJ", wh),
        "frequency": _decimal("Hz", " kMGT", "GHz"),
        "temperature": _Kind({"K": Decimal(1), "degC": Decimal(1), "°C": Decimal(1)}, ("K",), "K"),
        "length": _Kind(_si("m", "pnumc k"), ("pm", "nm", "um", "mm", "m", "km"), "mm"),
        "money": _Kind({"USD": Decimal(1), "$": Decimal(1)}, ("USD",), "USD"),
        "energy_per_byte": _Kind(per_byte, tuple(_si("J/B", "fpnum ")), "pJ/bit", tuple(_si("J/bit", "fpnum "))),
        "power_per_bandwidth": _Kind(watts, per_gb, "W/(GB/s)"),
        "ratio": _Kind({"": Decimal(1), "%": Decimal("0.01")}, ("%",), "%"),
    }


_KINDS: Final = _kinds()


def _wrong(message: str, remedy: str) -> UnitError:
    return UnitError("", (Issue("$", message, remedy),))


def _missing(number: float, found: str, dimension: Dimension) -> UnitError:
    # 9e11 was surely meant in SI, 900 in the usual unit of the trade: the example should be what was meant.
    meant_si = number != 0 and not 1e-3 <= abs(number) < 1e6
    example = exact(number, dimension) if meant_si else f"{found} {_KINDS[dimension].typical}"
    return _wrong(
        f"missing unit: found {found}, expected e.g. {example!r}",
        f"write its unit, a {_word(dimension)}",
    )


def _word(dimension: Dimension) -> str:
    return {"bytes": "number of bytes", "flop": "number of FLOP"}.get(dimension, dimension.replace("_", " "))


def _unknown(text: str, unit: str, dimension: Dimension) -> UnitError:
    kind = _KINDS[dimension]
    others = [_word(d) for d in DIMENSIONS if unit in _KINDS[d].units]
    found = f"found {shown(text)}, a {others[0]}" if others else f"unknown unit {shown(unit)} in {shown(text)}"
    listed = f"units of this {_word(dimension)}: {', '.join(kind.ladder + kind.compact)}"
    remedy = listed if others else did_you_mean(unit, kind.units, listed)
    return _wrong(f"{found}, expected a {_word(dimension)}", remedy)


def _checked(value: float, found: str, dimension: Dimension, signed: bool) -> float:
    if not math.isfinite(value):
        return _refuse(f"found {found}, expected a finite {_word(dimension)}", "leave the key out if there is no limit")
    if value < 0 and not signed:
        return _refuse(f"found {found}, expected a {_word(dimension)} of 0 or more", "drop the sign")
    return value + 0.0  # -0.0 becomes 0.0


def _refuse(message: str, remedy: str) -> float:
    raise _wrong(message, remedy)


def parse(text: str, dimension: Dimension, *, signed: bool = False) -> float:
    """Read a quantity into SI.

    Parameters
    ----------
    text
        A number and a unit, such as ``"900 GB/s"``; the space is optional. A ratio may be a bare number.
    dimension
        One of `DIMENSIONS`.
    signed
        Whether a value below zero is allowed.

    Raises
    ------
    UnitError
        No unit, an unknown unit, a unit of another dimension, a number that is not finite or is below zero.

    Examples
    --------
    >>> parse("900 GB/s", "bandwidth"), parse("400 Gb/s", "bandwidth"), parse("90 %", "ratio")
    (900000000000.0, 50000000000.0, 0.9)
    >>> parse("900", "bandwidth")
    Traceback (most recent call last):
    dfopt.errors.UnitError: missing unit: found 900, expected e.g. '900 GB/s' (write its unit, a bandwidth)
    """
    kind = _KINDS[dimension]
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None or (match[1] and (match[3] or dimension != "money")):
        example = "0.9' or '90 %" if dimension == "ratio" else f"900 {kind.typical}"
        raise _wrong(
            f"found {shown(text)}, expected a {_word(dimension)}",
            f"write a number and a unit, e.g. '{example}'",
        )
    digits, unit = match[2], "".join((match[1] or match[3]).split()).replace("µ", "u").replace("μ", "u")
    try:
        number = _EXACT.create_decimal(digits)
    except decimal.DecimalException:
        number = Decimal("1e999")
    if number and abs(number.adjusted()) > 400:  # no float in any unit
        raise _wrong(f"found {shown(text)}, expected a finite {_word(dimension)}", "check the exponent")
    if not unit and dimension != "ratio":
        raise _missing(float(number), digits, dimension)
    if unit not in kind.units:
        raise _unknown(text, unit, dimension)
    scaled = _EXACT.multiply(number, kind.units[unit])
    if unit in ("degC", "°C"):
        scaled = _EXACT.add(scaled, Decimal("273.15"))
    return _checked(float(scaled), shown(text), dimension, signed)


def _number(value: Decimal) -> str:
    """A decimal as short text: fixed point where that reads well, an exponent elsewhere."""
    value = value.normalize(_EXACT)
    if not value or -5 <= value.adjusted() < 7:
        return f"{value:f}"
    sign, digits, exponent = value.as_tuple()
    head = "".join(map(str, digits))
    point = "." + head[1:] if len(head) > 1 else ""
    return f"{'-' if sign else ''}{head[0]}{point}e{int(exponent) + len(head) - 1}"


def exact(value: float, dimension: Dimension) -> str:
    """The shortest text that `parse` reads back as exactly this float; this is what files hold.

    Examples
    --------
    >>> exact(9e11, "bandwidth"), exact(80 * 2.0**30, "bytes"), exact(1e-7, "time"), exact(0.1 + 0.2, "time")
    ('900 GB/s', '80 GiB', '100 ns', '300.00000000000004 ms')
    """
    if not math.isfinite(value):
        raise _wrong(f"found {value}, expected a finite {_word(dimension)}", "only finite numbers can be written")
    kind = _KINDS[dimension]
    source = Decimal(repr(float(value) + 0.0))
    if dimension == "ratio":
        return _number(source)
    if not source:
        return f"0 {min(kind.ladder, key=lambda unit: abs(kind.units[unit] - 1))}"
    best: tuple[tuple[int, bool, int], str] | None = None
    for rank, unit in enumerate(kind.ladder + kind.compact):
        scaled = _EXACT.divide(source, kind.units[unit])
        text = _number(scaled)
        if len(text) > 30:  # a binary unit of a number that is no round binary number
            continue
        key = (len(text), not 1 <= abs(scaled) < 1000, rank)
        if best is None or key < best[0]:
            best = (key, f"{text} {unit}")
    assert best is not None  # the ladder is decimal: its digits are those of repr(), at most 17
    return best[1]


def format(value: float, dimension: Dimension, digits: int = 4) -> str:
    """A quantity for people: `digits` significant digits, and the prefix that makes it 1 to 1000.

    Examples
    --------
    >>> format(9.87654e11, "bandwidth"), format(0.4567, "ratio"), format(999.96e9, "bytes")
    ('987.7 GB/s', '45.67 %', '1 TB')
    """
    kind = _KINDS[dimension]
    if not math.isfinite(value):
        return f"{value} {min(kind.ladder, key=lambda unit: abs(kind.units[unit] - 1))}"
    if value == 0:
        return "0 %" if dimension == "ratio" else exact(0.0, dimension)
    # Round first, so that 999.96 GB becomes 1 TB and not 1000 GB.
    rounded = Decimal(f"{value:.{max(digits, 1) - 1}e}")
    fitting = [unit for unit in kind.ladder if abs(rounded) >= kind.units[unit]]
    unit = fitting[-1] if fitting else kind.ladder[0]
    return f"{_number(_EXACT.divide(rounded, kind.units[unit]))} {unit}"


@dataclass(frozen=True)
class Unit:
    """Pydantic metadata: a float in SI that files write with a unit of this dimension.

    From Python, a float (or int) is SI and a string is parsed. From a file (context `UNITS_REQUIRED`) only
    the string is taken, except for a ratio. Dumping in JSON mode writes `exact` text.

    Examples
    --------
    >>> from pydantic import TypeAdapter
    >>> TypeAdapter(Seconds).validate_python("3 us"), TypeAdapter(Seconds).dump_python(3e-6, mode="json")
    (3e-06, '3 us')
    """

    dimension: Dimension
    signed: bool = False

    def read(self, value: object, context: object = None) -> float:
        """Text, or a number where the context allows one, as a float in SI."""
        if isinstance(value, str):
            return parse(value, self.dimension, signed=self.signed)
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            example = f"'900 {_KINDS[self.dimension].typical}'" if self.dimension != "ratio" else "0.9 or '90 %'"
            kind = "nothing" if value is None else "true or false" if isinstance(value, bool) else type(value).__name__
            raise _wrong(f"found {kind}, expected a {_word(self.dimension)}", f"write e.g. {example}")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        number = _checked(
            number, f"{value:.6g}" if math.isfinite(number) else "inf or nan", self.dimension, self.signed
        )
        strict = isinstance(context, dict) and context.get("units") == "required"
        if strict and self.dimension != "ratio":
            raise _missing(number, str(value), self.dimension)
        return number

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def validate(value: object, info: core_schema.ValidationInfo) -> float:
            return self.read(value, info.context)

        def serialize(value: float) -> str:
            return exact(value, self.dimension)

        written = core_schema.plain_serializer_function_ser_schema(
            serialize, return_schema=core_schema.str_schema(), when_used="json"
        )
        schema = handler(source)
        if self.dimension == "ratio":  # a ratio has no unit: a plain number in files too
            return core_schema.with_info_before_validator_function(validate, schema)
        return core_schema.with_info_before_validator_function(validate, schema, serialization=written)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        if self.dimension == "ratio":
            percent = {"type": "string", "pattern": rf"^\s*{_NUMBER}\s*%?\s*$"}
            return {"anyOf": [{"type": "number"}, percent], "description": "a ratio, e.g. 0.9 or '90 %'"}
        kind = _KINDS[self.dimension]
        says = f"a {_word(self.dimension)} with its unit, e.g. '900 {kind.typical}'; units: " + ", ".join(kind.units)
        form = rf"^\s*(?:{_NUMBER}\s*[A-Za-zµμ°$].*|\$\s*{_NUMBER}\s*)$"
        return {"type": "string", "pattern": form, "description": says}


class UnitJsonSchema(GenerateJsonSchema):
    """JSON Schema whose defaults are written as a file would write them: '1 us', not 1e-06."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> dict[str, Any]:
        """Write a unit default as text; see pydantic."""
        made = super().default_schema(schema)
        if isinstance(schema.get("default"), float):
            made["default"] = SchemaSerializer(schema["schema"]).to_python(schema["default"], mode="json")
        return made


Bytes = Annotated[float, Unit("bytes")]
Bandwidth = Annotated[float, Unit("bandwidth")]
Flop = Annotated[float, Unit("flop")]
FlopRate = Annotated[float, Unit("flop_rate")]
Seconds = Annotated[float, Unit("time")]
Watts = Annotated[float, Unit("power")]
Joules = Annotated[float, Unit("energy")]
Hertz = Annotated[float, Unit("frequency")]
Kelvin = Annotated[float, Unit("temperature")]
Metres = Annotated[float, Unit("length")]
Dollars = Annotated[float, Unit("money")]
JoulesPerByte = Annotated[float, Unit("energy_per_byte")]
WattsPerBandwidth = Annotated[float, Unit("power_per_bandwidth")]
Ratio = Annotated[float, Unit("ratio")]
