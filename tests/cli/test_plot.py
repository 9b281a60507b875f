"""``dfopt plot``: every kind from files, and one clear error for each wrong use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
import matplotlib.pyplot as plt
from cli_tools import call, spawn
from design_cases import GPT2, SIZES, chosen

from dfopt.exploring.explore import explore

STUDY = """\
schema: dfopt/study/1
name: small
graphs: [{graph: gpt2-small}]
systems:
  - chips: [h100, sn30]
    memories: [{label: hbm, use: hbm3}, {label: ddr, use: ddr4-300}]
    links: [{label: nvlink, use: nvlink-4-450}]
    topologies: [{label: ring, use: {topology: ring, sizes: [4]}}]
options: {tp: 4}
"""


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two results and a sweep."""
    folder = tmp_path_factory.mktemp("plots")
    words = ("solve", "gpt2-small", "sn10-8-ring", "--phase", "training", "--zero", 0, "--recompute", "none")
    words = (*words, "--no-sensitivity", "-q", "-o")
    assert call(*words, folder / "one.json", "--tp", 2, "--pp", 4).code == 0
    assert call(*words, folder / "two.json", "--tp", 8).code == 0
    (folder / "small.yaml").write_text(STUDY)
    answer = call(
        "sweep", folder / "small.yaml", "--jobs", 1, "-q", "--store", folder / "small.runs.jsonl", "--csv",
        folder / "small.csv",
    )  # fmt: skip
    assert answer.code == 0, answer.err
    return folder


@pytest.mark.parametrize(
    "kind", ["plan", "memory", "breakdown", "partitions", "matrices", "roofline", "timeline", "schedule", "dataflow"]
)
def test_a_result_is_drawn(kind: str, solved: Path, tmp_path: Path) -> None:
    target = tmp_path / "figure.svg"
    answer = call("plot", solved / "one.json", "--kind", kind, "-o", target)
    assert (answer.code, answer.out) == (0, "")
    assert answer.err == f"dfopt: wrote {target}\n"
    assert "gpt2-small" in target.read_text()
    assert call("plot", solved / "one.json", "--kind", kind, "-o", target, "--width", 420).code == 0
    plt.close("all")


def test_matrices_are_printed_letter_by_letter(solved: Path) -> None:
    answer = call("show", solved / "one.json", "--matrices")
    assert answer.code == 0
    result = json.loads((solved / "one.json").read_text())
    rows = {line.split("  ")[0]: line.split()[-1] for line in answer.out.splitlines() if line.strip()}
    for matrices in result["matrices"]:
        for row, partition in matrices["A"]:
            assert rows[matrices["kernels"][row]][partition] == "A"
    assert call("show", solved / "one.json", "--detail", "matrices").out == answer.out


def test_an_exploration_is_drawn_as_its_best_design(tmp_path: Path) -> None:
    few = {**SIZES, "choices__capacity__L2__most": "4 MiB", "choices__rate__between_packages__most": "50 GB/s"}
    explore(GPT2, chosen(**few), sensitivity=False).dump(tmp_path / "made.json")
    target = tmp_path / "figure.svg"
    assert call("plot", tmp_path / "made.json", "--kind", "breakdown", "-o", target).code == 0
    assert "gpt2-small" in target.read_text()


def test_several_results_are_compared(solved: Path, tmp_path: Path) -> None:
    target = tmp_path / "both.png"
    assert call("plot", solved / "one.json", solved / "two.json", "--kind", "breakdown", "-o", target).code == 0
    assert target.read_bytes().startswith(b"\x89PNG")


def test_a_trace_is_json(solved: Path, tmp_path: Path) -> None:
    target = tmp_path / "trace.json"
    assert call("plot", solved / "one.json", "--kind", "trace", "-o", target, "--microbatches", 2).code == 0
    assert json.loads(target.read_text())["otherData"]["drawn"].startswith("2 of ")


