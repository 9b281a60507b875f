"""``"900 GB/s"`` <-> float: unit strings exist in files and in printing, floats in SI everywhere else.

The arithmetic between text and float is decimal and exact, with one rounding at the end. So the shortest
decimal of a float, shifted to another prefix, reads back as the same float: ``parse(exact(x, d), d) == x``.

The type of a field declares its dimension: ``capacity: Bytes``, or ``Annotated[float, Unit("time")]``.
"""

from __future__ import annotations

import decimal
import math
import numbers
import re
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import CoreSchema, SchemaSerializer, core_schema

from dfopt.errors import Issue, UnitError, did_you_mean, shown

Dimension = Literal[
    "bytes", "bandwidth", "flop", "flop_rate", "time", "power", "energy", "frequency", "temperature",
    "length", "energy_per_byte", "ratio",
]  # fmt: skip
DIMENSIONS: Final[tuple[Dimension, ...]] = get_args(Dimension)

# The validation context of everything read from a file: there a bare number has no unit, so it is refused.
# Without it (a document built in Python) a number is SI.
UNITS_REQUIRED: Final = {"units": "required"}

_PREFIX: Final = {
    "f": "1e-15", "p": "1e-12", "n": "1e-9", "u": "1e-6", "m": "1e-3", "c": "1e-2", " ": "1",
    "k": "1e3", "M": "1e6", "G": "1e9", "T": "1e12", "P": "1e15", "E": "1e18", "Z": "1e21",
}  # fmt: skip
# 120 digits hold the product of any accepted number (100 characters) with any unit: only float() rounds.
_EXACT = decimal.Context(prec=120, Emin=-99999, Emax=99999, traps=[decimal.Overflow, decimal.Underflow])
_NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_QUANTITY = re.compile(rf"\s*({_NUMBER})\s*(.*?)\s*", re.DOTALL)
_LONGEST = 100
_UnitSizes = dict[str, Decimal]


@dataclass(frozen=True)
class _DimensionUnits:
    """One dimension: its units, each with its size in SI."""

    written: _UnitSizes  # what dfopt prints, ascending
    typical: str  # the unit of the example in messages
    read: _UnitSizes = field(default_factory=dict)  # accepted as well
    compact: _UnitSizes = field(default_factory=dict)  # written only where shorter: '80 GiB', not '85.89934592 GB'

    @cached_property
    def units(self) -> _UnitSizes:
        return self.written | self.compact | self.read

    def only_number(self, number: object) -> str:
        """What is zero or infinite, in the unit whose size is nearest to 1."""
        return f"{number} {min(self.written, key=lambda unit: abs(self.written[unit] - 1))}"


def _si(symbol: str, prefixes: str, size: Decimal | int = 1) -> _UnitSizes:
    """The units of a symbol under one-letter prefixes; a space among the prefixes stands for no prefix."""
    return {prefix.strip() + symbol: Decimal(_PREFIX[prefix]) * size for prefix in prefixes}


def _ending(units: _UnitSizes, *tails: str) -> _UnitSizes:
    return {unit + tail: size for unit, size in units.items() for tail in tails}


