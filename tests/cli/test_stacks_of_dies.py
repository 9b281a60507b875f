"""Stacks of dies on the command line: as documents, under `score` and `solve`, and in heat-aware answers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from cli_tools import GRAPH, ONE_CHIP_MAPPING, SYSTEM, Data, answered, assert_refused, call, changed, run, write
from stack_cases import T0, dies, memory, stack

from dfopt.documents.score import Score
from dfopt.documents.stack import Limits, LogicEnergies
from dfopt.documents.stack_dram import DramEnergies
from dfopt.documents.zoo import find
from dfopt.machines.stacks import load_stack


def test_show() -> None:
    out = call("show", "hybrid-vault").out
    order = [out.index(f"\n{die} ") for die in ("top", "dram0 to dram6", "logic")]
    assert order == sorted(order)  # from the sink to the far face
    for text in (
        "50 um", "hybrid, 5 um, 4 W/(m K), pitch 10 um", "tim, 30 um", "60 W at 85 degC",
        "16.38 TB/s peak, 160 GB; 256 channels of 64 GB/s on 256 bits", "rows of 2048 B", "16 banks in 1 group,",
        "65,536 of 4,069,000 next to the logic die", "0.05 K/W", "logic 105 degC, DRAM 95 degC", "x2 above 85 degC",
        "0.93 (0.958)",
    ):  # fmt: skip
        assert text in out, text
    assert all(len(line) <= 140 for line in out.splitlines())
    assert answered("show", "hybrid-vault") == load_stack("hybrid-vault").to_data()


def test_show_of_one_without_much(tmp_path: Path) -> None:
    data = load_stack("hbm2").to_data()
    data |= {"limits": {}, "package": {"mode": "htc", "htc_w_per_m2k": 2e4, "plate_thickness": "1 mm"}}
    data["dies"][0] = {"name": "logic", "kind": "logic", "thickness": "100 um"}
    data["dies"].append({"name": "lid", "kind": "passive", "thickness": "1 mm"})
    data |= {"far_htc_w_per_m2k": 100.0}
    out = call("show", write(tmp_path, "mine.yaml", data)).out
    assert "memory outside the stack" in out and "20000 W/(m2 K) on a lid of 1 mm, far face 100 W/(m2 K)" in out
    assert re.search(r"limits +none", out) and re.search(r"lid +passive +1 mm +120 +- +- +none", out)
    assert "connections" not in out
    del data["package"]["plate_thickness"]
    assert "on the last die" in call("show", write(tmp_path, "mine.yaml", data)).out


def test_show_of_a_name_on_two_shelves() -> None:
    assert "dfopt/memory/1" in call("show", "hbm3").out  # parts come in the order of `dfopt list`
    assert "stack  hbm3: 2.5D" in call("show", "stacks/hbm3").out
    assert call("show", "memories/hbm3").out == call("show", "hbm3").out
    assert "no such file" in call("show", "stacks/hbm9").err


def test_show_of_a_system_with_a_stack() -> None:
    out = call("show", "h100-8-hybrid").out
    assert "NVIDIA H100" in out and "DRAM            16.38 TB/s" in out and "dram0 to dram6" in out
    assert "dram0" not in call("show", "h100-8").out


def test_check(tmp_path: Path) -> None:
    good = write(tmp_path, "good.yaml", {"schema": "dfopt/stack/1", "name": "mine", "part": "hybrid-4"})
    assert call("check", good, find("stacks", "hbm2"), "hybrid-16").out.count("ok (dfopt/stack/1)") == 3
    data = changed(load_stack("hybrid-4").to_data(), dies__0__thickness="-1 um")
    bad = run("check", write(tmp_path, "bad.yaml", data), code=3)
    assert "$.dies[0].thickness: found '-1 um', expected a length of 0 or more" in bad.err
    unknown = run("check", write(tmp_path, "s.yaml", {**SYSTEM, "stack": "hybird-4"}), code=3)
    assert "$.stack: no stack of this name" in unknown.err and "'hybrid-4'" in unknown.err


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
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
        run(*words, "-o", here / f"{name}.json")
    return here


@pytest.fixture(autouse=True)
def _with_files(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(made)


def physical(*words: object, code: int = 0) -> Data:
    """The figures on a stack that ``score`` says."""
    found: Data = answered("score", *words, code=code)["physical"]
    return found


def test_a_result_is_judged_on_a_stack() -> None:
    asked = ("score", "result.json", "--stack", "cool.json")
    out = run(*asked, *HEAT, 3).out
    for words in ("on stack", "Partitions on the stack", "Energy", "per sample", "Dies, from the far"):
        assert words in out
    assert "Hottest 3 tiles" in out and "nominal, within its limits" in out
    score = Score.from_data(answered(*asked))
    assert score.physical is not None and score.physical.stack == "cool"
    assert f"{score.physical.energy_per_step_j:.4g}"[:4] in out
    assert "Hottest" not in call(*asked, *HEAT, 0).out


def test_graph_and_system_may_be_named_or_left_out() -> None:
    on = ("--stack", "cool.json")
    assert answered("score", "result.json", *on) == answered("score", "result.json", "graph.yaml", "system.yaml", *on)
    assert physical("mapping.json", "graph.yaml", "system.yaml", *on)["stack"] == "cool"


def test_without_a_stack_nothing_changes() -> None:
    out = run("score", "result.json").out
    assert "\nstep " in out and "stack" not in out
    assert "physical" not in answered("score", "result.json")


def test_it_says_what_the_model_leaves_out(tmp_path: Path) -> None:
    gpu = write(tmp_path, "gpu.yaml", changed(SYSTEM, chip__execution="kernel_by_kernel"))
    assert "left out    nothing\n" in call("score", "result.json").out
    one = call("score", "mapping.json", "graph.yaml", gpu)
    assert "kernel launches" in one.out and "left out" in one.out, one.err
    result = tmp_path / "result.json"
    run("solve", "graph.yaml", gpu, "-q", "--no-sensitivity", "-o", result)
    assert "left out    1: kernel launches\n" in call("score", result).out
    assert call("score", result, "result.json").out.endswith("left out  kernel launches\n")


def test_a_broken_limit_is_exit_status_seven() -> None:
    out = run("score", "result.json", "--stack", "hot.json", code=7).out
    assert "even at the lowest level" in out and "25.5 degC" in out
    assert set(physical("result.json", "--stack", "hot.json", code=7)["limits_broken"]) == {"logic", "dram"}


def test_throttling_can_be_switched_off() -> None:
    words = ("result.json", "--stack", "warm.json")
    assert physical(*words, "--no-throttle", code=7)["frequency"] == 1.0
    assert physical(*words)["throttled"]
    assert "throttled to" in call("score", *words, "--detail", "heat").out


def test_several_results_are_ranked() -> None:
    asked = ("score", "slow.json", "result.json", "--stack")
    out = run(*asked, "cool.json").out
    assert out.index("result.json") < out.index("slow.json")
    rows = answered(*asked, "cool.json")
    assert [row["result"] for row in rows] == ["result.json", "slow.json"]
    times = [row["score"]["physical"]["step_time_s"] for row in rows]
    assert times == sorted(times) and times[0] < times[1]
    assert len(answered("score", *["result.json"] * 3)) == 3
    run(*asked, "hot.json", code=7)


def test_solve_on_a_stack_carries_it_along(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    words = ("solve", "graph.yaml", "system.yaml", "-q", "--no-sensitivity", "--stack")
    assert "Partitions on the stack" in run(*words, "cool.json", "-o", out, "--detail", "heat").out
    saved = json.loads(out.read_text())
    assert saved["system"]["stack"]["name"] == "cool"
    assert saved["score"]["physical"]["stack"] == "cool"
    assert answered("score", out) == saved["score"]  # the result says what stack it is on
    assert "verified optimal" in call("check", out).out
    run(*words, "hot.json", code=7)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("result.json gpt2-small", 2, "found two words, expected RESULT... or MAPPING GRAPH SYSTEM"),
        ("mapping.json", 3, "$: found a mapping, which does not say what it runs on"),
        ("result.json mapping.json", 3, "$: found a mapping, which does not say what it runs on"),
        ("result.json --batch 4", 2, "--batch: a result has its own graph"),
        ("result.json --param x=1", 2, "--param: a result has its own graph"),
        ("result.json --no-throttle", 2, "--no-throttle: the system has no stack of dies"),
        ("result.json --stack hybird-vault", 3, "did you mean 'hybrid-vault'"),
        ("result.json --stack graph.yaml", 3, "$.schema: "),
        ("result.json --stack clocked", 3, "no file and no zoo name in stacks"),
    ],
)
def test_errors_of_a_score_are_one_message(words: str, code: int, said: str) -> None:
    assert_refused(call("score", *words.split()), code, said)


def test_clocks_and_pauses_must_fit(tmp_path: Path) -> None:
    clocks = [{"partition": place, "frequency": share} for place, share in ((0, 0.83), (3, 1.0), (0, 1.0))]
    pauses = [{"stage": stage, "time": "1 ms"} for stage in (0, 0, 2)]
    bad = write(tmp_path, "bad.json", changed(ONE_CHIP_MAPPING, clocks=clocks, pauses=pauses))
    rest = ("graph.yaml", "system.yaml", "--stack", "cool.json")
    said = run("score", bad, *rest, code=3).err
    for line in (
        "$.clocks[0].frequency: found 0.83, which is no level of stack cool (its levels: 1, 0.9, 0.8, 0.7, 0.6, 0.5)",
        "$.clocks[1]: partition 3 of stage 0 holds no kernel (leave the clock out)",
        "$.clocks[2]: partition 0 of stage 0 has a clock already, $.clocks[0] (give each partition one clock at most)",
        "$.pauses[1]: stage 0 has a pause already, $.pauses[0] (give each stage one pause at most)",
        "$.pauses[2]: stage 2 holds no kernel (leave the pause out)",
    ):
        assert line in said
    good = write(tmp_path, "good.json", changed(ONE_CHIP_MAPPING, clocks=[{"partition": 0, "frequency": 0.8}]))
    assert physical(good, *rest)["partitions"][0]["frequency"] == 0.8


def test_the_best_mappings_of_a_solve_are_ranked_again_on_a_stack(tmp_path: Path) -> None:
    """`solve --top` keeps them, and `score --stack` judges them all."""
    saved = str(tmp_path / "result.json")
    assert "#3" in run("solve", "gpt2-small", "sn10-8-ring", "--top", "3", "-q", "-o", saved).out
    ranked = answered("score", saved, "--stack", "microbump-8")
    assert {each["result"] for each in ranked} == {saved, f"{saved} #2", f"{saved} #3"}
    times = [each["score"]["physical"]["step_time_s"] for each in ranked]
    assert times == sorted(times)


HOT = "schema: dfopt/stack/1\nname: hot\npart: hybrid-vault\nset: {package.r_convec_k_per_w: 0.25}\n"


@pytest.fixture(scope="module")
def files(tmp_path_factory: Any) -> tuple[Path, Path]:
    """A stack that is too hot, and a heat-aware result on it."""
    folder = tmp_path_factory.mktemp("heat")
    (folder / "hot.yaml").write_text(HOT)
    words = ["gpt3-175b", "sn10-8-ring", "--tp", 1, "--pp", 8, "--stack", folder / "hot.yaml", "--heat", "aware"]
    run("solve", *words, "--gap", 1e-3, "--no-sensitivity", "-q", "-o", folder / "aware.json")
    assert json.loads((folder / "aware.json").read_text())["mapping"]["clocks"]
    return folder / "hot.yaml", folder / "aware.json"


def test_a_heat_aware_result_passes_check_and_score(files: tuple[Path, Path]) -> None:
    run("check", files[1])
    run("score", files[1])  # its limits are kept


def test_three_answers_as_a_table_and_as_json(files: tuple[Path, Path], tmp_path: Path) -> None:
    table = run("heat", files[1], "--gap", 1e-3, "-o", tmp_path / "report.json")
    for word in ("ignore heat", "throttle", "heat-aware", "step time", "one kelvin", "binding"):
        assert word in table.out
    again = call("heat", files[1], "--stack", files[0], "--gap", 1e-3, "--json", "--no-one-kelvin")
    assert [one["name"] for one in json.loads(again.out)["answers"]] == ["ignore", "throttle", "aware"]
    assert json.loads((tmp_path / "report.json").read_text())["schema"] == "dfopt/heat/1"
    run("check", tmp_path / "report.json")


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["solve", "gpt2-small", "sn10-8-ring", "--heat", "hot"], 2, "--heat: expected one of ignore, aware"),
        (["solve", "gpt2-small", "sn10-8-ring", "--tp", "8", "--heat", "aware"], 3, "found none, expected a stack"),
        (["heat", "nothing.json"], 3, "nothing.json"),
        (["heat", "RESULT", "--stack", "hybird-vault"], 3, "hybrid-vault"),
        (["heat", "RESULT", "-o", "report.txt"], 2, "--output"),
    ],
)
def test_errors_about_heat_are_one_message(files: tuple[Path, Path], words: list[str], code: int, says: str) -> None:
    assert_refused(call(*(files[1] if word == "RESULT" else word for word in words)), code, says)
