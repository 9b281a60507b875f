"""The commands about documents, for stacks of dies."""

from __future__ import annotations

import json
import re
from pathlib import Path

from cli_tools import SYSTEM, call, changed, write

from dfopt.documents.zoo import find, zoo
from dfopt.machines.stacks import load_stack


def test_list() -> None:
    plain, as_json = call("list", "stacks"), call("list", "stacks", "--json")
    assert plain.code == as_json.code == 0
    assert plain.out.split("\n")[0].split() == ["name", "bandwidth", "capacity"]
    named = [line.split()[0] for line in plain.out.splitlines()[2:]]
    assert named == json.loads(as_json.out) == zoo("stacks")
    wrong = call("list", "stack")
    assert wrong.code == 2 and "stacks" in wrong.err


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
    assert json.loads(call("show", "hybrid-vault", "--json").out) == load_stack("hybrid-vault").to_data()


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
    bad = call("check", write(tmp_path, "bad.yaml", data))
    assert bad.code == 3 and "$.dies[0].thickness: found '-1 um', expected a length of 0 or more" in bad.err
    unknown = call("check", write(tmp_path, "s.yaml", {**SYSTEM, "stack": "hybird-4"}))
    assert unknown.code == 3 and "$.stack: no stack of this name" in unknown.err and "'hybrid-4'" in unknown.err


def test_schema() -> None:
    made = json.loads(call("schema", "stack").out)
    assert made["$id"] == "dfopt/stack/1" and len(made["anyOf"]) == 2 and "Die" in made["$defs"]


def test_a_result_carries_the_stack_of_its_system(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    solved = call("solve", "gpt2-small", "sn40l-8-hbm2", "--no-sensitivity", "-q", "-o", path)
    assert solved.code == 0
    assert json.loads(path.read_text())["system"]["stack"] == load_stack("hbm2").to_data()
    assert call("check", path).code == 0
