"""``dfopt score`` and ``dfopt solve`` with a stack of dies, from end to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_tools import GRAPH, ONE_CHIP_MAPPING, SYSTEM, Data, call, changed, write
from stack_cases import T0, dies, memory, stack

from dfopt.documents.score import Score
from dfopt.documents.stack import Limits, LogicEnergies, Stack
from dfopt.documents.stack_dram import DramEnergies

HEAT = ("--detail", "heat", "--tiles")
MB_S = 10**5  # channels of 100 B/s
FAINT = DramEnergies(activate=1e-8, read_burst=1e-8, write_burst=1e-8, refresh=0.0, background=1e-6)
COOL = {
    "dram": memory(MB_S, energies=FAINT),
    "logic": LogicEnergies(flop=1e-9, sram=1e-9, noc=1e-9, network=1e-9, idle=50.0),
}


def on_disk(folder: Path, name: str, **changes: Any) -> Path:
    """A stack in a file."""
    return write(folder, f"{name}.json", stack(name=name, **{**COOL, **changes}).to_data())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A result, its mapping, its graph and system, and stacks that are cool and hot."""
    here = tmp_path_factory.mktemp("stacks")
    write(here, "graph.yaml", GRAPH)
    write(here, "system.yaml", SYSTEM)
    write(here, "mapping.json", ONE_CHIP_MAPPING)
    write(here, "slower.yaml", changed(SYSTEM, name="slower", chip__peak="0.001 GFLOP/s"))
    on_disk(here, "cool")
    on_disk(here, "hot", limits=Limits(logic=T0 + 25.5, dram=T0 + 25.5))
    on_disk(here, "warm", limits=Limits(power=40.0), dies=dies(0))
    for system, name in (("system", "result"), ("slower", "slow")):
        words = ("solve", here / "graph.yaml", here / f"{system}.yaml", "-q", "--no-sensitivity")
        assert call(*words, "-o", here / f"{name}.json").code == 0
    return here


def physical(out: str) -> Data:
    found = json.loads(out)["physical"]
    assert isinstance(found, dict)
    return found


def test_a_result_is_judged_on_a_stack(folder: Path) -> None:
    answer = call("score", folder / "result.json", "--stack", folder / "cool.json", *HEAT, 3)
    assert answer.code == 0, answer.err
    for words in (
        "on stack",
        "Partitions on the stack",
        "Energy",
        "per sample",
        "Dies, from the far",
        "Hottest 3 tiles",
    ):
        assert words in answer.out
    assert "nominal, within its limits" in answer.out
    found = call("score", folder / "result.json", "--stack", folder / "cool.json", "--json")
    score = Score.from_data(json.loads(found.out))
    assert score.physical is not None and score.physical.stack == "cool"
    assert f"{score.physical.energy_per_step_j:.4g}"[:4] in answer.out
    assert "Hottest" not in call("score", folder / "result.json", "--stack", folder / "cool.json", *HEAT, 0).out


def test_graph_and_system_may_be_named_or_left_out(folder: Path) -> None:
    options = ("--stack", folder / "cool.json", "--json")
    short = call("score", folder / "result.json", *options)
    long = call("score", folder / "result.json", folder / "graph.yaml", folder / "system.yaml", *options)
    assert short.code == long.code == 0
    assert json.loads(short.out) == json.loads(long.out)
    mapped = call("score", folder / "mapping.json", folder / "graph.yaml", folder / "system.yaml", *options)
    assert physical(mapped.out)["stack"] == "cool"


def test_without_a_stack_nothing_changes(folder: Path) -> None:
    answer = call("score", folder / "result.json")
    assert answer.code == 0 and "\nstep " in answer.out and "stack" not in answer.out
    assert "physical" not in json.loads(call("score", folder / "result.json", "--json").out)


def test_it_says_what_the_model_leaves_out(folder: Path, tmp_path: Path) -> None:
    gpu = write(tmp_path, "gpu.yaml", changed(SYSTEM, chip__execution="kernel_by_kernel"))
    assert "left out    nothing\n" in call("score", folder / "result.json").out
    one = call("score", folder / "mapping.json", folder / "graph.yaml", gpu)
    assert "kernel launches" in one.out and "left out" in one.out, one.err
    result = tmp_path / "result.json"
    assert call("solve", folder / "graph.yaml", gpu, "-q", "--no-sensitivity", "-o", result).code == 0
    assert "left out    1: kernel launches\n" in call("score", result).out
    both = call("score", result, folder / "result.json").out
    assert both.endswith("left out  kernel launches\n")


def test_a_broken_limit_is_exit_status_seven(folder: Path) -> None:
    answer = call("score", folder / "result.json", "--stack", folder / "hot.json")
    assert answer.code == 7
    assert "even at the lowest level" in answer.out and "25.5 degC" in answer.out
    as_json = call("score", folder / "result.json", "--stack", folder / "hot.json", "--json")
    assert as_json.code == 7
    assert set(physical(as_json.out)["limits_broken"]) == {"logic", "dram"}


def test_throttling_can_be_switched_off(folder: Path) -> None:
    words = ("score", folder / "result.json", "--stack", folder / "warm.json")
    lowered = call(*words, "--json")
    kept = call(*words, "--no-throttle", "--json")
    assert physical(kept.out)["frequency"] == 1.0 and kept.code == 7
    assert physical(lowered.out)["throttled"] and lowered.code == 0
    assert "throttled to" in call(*words, "--detail", "heat").out


