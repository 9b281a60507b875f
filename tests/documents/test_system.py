"""System documents: memories, tables of shares of peak, and what is refused. More in `cli/test_bad_input`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from strategies import efficiency_tables

import dfopt as df
from dfopt.documents.system import EfficiencyRow, NetworkDim, System
from dfopt.errors import DfoptError, DocumentError, SystemSpecError
from dfopt.machines.compose import expand_system, load_system
from dfopt.show.inputs import system_facts

HBM = {"name": "HBM", "bandwidth": "1.6 TB/s", "capacity": "64 GB"}
HOST = {"name": "host", "bandwidth": "200 GB/s", "capacity": "1.5 TB"}
DRAM: dict[str, Any] = {"dram": {"bandwidth": "1.6 TB/s"}}
TWO: dict[str, Any] = {"memories": [HBM, HOST]}
REST = [{"unit": "matrix", "share": 0.5}, {"unit": "vector", "share": 0.1}]


def system(**chip: Any) -> System:
    body = {"name": "c", "tiles": 8, "peak": "1 TFLOP/s", "sram": {"capacity": "8 MB"}, **chip}
    return System.from_data({"schema": "dfopt/system/1", "name": "s", "chip": body}, "s.yaml")


def test_what_a_chip_does_not_have_is_not_written() -> None:
    """So the digest of a system from before there were tables or several memories is what it was."""
    assert not {"efficiency", "memories"} & load_system("h100-8").to_data()["chip"].keys()


# --- memories -------------------------------------------------------------------------------------


def test_memories_load_in_order_and_dump_to_the_same() -> None:
    made = system(**TWO)
    assert list(made.chip.tiers) == ["HBM", "host"]
    assert made.chip.fastest.bandwidth == 1.6e12
    assert System.from_data(made.to_data()) == made
    assert "dram" not in made.to_data()["chip"]


@pytest.mark.parametrize(
    ("chip", "said"),
    [
        ({**DRAM, "memories": [HBM]}, "both dram and memories"),
        ({}, "memory is missing"),
        ({"memories": []}, "memories is empty"),
        ({"memories": [HOST, HBM]}, "fastest first"),
        ({"memories": [HBM, {**HOST, "name": "HBM"}]}, "is called 'HBM' like memories[0]"),
        ({"memories": [HBM, {**HOST, "bandwidth": -1.0}]}, "bandwidth"),
        ({"memories": [HBM, {**HOST, "capacity": -1.0}]}, "capacity"),
    ],
)
def test_what_is_wrong_with_memories_is_one_clear_error(chip: dict[str, Any], said: str) -> None:
    with pytest.raises(DocumentError) as caught:
        system(**chip)
    assert said in str(caught.value)
    assert len(caught.value.issues) == 1


def test_a_composed_system_takes_memories_in_place_of_its_chips_own() -> None:
    data = {"schema": "dfopt/system/1", "name": "s", "chip": "sn40l", **TWO}
    assert list(expand_system(data).chip.tiers) == ["HBM", "host"]
    with pytest.raises(DocumentError, match="beside memory"):
        expand_system({**data, "memory": "hbm3"})
    with pytest.raises(DfoptError, match="beside stack"):
        expand_system({**data, "stack": "hbm2"})


def test_one_memory_in_the_list_is_dram_to_optimiser_and_judge() -> None:
    zoo = load_system("sn10-8-ring")
    dram = zoo.to_data()["chip"]["dram"]
    chip = {key: value for key, value in zoo.to_data()["chip"].items() if key != "dram"}
    listed = System.from_data({**zoo.to_data(), "chip": {**chip, "memories": [{"name": "DDR", **dram}]}})
    ours, theirs = (df.optimize(df.load_graph("gpt2-small"), one, tp=8) for one in (listed, zoo))
    assert ours.score == theirs.score
    assert (ours.bound, ours.plan) == (theirs.bound, theirs.plan)


def test_what_fits_the_fastest_memory_lies_there() -> None:
    ours, theirs = (df.optimize(df.load_graph("gpt2-small"), system(**memory)) for memory in (TWO, DRAM))
    assert ours.mapping == theirs.mapping
    assert ours.score.step_time_s == theirs.score.step_time_s
    assert ours.status == "optimal"


def test_a_stack_has_one_memory() -> None:
    stack = df.load_system("sn40l-8-hbm2").stack
    assert stack is not None
    with pytest.raises(DfoptError, match=r"\$\.stack: found beside 2 memories"):
        System.from_data({**system(**TWO).to_data(), "stack": stack.to_data()})


# --- tables of shares -----------------------------------------------------------------------------


def with_rows(*rows: dict[str, Any], memory: dict[str, Any] = TWO) -> System:
    """A chip with these rows behind those of its matrix and vector units."""
    return system(efficiency=[*REST, *rows], **memory)


def test_rows_are_read_and_written_with_the_conditions_that_they_have() -> None:
    rows = [
        {"unit": "matrix", "flop": "100 GFLOP", "share": 0.85},
        {"unit": "matrix", "flop": "1 GFLOP", "extent": 128, "share": 0.6},
        *REST,
        {"unit": "memory", "memory": "host", "bytes": "100 MB", "share": 0.95},
        {"unit": "memory", "bytes": "10 MB", "share": 0.75},
        {"unit": "memory", "share": 0.3},
    ]
    made = system(efficiency=rows, **TWO)
    assert made.chip.efficiency is not None
    assert made.chip.efficiency[1] == EfficiencyRow(unit="matrix", flop=1e9, extent=128, share=0.6)
    assert made.chip.efficiency[4] == EfficiencyRow(unit="memory", memory="host", bytes=1e8, share=0.95)
    assert made.to_data()["chip"]["efficiency"] == rows


@given(efficiency_tables())
def test_a_table_survives_a_round_trip(rows: tuple[EfficiencyRow, ...]) -> None:
    plain = system(**DRAM)
    made = plain.model_copy(update={"chip": plain.chip.model_copy(update={"efficiency": rows})})
    assert System.from_data(made.to_data()) == made


def test_rows_of_memories_are_shown() -> None:
    rows = [{"memory": "host", "share": 0.9}, {"bytes": "10 MB", "share": 0.75}, {"share": 0.3}]
    facts = dict(system_facts(with_rows(*({"unit": "memory", **row} for row in rows))))
    assert facts["memory shares"] == "host 90 %, 75 % from 10 MB, else 30 %"
    assert "memory shares" not in dict(system_facts(with_rows()))


@pytest.mark.parametrize(
    "row, where, words",
    [
        ({"unit": "memory", "flop": "1 GFLOP"}, "flop", "found 1e+09 of unit memory"),
        ({"unit": "memory", "extent": 8}, "extent", "found 8 of unit memory"),
        ({"unit": "vector", "bytes": "1 MB"}, "bytes", "its rows have flop and extent: leave it out"),
        ({"unit": "matrix", "memory": "HBM"}, "memory", "found 'HBM' of unit matrix"),
        ({"unit": "matrix", "op": "optimizer"}, "op", "found 'optimizer' of unit matrix"),
        ({"unit": "memory", "op": "attention"}, "op", "found 'attention' of unit memory"),
        ({"unit": "vector", "op": "optimizer"}, "op", "found 'optimizer' of unit vector"),
    ],
)
def test_conditions_of_another_unit(row: dict[str, Any], where: str, words: str) -> None:
    with pytest.raises(DocumentError) as error:
        with_rows({**row, "share": 0.5})
    assert words in str(error.value)
    assert f"$.chip.efficiency[2].{where}" in str(error.value)


@pytest.mark.parametrize(
    "rows, memory, words",
    [
        ([{"bytes": "1 MB"}], DRAM, "no row of the memory unit is without conditions"),
        ([{"memory": "HBM"}, {"bytes": "1 B"}], TWO, "no row of the memory unit is without conditions"),
        ([{"memory": "hots"}], TWO, "did you mean 'host'"),
        ([{"memory": "HBM"}], DRAM, "the chip has no memory 'HBM', only dram"),
        ([{}, {"memory": "HBM", "bytes": "1 MB"}], TWO, "never reached: $.chip.efficiency[2] comes first"),
    ],
)
def test_tables_that_leave_something_open(rows: list[dict[str, Any]], memory: dict[str, Any], words: str) -> None:
    with pytest.raises(SystemSpecError) as error:
        with_rows(*({"unit": "memory", "share": 0.5, **row} for row in rows), memory=memory)
    assert words in str(error.value)


def test_one_memory_may_have_a_row_of_its_own_for_the_rest() -> None:
    rows = [{"unit": "memory", "memory": "HBM", "bytes": "1 MB", "share": 0.9}]
    assert with_rows(*rows, {"unit": "memory", "memory": "HBM", "share": 0.5}).chip.efficiency is not None


def test_all_that_does_not_fit_is_told_at_once() -> None:
    data = system(**DRAM).to_data()
    data["chip"]["efficiency"] = [{"unit": "matrix", "share": share} for share in (0.9, 0.1)]
    data["network"] = [NetworkDim(name="x", topology="ring", size=2, link_bandwidth=1e9).model_dump(mode="json")] * 2
    with pytest.raises(SystemSpecError) as found:
        System.from_data(data)
    places = ["$.network[1].name", "$.chip.efficiency[1]", "$.chip.efficiency"]
    assert [issue.where for issue in found.value.issues] == places
    assert all(issue.remedy for issue in found.value.issues)