def test_a_sweep_is_drawn_from_study_frame_and_store(solved: Path, tmp_path: Path) -> None:
    study, store, frame = solved / "small.yaml", solved / "small.runs.jsonl", solved / "small.csv"
    made = []
    for position, source in enumerate([(study, "--store", store), (frame,)]):
        target = tmp_path / f"{position}.svg"
        answer = call("plot", *source, "--kind", "heat-map", "--x", "memory", "--y", "chip", "-o", target)
        assert answer.code == 0, answer.err
        made.append(target.read_text())
    assert made[0] == made[1] and "utilization" in made[0]
    target = tmp_path / "front.svg"
    words = ("--kind", "pareto", "--x", "layer_memory_s", "--y", "utilization", "-o", target)
    assert call("plot", store, *words).code == 0
    assert "Pareto front" in target.read_text()
    # a store has no prices: without --x the first cost that differs between its cells is taken
    answer = call("plot", store, "--kind", "pareto", "-o", target)
    assert answer.code == 0, answer.err
    answer = call("plot", store, "--kind", "pareto", "--x", "layer_memory", "-o", target)
    assert answer.code == 2 and "--x: found 'layer_memory'" in answer.err
    assert call("plot", frame, "--kind", "heat-map", "--by", "chip", "--x", "memory", "-o", target).code == 0
    assert "chip: sn30" in target.read_text()


def test_without_an_output_the_kind_names_it(solved: Path, tmp_path: Path) -> None:
    answer = spawn("plot", solved / "two.json", "--kind", "timeline", cwd=tmp_path)
    assert (answer.code, answer.err) == (0, "dfopt: wrote timeline.svg\n")
    assert (tmp_path / "timeline.svg").read_text().startswith("<?xml")


def test_a_graph_of_the_zoo_is_drawn(tmp_path: Path) -> None:
    assert call("plot", "gpt2-small", "--kind", "dataflow", "-o", tmp_path / "graph.pdf").code == 0


@pytest.mark.parametrize(
    "words, code, said",
    [
        (["one.json", "--kind", "pie"], 2, "--kind: expected one of plan, breakdown"),
        (["one.json", "--kind", "trace", "-o", "trace.svg"], 2, "expected a name that ends in"),
        (["one.json", "--kind", "roofline", "-o", "figure.json"], 2, "ends in .svg, .png or .pdf"),
        (["one.json", "two.json", "--kind", "memory"], 2, "found 2 sources, expected one for --kind memory"),
        (["one.json", "--kind", "roofline", "--x", "chip"], 2, "--x: belongs to --kind heat-map or pareto"),
        (
            ["one.json", "--kind", "breakdown", "--stage", "1"],
            2,
            "--stage: belongs to --kind partitions or matrices or temperature",
        ),
        (["gpt2-small", "--kind", "roofline"], 2, "found a graph, expected a result for --kind roofline"),
        (["sn10-8-ring", "--kind", "roofline"], 2, "found a system, expected a result"),
        (["one.json", "--kind", "temperature"], 2, "found a result without figures on a stack"),
        (
            ["one.json", "--kind", "pareto"],
            2,
            "found a result, expected a sweep: a STUDY with its store, a STORE.jsonl",
        ),
        (["none.csv", "--kind", "pareto"], 3, "none.csv: 1 problem"),
        (["small.csv", "--kind", "heat-map", "--value", "utilisation"], 2, "did you mean 'utilization'?"),
        (["small.csv", "--kind", "heat-map", "--store", "x"], 2, "--store: belongs to a study"),
        (["small.yaml", "--kind", "pareto", "--store", "none.jsonl"], 3, "none.jsonl: 1 problem"),
        (["none.json", "--kind", "roofline"], 3, "none.json"),
    ],
)
def test_wrong_use_is_one_clear_error(
    words: list[str], code: int, said: str, solved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(solved)
    before = sorted(path.name for path in solved.iterdir())
    answer = call("plot", *words)
    assert answer.code == code and said in answer.err, answer.err
    assert answer.err.startswith("dfopt: ") and answer.out == ""
    assert sorted(path.name for path in solved.iterdir()) == before


def test_a_frame_without_rows_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "empty.csv"
    path.write_text("graph,utilization\n")
    answer = call("plot", path, "--kind", "heat-map")
    assert answer.code == 3 and "found no rows, expected a frame" in answer.err
