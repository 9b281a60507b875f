"""One question, whoever asks it: what is free, what is assumed, and what the answer says of it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import dfopt as df
from dfopt.cli import app
from dfopt.documents.question import Question
from dfopt.documents.request import Request
from dfopt.errors import PlanError
from dfopt.questions import Resolver, question_of, resolve
from dfopt.search import answer
from dfopt.studies.cells import expand

SERVED: dict[str, Any] = {"phase": "decode", "batch": 64, "context": 512}


def solved(tmp_path: Path, *words: object) -> df.Result:
    file = tmp_path / "r.json"
    done = CliRunner().invoke(app, ["solve", *map(str, words), "-q", "--no-sensitivity", "-o", str(file)])
    assert done.exit_code == 0, done.output
    return df.Result.load(file)


def test_the_three_doors_answer_alike(tmp_path: Path) -> None:
    words = ("--phase", "decode", "--batch", 64, "--context", 512)
    by_words = solved(tmp_path, "llama-68m", "h100-8", *words)
    in_python = df.optimize("llama-68m", "h100-8", **SERVED)
    study = {"graphs": [{"graph": "llama-68m", "parameters": SERVED}], "systems": [{"system": "h100-8"}]}
    [row] = df.sweep(df.Study(name="one", **study), jobs=1).frame().to_dict("records")
    assert by_words.value == in_python.value == row["step_time_s"] and by_words.proof == in_python.proof
    assert by_words.status == in_python.status == row["status"] == "optimal"
    drawn = df.optimize(df.load_graph("llama-68m", **SERVED), "h100-8")  # one sequence at a time
    assert drawn.value > 3 * in_python.value and "fixed: microbatch 1, " in drawn.proof
    assert "microbatch" not in in_python.proof.partition("fixed:")[2]


def test_a_file_asks_as_the_words_do_and_a_result_is_asked_again(tmp_path: Path) -> None:
    asked = {"schema": "dfopt/question/2", "graph": "llama-68m", "system": "h100-8", "parameters": SERVED,
             "set": {"network.nvlink.size": 4}, "options": {"tp": 2, "gap": "1%"}}  # fmt: skip
    (tmp_path / "question.yaml").write_text(yaml.safe_dump(asked))
    first = solved(tmp_path, tmp_path / "question.yaml")
    assert first.system.chips == 4 and first.plan.label.startswith("TP2") and first.request.gap == 0.01
    first.dump(tmp_path / "first.json")
    again = solved(tmp_path, "--like", tmp_path / "first.json", "--batch", 4)
    assert (again.graph.batch, again.system.chips, again.request.gap) == (4, 4, 0.01)
    assert again.question is not None and again.question.parameters == {**SERVED, "batch": 4}
    given = df.optimize(first.graph, first.system, tp=2)  # of documents, which the result has
    given.dump(tmp_path / "given.json")
    assert solved(tmp_path, "--like", tmp_path / "given.json").value == given.value


def test_training_frees_what_a_run_chooses() -> None:
    found = resolve(Question(graph="gpt2-small", system="b200-8", parameters={"phase": "training", "batch": 16}))
    assert found.assumptions.profile == "default" and found.calibration is None
    assert {graph.microbatch for graph in found.graphs} == {1, 2, 4, 8}
    assert len({graph.variant for graph in found.graphs}) >= 3
    plans = df.optimize(df.load_graph("gpt2-small", phase="training", batch=16), "b200-8", tp=1, pp=1).plans
    assert {record.plan.zero or 0 for record in plans} == {0, 1, 2, 3}


def test_choices_of_which_only_some_are_tried_are_named() -> None:
    # 3 sequences are faster than each of 1, 2, 4 and 8: an optimum has to say that it is one of those
    asked = {"phase": "training", "batch": 24, "assumptions": "ideal", "dp": 8, "zero": 0, "sensitivity": False}
    usual, every = (df.solve("gpt2-small", "h100-8", **asked, **more) for more in ({}, {"microbatch": "all"}))
    assert usual.step_time_s > every.step_time_s and every.graph.microbatch == 3
    ways = "recompute: attention or full or full+attention or layernorm+attention or none"
    assert usual.fixed[2:] == ("microbatch 1/2/4/8", ways) and every.fixed[2:] == (ways,)
    some = df.solve("gpt2-small", "h100-8", **asked, microbatch="1,3", recompute="none,full")
    assert "fixed: dp 8, zero 0, microbatch 1/3, recompute: full or none" in some.proof
    with pytest.raises(df.Infeasible) as caught:  # of which some could fit that are not tried
        df.solve("gpt2-small", "h100-8", **asked, set={"chip.dram.capacity": "1 GB"}, microbatch=[2, 3])
    assert str(caught.value).endswith(f"fixed: dp 8, zero 0, microbatch 2/3, {ways}")
    assert pickle.loads(pickle.dumps(caught.value)).fixed == caught.value.fixed


def test_a_graph_as_a_document_keeps_what_is_drawn_into_it() -> None:
    graph = df.load_graph("gpt2-small", microbatch=2)
    assert [one.microbatch for one in resolve(Question(graph=graph, system="a100-8")).graphs] == [2]
    with pytest.raises(PlanError, match=r"batch: neither .*df\.load_graph takes it; .* name it to change them"):
        df.optimize(graph, "a100-8", batch=8)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tpp": 8}, r"tpp: neither an option nor a parameter of the workload \(did you mean 'tp' or"),
        ({"microbatch": "many"}, "microbatch: found 'many', expected numbers such as 1,2,4, or all"),
        ({"phase": "training", "batch": "max"}, "batch: found max in training, where the gradients of"),
        ({"recompute": "full"}, "recompute: gpt2-small has no backward pass; ask for phase: training"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(given: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        df.optimize("gpt2-small", "a100-8", **given)


def test_what_differs_between_questions_is_looked_up_once() -> None:
    resolver, asked = Resolver(), Question(graph="gpt2-small", system="a100-8")
    one, two = resolver.resolve(asked), resolver.resolve(asked.changed(options={"tp": 2}))
    assert one.graphs is two.graphs and one.system is two.system and two.request == Request(tp=2)
    with pytest.raises(PlanError, match="request: given beside tp"):
        question_of("gpt2-small", "a100-8", Request(), {"tp": 2})


def test_the_machine_is_changed_before_anything_reads_it(tmp_path: Path) -> None:
    words = ("gpt2-small", "a100-8", "--phase", "training", "--batch", 16, "--microbatch", 1, "--recompute", "none")
    words = (*words, "--tp", 1, "--pp", 1, "--zero", 0)
    found = solved(tmp_path, *words, "--set", "network.nvlink.size=4")
    assert found.system.chips == 4 and found.assumptions.profile == "a100-calibrated"
    sized = solved(tmp_path, *words, "--chips", 4)
    assert sized.value == found.value


def test_the_largest_batch_is_a_question_too() -> None:
    served = {"phase": "decode", "context": 100000, "batch": "max"}
    found = answer(Question(graph="llama-3.1-8b", system="h100-8", parameters=served, options=Request(tp=8)))
    assert found.result.graph.batch == found.result.graph.microbatch >= 40
    assert f"batch {found.result.graph.batch}: the largest that fits" in found.notes[0]


def test_cells_that_a_filter_drops_are_never_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    study = df.Study(
        name="few", graphs=[{"graph": "gpt*"}], systems=[{"system": "a100-8"}], parameters={"microbatch": "all"},
        filters=[{"drop": "graph != 'gpt2-small'"}],
    )  # fmt: skip
    assert len(study.graphs) > 2
    seen: list[str] = []
    plain = Resolver.workload
    monkeypatch.setattr(Resolver, "workload", lambda self, asked: (seen.append(asked.graph), plain(self, asked))[1])
    [cell] = expand(study)
    assert {*seen} == {"gpt2-small"} and len(cell.graphs) == 10  # divisors of 512