def _kinds() -> dict[str, _DimensionUnits]:
    eighth, minute = Decimal("0.125"), Decimal(60)
    byte, flop = _si("B", " kMGTPE"), _si("FLOP", " kMGTPEZ")
    bits = _si("bit", " kMGTP", eighth) | _si("b", "kMGTP", eighth)
    binary = {f"{prefix}B": Decimal(1024**power) for power, prefix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi"), 1)}
    per_second = _ending(bits, "/s") | _ending(_si("B", "kMGTP") | _si("b", "kMGTP", eighth), "ps")
    return {
        "bytes": _DimensionUnits(byte, "GB", bits, binary),
        "bandwidth": _DimensionUnits(_ending(byte, "/s"), "GB/s", per_second, _ending(binary, "/s")),
        "flop": _DimensionUnits(flop, "GFLOP", _ending(flop, "s")),
        "flop_rate": _DimensionUnits(_ending(flop, "/s"), "TFLOP/s", _ending(flop, "S", "s/s")),
        "time": _DimensionUnits(_si("s", "pnum "), "us", {"min": minute, "h": 60 * minute, "day": 1440 * minute}),
        "power": _DimensionUnits(_si("W", "num kMG"), "W"),
        "energy": _DimensionUnits(_si("J", "fpnum kMG"), "pJ", _si("Wh", " kMG", 3600)),
        "frequency": _DimensionUnits(_si("Hz", " kMGT"), "GHz"),
        "temperature": _DimensionUnits(_si("K", " "), "K", _si("degC", " ") | _si("°C", " ")),
        "length": _DimensionUnits(_si("m", "pnum k"), "mm", _si("m", "c")),
        "energy_per_byte": _DimensionUnits(_si("J/B", "fpnum "), "pJ/bit", {}, _si("J/bit", "fpnum ", 8)),
        "ratio": _DimensionUnits(_si("%", " ", Decimal("0.01")), "%", _si("", " ")),
    }


_KINDS: Final = _kinds()


def _word(dimension: Dimension) -> str:
    return {"bytes": "number of bytes", "flop": "number of FLOP"}.get(dimension, dimension.replace("_", " "))


def _wrong(message: str, remedy: str) -> UnitError:
    return UnitError("", (Issue("$", message, remedy),))


def _missing(number: float, text: str, dimension: Dimension) -> UnitError:
    # 9e11 was surely meant in SI, 900 in the usual unit of the trade: the example should be what was meant.
    meant_si = number != 0 and not 1e-3 <= abs(number) < 1e6
    example = exact(number, dimension) if meant_si else f"{text} {_KINDS[dimension].typical}"
    message = f"missing unit: found {text}, expected e.g. {example!r}"
    return _wrong(message, f"write its unit, a {_word(dimension)}")


def _unknown(text: str, unit: str, dimension: Dimension) -> UnitError:
    kind = _KINDS[dimension]
    others = [_word(d) for d in DIMENSIONS if unit in _KINDS[d].units]
    message = f"found {shown(text)}, a {others[0]}" if others else f"unknown unit {shown(unit)} in {shown(text)}"
    listed = f"units of this {_word(dimension)}: {', '.join([*kind.written, *kind.compact])}"
    remedy = listed if others else did_you_mean(unit, kind.units, listed)
    return _wrong(f"{message}, expected a {_word(dimension)}", remedy)


def _checked(value: float, text: str, dimension: Dimension, signed: bool) -> float:
    if not math.isfinite(value):
        raise _wrong(f"found {text}, expected a finite {_word(dimension)}", "leave the key out if there is no limit")
    if value < 0 and not signed:
        raise _wrong(f"found {text}, expected a {_word(dimension)} of 0 or more", "drop the sign")
    return value + 0.0  # -0.0 becomes 0.0


def parse(text: str, dimension: Dimension, *, signed: bool = False) -> float:
    """Parse a quantity such as ``"900 GB/s"`` to SI.

    A ratio may be a bare number.

    Parameters
    ----------
    text, dimension
        Number and unit, and the dimension that is expected.
    signed : bool
        Whether the quantity may be below zero.

    Raises
    ------
    UnitError
        For no unit, an unknown unit, a unit of another dimension, and for a number that is not finite or is below zero.

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
    if match is None:
        example = "0.9' or '90 %" if dimension == "ratio" else f"900 {kind.typical}"
        remedy = f"write a number and a unit, e.g. '{example}'"
        raise _wrong(f"found {shown(text)}, expected a {_word(dimension)}", remedy)
    digits, unit = match[1], "".join(match[2].split()).replace("µ", "u").replace("μ", "u")
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
    fixed = not value or -5 <= value.adjusted() < 7
    return f"{value:f}" if fixed else f"{value:e}".replace("e+", "e")


def exact(value: float, dimension: Dimension) -> str:
    """Shortest text of a quantity that `parse` reads back exactly; used in files.

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
        return kind.only_number(0)
    texts = []
    for unit, size in (kind.written | kind.compact).items():
        scaled = _EXACT.divide(source, size)
        text = _number(scaled)
        if len(text) <= 30:  # longer: a binary unit of a number that is no round binary number
            texts.append((len(text), not 1 <= abs(scaled) < 1000, f"{text} {unit}"))
    return min(texts, key=lambda entry: entry[:2])[2]  # never none: in a decimal unit the digits are those of repr()


def show_unit(value: float, dimension: Dimension, digits: int = 4) -> str:
    """A quantity as text with `digits` significant digits and a suitable prefix.

    Parameters
    ----------
    value, dimension
        The quantity in SI, and its dimension.
    digits : int
        Significant digits.

    Examples
    --------
    >>> show_unit(9.87654e11, "bandwidth"), show_unit(0.4567, "ratio"), show_unit(999.96e9, "bytes")
    ('987.7 GB/s', '45.67 %', '1 TB')
    """
    kind = _KINDS[dimension]
    if not value or not math.isfinite(value):
        return kind.only_number(value or 0)
    # Round first, so that 999.96 GB becomes 1 TB and not 1000 GB.
    rounded = Decimal(f"{value:.{max(digits, 1) - 1}e}")
    fitting = [unit for unit, size in kind.written.items() if abs(rounded) >= size]
    unit = fitting[-1] if fitting else next(iter(kind.written))
    return f"{_number(_EXACT.divide(rounded, kind.units[unit]))} {unit}"


def number(value: float, digits: int = 4) -> str:
    """A number as text with `digits` significant digits and thousands separators.

    Examples
    --------
    >>> number(41384.2), number(0.0490817), number(3072.0), number(0.25), number(2.5e-9)
    ('41,380', '0.04908', '3,072', '0.25', '2.5e-9')
    """
    if not math.isfinite(value):
        return str(value)
    rounded = Decimal(f"{value:.{max(digits, 1) - 1}e}").normalize(_EXACT)
    return f"{rounded:,f}" if not rounded or -5 <= rounded.adjusted() < 15 else _number(rounded)


@dataclass(frozen=True)
class Unit:
    """Pydantic metadata: an SI float that files write with a unit of this dimension.

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

    @property
    def symbol(self) -> str:
        """SI unit of the number in Python; empty for a ratio."""
        return _KINDS[self.dimension].only_number("").strip(" %")

    def read(self, value: object, context: object = None) -> float:
        """A text, or a number if the context allows it, as an SI float."""
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
        text = f"{value:.6g}" if math.isfinite(number) else "inf or nan"
        number = _checked(number, text, self.dimension, self.signed)
        if context == UNITS_REQUIRED and self.dimension != "ratio":
            raise _missing(number, str(value), self.dimension)
        return number

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def validate(value: object, info: core_schema.ValidationInfo) -> float:
            return self.read(value, info.context)

        schema = core_schema.with_info_before_validator_function(validate, handler(source))
        if self.dimension != "ratio":  # which has no unit: a plain number in files too
            schema["serialization"] = core_schema.plain_serializer_function_ser_schema(
                lambda value: exact(value, self.dimension), return_schema=core_schema.str_schema(), when_used="json"
            )
        return schema

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        if self.dimension == "ratio":
            percent = {"type": "string", "pattern": rf"^\s*{_NUMBER}\s*%?\s*$"}
            return {"anyOf": [{"type": "number"}, percent], "description": "A ratio, such as 0.9 or '90 %'."}
        kind = _KINDS[self.dimension]
        says = f"A {_word(self.dimension)} with its unit, such as '900 {kind.typical}'. Units: {', '.join(kind.units)}."
        form = rf"^\s*{_NUMBER}\s*[A-Za-zµμ°].*$"
        return {"type": "string", "pattern": form, "description": says}


class UnitJsonSchema(GenerateJsonSchema):
    """JSON Schema generator that writes defaults like files: '1 us', not 1e-06."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> dict[str, Any]:
        """Write the default of a quantity as text; see pydantic."""
        described = super().default_schema(schema)
        if isinstance(schema.get("default"), float):
            described["default"] = SchemaSerializer(schema["schema"]).to_python(schema["default"], mode="json")
        return described


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
JoulesPerByte = Annotated[float, Unit("energy_per_byte")]
Ratio = Annotated[float, Unit("ratio")]
