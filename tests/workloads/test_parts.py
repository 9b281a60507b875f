"""What builders read of an output: parts that are as large are told apart, and the same part is the same thing."""

from __future__ import annotations

import pytest

import dfopt as df
from dfopt.documents.graph import Graph


def taken(graph: Graph, src: str, *readers: str) -> list[object]:
    """What readers take of an output, in their order."""
    return [graph.taken(t) for name in readers for t in graph.tensors if (t.src, t.dst) == (src, name)]


@pytest.mark.parametrize(
    ("model", "src", "readers"),
    [
        ("deepseek-v3", "experts.KV_Up", ("experts.K_RoPE", "experts.AV")),  # keys of 128 features, and values
        ("mamba-130m", "XZ_Proj", ("X_Conv", "Scan")),
        ("mamba2-2.7b", "XZ_Proj", ("X_Conv", "Scan_Norm")),
        ("qwen3.5-27b", "attention.Q_Proj", ("attention.Q_RoPE", "attention.Gated")),
        ("dit-b-2", "Modulation", ("LayerNorm_1", "LayerNorm_2")),
        ("dit-b-2", "Modulation", ("Add_1", "Add_2")),
    ],
)
def test_parts_of_one_size_are_two(model: str, src: str, readers: tuple[str, str]) -> None:
    graph = df.load_graph(model)
    first, second = (t for t in graph.tensors if t.src == src and t.dst in readers)
    assert graph.bytes_of(first) == graph.bytes_of(second) < graph.output_bytes(src)
    assert len(set(taken(graph, src, *readers))) == 2


@pytest.mark.parametrize(
    ("model", "src", "readers"),
    [
        ("deepseek-v3.2", "experts.Down_Norm", ("experts.Q_Up", "experts.Index_Q")),
        ("deepseek-v4-flash", "local.Down_Norm", ("local.QK", "local.AV")),  # an entry is key and value
    ],
)
def test_the_same_part_is_one(model: str, src: str, readers: tuple[str, str]) -> None:
    assert len(set(taken(df.load_graph(model), src, *readers))) == 1


def test_the_tokens_of_two_segments_are_apart() -> None:
    phase = {"segments": [{"sequences": 2, "new": 8}, {"sequences": 1, "new": 16}]}
    graph = df.load_graph("mamba2-2.7b", phase=phase, microbatch=3, batch=3)
    first, second = taken(graph, "BC_Proj", "BC_Conv_1", "BC_Conv_2")
    assert first != second and first[:2] == second[:2]  # type: ignore[index]
