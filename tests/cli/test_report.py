"""``dfopt report``: a page from a result, a study with its store, or a store; one clear error for each wrong use."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
from cli_tools import call, spawn, write
from design_cases import SIZES, chosen

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
    """A folder with a result and a sweep."""
    folder = tmp_path_factory.mktemp("reports")
    words = ("solve", "gpt2-small", "sn10-8-ring", "--tp", 8, "--no-sensitivity", "-q", "-o")
    assert call(*words, folder / "one.json").code == 0
    (folder / "small.yaml").write_text(STUDY)
    store = folder / "small.runs.jsonl"
    assert call("sweep", folder / "small.yaml", "--jobs", 1, "-q", "--store", store).code == 0
    return folder


def test_a_result_becomes_a_page(solved: Path, tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    answer = call("report", solved / "one.json", "-o", target)
    assert (answer.code, answer.out, answer.err) == (0, "", f"dfopt: wrote {target}\n")
    page = target.read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>") and "<h1>gpt2-small on sn10-8-ring</h1>" in page
    assert "The system is sn10-8-ring of the zoo, unchanged" in page
    assert "systems/sn10-8-ring.yaml:" in page and "no published number" in page


def test_changed_and_unknown_inputs_are_told_apart(solved: Path, tmp_path: Path) -> None:
    from dfopt.documents.result import Result

    one = Result.load(solved / "one.json")
    changed = one.system.model_copy(update={"collective_overhead": 1e-6})
    one.model_copy(update={"system": changed}).dump(tmp_path / "changed.json")
    renamed = one.system.model_copy(update={"name": "mine", "source": "my own measurements"})
    one.model_copy(update={"system": renamed}).dump(tmp_path / "unknown.json")
    pages = {}
    for name in ("changed", "unknown"):
        assert call("report", tmp_path / f"{name}.json", "-o", tmp_path / "page.html").code == 0
        pages[name] = (tmp_path / "page.html").read_text(encoding="utf-8")
        assert "broken: this result was edited" in pages[name]
    assert "calls itself sn10-8-ring" in pages["changed"] and "is not equal to it" in pages["changed"]
    assert "The system mine is not of the zoo" in pages["unknown"] and "my own measurements" in pages["unknown"]
    assert "systems/sn10-8-ring.yaml:" not in pages["unknown"]


def test_a_study_and_its_store_become_a_page(solved: Path, tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    store = solved / "small.runs.jsonl"
    answer = call("report", solved / "small.yaml", "--store", store, "--value", "step_time_s", "-o", target)
    assert answer.code == 0, answer.err
    page = target.read_text(encoding="utf-8")
    assert "all are found" in page and "Heat map of step time (s)" in page
    assert "two chips &lt;and&gt; two memories" in page
    assert "systems/memories/hbm3.yaml" in page or "systems/chips/h100.yaml" in page
    assert page.count("<svg") == 4  # two figures, each for a desk and for a phone


def test_a_study_lists_its_parameters_and_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    study = {
        "schema": "dfopt/study/1", "name": "own", "graphs": [{"graph": "gpt2-small"}],
        "systems": [{"system": "sn10-8-ring"}], "parameters": {"batch": [8, 16]},
        "limits": [{"time_limit": "20 s", "label": "quick"}, {"time_limit": "30 s"}],
    }  # fmt: skip
    write(tmp_path, "own.json", study)
    assert call("sweep", "own.json", "--jobs", 1, "-q").code == 0
    assert call("report", "own.json", "-o", "page.html").code == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<dt>batch</dt><dd>8, 16</dd>" in page and "<dt>limits</dt><dd>quick, 30 s</dd>" in page


def test_the_best_of_many_designs_becomes_a_page(tmp_path: Path) -> None:
    given = {**SIZES, "choices__stacks": {"least": 2, "most": 2}, "name": "reticle-2026"}  # of the zoo, and open there
    chosen(**given).dump(tmp_path / "design.yaml")
    asked = ("explore", "gpt2-small", tmp_path / "design.yaml", "--gap", "5%", "-q", "--no-sensitivity")
    told = call(*asked, "-o", tmp_path / "best.json").out
    assert call("report", tmp_path / "best.json", "-o", tmp_path / "page.html").code == 0
    page = tmp_path.joinpath("page.html").read_text(encoding="utf-8")
    assert all(line.split("  ")[-1] in page for line in told.splitlines()[:5])
    assert page.index("The best of many designs") < page.index("Where the time goes")
    assert "as one of the zoo does whose sizes are to be chosen" in page


def test_a_store_alone_becomes_a_page_without_claims(solved: Path, tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    assert call("report", solved / "small.runs.jsonl", "-o", target).code == 0
    page = target.read_text(encoding="utf-8")
    assert "4 cells" in page and "What the source claims" not in page


def test_the_store_of_a_study_is_found_beside(solved: Path) -> None:
    answer = spawn("report", "small.yaml", cwd=solved)
    assert answer.code == 0, answer.err
    assert (solved / "report.html").exists()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("gpt2-small",), 2, "found a graph, expected a result, a heat report, an exploration, a study or a store"),
        (("one.json", "-o", "page.pdf"), 2, "expected a name that ends in .html or .htm"),
        (("one.json", "-o", "nowhere/page.html"), 2, "name a file in an existing folder"),
        (("one.json", "--value", "gap"), 2, "--value: belongs to a sweep, found a result"),
        (("small.runs.jsonl", "--store", "x"), 2, "--store: belongs to a study"),
        (("small.yaml", "--x", "prise_usd", "--store", "small.runs.jsonl"), 2, "did you mean 'price_usd'"),
        (("small.yaml", "--store", "missing.jsonl"), 3, "missing.jsonl"),
        (("missing.json",), 3, "no such file"),
        (("frame.csv",), 2, "found the frame of a sweep"),
        (("frame.csv",), 2, "`dfopt plot frame.csv --kind pareto` draws it"),
    ],
)
def test_wrong_uses(
    words: tuple[str, ...], code: int, said: str, solved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one.json", "small.yaml", "small.runs.jsonl"):
        (tmp_path / name).write_bytes((solved / name).read_bytes())
    monkeypatch.chdir(tmp_path)
    answer = call("report", *words)
    assert (answer.code, answer.out) == (code, "")
    assert said in answer.err
    assert not list(tmp_path.glob("*.html"))


def test_runs_show_themselves_in_a_notebook(solved: Path) -> None:
    from dfopt.studies.sweep import collect

    code = collect(solved / "small.yaml", solved / "small.runs.jsonl")._repr_html_()
    assert code.count("<table") == 2 and "all are found" in code and ">4<" in code


def test_a_design_of_the_zoo_says_what_is_assumed(tmp_path: Path) -> None:
    """Remarks of the design's file and of the parts that its technology is made of."""
    result, page = tmp_path / "r.json", tmp_path / "r.html"
    solved = call("solve", "gpt2-small", "designs/h100", "--tp", "8", "--no-sensitivity", "-q", "-o", result)
    assert solved.code == 0 and call("report", result, "-o", page).code == 0
    said = page.read_text(encoding="utf-8")
    assert "The design is h100 of the zoo, unchanged" in said
    for file in ("designs/h100", "technologies/n5", "technologies/hbm3", "technologies/nvlink-4"):
        assert f"systems/{file}.yaml:" in said
