"""Tables of a chip's shares: which conditions belong to which unit, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from dfopt.documents.system import EfficiencyRow, System
from dfopt.errors import DocumentError, SystemSpecError

REST = [{"unit": "matrix", "share": 0.5}, {"unit": "vector", "share": 0.1}]
DRAM = {"dram": {"bandwidth": "1 TB/s"}}
TWO = {"memories": [{"name": "HBM", "bandwidth": "1 TB/s"}, {"name": "host", "bandwidth": "10 GB/s"}]}


def system(rows: list[dict[str, Any]], memory: dict[str, Any] = DRAM) -> System:
    chip = {"name": "c", "tiles": 1, "peak": "1 TFLOP/s", "sram": {"capacity": "1 MB"}, "efficiency": REST + rows}
    return System.from_data({"schema": "dfopt/system/1", "name": "s", "chip": {**chip, **memory}}, "s.yaml")


def test_rows_of_memories_survive_a_round_trip() -> None:
    rows = [
        {"unit": "memory", "memory": "host", "bytes": "100 MB", "share": 0.95},
        {"unit": "memory", "bytes": "10 MB", "share": 0.75},
        {"unit": "memory", "share": 0.3},
    ]
    made = system(rows, TWO)
    assert made.chip.efficiency is not None
    assert made.chip.efficiency[2] == EfficiencyRow(unit="memory", memory="host", bytes=1e8, share=0.95)
    assert System.from_data(made.to_data()) == made
    assert made.to_data()["chip"]["efficiency"][2:] == rows


def test_rows_of_memories_are_shown() -> None:
    from dfopt.show.inputs import system_facts

    rows = [
        {"unit": "memory", "memory": "host", "share": 0.9},
        {"unit": "memory", "bytes": "10 MB", "share": 0.75},
        {"unit": "memory", "share": 0.3},
    ]
    facts = dict(system_facts(system(rows, TWO)))
    assert facts["memory shares"] == "host 90 %, 75 % from 10 MB, else 30 %"
    assert "memory shares" not in dict(system_facts(system([])))


@pytest.mark.parametrize(
    "row, where, words",
    [
        ({"unit": "memory", "flop": "1 GFLOP", "share": 0.5}, "flop", "found 1e+09 of unit memory"),
        ({"unit": "memory", "extent": 8, "share": 0.5}, "extent", "found 8 of unit memory"),
        ({"unit": "vector", "bytes": "1 MB", "share": 0.5}, "bytes", "its rows have flop and extent: leave it out"),
        ({"unit": "matrix", "memory": "HBM", "share": 0.5}, "memory", "found 'HBM' of unit matrix"),
        ({"unit": "matrix", "op": "optimizer", "share": 0.5}, "op", "found 'optimizer' of unit matrix"),
        ({"unit": "memory", "op": "attention", "share": 0.5}, "op", "found 'attention' of unit memory"),
        ({"unit": "vector", "op": "optimizer", "share": 0.5}, "op", "found 'optimizer' of unit vector"),
    ],
)
def test_conditions_of_another_unit(row: dict[str, Any], where: str, words: str) -> None:
    with pytest.raises(DocumentError) as error:
        system([row], TWO)
    assert words in str(error.value)
    assert f"$.chip.efficiency[2].{where}" in str(error.value)


@pytest.mark.parametrize(
    "rows, memory, words",
    [
        ([{"unit": "memory", "bytes": "1 MB", "share": 0.5}], DRAM, "no row of the memory unit is without conditions"),
        (
            [{"unit": "memory", "memory": "HBM", "share": 0.5}, {"unit": "memory", "bytes": "1 B", "share": 0.1}],
            TWO,
            "no row of the memory unit is without conditions",
        ),
        ([{"unit": "memory", "memory": "hots", "share": 0.5}], TWO, "did you mean 'host'"),
        ([{"unit": "memory", "memory": "HBM", "share": 0.5}], DRAM, "the chip has no memory 'HBM', only dram"),
        (
            [{"unit": "memory", "share": 0.5}, {"unit": "memory", "memory": "HBM", "bytes": "1 MB", "share": 0.9}],
            TWO,
            "never reached: $.chip.efficiency[2] comes first",
        ),
    ],
)
def test_tables_that_leave_something_open(rows: list[dict[str, Any]], memory: dict[str, Any], words: str) -> None:
    with pytest.raises(SystemSpecError) as error:
        system(rows, memory)
    assert words in str(error.value)


def test_one_memory_may_have_a_row_of_its_own_for_the_rest() -> None:
    rows = [
        {"unit": "memory", "memory": "HBM", "bytes": "1 MB", "share": 0.9},
        {"unit": "memory", "memory": "HBM", "share": 0.5},
    ]
    assert system(rows, TWO).chip.efficiency is not None
