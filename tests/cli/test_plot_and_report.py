"""``dfopt plot`` and ``dfopt report``: every kind from files, and one clear error for each wrong use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
import matplotlib.pyplot as plt
from cli_tools import assert_refused, call, own_folder, run, write
from design_cases import GPT2, SIZES, chosen

from dfopt.documents.result import Result
from dfopt.exploring.explore import explore
from dfopt.studies.sweep import collect

_inside = pytest.fixture(autouse=True)(own_folder)
STUDY = """\
schema: dfopt/study/1
name: small
description: two chips <and> two memories
graphs: [{graph: gpt2-small}]
systems:
  - chips: [h100, sn30]
    memories: [{label: hbm, use: hbm3}, {label: ddr, use: ddr4-300}]
    links: [{label: nvlink, use: nvlink-4-450}]
    topologies: [{label: ring, use: {topology: ring, sizes: [4]}}]
options: {tp: 4}
claims:
  - {name: all are found, value: utilization, aggregate: min, at_least: 0.0}
"""


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with results and a sweep: one.json and two.json of a training, forward.json, small.yaml and so on."""
    folder = tmp_path_factory.mktemp("solved")
    words = ("solve", "gpt2-small", "sn10-8-ring", "--no-sensitivity", "-q")
    trains = ("--phase", "training", "--zero", 0, "--recompute", "none")
    run(*words, *trains, "--tp", 2, "--pp", 4, "-o", folder / "one.json")
    run(*words, *trains, "--tp", 8, "-o", folder / "two.json")
    run(*words, "--tp", 8, "-o", folder / "forward.json")
    study, store, frame = (folder / f"small.{suffix}" for suffix in ("yaml", "runs.jsonl", "csv"))
    study.write_text(STUDY)
    run("sweep", study, "--jobs", 1, "-q", "--store", store, "--csv", frame)
    return folder


@pytest.mark.parametrize(
    "kind", ["plan", "memory", "breakdown", "partitions", "matrices", "roofline", "timeline", "schedule", "dataflow"]
)
def test_a_result_is_drawn(kind: str, solved: Path) -> None:
    asked = ("plot", solved / "one.json", "--kind", kind, "-o", "figure.svg")
    answer = run(*asked)
    assert (answer.out, answer.err) == ("", "dfopt: wrote figure.svg\n")
    assert "gpt2-small" in Path("figure.svg").read_text()
    run(*asked, "--width", 420)
    plt.close("all")


def test_matrices_are_printed_letter_by_letter(solved: Path) -> None:
    out = run("show", solved / "one.json", "--matrices").out
    result = json.loads((solved / "one.json").read_text())
    rows = {line.split("  ")[0]: line.split()[-1] for line in out.splitlines() if line.strip()}
    for matrices in result["matrices"]:
        for row, partition in matrices["A"]:
            assert rows[matrices["kernels"][row]][partition] == "A"
    assert call("show", solved / "one.json", "--detail", "matrices").out == out


def test_an_exploration_is_drawn_as_its_best_design() -> None:
    few = {**SIZES, "choices__capacity__L2__most": "4 MiB", "choices__rate__between_packages__most": "50 GB/s"}
    explore(GPT2, chosen(**few), sensitivity=False).dump("made.json")
    run("plot", "made.json", "--kind", "breakdown", "-o", "figure.svg")
    assert "gpt2-small" in Path("figure.svg").read_text()


def test_several_results_are_compared(solved: Path) -> None:
    run("plot", solved / "one.json", solved / "two.json", "--kind", "breakdown", "-o", "both.png")
    assert Path("both.png").read_bytes().startswith(b"\x89PNG")


def test_a_trace_is_json(solved: Path) -> None:
    run("plot", solved / "one.json", "--kind", "trace", "-o", "trace.json", "--microbatches", 2)
    assert json.loads(Path("trace.json").read_text())["otherData"]["drawn"].startswith("2 of ")


