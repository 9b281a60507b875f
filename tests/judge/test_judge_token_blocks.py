"""Partitions that take their tokens in blocks, against arithmetic done by hand: 100 B/s to DRAM, 2 B a word."""

from __future__ import annotations

from typing import Any

import pytest
from judge_cases import PLAIN, arrows, closed, gemm, machine, place

from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.mapping import TokenBlocks
from dfopt.documents.plan import Plan
from dfopt.documents.score import Score
from dfopt.documents.system import System
from dfopt.errors import DocumentError
from dfopt.judge import evaluate


def matmul(name: str, m: int, k: int, n: int, **more: Any) -> Kernel:
    """A product without a weight."""
    return Kernel(name=name, op="matmul", m=m, k=k, n=n, **more)


# weights of a and b: 64 B each; output of a: 128 B, of b: 256 B, both of 16 tokens
PRODUCTS = gemm("a", 4, 8, 16), gemm("b", 8, 4, 16)
PAIR = closed(name="pair", kernels=PRODUCTS, tensors=arrows("ab"), carried=arrows("ba"))
# weights of q and k: 32 B each; their outputs: 64 B of 8 tokens; every query needs all keys
ATTENTION = closed(
    name="attention",
    kernels=(gemm("k", 4, 4, 8), gemm("q", 4, 4, 8), matmul("scores", 8, 4, 8)),
    tensors=(Tensor(src="q", dst="scores", operand=1), Tensor(src="k", dst="scores", operand=2)),
)
ALLOW = PLAIN.with_(token_blocks="allow")
SPLIT = {"k": 0, "q": 1, "scores": 1}


def judged(
    graph: Graph, places: dict[str, int], blocks: dict[int, int], system: System | None = None, **changes: object
) -> Score:
    mapping = place(graph, places, Plan(), tile_count=4)
    listed = tuple(TokenBlocks(partition=partition, blocks=count) for partition, count in blocks.items())
    mapping = mapping.model_copy(update={"token_blocks": listed})
    return evaluate(mapping, graph, system or machine(), ALLOW.with_(**changes))


@pytest.mark.parametrize(
    ("blocks", "held"),
    # two blocks of 640 B of tensors: of all 16 rows, of 6 rows, of 4 rows, of a row
    [(1, 1280), (3, 480), (4, 320), (16, 80)],
)
def test_weights_are_read_again_for_every_block(blocks: int, held: float) -> None:
    score = judged(PAIR, {"a": 0, "b": 0}, {0: blocks})
    (part,) = score.partitions
    assert part.dram_bytes == blocks * 128 + 512
    assert part.sram_bytes == held + 2 * 16 + 2 * 8  # two rows of each weight beside that
    assert part.memory_s == pytest.approx((blocks * 128 + 512) / 100)
    assert part.compute_s == pytest.approx(2048 / 500) and score.violations == ()


def test_a_tensor_to_another_partition_is_in_sram_for_two_blocks() -> None:
    score = judged(PAIR, {"a": 0, "b": 1}, {0: 4})
    assert [part.dram_bytes for part in score.partitions] == [4 * 64 + 256 + 128, 64 + 128 + 256]
    # of a: carried input and output, two rows of its weight; b holds its weight, as without blocks
    assert [part.sram_bytes for part in score.partitions] == [2 * 64 + 2 * 32 + 2 * 16, 64 + 2 * 64 + 2 * 32]


def test_keys_are_read_again_for_every_block_of_queries() -> None:
    score = judged(ATTENTION, SPLIT, {1: 2})
    assert score.violations == ()
    assert score.partitions[1].dram_bytes == 2 * 32 + 2 * 64
    # two blocks of queries, two keys, two rows of the weight
    assert score.partitions[1].sram_bytes == 2 * 32 + 2 * 8 + 2 * 8


def test_all_that_is_read_again_passes_through_sram_again() -> None:
    system = machine(sram_bandwidth=10.0)
    once, thrice = (judged(ATTENTION, SPLIT, {1: blocks}, system).partitions[1].sram_s for blocks in (1, 3))
    assert once == pytest.approx((32 + 64 + 64 + 64) / 10)  # weight, queries written and read, keys
    assert thrice == pytest.approx((3 * 32 + 2 * 64 + 3 * 64) / 10)


def test_a_gradient_of_a_weight_is_held_whole() -> None:
    update = Kernel(name="u", op="weight_update", m=4, k=16, n=8, pass_="update")
    kernels = gemm("a", 4, 8, 16, pass_="backward"), update
    graph = closed(name="update", kernels=kernels, tensors=(Tensor(src="a", dst="u", operand=2),))
    part = judged(graph, {"a": 0, "u": 0}, {0: 4}).partitions[0]
    assert part.dram_bytes == 4 * 64 + 2 * 64  # the gradient of 64 B is read and written once
    assert part.sram_bytes == 2 * 32 + 2 * 16 + 64


BROKEN = [
    (ATTENTION, dict.fromkeys(SPLIT, 0), 2, "every token of 'scores' needs all of what 'k' makes there"),
    (PAIR, {"a": 0, "b": 0}, 17, "17 of 16 rows, but each of these has at least 1"),
    (
        closed(name="last", kernels=(gemm("a", 4, 8, 16), gemm("b", 8, 32, 2)), tensors=(Tensor(src="a", dst="b"),)),
        {"a": 0, "b": 0}, 1, "'b' has not as many tokens as 'a', which it reads",
    ),
    (closed(name="still", kernels=(gemm("a", 4, 8, 16, stream="none"),)), {"a": 0}, 1, "'a' needs all tokens at once"),
    (
        closed(name="backward", kernels=(matmul("a_bwd2", 8, 4, 8, pass_="backward"),)),
        {"a_bwd2": 0}, 1, "'a_bwd2' needs all tokens at once",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("graph", "places", "blocks", "words"), BROKEN, ids=[graph.name for graph, *_ in BROKEN])
def test_what_cannot_take_blocks(graph: Graph, places: dict[str, int], blocks: int, words: str) -> None:
    assert any(words in sentence for sentence in judged(graph, places, {0: blocks}).violations)


@pytest.mark.parametrize(
    "changes", [{"token_blocks": "none"}, {"execution": "kernel_by_kernel"}, {"weights_from_dram": False}]
)
def test_where_blocks_are_not_allowed(changes: dict[str, object]) -> None:
    score = judged(PAIR, {"a": 0, "b": 1}, {0: 2}, **changes)
    assert any("do not allow" in sentence for sentence in score.violations)


def test_blocks_of_places_that_do_not_exist() -> None:
    with pytest.raises(DocumentError, match="partition 3 of stage 0 holds no kernel"):
        judged(PAIR, {"a": 0, "b": 0}, {3: 2})
