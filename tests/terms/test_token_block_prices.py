"""Blocks of tokens: the table of charges against the judge, which tries every number of blocks for every partition."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import judged
from strategies import Dice, share, worlds
from test_two_ways import CLOSE, Case, agrees, blocks_of, is_broken, mapped, placed, tight, zoo_cases

from dfopt.documents.mapping import Mapping, TokenBlocks
from dfopt.documents.score import PartitionScore, Score
from dfopt.physics import ops
from dfopt.terms.blocks import BlockPrices

DATAFLOW = {"execution": "dataflow", "token_blocks": "allow", "weights_from_dram": True}


def allowing(case: Case) -> Case:
    """The case on a dataflow chip that may take tokens in blocks."""
    world, *rest = case
    system = world.system.model_copy(update={"chip": world.system.chip.model_copy(update={"execution": "dataflow"})})
    return replace(world, system=system, assumptions=world.assumptions.with_(**DATAFLOW)), *rest  # type: ignore[return-value]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A random world whose chip may take tokens in blocks; few kernels that cannot, and often fused."""
    compute = draw(st.sampled_from(["fixed", "fixed", "efficiency"]))
    world = draw(worlds(most=6, dims=1, compute_model=compute, tile_rows=[None, 1, 1, 2], **DATAFLOW))
    return allowing(draw(placed(world, draw(st.sampled_from([(0, 0, 0, 1), (0, 0, 1), (0,), (1,)])))))


def by_blocks(case: Case, blocks: dict[tuple[int, int], int]) -> Mapping:
    """The mapping with so many blocks of tokens in some partitions."""
    listed = [TokenBlocks(stage=stage, partition=partition, blocks=n) for (stage, partition), n in blocks.items()]
    return mapped(case).model_copy(update={"token_blocks": tuple(listed) or None})


def some_tight(case: Case, data: st.DataObject) -> Case:
    """Now and then, the case with about as much SRAM as some partition needs in some number of blocks of tokens."""
    dice = Dice(data.draw)
    places = sorted({(each.stage, each.partition) for each in mapped(case).kernels})
    blocks = {place: dice([1, 2, 3, 4, 8]) for place in places}
    return tight(case, dice, by_blocks(case, blocks)) if data.draw(st.integers(0, 3)) else case


def priced(case: Case, score: Score) -> tuple[BlockPrices, BlockPrices, BlockPrices]:
    """Prices of the partitions that the judge scored: in both ways, and in the better of these."""
    _, amount_vc, blocks = blocks_of(case, score, token_blocks=True)
    holding, some = blocks.holding(amount_vc, *blocks.fixed_and_cut(amount_vc)), np.flatnonzero(blocks.takes_blocks_b)
    by_blocks = replace(copy.deepcopy(holding), legal=np.zeros_like(holding.legal))  # prices are written in place
    if len(some):
        by_blocks = by_blocks.faster(blocks.in_token_blocks(amount_vc, some), some)
    return holding, by_blocks, blocks.prices(amount_vc)


def ways(case: Case, number: int, partition: PartitionScore) -> list[tuple[int, PartitionScore]]:
    """Every number of blocks of tokens under which the judge lets a partition be; 0: it holds its weights."""
    rows, place = ops.streamed_rows(case[0].graph), (partition.stage, partition.partition)
    found = []
    for count in range(rows + 2):
        score = judged(case[0], by_blocks(case, {place: count} if count else {}))
        said = score.partitions[number]
        if not any(is_broken(said, sentence) or in_blocks(said, sentence) for sentence in score.violations):
            found.append((count, said))
    return found


def in_blocks(partition: PartitionScore, sentence: str) -> bool:
    return sentence.startswith(f"partition {partition.partition} of stage {partition.stage} takes its tokens in blocks")


def check(case: Case) -> None:
    """Hold the prices of all partitions against the judge, and how many blocks of tokens each takes."""
    score = judged(case[0], mapped(case))
    holding, by_blocks, best = priced(case, score)
    by_share = any(row.unit == "memory" for row in case[0].system.chip.efficiency or ())
    for number, partition in enumerate(score.partitions):
        legal = dict(ways(case, number, partition))
        least = min((count for count in legal if count), default=0)
        assert bool(holding.legal[0, number]) == (0 in legal)
        assert bool(by_blocks.legal[0, number]) == (least > 0)
        assert bool(best.legal[0, number]) == bool(legal)
        if 0 in legal:
            agrees(holding, number, legal[0])
        if least:
            assert by_blocks.block_count[0, number] == least
            agrees(by_blocks, number, legal[least])
        if legal:
            agrees(best, number, legal[int(best.block_count[0, number])])
            # where a share of the bandwidth depends on bytes, more of them may take less time
            tried = [one for count, one in legal.items() if not by_share or count in (0, least)]
            assert best.time[0, number] == pytest.approx(min(one.time_s for one in tried), **CLOSE)


@share(1.0)
@given(case=cases(), data=st.data())
def test_blocks_take_as_many_blocks_of_tokens_as_the_judge_finds_best(case: Case, data: st.DataObject) -> None:
    check(some_tight(case, data))


@pytest.mark.nightly
@share(0.3)
@given(case=zoo_cases().map(allowing), data=st.data())
def test_layers_of_the_zoo_take_as_many(case: Case, data: st.DataObject) -> None:
    check(some_tight(case, data))
