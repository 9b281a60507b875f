"""Exploring designs from the command line."""

from __future__ import annotations

import json
from pathlib import Path

from cli_tools import call, spawn
from design_cases import SIZES, chosen

import dfopt as df
from dfopt.documents.design import Design
from dfopt.documents.exploration import Exploration


def test_the_command_line(tmp_path: Path) -> None:
    chosen(**SIZES, choices__capacity__L2__most="12 MiB").dump(tmp_path / "design.yaml")
    asked = ("explore", "gpt2-small", tmp_path / "design.yaml", "--gap", "5%", "-q")
    answer = call(*asked, "-o", tmp_path / "best.json")
    printed = " ".join(answer.out.split())
    assert answer.code == 0 and "is better by more, under any mapping (fixed: nothing)" in printed
    assert f"dfopt: wrote {tmp_path / 'best.json'};" in answer.err
    shown = call("show", tmp_path / "best.json").out
    assert "More of each budget" in shown and "area of the package" in shown
    assert "18 designs" in shown and "between_packages" in shown
    assert "verified" in call("check", tmp_path / "best.json").out
    told = json.loads(call(*asked, "--no-sensitivity", "--json").out)
    assert told["gap"] <= 0.05 and told["schema"] == "dfopt/exploration/2"
    assert call("explore", "gpt2-small", tmp_path / "none.yaml").code == 3
    fast = call(*asked[:3], "--step-limit", "1ns", "-q")
    assert fast.code == 4 and "keeps its limits (step time at most 1 ns)" in fast.err
    wrong = call(*asked[:3], "--power-limit", "20ms", "-q")
    assert wrong.code == 2 and "--power-limit: found '20ms'" in wrong.err
    assert call(*asked, "--gap", "5").code == 2
    late = spawn(*asked, "--time-limit", "0.1")  # from the start of the process
    assert late.code == 5 and "no design has been solved" in late.err
    few = call(*asked, "--time-limit", "60", "--top", "3", "--objective", "time", "--no-sensitivity").out
    assert "Best designs" in few and "bound on all other designs" in few
    assert call(*asked, "--objective", "speed").code == 2


def test_designs_under_heat(tmp_path: Path) -> None:
    given = {**SIZES, "choices__capacity__L2": {"least": "16 MiB", "most": "16 MiB", "step": "16 MiB"}}
    given |= {"choices__stacks": {"least": 2, "most": 2}, "choices__rate__between_packages__most": "50 GB/s"}
    given |= {"choices__power": {"least": "150 W", "most": "450 W", "step": "300 W"}}
    chosen(**given).dump(tmp_path / "design.yaml")
    plate = {"package": {"mode": "htc", "htc_w_per_m2k": 4000}, "cells": 4, "limits.logic": "70 degC"}
    plate["levels"] = [{"frequency": f, "voltage": 0.4 + 0.6 * f} for f in (1, 0.75, 0.5)]
    df.load_stack("hbm3", plate).dump(tmp_path / "on.yaml")
    asked = ("explore", "gpt2-small", tmp_path / "design.yaml", "--stack", tmp_path / "on.yaml", "--gap", "20%", "-q")
    answer = call(*asked, "--heat", "throttle", "-o", tmp_path / "best.json")
    assert answer.code == 0 and "throttle on stack" in answer.out and "without heat" in answer.out
    assert json.loads((tmp_path / "best.json").read_text(encoding="utf-8"))["request"]["heat"] == "throttle"
    assert "heat: found none, expected it beside stack" in call(*asked).err


def test_metrics_and_heat_by_a_formula(tmp_path: Path) -> None:
    data = df.load_design("stacked-256").to_data()
    data["template"]["network"] = data["template"]["network"][:1]
    Design.from_data({**data, "choices": {"dram_layers": [4, 6]}}, "it").dump(tmp_path / "design.yaml")
    asked = ("explore", "llama-68m", tmp_path / "design.yaml", "--tp", "4", "--objective", "tokens_per_s", "--top", "2")
    asked += ("--no-sensitivity",)
    answer = call(*asked, "--heat", "lumped", "--temperature-limit", "80", "-q", "-o", tmp_path / "best.json")
    assert answer.code == 0 and "temperature at most 80 degC" in answer.out and "lumped: " in answer.out
    made = Exploration.load(tmp_path / "best.json")
    assert made.bound >= made.value > made.others[0].value and f"{made.value:,.0f}"[:3] in answer.out
    assert "bound on all other designs" in answer.out and "tokens/s" in answer.out
    assert "verified" in call("check", tmp_path / "best.json").out
    assert "expected one of lumped, tp_pp_dp, expanded" in call(*asked, "--compare", "vague").err
    fewer = call(*asked, "--compare", "tp_pp_dp", "--parallelism", "expanded")
    assert fewer.code == 0 and "under tp_pp_dp" in fewer.out and ", here " in fewer.out
    assert "degC such as 85" in call(*asked, "--temperature-limit", "-400").err
    assert "found a temperature without heat" in call(*asked, "--temperature-limit", "80").err
    assert "expected heat: throttle or aware" in call(*asked[:5], "--objective", "tokens_per_j").err


def test_both_ends_of_the_energy_of_dram(tmp_path: Path) -> None:
    few = {**SIZES, "choices__capacity__L2__most": "12 MiB", "choices__rate__between_packages__most": "50 GB/s"}
    chosen(**few, technology__dram__energy_range=["1 pJ/bit", "60 pJ/bit"]).dump(tmp_path / "design.yaml")
    asked = ("explore", "gpt2-small", tmp_path / "design.yaml", "--gap", "0", "--no-sensitivity", "-q", "--range")
    answer = call(*asked, "--store", tmp_path / "solved.jsonl", "-o", tmp_path / "best.json")
    rows = [line.split()[:3] for line in answer.out.splitlines() if line.split()[2:3] == ["pJ/bit"]]
    assert answer.code == 0 and rows == [["low", "1", "pJ/bit"], ["middle", "4", "pJ/bit"], ["high", "60", "pJ/bit"]]
    told = json.loads((tmp_path / "best.json").read_text(encoding="utf-8"))
    sizes = [one["best"] for one in (told["energy_range"]["low"], told, told["energy_range"]["high"])]
    same = "the same design is best at both ends" in answer.out
    assert same == (sizes[0] == sizes[1] == sizes[2]) and same != ("another design is best at the" in answer.out)
    assert call("check", tmp_path / "best.json").out.count("verified optimal") == 3
    chosen(**few).dump(tmp_path / "design.yaml")
    without = call(*asked)
    assert without.code == 3 and "$.technology.dram.energy_range: found none" in without.err
