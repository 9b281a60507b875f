"""The page of what ``dfopt heat`` found, and what it says in words."""

from __future__ import annotations

from pathlib import Path

from plot_cases import result
from typer.testing import CliRunner

from dfopt.cli import app
from dfopt.documents.heat import HeatAnswer, HeatReport, ShadowPrice, SlowedPartition
from dfopt.show.heat import gain_of
from dfopt.show.report import heat_page


def answer(name: str, step: float, keeps: bool = True) -> HeatAnswer:
    return HeatAnswer.model_validate(
        {
            "name": name, "mapping": result("fused").mapping.model_dump(by_alias=True), "step_time_s": step,
            "interval_s": step, "pause_s": 0.0, "lowest_frequency": 0.93, "partitions": 3, "logic_max_c": 104.25,
            "refresh_rate": 2.0, "power_w": 250.0, "energy_per_step_j": 1.5e6, "keeps_limits": keeps,
            "violations": () if keeps else ("the die is <too> hot",),
        }
    )  # fmt: skip


def report(aware: float) -> HeatReport:
    return HeatReport(
        graph="a<b>", system="s", stack="k", plan="TP8", limit_logic_c=105.0,
        answers=(answer("ignore", 1.0, keeps=False), answer("throttle", 2.0), answer("aware", aware)),
        price=ShadowPrice(lp_logic_s_per_k=0.25, lp_dram_s_per_k=0.0, binding=("cell 1,1 of die dram0",)),
        slowed=(SlowedPartition(stage=0, partition=1, frequency=0.86, kernels=("Q", "K")),),
    )  # fmt: skip


def test_a_page_has_every_answer_limit_and_price() -> None:
    page = heat_page(report(1.6))
    for words in ("ignore heat", "throttle", "heat-aware", "104.25", "105 °C", "die is &lt;too&gt; hot", "Q, K",
                  "logic 250 ms", "cell 1,1 of die dram0", "Heat-aware is 25 % faster than"):  # fmt: skip
        assert words in page, words
    assert "://" not in page and "<b>" not in page


def test_no_gain_is_said_in_words() -> None:
    assert gain_of(report(2.0)) == "heat-aware is as fast as throttled"
    assert gain_of(report(1.0)) == "heat-aware is 100 % faster than throttled"
    alone = report(1.0).model_copy(update={"answers": (answer("ignore", 1.0),)})
    assert gain_of(alone) == ""


def test_the_command_reports_a_heat_document(tmp_path: Path) -> None:
    source, target = tmp_path / "heat.json", tmp_path / "heat.html"
    report(1.6).dump(source)
    done = CliRunner().invoke(app, ["report", str(source), "-o", str(target)])
    assert done.exit_code == 0, done.output
    assert target.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    wrong = CliRunner().invoke(app, ["report", str(source), "-o", str(target), "--x", "chips"])
    assert wrong.exit_code == 2 and "found a heat report" in wrong.output
    drawn = CliRunner().invoke(app, ["plot", str(source), "--kind", "roofline", "-o", str(tmp_path / "x.svg")])
    assert drawn.exit_code == 2 and "found a heat report, expected a result" in drawn.output
