"""Reports of results: one whole file, every text escaped, what the result says and nothing else."""

from __future__ import annotations

import sys
from functools import cache
from html import unescape
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")
import matplotlib.pyplot as plt
from hypothesis import given
from hypothesis import strategies as st
from pages import check, elements, facts, of, table
from plot_cases import closed_figures, heat_answer, heat_report, result
from typer.testing import CliRunner

import dfopt as df
from dfopt.cli import app
from dfopt.documents.heat import HeatReport
from dfopt.documents.result import Result
from dfopt.errors import PlanError
from dfopt.show import html
from dfopt.show.heat import gain_of
from dfopt.show.plots.output import inline_svg
from dfopt.show.report import Remark, heat_page, remarks, result_report
from dfopt.show.report.page import PageFigure, draw

_closed = pytest.fixture(autouse=True)(closed_figures)

CASES = ["fused", "pipeline", "ends", "many"]


@cache
def report(name: str) -> str:
    """The page of a case."""
    return result_report(result(name))


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of tables alone: figures take most of the time."""
    for room in ("result", "search"):
        instead = lambda name, caption, *what, **options: PageFigure(name, caption, why="it is not asked for")  # noqa: E731
        monkeypatch.setattr(import_module(f"dfopt.show.report.{room}"), "draw", instead)


@pytest.fixture(scope="module")
def stacked() -> Result:
    return df.optimize(df.load_graph("gpt3-175b"), df.load_system("sn40l-8-3d"), tp=8)


@pytest.mark.parametrize("name", CASES)
def test_a_page_is_whole_and_small(name: str) -> None:
    page = check(report(name))
    drawn = [one.attributes["aria-label"].split(":")[0] for one in of(page, "svg")]
    assert len(drawn) >= 4
    steps = result(name).plan.pp > 1 or result(name).graph.trains
    assert any(one.startswith("When each stage works") for one in drawn) == steps


def test_the_same_result_is_the_same_page() -> None:
    assert result_report(result("pipeline")) == report("pipeline")


def test_the_headline_says_what_was_found() -> None:
    one = result("fused")
    said = facts(check(report("fused")))
    assert said["proof"].startswith("optimal: none of ") and said["question"].startswith(one.graph.name)
    assert said["status"] == "optimal: no mapping in the space is better"
    assert said["plan"].startswith("TP 8")
    assert said["digest of the graph"] == one.provenance.graph_digest
    assert said["seal of the result"] == "intact"
    assert said["asked for"] == "tp=8, time_limit=30 s"


@pytest.mark.usefixtures("no_figures")
def test_broken_limits_are_at_the_top() -> None:
    one = result("fused")
    score = one.score.model_copy(update={"violations": ("SRAM short by 12 MB",)})
    page = result_report(one.model_copy(update={"score": score}))
    assert page.index("SRAM short by 12 MB") < page.index("<nav")


@pytest.mark.parametrize("name", CASES)
def test_partitions_are_those_of_the_score(name: str) -> None:
    one = result(name)
    head, *rows = table(elements(report(name)), "Partitions of a chip")
    assert len(rows) == len(one.score.partitions)
    bound = head.index("bound by")
    assert [row[bound] for row in rows] == [part.bound_by for part in one.score.partitions]


@pytest.mark.usefixtures("no_figures")
def test_every_assumption_is_listed_and_the_changed_ones_are_marked() -> None:
    system, graph = df.load_system("sn10-8-ring"), df.load_graph("gpt2-small")
    plain = df.optimize(graph, system, tp=8, sensitivity=False)
    own = plain.assumptions.with_(all_reduce_passes=1, fanout="per_consumer")
    other = plain.model_copy(update={"assumptions": own})
    for one, changed in ((plain, set()), (other, {"all_reduce_passes", "fanout"})):
        page = elements(result_report(one))
        head, *rows = table(page, "What the model takes for granted")
        assert head[:3] == ["field", "here", "how"]
        fields = set(df.Assumptions.model_fields) - {"schema_", "profile"}
        assert {row[0] for row in rows} == fields
        assert {row[0] for row in rows if not row[2].startswith("default")} == changed
        assert any(f"{len(changed)} of {len(fields)} fields" in paragraph.text for paragraph in of(page, "p"))
        assert {row[0] for row in rows if row[2] == "default: as chip and graph say"} == {
            "execution", "overlap", "compute_utilization", "token_blocks"
        }  # fmt: skip


@pytest.mark.usefixtures("no_figures")
def test_a_profile_is_told_from_a_change_of_it() -> None:
    one = result("fused")
    own = df.profile("dfmodel").with_(all_reduce_passes=1)
    rows = table(elements(result_report(one.model_copy(update={"assumptions": own}))), "What the model takes")[1:]
    how = {row[0]: row[2] for row in rows}
    assert how["collective_model"] == "of the profile" and how["all_reduce_passes"] == "changed"
    assert how["stage_time"] == "default"


@pytest.mark.usefixtures("no_figures")
def test_only_the_best_plans_are_listed_and_the_others_counted() -> None:
    one = result("fused")
    lost = one.plans[0].model_copy(
        update={"status": "pruned_by_bound", "value": None, "level_bound": 1e9, "bound": 1e9}
    )
    many = one.model_copy(update={"plans": (*one.plans, *([lost] * 300))})
    page = elements(result_report(many))
    assert len(table(page, "Plans considered")) == 201
    assert any(f"The best 200 of {len(many.plans)} plans" in paragraph.text for paragraph in of(page, "p"))
    first = table(page, "Plans considered")[1]
    assert first[2] == "chosen" and first[0] == one.plan.label


def test_a_stack_has_its_own_section(stacked: Result) -> None:
    physical = stacked.score.physical
    assert physical is not None
    page = check(result_report(stacked))
    dies = table(page, "Dies, from the far face")[1:]
    assert [row[0] for row in dies] == [die.die for chip in physical.chips for die in chip.dies]
    assert [row[0] for row in table(page, "Hottest")[1:]] == [tile.die for tile in physical.hottest_tiles(20)]
    assert any(one.attributes["aria-label"].startswith("Mean temperature") for one in of(page, "svg"))
    assert not any("On the stack" in one.text for one in of(elements(report("fused")), "h2"))


@pytest.mark.usefixtures("no_figures")
def test_a_step_that_its_stack_changes_is_said_at_the_top(stacked: Result) -> None:
    physical = stacked.score.physical
    assert physical is not None
    for slowdown, said in ((1.25, True), (1.0, False)):
        step = slowdown * physical.modelled_step_time_s
        other = physical.model_copy(update={"slowdown": slowdown, "step_time_s": step})
        one = stacked.model_copy(update={"score": stacked.score.model_copy(update={"physical": other})})
        page = result_report(one)
        assert ("step time on its stack" in page) == said
        for draws in (df.plot.breakdown, df.plot.roofline, df.plot.partitions):
            title = draws(one).figure.texts[0].get_text()
            assert (f"modelled; on its stack {physical.stack}" in title and "(1.25 x)" in title) == said


def test_long_texts_are_set_in_long_lines() -> None:
    made = html.table("t", ["a", "b"], [["x" * 37, "y" * 101]]).code
    assert '<td class="l">x' in made and '<td class="l w"><div>y' in made  # long lines instead of tall rows


def test_samples_of_one_token_have_no_tokens() -> None:
    assert "tokens per second" in report("fused") and "tokens per second" not in report("many")


NAMES = ["<script>alert(1)</script>", '$x$ & "q"', r"$\bad{$ ]]> -->", "</svg><img src=x onerror=alert(2)>"]


@pytest.fixture(scope="module")
def hostile() -> Result:
    graph = df.Graph(
        name="<b>g</b> $1$", description="</style><script>alert(3)</script>", source="https://example.org/<x>",
        batch=8, kernels=[{"name": name, "op": "gemm", "m": 256, "k": 256, "n": 256} for name in NAMES],
        tensors=[{"src": a, "dst": b} for a, b in pairwise(NAMES)],
    )  # fmt: skip
    system = df.load_system("sn10-8-ring").model_copy(update={"name": "<i>s</i>"})
    return df.optimize(graph, system, tp=8)


def test_names_are_words_and_no_markup(hostile: Result) -> None:
    page = check(result_report(hostile, [Remark("<u>", 1, "<u>", "<u>", "<u>")], ["<u>note</u>"]))
    assert not of(page, "img") + of(page, "u") + of(page, "b") + of(page, "i")
    assert [row[0] for row in table(page, "Where every kernel runs")[1:]] == NAMES
    assert of(page, "h1")[0].text == "<b>g</b> $1$ on <i>s</i>"
    drawn = "".join(one.text for one in of(page, "svg"))
    assert all(name in drawn for name in NAMES)


def test_figures_that_do_not_fit_are_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    one, figures = result("pipeline"), {}

    def once(name: str, *words: Any, **options: Any) -> PageFigure:
        figures[name] = figures.get(name) or draw(name, *words, **options)
        return figures[name]

    for room in ("result", "search"):
        monkeypatch.setattr(import_module(f"dfopt.show.report.{room}"), "draw", once)
    whole = report("pipeline")
    count = len(of(elements(whole), "figure"))
    for share in (0.75, 0.4):  # those for a phone go first, which shows the others instead
        limit = int(share * len(whole.encode()))
        page = result_report(one, limit=limit)
        assert len(page.encode()) < limit
        left = len(of(elements(page), "svg"))
        assert count <= left < 2 * count if share > 0.5 else 0 < left < count
        assert page.count("Not shown: its ") == max(count - left, 0)
    with pytest.raises(PlanError, match="bytes of tables, expected less than 9000"):
        result_report(one, limit=9000)


def test_without_matplotlib_one_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(PlanError, match="python -m pip install matplotlib"):
        result_report(result("fused"))


def test_what_cannot_be_drawn_says_why_and_other_figures_stay_open() -> None:
    mine = plt.figure()

    def refuse() -> Any:
        plt.figure()
        raise PlanError("found <nothing>, expected more.")

    found = draw("x", "A figure.", refuse)
    assert found.svg == "" and found.html.code == (
        '<p class="note">A figure. Not shown: found &lt;nothing&gt;, expected more.</p>'
    )
    assert plt.get_fignums() == [mine.number]


# --- remarks of the zoo -----------------------------------------------------------------------------


def test_remarks_are_lines_of_their_files() -> None:
    root = Path(__file__).resolve().parents[2]
    for one in (remark for name in df.zoo("systems") for remark in remarks("systems", name)):
        line = (root / one.file).read_text(encoding="utf-8").splitlines()[one.number - 1]
        assert one.line in line and one.text in line and one.kind in line.lower()


def test_remarks_follow_the_parts_that_a_file_names() -> None:
    own = {one.file for one in remarks("systems", "sn40l-8-3d")}
    assert {"systems/sn40l-8-3d.yaml", "systems/chips/sn40l.yaml", "systems/stacks/3d-100tbps.yaml"} <= own
    text = "latency: 900 ns               # unconfirmed: PCIe Gen 4, no published number"
    found = [one for one in remarks("systems", "sn10-8-ring") if one.line == "latency: 900 ns"]
    assert [one.text for one in found] == [text.partition("# ")[2]]
    assert remarks("graphs", "sn10-8-ring") == ()


@pytest.mark.usefixtures("no_figures")
def test_remarks_and_notes_are_in_the_page() -> None:
    found = remarks("systems", "sn10-8-ring")
    page = elements(result_report(result("fused"), found, ["Nothing is known of the rest."]))
    rows = table(page, "Lines of zoo files")[1:]
    assert [row[2] for row in rows] == [one.line for one in found]
    assert any(one.text == "Nothing is known of the rest." for one in of(page, "p"))


# --- pieces -----------------------------------------------------------------------------------------

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=60)


@given(title=WORDS.filter(str.strip), columns=st.lists(WORDS, min_size=1, max_size=3), data=st.data())
def test_tables_say_exactly_what_they_are_given(title: str, columns: list[str], data: Any) -> None:
    rows = data.draw(st.lists(st.lists(WORDS, min_size=len(columns), max_size=len(columns)), max_size=3))
    found = elements(html.table(title, columns, rows, note=title).code)
    tags = {"div", "table", "caption", "thead", "tbody", "tr", "th", "p"}
    assert {one.tag for one in found} == tags | ({"td"} if rows else set())
    assert [one.text for one in of(found, "th")] == columns
    assert [one.text for one in of(found, "td")] == [text for row in rows for text in row]
    assert of(found, "caption")[0].text == title == of(found, "div")[0].attributes["aria-label"]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_sort_by_their_value(value: float) -> None:
    (cell,) = of(elements(html.table("t", ["a"], [[html.TableCell("shown", value)]]).code), "td")
    assert float(cell.attributes["data-v"]) == pytest.approx(value, rel=1e-7)
    assert cell.attributes["class"] == "n"


def test_an_svg_has_ids_of_its_own_and_words_as_they_are() -> None:
    figure, ax = plt.subplots(figsize=(3, 2))
    ax.bar([0, 1], [1, 2], color="#0072B2", hatch="////", edgecolor="black")
    ax.plot([0, 1], [0, 3], marker="o", label='a < b & c id="x" url(#y)')
    ax.legend()
    ax.set_xlabel("time (ms)")
    made = inline_svg(figure, "one", "bars")
    whole = elements(made)
    used = inline_svg(figure, "two", "bars")
    assert {"time (ms)", 'a < b & c id="x" url(#y)'} <= {one.text for one in of(whole, "text")}
    assert "#0072b2" in made and "://" not in made
    ids = {one.attributes["id"] for one in whole if "id" in one.attributes}
    assert ids and not ids & {one.attributes["id"] for one in elements(used) if "id" in one.attributes}


def test_texts_of_notebooks_are_escaped_and_short(hostile: Result) -> None:
    for shown in (hostile, hostile.graph, hostile.system, hostile.score):
        code = shown._repr_html_()
        found = elements(code)
        assert {one.tag for one in found} <= {"table", "caption", "thead", "tbody", "tr", "th", "td"}
        assert "<script" not in code and "<img" not in code
    assert all(name in unescape(hostile.graph._repr_html_()) for name in NAMES)
    many = df.Graph(name="g", kernels=[{"name": f"k{i}", "op": "elementwise", "m": 2, "n": 2} for i in range(500)])
    assert len(of(elements(many._repr_html_()), "tr")) < 40 and "480 more" in many._repr_html_()


# --- answers to heat -------------------------------------------------------------------------------


def heated(aware: float) -> HeatReport:
    return heat_report(result("fused").mapping, aware)


def test_a_page_has_every_answer_limit_and_price() -> None:
    page = heat_page(heated(1.6))
    for words in ("ignore heat", "throttle", "heat-aware", "104.25", "105 °C", "die is &lt;too&gt; hot", "Q, K",
                  "logic 250 ms", "cell 1,1 of die dram0", "Heat-aware is 25 % faster than"):  # fmt: skip
        assert words in page, words
    assert "://" not in page and "<b>" not in page


def test_no_gain_is_said_in_words() -> None:
    assert gain_of(heated(2.0)) == "heat-aware is as fast as throttled"
    assert gain_of(heated(1.0)) == "heat-aware is 100 % faster than throttled"
    alone = heated(1.0).model_copy(update={"answers": (heat_answer(result("fused").mapping, "ignore", 1.0),)})
    assert gain_of(alone) == ""


def test_the_command_reports_a_heat_document(tmp_path: Path) -> None:
    source, target = tmp_path / "heat.json", tmp_path / "heat.html"
    heated(1.6).dump(source)
    done = CliRunner().invoke(app, ["report", str(source), "-o", str(target)])
    assert done.exit_code == 0, done.output
    assert target.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    wrong = CliRunner().invoke(app, ["report", str(source), "-o", str(target), "--x", "chips"])
    assert wrong.exit_code == 2 and "found a heat report" in wrong.output
    drawn = CliRunner().invoke(app, ["plot", str(source), "--kind", "roofline", "-o", str(tmp_path / "x.svg")])
    assert drawn.exit_code == 2 and "found a heat report, expected a result" in drawn.output
