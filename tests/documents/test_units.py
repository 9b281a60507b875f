"""Quantities: every float survives the trip through a file, and nothing without a fitting unit gets in."""

from __future__ import annotations

import contextlib
import math
import re
import sys
from typing import Annotated

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from dfopt import units
from dfopt.errors import UnitError
from dfopt.units import DIMENSIONS, UNITS_REQUIRED, Bandwidth, Bytes, Dimension, Ratio, Unit, exact, parse

quantities = st.floats(min_value=0, max_value=sys.float_info.max, allow_nan=False, allow_infinity=False)


@given(quantities, st.sampled_from(DIMENSIONS))
@example(0.0, "bytes")
@example(5e-324, "time")
@example(sys.float_info.max, "bandwidth")
@example(2.0**53 + 2, "bytes")
@example(3 * 2.0**40, "bytes")
@example(0.1 + 0.2, "power")
def test_written_quantities_read_back_exactly(value: float, dimension: Dimension) -> None:
    assert parse(exact(value, dimension), dimension) == value


@given(st.integers(1, 10**6), st.sampled_from(DIMENSIONS))
def test_round_numbers_are_written_short(number: int, dimension: Dimension) -> None:
    if dimension != "ratio":
        text = exact(parse(f"{number} {units._KINDS[dimension].typical}", dimension), dimension)
        assert len(text.split()[0]) <= len(str(number))


@given(quantities, st.sampled_from(DIMENSIONS), st.integers(1, 9))
def test_printing_is_right_to_its_digits(value: float, dimension: Dimension, digits: int) -> None:
    text = units.show_unit(value, dimension, digits)
    if "e" not in text.split()[0]:
        number = text.split()[0].replace(".", "").strip("0")
        assert len(number) <= digits
    if 1e-300 < value < 1e300:
        assert math.isclose(parse(text, dimension), value, rel_tol=0.51 * 10 ** (1 - digits))


@pytest.mark.parametrize(
    ("texts", "dimension", "value"),
    [
        (["900 GB/s", "900GB/s", " 9e2  GB / s "], "bandwidth", 900e9),
        (["400 Gb/s", "400 Gbit/s", "400 Gbps"], "bandwidth", 50e9),
        (["1 GiB/s"], "bandwidth", 2.0**30),
        (["80 GiB"], "bytes", 80 * 2.0**30),
        (["5EB"], "bytes", 5e18),
        (["0 B"], "bytes", 0.0),
        (["312 TFLOP/s", "312 TFLOPS", "312 TFLOPs/s"], "flop_rate", 312e12),
        (["3 PFLOP"], "flop", 3e15),
        (["5 µs", "5 μs", "5 us"], "time", 5e-6),
        (["2 min"], "time", 120.0),
        (["2 h"], "time", 7200.0),
        (["400 mW"], "power", 0.4),
        (["1 kWh"], "energy", 3.6e6),
        (["1.2 GHz"], "frequency", 1.2e9),
        (["85 degC"], "temperature", 358.15),
        (["-40 °C"], "temperature", 233.15),
        (["3 um"], "length", 3e-6),
        (["1 pJ/bit", "8 pJ/B"], "energy_per_byte", 8e-12),
        (["0.9", "90 %"], "ratio", 0.9),
    ],
)
def test_spellings(texts: list[str], dimension: Dimension, value: float) -> None:
    assert [parse(text, dimension) for text in texts] == [value] * len(texts)


@pytest.mark.parametrize(
    ("texts", "dimension", "says"),
    [
        (["900"], "bandwidth", "missing unit: found 900, expected e.g. '900 GB/s'"),
        (["9e11"], "bandwidth", "missing unit: found 9e11, expected e.g. '900 GB/s'"),
        (["0"], "bytes", "missing unit"),
        (["900 gb/s"], "bandwidth", "did you mean 'GB/s'"),
        (["80 KB"], "bytes", "did you mean 'kB'"),
        (["900 GB"], "bandwidth", "found '900 GB', a number of bytes, expected a bandwidth"),
        (["1 parsec"], "length", "units of this length"),
        (["-1 s"], "time", "0 or more"),
        (["-300 degC"], "temperature", "0 or more"),
        (["nan s", "inf s", "", "fast", "$100", "٣ s", "1" * 101 + " s"], "time", "write a number and a unit"),
        (["1e309 s", "1e999999999 s"], "time", "finite"),
        (["1e-999999999 s"], "time", "exponent"),
        (["1,000 GB", "1_000 GB"], "bytes", "unknown unit"),
    ],
)
def test_refused(texts: list[str], dimension: Dimension, says: str) -> None:
    for text in texts:
        with pytest.raises(UnitError) as caught:
            parse(text, dimension)
        assert says in str(caught.value), text
        assert caught.value.issues[0].remedy


