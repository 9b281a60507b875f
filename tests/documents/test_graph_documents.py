"""Graph documents: their layers in order, the tokens of an evaluation, and what files of earlier versions mean."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dfopt as df
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.plan import Plan
from dfopt.documents.sections import Section, layers_of
from dfopt.documents.tokens import Tokens
from dfopt.errors import DocumentError, GraphError
from dfopt.setting.stages import pipeline_stages
from dfopt.workloads import graph_schema

NAMES = st.sampled_from(["a", "b", "c"])
SECTIONS = st.lists(
    st.builds(Section, layers=st.lists(NAMES, min_size=1, max_size=3).map(tuple), repeat=st.integers(1, 4)),
    min_size=1,
    max_size=4,
)


def graph(sections: Any, **more: Any) -> Graph:
    names = dict.fromkeys(name for one in sections for name in one.layers)
    kernels = tuple(Kernel(name=f"k_{name}", op="gemm", m=4, k=4, n=4, layer=name) for name in names)
    handed = tuple(Tensor(src=f"k_{name}", dst=f"k_{name}") for name in names if name not in ("embed", "head"))
    return Graph(**{"name": "g", "sections": sections, "kernels": kernels, "carried": handed, "batch": 64, **more})


@given(SECTIONS)
def test_layers_are_those_of_the_sections_in_order(sections: list[Section]) -> None:
    written = [name for one in sections for _ in range(one.repeat) for name in one.layers]
    layers = layers_of(sections, carrying={*written})
    assert [layers.kinds[kind] for kind in layers.order] == written
    assert layers.counted == len(layers.kinds) == len({*written}) and layers.count == len(written)
    assert [layers.times(kind) for kind in range(layers.counted)] == [written.count(name) for name in layers.kinds]


@given(SECTIONS, st.integers(1, 9))
def test_every_layer_is_in_one_stage(sections: list[Section], stages: int) -> None:
    """An embedding in the first, a head in the last, and between them contiguous runs of no more than a share."""
    drawn = graph((Section(layers=("embed",)), *sections, Section(layers=("head",))))
    layers = drawn.layers
    if stages > layers.count:
        return
    plan = Plan(pp=stages, pp_dims=("x",), layers_per_stage=-(-layers.count // stages))
    found = pipeline_stages(drawn, plan)
    place, whole = 0, [name for name in (layers.kinds[kind] for kind in layers.order)]
    embed, head = layers.kinds.index("embed"), layers.kinds.index("head")
    known = {stage.runs for stage in found}
    for number in range(stages):
        mine = whole[place : place + plan.layers_per_stage]
        if layers.counted == 1:  # where all are alike a full stage stands for those that are not
            mine = whole[:1] * plan.layers_per_stage
        place += plan.layers_per_stage
        runs = {layers.kinds.index(name): mine.count(name) for name in mine}
        runs |= {embed: 1} if number == 0 else {}
        runs |= {head: 1} if number == stages - 1 else {}
        assert runs in [{kind: times for kind, times in one if times} for one in known]
    assert len(found) <= stages


def test_the_short_form_is_one_section() -> None:
    kernel = Kernel(name="a", op="gemm", m=1, k=1, n=1)
    short = Graph(name="g", repeat=4, kernels=(kernel,))
    assert short == Graph(name="g", sections=(Section(repeat=4),), kernels=(kernel,))
    assert (short.repeat, short.folded) == (4, True)
    assert Graph(name="g", repeat=1, kernels=(kernel,)).sections is None
    assert Graph.from_data({**short.to_data(), "sections": [{"repeat": 4}]}) == short


def test_version_1_had_a_layer_and_what_runs_once() -> None:
    kernel = {"op": "gemm", "m": 1, "k": 1, "n": 1}
    data = {
        "schema": "dfopt/graph/1", "name": "g", "repeat": 12,
        "kernels": [{"name": "e", "runs": "first", **kernel}, {"name": "l", **kernel},
                    {"name": "h", "runs": "last", **kernel}],
    }  # fmt: skip
    read = Graph.from_data(data)
    assert read.layers.kinds == ("layer", "first", "last")
    assert [(one.layers, one.repeat) for one in read.sections or ()] == [
        (("first",), 1),
        (("layer",), 12),
        (("last",), 1),
    ]
    assert [read.kind_of(one) for one in read.kernels] == [1, 0, 2]
    assert not Graph.from_data({**data, "repeat": 1}).folded
    assert read.to_data()["schema"] == "dfopt/graph/3"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"sections": [{"layers": ["layr"], "repeat": 2}]},
            r"\$\.kernels\[0\]\.layer.*found 'layer'.*no section has it",
        ),
        ({"sections": [{"repeat": 2}, {"layers": ["x"]}]}, r"\$\.sections\[1\]\.layers\[0\]: no kernel belongs to 'x'"),
        ({"sections": [{"repeat": 0}]}, r"\$\.sections\[0\]\.repeat: found 0, expected a number of 1 or more"),
        ({"sections": [{"layers": []}]}, r"\$\.sections\[0\]\.layers: found a list of 0"),
        ({"sections": [{"repeat": 2}], "repeat": 2}, r"\$\.repeat: found both repeat and sections"),
        ({"repeat": 0}, r"\$\.repeat: found 0, expected a whole number"),
        ({"repeat": "three"}, r"\$\.repeat: found 'three'"),
        ({"kernels": [{"name": "a", "op": "gemm", "m": 1, "k": 1, "n": 1, "layer": "x"}]}, "the graph has no sections"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], said: str) -> None:
    data = {"schema": "dfopt/graph/3", "name": "g", "kernels": [{"name": "a", "op": "gemm", "m": 1, "k": 1, "n": 1}]}
    with pytest.raises((DocumentError, GraphError), match=said):
        Graph.from_data({**data, **change})


def test_all_kinds_hand_on_the_same() -> None:
    sections = (Section(layers=("a", "b"), repeat=2),)
    with pytest.raises(GraphError, match=r"\$\.carried: 'a' hands on 32 B forward, but 'b' nothing"):
        graph(sections, carried=(Tensor(src="k_a", dst="k_a"),))
    with pytest.raises(GraphError, match=r"'k_a' belongs to 'a', but 'k_b' to 'b'"):
        graph(sections, tensors=(Tensor(src="k_a", dst="k_b"),))


KERNEL = {"name": "a", "op": "gemm", "m": 4, "k": 8, "n": 16}
BEFORE: dict[str, Any] = {"schema": "dfopt/graph/2", "name": "g", "batch": 8, "microbatch": 2, "kernels": [KERNEL]}


@pytest.mark.parametrize("schema", ["dfopt/graph/1", "dfopt/graph/2"])
@pytest.mark.parametrize(
    ("each", "tokens"), [(1, None), (8, Tokens(processed=16)), (8.0, Tokens(processed=16)), (None, None)]
)
def test_tokens_of_a_sample_become_those_of_an_evaluation(schema: str, each: object, tokens: Tokens | None) -> None:
    more = {} if each is None else {"tokens_per_sample": each}
    graph = Graph.from_data({**BEFORE, **more, "schema": schema})
    assert graph.tokens == tokens
    assert graph.evaluation_tokens.processed == (16 if tokens else 2)
    assert "tokens_per_sample" not in graph.to_data() and Graph.from_data(graph.to_data()) == graph


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tokens_per_sample": 0}, "$.tokens_per_sample: found 0, expected a whole number from 1"),
        ({"tokens_per_sample": "8"}, "$.tokens_per_sample: found '8', expected a whole number"),
        ({"tokens_per_sample": True}, "$.tokens_per_sample: found true, expected a whole number"),
        ({"tokens_per_sample": 8, "tokens": {"processed": 16}}, "found both tokens_per_sample and tokens"),
        ({"tokens_per_sample": 8, "microbatch": "2"}, "$.microbatch: found '2', expected a whole number"),
        ({"tokens": {"processed": 0}}, "$.tokens.processed: found 0, expected a number of 1 or more"),
        ({"tokens": 16}, "$.tokens: found 16, expected a mapping"),
        ({"tokens": {"produced": 2}}, "$.tokens.processed: the key is missing"),
    ],
)
def test_what_is_no_count_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(DocumentError) as error:
        Graph.from_data({**BEFORE, **change})
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("phase", "tokens"),
    [
        ({}, Tokens(processed=3 * 64)),
        ({"mode": "training"}, Tokens(processed=3 * 64)),
        ({"phase": "prefill", "hit": 60}, Tokens(processed=3 * 4, produced=3)),
        ({"phase": "decode"}, Tokens(processed=3, produced=3)),
        ({"phase": "verify", "draft": 3}, Tokens(processed=3 * 4, produced=3)),
    ],
)
def test_what_a_phase_processes_and_produces(phase: dict[str, Any], tokens: Tokens) -> None:
    graph = df.load_graph("llama-3.1-8b", seq=64, microbatch=3, batch=12, **phase)
    assert graph.tokens == tokens
    if graph.trains:
        return
    apart = df.Assumptions(execution="kernel_by_kernel")
    score = df.optimize(graph, "h100-8", tp=8, sensitivity=False, assumptions=apart).score
    assert score.tokens_per_s == pytest.approx(4 * tokens.processed / score.step_time_s, rel=1e-12)
    if tokens.produced is None:
        assert score.produced_tokens_per_s is None and "produced" not in str(score.to_data())
    else:
        assert score.produced_tokens_per_s == pytest.approx(4 * 3 / score.step_time_s, rel=1e-12)


PASSES = ("forward", "backward", "update")


def data(version: int, key: str, *said: Any) -> dict[str, Any]:
    kernels = [{"name": f"k{place}", "op": "gemm", "m": 4, "k": 4, "n": 4, key: one} for place, one in enumerate(said)]
    return {"schema": f"dfopt/graph/{version}", "name": "g", "kernels": kernels}


@pytest.mark.parametrize("version", [1, 2])
def test_earlier_files_mean_what_they_meant(version: int) -> None:
    read, now = Graph.from_data(data(version, "phase", *PASSES)), Graph.from_data(data(3, "pass", *PASSES))
    assert [kernel.pass_ for kernel in read.kernels] == list(PASSES)
    assert read == now and read.digest() == now.digest()
    assert [one["pass"] for one in read.to_data()["kernels"]] == list(PASSES)
    assert read.to_data()["schema"] == "dfopt/graph/3"


def test_it_is_written_either_way_in_python() -> None:
    fields: dict[str, Any] = {"name": "a", "op": "gemm", "m": 4, "k": 4, "n": 4}
    assert Kernel(**fields, pass_="backward") == Kernel(**fields, **{"pass": "backward"})
    assert Kernel(**fields).pass_ == "forward"


@pytest.mark.parametrize(
    ("given", "where", "words"),
    [
        (data(3, "phase", "forward", "backward"), "$.kernels[1].phase", ("unknown key", "write 'pass'")),
        (data(3, "pass_", "forward"), "$.kernels[0].pass_", ("unknown key", "did you mean 'pass'?")),
        (data(3, "pass", "backwards"), "$.kernels[0].pass", ("found 'backwards'", "did you mean 'backward'?")),
        (data(2, "phase", "forward", "back"), "$.kernels[1].phase", ("found 'back', expected forward, backward",)),
        (data(2, "phase", ["update"]), "$.kernels[0].phase", ("found a list of 1",)),
        (data(2, "pass", "backward"), "$.kernels[0].pass", ("earlier version", "dfopt/graph/3")),
    ],
)
def test_the_other_word_is_refused_with_a_remedy(given: dict[str, Any], where: str, words: tuple[str, ...]) -> None:
    with pytest.raises(DocumentError) as caught:
        Graph.from_data(given)
    found = {issue.where: f"{issue.message} {issue.remedy}" for issue in caught.value.issues}
    assert all(word in found[where] for word in words), found


def test_what_is_wrong_beside_it_is_still_told() -> None:
    wrong = data(3, "phase", "forward") | {"batch": 0}
    with pytest.raises(DocumentError) as caught:
        Graph.from_data(wrong)
    assert {issue.where for issue in caught.value.issues} == {"$.batch", "$.kernels[0].phase"}


def test_editors_are_told_of_one_word() -> None:
    fields = graph_schema()["$defs"]["Kernel"]["properties"]
    assert "pass" in fields and not {"phase", "pass_"} & fields.keys()
