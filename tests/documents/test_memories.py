"""Several memories of a chip in the system document."""

from __future__ import annotations

from typing import Any

import pytest

import dfopt as df
from dfopt.documents.system import System
from dfopt.errors import DfoptError, DocumentError
from dfopt.machines.compose import expand_system, load_system

HBM = {"name": "HBM", "bandwidth": "1.6 TB/s", "capacity": "64 GB"}
DDR = {"name": "DDR", "bandwidth": "200 GB/s", "capacity": "1.5 TB"}


def _data(**chip: Any) -> dict[str, Any]:
    body = {"name": "c", "tiles": 8, "peak": "1 TFLOP/s", "sram": {"capacity": "8 MB"}, **chip}
    return {"schema": "dfopt/system/1", "name": "s", "chip": body}


def test_memories_load_in_order_and_dump_to_the_same() -> None:
    system = System.from_data(_data(memories=[HBM, DDR]))
    assert list(system.chip.tiers) == ["HBM", "DDR"]
    assert system.chip.fastest.bandwidth == 1.6e12
    assert System.from_data(system.to_data()) == system
    assert "dram" not in system.to_data()["chip"]


def test_a_document_with_dram_says_nothing_of_memories() -> None:
    assert "memories" not in load_system("h100-8").to_data()["chip"]


@pytest.mark.parametrize(
    ("chip", "said"),
    [
        ({"dram": {"bandwidth": "1 TB/s"}, "memories": [HBM]}, "both dram and memories"),
        ({}, "memory is missing"),
        ({"memories": []}, "memories is empty"),
        ({"memories": [DDR, HBM]}, "fastest first"),
        ({"memories": [HBM, {**DDR, "name": "HBM"}]}, "is called 'HBM' like memories[0]"),
        ({"memories": [HBM, {**DDR, "bandwidth": -1.0}]}, "bandwidth"),
        ({"memories": [HBM, {**DDR, "capacity": -1.0}]}, "capacity"),
    ],
)
def test_what_is_wrong_with_memories_is_one_clear_error(chip: dict[str, Any], said: str) -> None:
    with pytest.raises(DocumentError) as caught:
        System.from_data(_data(**chip))
    assert said in str(caught.value)
    assert len(caught.value.issues) == 1


def test_a_composed_system_takes_memories_in_place_of_its_chips_own() -> None:
    data = {"schema": "dfopt/system/1", "name": "s", "chip": "sn40l", "memories": [HBM, DDR]}
    assert list(expand_system(data).chip.tiers) == ["HBM", "DDR"]
    with pytest.raises(DocumentError, match="beside memory"):
        expand_system({**data, "memory": "hbm3"})
    with pytest.raises(DfoptError, match="beside stack"):
        expand_system({**data, "stack": "hbm2"})


def test_one_memory_in_the_list_is_dram_to_optimiser_and_judge() -> None:
    system = load_system("sn10-8-ring")
    dram = system.to_data()["chip"]["dram"]
    chip = {key: value for key, value in system.to_data()["chip"].items() if key != "dram"}
    listed = System.from_data({**system.to_data(), "chip": {**chip, "memories": [{"name": "DDR", **dram}]}})
    ours, theirs = (df.optimize(df.load_graph("gpt2-small"), one, tp=8) for one in (listed, system))
    assert ours.score == theirs.score
    assert (ours.bound, ours.plan) == (theirs.bound, theirs.plan)


def test_what_fits_the_fastest_memory_lies_there() -> None:
    listed = System.from_data(_data(memories=[HBM, DDR]))
    one = System.from_data(_data(dram={"bandwidth": "1.6 TB/s"}))
    ours, theirs = (df.optimize(df.load_graph("gpt2-small"), system) for system in (listed, one))
    assert ours.mapping == theirs.mapping
    assert ours.score.step_time_s == theirs.score.step_time_s
    assert ours.status == "optimal"


def test_a_stack_has_one_memory() -> None:
    data = System.from_data(_data(memories=[HBM, DDR])).to_data()
    stack = df.load_system("sn40l-8-hbm2").stack
    assert stack is not None
    with pytest.raises(DfoptError, match=r"\$\.stack: found beside 2 memories"):
        System.from_data({**data, "stack": stack.to_data()})