def test_several_results_are_ranked(folder: Path) -> None:
    answer = call("score", folder / "slow.json", folder / "result.json", "--stack", folder / "cool.json")
    assert answer.code == 0, answer.err
    assert answer.out.index("result.json") < answer.out.index("slow.json")
    rows = json.loads(
        call("score", folder / "slow.json", folder / "result.json", "--stack", folder / "cool.json", "--json").out
    )
    assert [Path(row["result"]).name for row in rows] == ["result.json", "slow.json"]
    times = [row["score"]["physical"]["step_time_s"] for row in rows]
    assert times == sorted(times) and times[0] < times[1]
    three = call("score", *[folder / "result.json"] * 3, "--json")
    assert len(json.loads(three.out)) == 3
    assert call("score", folder / "slow.json", folder / "result.json", "--stack", folder / "hot.json").code == 7


def test_solve_on_a_stack_carries_it_along(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    words = ("solve", folder / "graph.yaml", folder / "system.yaml", "-q", "--no-sensitivity")
    answer = call(*words, "--stack", folder / "cool.json", "-o", out, "--detail", "heat")
    assert answer.code == 0, answer.err
    assert "Partitions on the stack" in answer.out
    saved = json.loads(out.read_text())
    assert saved["system"]["stack"]["name"] == "cool"
    assert saved["score"]["physical"]["stack"] == "cool"
    again = call("score", out, "--json")  # the result says what stack it is on
    assert json.loads(again.out) == saved["score"]
    assert "verified optimal" in call("check", out).out
    assert call(*words, "--stack", folder / "hot.json").code == 7


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("result.json", "gpt2-small"), 2, "found two words, expected RESULT... or MAPPING GRAPH SYSTEM"),
        (("mapping.json",), 3, "$: found a mapping, which does not say what it runs on"),
        (("result.json", "mapping.json"), 3, "$: found a mapping, which does not say what it runs on"),
        (("result.json", "--batch", "4"), 2, "--batch: a result has its own graph"),
        (("result.json", "--param", "x=1"), 2, "--param: a result has its own graph"),
        (("result.json", "--no-throttle"), 2, "--no-throttle: the system has no stack of dies"),
        (("result.json", "--stack", "hybird-vault"), 3, "did you mean 'hybrid-vault'"),
        (("result.json", "--stack", "graph.yaml"), 3, "$.schema: "),
        (("result.json", "--stack", "clocked"), 3, "no file and no zoo name in stacks"),
    ],
)
def test_errors_are_one_message(folder: Path, words: tuple[str, ...], code: int, said: str) -> None:
    answer = call("score", *(folder / word if "." in word and "=" not in word else word for word in words))
    assert answer.code == code, (answer.code, answer.err)
    assert answer.err.startswith("dfopt: ") and said in answer.err
    assert not answer.out


def test_clocks_and_pauses_must_fit(folder: Path, tmp_path: Path) -> None:
    clocks = [
        {"partition": 0, "frequency": 0.83},
        {"partition": 3, "frequency": 1.0},
        {"partition": 0, "frequency": 1.0},
    ]
    pauses = [{"stage": 0, "time": "1 ms"}, {"stage": 0, "time": "1 ms"}, {"stage": 2, "time": "1 ms"}]
    bad = write(tmp_path, "bad.json", changed(ONE_CHIP_MAPPING, clocks=clocks, pauses=pauses))
    answer = call("score", bad, folder / "graph.yaml", folder / "system.yaml", "--stack", folder / "cool.json")
    assert answer.code == 3
    for line in (
        "$.clocks[0].frequency: found 0.83, which is no level of stack cool (its levels: 1, 0.9, 0.8, 0.7, 0.6, 0.5)",
        "$.clocks[1]: partition 3 of stage 0 holds no kernel (leave the clock out)",
        "$.clocks[2]: partition 0 of stage 0 has a clock already, $.clocks[0] (give each partition one clock at most)",
        "$.pauses[1]: stage 0 has a pause already, $.pauses[0] (give each stage one pause at most)",
        "$.pauses[2]: stage 2 holds no kernel (leave the pause out)",
    ):
        assert line in answer.err
    good = write(tmp_path, "good.json", changed(ONE_CHIP_MAPPING, clocks=[{"partition": 0, "frequency": 0.8}]))
    found = call(
        "score", good, folder / "graph.yaml", folder / "system.yaml", "--stack", folder / "cool.json", "--json"
    )
    assert physical(found.out)["partitions"][0]["frequency"] == 0.8


def test_the_stacks_of_these_tests_are_documents() -> None:
    made = stack(name="cool", **COOL)
    assert Stack.from_data(made.to_data()) == made


def test_the_best_mappings_of_a_solve_are_ranked_again_on_a_stack(tmp_path: Path) -> None:
    """`solve --top` keeps them, and `score --stack` judges them all."""
    saved = tmp_path / "result.json"
    solved = call("solve", "gpt2-small", "sn10-8-ring", "--top", "3", "-q", "-o", str(saved))
    assert solved.code == 0 and "#3" in solved.out
    scored = call("score", str(saved), "--stack", "microbump-8", "--json")
    assert scored.code == 0, scored.err
    ranked = json.loads(scored.out)
    assert {each["result"] for each in ranked} == {str(saved), f"{saved} #2", f"{saved} #3"}
    times = [each["score"]["physical"]["step_time_s"] for each in ranked]
    assert times == sorted(times)
