"""Context parallelism: tokens of every sequence shared by chips, or the keys that are kept of them."""

from __future__ import annotations

from typing import Any

import pytest
from graph_parts import by_name

import dfopt as df
from dfopt.documents.graph import Graph, Kernel, SequenceState, Tensor
from dfopt.documents.modules import Modules
from dfopt.documents.plan import Plan
from dfopt.errors import PlanError
from dfopt.judge.members import issues
from dfopt.physics import ops
from dfopt.setting.laid import Unsplit
from dfopt.setting.members import member_graph
from dfopt.setting.module_menu import menu

KEYS, CONTEXT = Modules(mixer="context"), Modules(stream="context", mixer="context")


def attention(queries: int = 1, cached: int = 8, samples: int = 2, **state: Any) -> Graph:
    """Two heads with keys of one, of four features, between a product and a sum."""
    keys, tokens = cached + queries, samples * queries
    sizes = {"tokens": keys, "reads": cached, "writes": queries, "bytes_per_token": 8, **state}
    kept = SequenceState(name="keys", sequences=samples, heads=1, **sizes)
    shape: dict[str, Any] = {"outer": 2, "samples": samples, "n": queries, "module": "mixer"}
    seen = {"density": (queries * cached + queries * (queries + 1) // 2) / (keys * queries)} if queries > 1 else {}
    kernels = (
        Kernel(name="q", op="gemm", outer=2, m=4, k=8, n=tokens, module="mixer"),
        Kernel(name="k", op="gemm", m=4, k=8, n=tokens, module="mixer"),
        Kernel(name="qk", op="matmul", m=keys, k=4, role="scores", states=(kept,), **seen, **shape),
        Kernel(name="softmax", op="elementwise", m=keys, role="softmax", normalizes=True, **seen, **shape),
        Kernel(name="av", op="matmul", m=4, k=keys, role="context", **seen, **({"masked": 1} if seen else {}), **shape),
        Kernel(name="o", op="gemm", m=8, k=8, n=tokens, module="mixer"),
        Kernel(name="add", op="elementwise", m=8, n=tokens),
    )
    tensors = (
        Tensor(src="q", dst="qk", operand=1),
        Tensor(src="k", dst="qk", operand=2, bytes=2 * 4 * tokens),
        Tensor(src="qk", dst="softmax"),
        Tensor(src="softmax", dst="av", operand=1),
        Tensor(src="k", dst="av", operand=2, bytes=2 * 4 * tokens),
        Tensor(src="av", dst="o"),
        Tensor(src="o", dst="add"),
    )
    return Graph(name="g", microbatch=samples, batch=samples, kernels=kernels, tensors=tensors)


def test_chips_look_through_some_keys_and_put_the_softmax_together() -> None:
    part = by_name(member_graph(attention(), KEYS, 4, 4))
    assert (part["qk"].m, part["softmax"].m, part["av"].k) == (3, 3, 3)  # of nine keys, on the chip with the most
    (kept,) = part["qk"].states or ()
    assert (kept.sequences, kept.tokens, kept.reads, kept.writes) == (2, 3, 2, 1)
    assert part["q"].m == 4 and part["o"].k == 8  # products with weights are done by every chip
    (merged,) = part["av"].communications
    rows = 2 * 2 * 1  # heads, sequences, queries: four numbers of two bytes, a largest score and a sum of four
    assert (merged.kind, merged.over, merged.bytes) == ("all_reduce", "mp", rows * (4 * 2 + 2 * 4))
    assert not any(kernel.communications for name, kernel in part.items() if name != "av")


def test_chips_have_tokens_of_each_sequence_and_gather_keys() -> None:
    whole = attention(queries=12, cached=0)
    part = by_name(member_graph(whole, CONTEXT, 3, 3))
    assert [part[name].n for name in ("q", "k", "qk", "softmax", "av", "o", "add")] == [8, 8, 4, 4, 4, 8, 8]
    assert part["qk"].m == 12  # all keys
    assert ops.needed(part["qk"]) == 12 * 13 // 2 // 3  # each has early and late queries
    assert [(one.kind, one.bytes) for one in part["k"].communications] == [("all_gather", 2 * 4 * 24)]
    assert not any(kernel.communications for name, kernel in part.items() if name != "k")
    (kept,) = part["qk"].states or ()
    assert (kept.tokens, kept.writes) == (4, 4)


@pytest.mark.parametrize(
    ("graph", "modules", "said"),
    [
        (attention(), CONTEXT, "'qk' does not attend with several tokens of each of 2 sequences"),
        (attention(queries=4), CONTEXT, "'qk' reads tokens of an earlier evaluation"),
        (attention(bytes_per_sequence=4), KEYS, "what 'qk' keeps is of whole sequences"),
        (attention(cached=1), KEYS, "4 chips for 2 keys of 'qk'"),
        (attention(queries=4, cached=0), Modules(stream="context", mixer="n"), "'q' shares sequences"),
        (Graph(name="g", kernels=(Kernel(name="a", op="gemm", m=4, k=4, n=4, module="mixer"),)), KEYS, "no kernel"),
    ],
)  # fmt: skip
def test_what_cannot_be_shared_is_refused_by_both(graph: Graph, modules: Modules, said: str) -> None:
    with pytest.raises(Unsplit, match=said):
        _ = member_graph(graph, modules, 4, 4)
    system = df.load_system("h100-8")
    assert modules not in list(menu(graph, 4))
    if "no kernel" not in said:  # scores of nothing share nothing: every chip does the same
        assert list(issues(Plan(mp=4, mp_dims=("nvlink",), modules=modules), graph, system))


def test_a_long_prompt_is_shared_by_its_tokens() -> None:
    """Keys of two layers' heads are gathered, instead of sums of all activations."""
    graph = df.load_graph("llama-3.1-8b", phase="prefill", seq=65536)
    system = df.load_system("h100-8")
    by_tokens, by_features = (
        df.optimize(graph, system, two_batch_overlap=False, **asked) for asked in ({"cp": 8}, {"tp": 8, "mp": 1})
    )
    assert by_tokens.plan.label == "TP1 MP8(nvlink) PP1 DP1 [context: stream mixer; n: dense; m: ends]"
    assert by_tokens.status == by_features.status == "optimal"
    assert by_tokens.value < by_features.value


def test_keys_of_more_chips_than_heads_are_shared() -> None:
    """Beyond the 8 heads of keys, tensor parallelism copies them: their tokens still have parts."""
    graph = df.load_graph("llama-3.1-8b", phase="decode", context=262144, batch=1, positions=262144)
    system = df.load_system("h100-72")
    shared, alone = df.optimize(graph, system, tp=8, cp=9), df.optimize(graph, df.load_system("h100-8"), tp=8)
    assert shared.plan.mp == 9 and shared.plan.modules is not None and shared.plan.modules.mixer == "context"
    assert shared.value < alone.value
    with pytest.raises(PlanError, match="cp 9 is mixer: context, found mixer: n; drop one"):
        df.optimize(graph, system, cp=9, modules={"mixer": "n"})


def test_keys_stay_on_the_menu_where_nothing_else_shares_the_mixer() -> None:
    """Sequences would do as well, but scores of all of them at once, of one head, are shared by keys alone."""
    shape: dict[str, Any] = {"n": 2, "module": "mixer"}
    kernels = (
        Kernel(name="qk", op="matmul", m=8, k=4, role="scores", **shape),
        Kernel(name="softmax", op="elementwise", m=8, role="softmax", normalizes=True, **shape),
        Kernel(name="av", op="matmul", m=4, k=8, role="context", **shape),
        Kernel(name="add", op="elementwise", m=4, n=2),
    )
    tensors = (Tensor(src="qk", dst="softmax"), Tensor(src="softmax", dst="av", operand=1), Tensor(src="av", dst="add"))
    graph = Graph(name="g", microbatch=2, batch=2, kernels=kernels, tensors=tensors)
    for sparing in (False, True):
        labels = [one.label for one in menu(graph, 2, sparing=sparing)]
        assert labels == ["n: stream; context: mixer", "none: stream; context: mixer"]