def test_a_sweep_is_drawn_from_study_frame_and_store(solved: Path) -> None:
    study, store, frame = (solved / f"small.{suffix}" for suffix in ("yaml", "runs.jsonl", "csv"))
    drawing = ("--kind", "heat-map", "--x", "memory", "--y", "chip", "-o")
    run("plot", study, "--store", store, *drawing, "0.svg")
    run("plot", frame, *drawing, "1.svg")
    assert Path("0.svg").read_text() == Path("1.svg").read_text() and "utilization" in Path("0.svg").read_text()
    pareto, target = ("plot", store, "--kind", "pareto", "-o", "front.svg"), Path("front.svg")
    run(*pareto, "--x", "layer_memory_s", "--y", "utilization")
    assert "Pareto front" in target.read_text()
    run(*pareto)  # a store has no prices: without --x the first cost that differs between its cells is taken
    assert_refused(call(*pareto, "--x", "layer_memory"), 2, "--x: found 'layer_memory'")
    run("plot", frame, "--kind", "heat-map", "--by", "chip", "--x", "memory", "-o", target)
    assert "chip: sn30" in target.read_text()


def test_a_graph_of_the_zoo_is_drawn() -> None:
    run("plot", "gpt2-small", "--kind", "dataflow", "-o", "graph.pdf")
    assert Path("graph.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    "words, code, said",
    [
        ("one.json --kind pie", 2, "--kind: expected one of plan, breakdown"),
        ("one.json --kind trace -o trace.svg", 2, "expected a name that ends in"),
        ("one.json --kind roofline -o figure.json", 2, "ends in .svg, .png or .pdf"),
        ("one.json two.json --kind memory", 2, "found 2 sources, expected one for --kind memory"),
        ("one.json --kind roofline --x chip", 2, "--x: belongs to --kind heat-map or pareto"),
        ("one.json --kind breakdown --stage 1", 2, "--stage: belongs to --kind partitions or matrices or temperature"),
        ("gpt2-small --kind roofline", 2, "found a graph, expected a result for --kind roofline"),
        ("sn10-8-ring --kind roofline", 2, "found a system, expected a result"),
        ("one.json --kind temperature", 2, "found a result without figures on a stack"),
        ("one.json --kind pareto", 2, "found a result, expected a sweep: a STUDY with its store, a STORE.jsonl"),
        ("none.csv --kind pareto", 3, "none.csv: 1 problem"),
        ("small.csv --kind heat-map --value utilisation", 2, "did you mean 'utilization'?"),
        ("small.csv --kind heat-map --store x", 2, "--store: belongs to a study"),
        ("small.yaml --kind pareto --store none.jsonl", 3, "none.jsonl: 1 problem"),
        ("none.json --kind roofline", 3, "none.json"),
    ],
)
def test_wrong_use_is_one_clear_error(
    words: str, code: int, said: str, solved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(solved)
    before = sorted(path.name for path in solved.iterdir())
    assert_refused(call("plot", *words.split()), code, said)
    assert sorted(path.name for path in solved.iterdir()) == before


@pytest.fixture
def copied(solved: Path, tmp_path: Path) -> Path:
    """A working folder with the result, the study and its store."""
    for name in ("forward.json", "small.yaml", "small.runs.jsonl"):
        (tmp_path / name).write_bytes((solved / name).read_bytes())
    return tmp_path


def page_of(*words: object) -> str:
    """The page that a report writes."""
    done = run("report", *words, "-o", "page.html")
    assert (done.out, done.err) == ("", "dfopt: wrote page.html\n")
    return Path("page.html").read_text(encoding="utf-8")


def test_a_result_becomes_a_page(solved: Path) -> None:
    page = page_of(solved / "forward.json")
    assert page.startswith("<!DOCTYPE html>") and "<h1>gpt2-small on sn10-8-ring</h1>" in page
    assert "The system is sn10-8-ring of the zoo, unchanged" in page
    assert "systems/sn10-8-ring.yaml:" in page and "no published number" in page


def test_changed_and_unknown_inputs_are_told_apart(solved: Path) -> None:
    one = Result.load(solved / "forward.json")
    pages = []
    for change in ({"collective_overhead": 1e-6}, {"name": "mine", "source": "my own measurements"}):
        one.model_copy(update={"system": one.system.model_copy(update=change)}).dump("edited.json")
        pages.append(page_of("edited.json"))
        assert "broken: this result was edited" in pages[-1]
    changed, unknown = pages
    assert "calls itself sn10-8-ring" in changed and "is not equal to it" in changed
    assert "The system mine is not of the zoo" in unknown and "my own measurements" in unknown
    assert "systems/sn10-8-ring.yaml:" not in unknown


def test_a_study_and_its_store_become_a_page(solved: Path) -> None:
    page = page_of(solved / "small.yaml", "--store", solved / "small.runs.jsonl", "--value", "step_time_s")
    assert "all are found" in page and "Heat map of step time (s)" in page
    assert "two chips &lt;and&gt; two memories" in page
    assert "systems/memories/hbm3.yaml" in page or "systems/chips/h100.yaml" in page
    assert page.count("<svg") == 4  # two figures, each for a desk and for a phone


def test_a_study_lists_its_parameters_and_limits(tmp_path: Path) -> None:
    study = {
        "schema": "dfopt/study/1", "name": "own", "graphs": [{"graph": "gpt2-small"}],
        "systems": [{"system": "sn10-8-ring"}], "parameters": {"batch": [8, 16]},
        "limits": [{"time_limit": "20 s", "label": "quick"}, {"time_limit": "30 s"}],
    }  # fmt: skip
    write(tmp_path, "own.json", study)
    run("sweep", "own.json", "--jobs", 1, "-q")
    page = page_of("own.json")
    assert "<dt>batch</dt><dd>8, 16</dd>" in page and "<dt>limits</dt><dd>quick, 30 s</dd>" in page


def test_the_best_of_many_designs_becomes_a_page() -> None:
    given = {**SIZES, "choices__stacks": {"least": 2, "most": 2}, "name": "reticle-2026"}  # of the zoo, and open there
    chosen(**given).dump("design.yaml")
    asked = ("explore", "gpt2-small", "design.yaml", "--gap", "5%", "-q", "--no-sensitivity")
    told = run(*asked, "-o", "best.json").out
    page = page_of("best.json")
    assert all(line.split("  ")[-1] in page for line in told.splitlines()[:5])
    assert page.index("The best of many designs") < page.index("Where the time goes")
    assert "as one of the zoo does whose sizes are to be chosen" in page


def test_a_store_alone_becomes_a_page_without_claims(solved: Path) -> None:
    page = page_of(solved / "small.runs.jsonl")
    assert "4 cells" in page and "What the source claims" not in page


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("gpt2-small", 2, "found a graph, expected a result, a heat report, an exploration, a study or a store"),
        ("forward.json -o page.pdf", 2, "expected a name that ends in .html or .htm"),
        ("forward.json -o nowhere/page.html", 2, "name a file in an existing folder"),
        ("forward.json --value gap", 2, "--value: belongs to a sweep, found a result"),
        ("small.runs.jsonl --store x", 2, "--store: belongs to a study"),
        ("small.yaml --x prise_usd --store small.runs.jsonl", 2, "did you mean 'price_usd'"),
        ("small.yaml --store missing.jsonl", 3, "missing.jsonl"),
        ("missing.json", 3, "no such file"),
        ("frame.csv", 2, "found the frame of a sweep"),
        ("frame.csv", 2, "`dfopt plot frame.csv --kind pareto` draws it"),
    ],
)
def test_wrong_uses(words: str, code: int, said: str, copied: Path) -> None:
    assert_refused(call("report", *words.split()), code, said)
    assert not list(copied.glob("*.html"))


def test_runs_show_themselves_in_a_notebook(solved: Path) -> None:
    code = collect(solved / "small.yaml", solved / "small.runs.jsonl")._repr_html_()
    assert code.count("<table") == 2 and "all are found" in code and ">4<" in code


def test_a_design_of_the_zoo_says_what_is_assumed() -> None:
    """Remarks of the design's file and of the parts that its technology is made of."""
    run("solve", "gpt2-small", "designs/h100", "--tp", "8", "--no-sensitivity", "-q", "-o", "r.json")
    page = page_of("r.json")
    assert "The design is h100 of the zoo, unchanged" in page
    for file in ("designs/h100", "technologies/n5", "technologies/hbm3", "technologies/nvlink-4"):
        assert f"systems/{file}.yaml:" in page