def test_signed_only_where_the_type_says_so() -> None:
    assert parse("-3 us", "time", signed=True) == -3e-6
    assert exact(-3e-6, "time") == "-3 us"
    assert units.show_unit(-3e-6, "time") == "-3 us"
    assert math.copysign(1, parse("-0 s", "time")) == 1


@given(st.text(max_size=30), st.sampled_from(DIMENSIONS))
def test_any_text_is_a_finite_quantity_or_a_unit_error(text: str, dimension: Dimension) -> None:
    with contextlib.suppress(UnitError):
        assert 0 <= parse(text, dimension) < math.inf


class Memory(BaseModel):
    capacity: Bytes | None = Field(default=None, gt=0)
    bandwidth: Bandwidth = Field(gt=0)
    share: Annotated[Ratio, Field(le=1)] = 1.0
    skew: Annotated[float, Unit("time", signed=True)] = 0.0


def test_a_field_is_si_in_python_and_text_in_files() -> None:
    memory = Memory(bandwidth=9e11, capacity=np.float32(1e9), share="90 %", skew="-3 us")  # type: ignore
    assert (memory.bandwidth, memory.capacity, memory.share, memory.skew) == (9e11, 1e9, 0.9, -3e-6)
    assert type(memory.capacity) is float
    data = memory.model_dump(mode="json")
    assert data == {"capacity": "1 GB", "bandwidth": "900 GB/s", "share": 0.9, "skew": "-3 us"}
    assert Memory.model_validate(data, context=UNITS_REQUIRED) == memory
    assert memory.model_dump()["bandwidth"] == 9e11


@pytest.mark.parametrize("value", [900, 9e11, True, None, [], math.nan, math.inf, 10**400, -1.0, "0 GB/s"])
def test_a_field_from_a_file_refuses_what_has_no_unit(value: object) -> None:
    with pytest.raises(ValidationError):
        Memory.model_validate({"bandwidth": value}, context=UNITS_REQUIRED)


@pytest.mark.parametrize("value", [True, None, [], math.nan, math.inf, 10**400, -1.0, 0])
def test_a_field_from_python_refuses_what_is_no_quantity(value: object) -> None:
    with pytest.raises(ValidationError):
        Memory.model_validate({"bandwidth": value})


def test_bounds_hold_on_optional_quantities_and_ratios() -> None:
    for wrong in ({"capacity": "0 GB"}, {"share": 1.1}, {"share": "110 %"}):
        with pytest.raises(ValidationError):
            Memory.model_validate({"bandwidth": "1 GB/s", **wrong}, context=UNITS_REQUIRED)
    assert Memory.model_validate({"bandwidth": "1 GB/s", "capacity": None, "share": 1}).share == 1.0


def test_json_schema_says_what_to_write() -> None:
    schema = TypeAdapter(Bandwidth).json_schema()
    assert schema["type"] == "string" and "900 GB/s" in schema["description"]
    assert re.search(schema["pattern"], "900 GB/s") and not re.search(schema["pattern"], "900")
    assert {"type": "number"} in TypeAdapter(Ratio).json_schema()["anyOf"]


def test_printing_what_is_not_finite_or_zero() -> None:
    assert units.show_unit(math.inf, "time") == "inf s"
    assert units.show_unit(0.0, "bytes") == "0 B"
    assert units.show_unit(0.0, "ratio") == "0 %"
    with pytest.raises(UnitError):
        exact(math.nan, "time")
