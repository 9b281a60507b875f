"""Pictures of results: units on axes, texts that do not overlap, the palette, the same bytes each time, errors."""

from __future__ import annotations

import builtins
import itertools
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")
import matplotlib.pyplot as plt
from matplotlib.text import Text
from plot_cases import CASES, closed_figures, colours, overlapping, result, texts, with_partitions, with_plan

import dfopt as df
from dfopt.cli.plot_command import KINDS as PLOT_KINDS
from dfopt.documents.breakdown import Breakdown
from dfopt.documents.mapping import Pause
from dfopt.errors import DocumentError, PlanError
from dfopt.physics.schedule import overlap_of
from dfopt.show.parts import bound_parts
from dfopt.show.plots.breakdown import PARTS
from dfopt.show.plots.labels import free_labels
from dfopt.show.plots.output import SUFFIXES
from dfopt.show.plots.partitions import partitions
from dfopt.show.plots.roofline import injection_bandwidth, network_bandwidth
from dfopt.show.plots.style import PALETTE

_closed = pytest.fixture(autouse=True)(closed_figures)

KINDS = ("roofline", "breakdown", "step", "memory", "partitions", "plan", "progress", "timeline", "dataflow")
ALLOWED = {colour.lower() for colour in PALETTE.values()}


PAIRS = [
    *((kind, name) for kind in KINDS for name in ("fused", "ends", "one-by-one")),
    *((kind, name) for kind in ("timeline", "memory", "plan") for name in ("pipeline", "chunks")),
    *(("breakdown", "pipeline"), ("step", "pipeline"), ("partitions", "many"), ("dataflow", "many")),
]


@pytest.mark.parametrize("kind, name", PAIRS)
def test_texts_do_not_overlap_and_colours_are_of_the_palette(kind: str, name: str) -> None:
    for pixels in (1280, 420):
        with df.plot.width(pixels):
            ax = getattr(df.plot, kind)(result(name))
        assert texts(ax)
        assert overlapping(ax) == []
        assert colours(ax) <= ALLOWED
        assert ax.figure.get_figwidth() * 108 <= pixels * 1.001 or kind == "dataflow"


@pytest.mark.parametrize("count", [1, 2, 5, 12, 30])
@pytest.mark.parametrize("kind", ["partitions", "roofline", "dataflow"])
def test_no_number_of_partitions_makes_texts_overlap(kind: str, count: int) -> None:
    one = with_partitions(result("one-by-one"), count)
    for pixels in (1280, 420):
        with df.plot.width(pixels):
            assert overlapping(getattr(df.plot, kind)(one)) == []


def test_the_check_of_overlaps_sees_one() -> None:
    _, ax = plt.subplots()
    ax.text(0.5, 0.5, "one")
    ax.text(0.5, 0.5, "other")
    assert ("one", "other") in overlapping(ax)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("dataflow", "plan")])
def test_axes_have_units(kind: str) -> None:
    ax = getattr(df.plot, kind)(result("pipeline"))
    for one in ax.figure.axes:
        assert re.search(r"\((s|ms|us|ns|[GMk]B|% of the step|FLOP/byte.*)\)$", one.get_xlabel()), one.get_xlabel()
    wanted = r"^(partition|pipeline stage|rate per chip|step time .*|)$"  # the ticks of a rate have its unit
    assert re.search(wanted, ax.get_ylabel())


@pytest.mark.parametrize("kind", KINDS)
def test_a_picture_is_the_same_file_each_time_and_its_text_stays_text(kind: str, tmp_path: Path) -> None:
    for name in ("one.svg", "two.svg"):
        df.plot.save(getattr(df.plot, kind)(result("pipeline")), tmp_path / name)
    one = (tmp_path / "one.svg").read_bytes()
    assert one == (tmp_path / "two.svg").read_bytes()
    assert b"gpt2-small" in one and b"<text" in one and b"<dc:date" not in one


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_cut_off_at_an_edge(kind: str, tmp_path: Path) -> None:
    df.plot.save(getattr(df.plot, kind)(result("pipeline")), tmp_path / "one.png")
    pixels = plt.imread(tmp_path / "one.png")[:, :, :3]
    edge = 6  # pixels, of the 0.08 inches at 160 dots per inch that are left free
    for side in (pixels[:edge], pixels[-edge:], pixels[:, :edge], pixels[:, -edge:]):
        assert (side == 1).all()
    assert (pixels < 1).any()


