"""Elementwise kernels whose inputs are larger or smaller than their output: what is refused, and what they wait for."""

from __future__ import annotations

import pytest

from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.mapping import KernelMapping, Mapping
from dfopt.documents.plan import Plan
from dfopt.documents.system import Chip, Dram, NetworkDim, Sram, System
from dfopt.errors import GraphError
from dfopt.judge import evaluate
from dfopt.physics.ops import required_layout


def pair(source: tuple[int, int, int], own: tuple[int, int, int], **tensor: object) -> Graph:
    kernels = tuple(
        Kernel(name=name, op="elementwise", outer=outer, m=m, n=n)
        for name, (outer, m, n) in (("source", source), ("own", own))
    )
    return Graph(name="pair", kernels=kernels, tensors=(Tensor(src="source", dst="own", **tensor),))


@pytest.mark.parametrize(
    "source",
    [
        (1, 12, 10),  # as large
        (3, 4, 10),  # heads
        (1, 1, 10),  # a value per token
        (1, 12, 1),  # a value per feature
        (1, 24, 10),  # two features become one
        (1, 12, 30),  # three tokens become one
        (1, 7, 10),  # some features of each token, beside others
        (1, 81, 10),  # any function of a token's features
        (1, 1, 1),
    ],
)
def test_sizes_that_follow_from_the_kernel_are_taken(source: tuple[int, int, int]) -> None:
    assert pair(source, (1, 12, 10)).tensors


@pytest.mark.parametrize("source", [(1, 7, 11), (1, 11, 7), (1, 13, 11)])
def test_other_sizes_are_one_clear_issue(source: tuple[int, int, int]) -> None:
    with pytest.raises(GraphError, match=r"\$\.tensors\[0\]: shapes disagree: 'source' produces \d+ elements") as found:
        pair(source, (1, 12, 10))
    assert len(found.value.issues) == 1
    assert pair(source, (1, 12, 10), bytes=20.0).tensors  # said so


@pytest.mark.parametrize(
    ("elements", "scheme", "layout"),
    [
        (120, "m", "SR"),
        (10, "m", "RR"),  # a value per token: every chip needs all tokens' values
        (12, "n", "RR"),
        (10, "n", "RS"),
        (240, "m", "SR"),  # two features become one on the chip that has both
        (810, "m", "RR"),  # any function of all features
        (810, "n", "RS"),  # but of one token
        (70, "m", "SR"),  # a part, beside others
        (120, "none", "RR"),
    ],
)
def test_what_a_split_kernel_needs_of_its_input(elements: int, scheme: str, layout: str) -> None:
    kernel = Kernel(name="own", op="elementwise", m=12, n=10, stream="none")
    assert required_layout(kernel, 1, scheme, "exact", float(elements)) == layout
    program = {"m": "SR", "n": "RS", "none": "RR"}[scheme]
    assert required_layout(kernel, 1, scheme, "dfmodel", float(elements)) == program


def test_a_value_per_token_is_gathered_and_not_exchanged() -> None:
    """By hand: 10 values of 2 B, split by tokens over 2 chips at 10 B/s: an all-gather, each half in 1 s."""
    graph = pair((1, 1, 10), (1, 12, 10))
    graph = graph.model_copy(
        update={"kernels": tuple(kernel.model_copy(update={"stream": "none"}) for kernel in graph.kernels)}
    )
    chip = Chip(name="c", tiles=1, peak=1e3, sram=Sram(capacity=1e9), dram=Dram(bandwidth=1e9))
    ring = NetworkDim(name="x", topology="ring", size=2, link_bandwidth=10.0)
    kernels = (
        KernelMapping(name="source", sharding="n", stage=0, partition=0, tiles=1),
        KernelMapping(name="own", sharding="m", stage=0, partition=0, tiles=1),
    )
    mapping = Mapping(graph="pair", system="s", plan=Plan(tp=2, tp_dims=("x",)), kernels=kernels, tile_count=1)
    score = evaluate(mapping, graph, System(name="s", chip=chip, network=(ring,)))
    assert score.collectives == {"all_gather.forward": 1}