def test_saving_leaves_the_figure_as_it_was(tmp_path: Path) -> None:
    ax = df.plot.partitions(result("fused"))
    engine, dpi = ax.figure.get_layout_engine(), ax.figure.dpi
    for name in ("one.svg", "two.svg", "one.png"):
        df.plot.save(ax, tmp_path / name)
        assert (ax.figure.get_layout_engine(), ax.figure.dpi) == (engine, dpi)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_logarithmic_axes_are_labelled_in_plain_text() -> None:
    ax = df.plot.roofline(result("pipeline"))
    ax.figure.draw_without_rendering()
    for axis, wanted in ((ax.xaxis, r"[\d.]+"), (ax.yaxis, r"[\d.]+ [GTP]FLOP/s")):
        shown = [tick.get_text() for tick in axis.get_ticklabels(which="both") if tick.get_text()]
        assert len(shown) > 2 and all(re.fullmatch(wanted, one) for one in shown), shown


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_suffix_decides(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"figure{suffix}"
    df.plot.save(df.plot.partitions(result("fused")), path)
    assert path.read_bytes()[:5] in (b"<?xml", b"\x89PNG\r", b"%PDF-")


@pytest.mark.parametrize("kind", PLOT_KINDS)
def test_every_kind_of_the_command_is_a_function_of_its_name(kind: str) -> None:
    name = kind.replace("-", "_")
    assert callable(getattr(df.plot, name)) and name in df.plot.__all__


@pytest.mark.parametrize("kind", KINDS)
def test_axes_may_be_the_callers(kind: str) -> None:
    _, ax = plt.subplots()
    assert getattr(df.plot, kind)(result("pipeline"), ax=ax) is ax
    assert ax.get_title(loc="left")
    assert len(plt.get_fignums()) == 1


# --- what they show -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_a_step_is_the_sum_of_its_parts(name: str) -> None:
    one = result(name)
    assert sum(bound_parts(one.score).values()) == pytest.approx(one.step_time_s, rel=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_points_lie_under_the_roofs(name: str) -> None:
    one = result(name)
    peak, dram, sends = one.system.chip.peak_flops, one.system.chip.dram.bandwidth, network_bandwidth(one)
    ax = df.plot.roofline(one)
    points = [tuple(offset) for dots in ax.collections for offset in dots.get_offsets()]
    assert points
    for x, y in points:
        assert y <= peak * (1 + 1e-9)
        assert y <= x * max(dram, sends or 0.0) * (1 + 1e-9)


def test_a_chip_sends_over_all_its_links() -> None:
    ring = df.NetworkDim(name="x", topology="ring", size=4, link_bandwidth=1e9)
    kinds = ("ring", "line", "switch", "fully_connected")
    found = [injection_bandwidth(ring.model_copy(update={"topology": kind})) for kind in kinds]
    assert found == [2e9, 2e9, 1e9, 3e9]


def test_bars_of_partitions_end_with_the_layer() -> None:
    one = result("fused")
    ax = partitions(one)
    ends = [(bar.get_x() + bar.get_width(), bar) for bar in ax.patches]
    assert max(end for end, _ in ends) == pytest.approx(one.score.layer_time_s * 1e3, rel=1e-9)
    assert overlap_of(one) == "perfect"
    assert len(ax.get_yticklabels()) == len(one.score.partitions)


def test_partitions_say_which_kind_of_layer_it_draws() -> None:
    one = result("ends")
    assert one.graph.layers.kinds == ("layer", "embedding", "head")
    titles = [" ".join(text for text, _ in texts(df.plot.partitions(one, stage=stage))) for stage in (0, 2)]
    assert "one microbatch through layer (stage 0; 1 embedding, 2 head), " in titles[0]
    assert "one microbatch through head (stage 2; 0 layer, 1 embedding), " in titles[1]


def test_very_many_partitions_share_rows_but_none_is_lost() -> None:
    one = result("many")
    assert len(one.score.partitions) > 60
    ax = df.plot.partitions(one)
    assert len(ax.get_yticks()) <= 61
    assert "share a row" in ax.figure.texts[0].get_text()
    whole = sum(part.time_s for part in one.score.partitions)
    assert max(bar.get_x() + bar.get_width() for bar in ax.patches) == pytest.approx(whole * 1e3, rel=1e-6)


def test_a_schedule_says_how_much_of_the_step_it_shows() -> None:
    said = df.plot.schedule(result("pipeline")).figure.texts[0].get_text()
    assert "1F1B, 4 stages" in said and "8 of the step's 32 microbatches" in said
    assert "interleaved over 3 chunks" in df.plot.schedule(result("chunks")).figure.texts[0].get_text()
    one = result("pipeline")
    gpipe = one.model_copy(update={"assumptions": one.assumptions.with_(schedule="gpipe")})
    assert "GPipe" in df.plot.schedule(gpipe).figure.texts[0].get_text()
    assert "all 32 microbatches" in df.plot.schedule(one, microbatches=99).figure.texts[0].get_text()


def test_every_part_of_a_step_is_drawn() -> None:
    assert {f"{name}_s" for name in PARTS} == set(Breakdown.model_fields)


def test_several_results_are_compared_by_their_steps() -> None:
    ax = df.plot.breakdown(result("pipeline"), result("chunks"))
    assert sum(text.get_text().startswith("gpt2-small on sn10-8-ring: ") for text in ax.texts) == 2
    assert overlapping(ax) == []


def test_progress_is_of_the_search_and_ends_where_best_and_bound_meet() -> None:
    one = result("fused")
    ax = df.plot.progress(one)
    best, bound = (line.get_ydata() for line in ax.lines[:2])
    assert best[-1] == pytest.approx(1.0)
    assert bound[-1] == pytest.approx(one.bound / one.value)
    assert one.trace[-1] == (one.seconds, one.value, one.bound)
    assert all(low <= value * (1 + 1e-9) for _, value, low in one.trace if value is not None)


def test_a_waterfall_adds_up_to_the_step() -> None:
    one = result("pipeline")
    ax = df.plot.breakdown(one)
    *parts, total = [bar for bar in ax.patches if bar.get_width()]
    ends = [bar.get_x() + bar.get_width() for bar in parts]
    assert [bar.get_x() for bar in parts] == pytest.approx([0.0, *ends[:-1]])
    assert ends[-1] == pytest.approx(total.get_width())
    assert total.get_width() == pytest.approx(one.step_time * 1e3)


def test_memory_bars_are_what_a_stage_holds() -> None:
    one = result("pipeline")
    ax = df.plot.memory(one)
    ends = {round(bar.get_y(), 6): bar.get_x() + bar.get_width() for bar in ax.patches}
    held = sorted(stage.dram_bytes for stage in one.score.stages)
    assert sorted(ends.values()) == pytest.approx([size / 10 ** (9 if "GB" in ax.get_xlabel() else 6) for size in held])


def test_a_plan_shows_every_stage_or_says_how_many_it_leaves_out() -> None:
    one = result("pipeline")
    words = [text.get_text() for text in df.plot.plan(one).texts]
    assert [word for word in words if word.startswith("stage")] == [f"stage {stage}" for stage in range(4)]
    with df.plot.width(420):
        words = [text.get_text() for text in df.plot.plan(one).texts]
    assert "... 2 more" in words and "stage 3" in words


def test_shares_on_a_roofline_are_those_of_a_step() -> None:
    one = result("ends")
    (stage,) = {tuple(stage.runs.items()) for stage in one.score.stages if 2 in stage.runs}
    runs = dict(stage)
    logits = next(part for part in one.score.partitions if "Logits" in part.kernels)
    work = sum(
        max(each.runs.get(part.stage, 0) for each in one.score.stages) * part.time_s for part in one.score.partitions
    )
    assert runs[logits.stage] == 1 and logits.time_s / work < 0.4
    labels = " ".join(text.get_text() for text in df.plot.roofline(one).texts)
    assert f"Logits {100 * logits.time_s / work:.2g} %" in labels


def test_titles_on_a_page_that_says_what_was_asked_do_not_repeat_it() -> None:
    one = result("fused")
    for alone in (True, False):
        with df.plot.width(420, alone):
            titles = [df.plot.breakdown(one), df.plot.memory(one), df.plot.progress(one)]
        assert all(("on 8 x" in ax.figure.texts[0].get_text()) == alone for ax in titles)


def test_mappings_lie_over_each_other_on_one_roofline() -> None:
    ax = df.plot.roofline(result("pipeline"), result("chunks"))
    assert overlapping(ax) == []
    assert "What 2 mappings reach" in ax.figure.texts[0].get_text()
    with pytest.raises(PlanError, match="expected one chip with its ceilings"):
        df.plot.roofline(result("pipeline"), result("ends"))


# --- errors ---------------------------------------------------------------------------------------


def test_without_matplotlib_one_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] == "matplotlib":
            raise ImportError(name)
        return whole(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    for kind in KINDS:
        with pytest.raises(PlanError, match=r"found no matplotlib.*python -m pip install matplotlib"):
            getattr(df.plot, kind)(result("fused"))


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: df.plot.breakdown(), "found no result, expected one or more"),
        (lambda: df.plot.partitions(result("fused"), stage=3), "found stage 3, expected one of 0"),
        (lambda: df.plot.schedule(result("fused"), microbatches=0), "found 0, expected 1 or more"),
        (lambda: df.plot.schedule(with_plan(result("chunks"), interleave=2)), "multiple of 2 chunks"),
        (lambda: df.plot.dataflow(result("fused"), limit=1), "expected 2 or more boxes"),
        (lambda: df.plot.temperature(result("fused")), "without figures on a stack"),
        (lambda: df.plot.save(df.plot.partitions(result("fused")), "figure.gif"), "ends in .svg, .png, .pdf"),
    ],
)
def test_errors_say_what_was_found_and_expected(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(PlanError, match=re.escape(said)):
        call()


def test_a_picture_that_cannot_be_written() -> None:
    with pytest.raises(DocumentError, match="cannot be written"):
        df.plot.save(df.plot.partitions(result("fused")), "/no/such/folder/f.svg")


def test_a_pause_to_cool_is_a_part_of_the_step_of_its_own() -> None:
    one = result("fused")
    slow = one.mapping.model_copy(update={"pauses": (Pause(stage=0, time=1e-3),)})
    score = df.evaluate(slow, one.graph, one.system, one.assumptions)
    cooled = one.model_copy(update={"mapping": slow, "score": score, "step_time_s": score.step_time_s})
    parts = bound_parts(cooled.score)
    assert parts["pause"] == pytest.approx(one.plan.microbatches * one.plan.layers_per_stage * 1e-3)
    assert sum(parts.values()) == pytest.approx(score.step_time_s, rel=1e-9)
    assert score.step_time_s - one.step_time_s == pytest.approx(parts["pause"], rel=1e-9)


def test_naming_the_plots_loads_no_matplotlib() -> None:
    code = "import sys, dfopt; dfopt.plot.roofline; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_free_labels_side_by_side_keep_a_gap() -> None:
    """Labels that touch read as one: "1" and "0, 2" as "10, 2"."""
    _, ax = plt.subplots(figsize=(3, 2))
    ax.set(xlim=(0, 1), ylim=(0, 1))
    free_labels(ax, [(0.30 + 0.06 * i, 0.5, str(i) * 3) for i in range(6)])
    boxes = [Text.get_window_extent(note) for note in ax.texts]
    assert len(boxes) > 3
    for a, b in itertools.combinations(boxes, 2):
        assert a.y1 <= b.y0 or b.y1 <= a.y0 or max(a.x0, b.x0) - min(a.x1, b.x1) > 2
