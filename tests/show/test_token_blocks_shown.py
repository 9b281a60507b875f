"""Partitions that take their tokens in blocks, wherever a result is shown."""

from __future__ import annotations

import io
from functools import cache

import pytest

import dfopt as df
from dfopt.show.details import answer_report
from dfopt.show.grid import print_to
from dfopt.show.report import result_report


@cache
def streamed() -> df.Result:
    """Two tensor-parallel chips read the weights of one partition again for each of five blocks of tokens."""
    rule = df.Assumptions(token_blocks="allow")
    return df.solve(df.load_graph("llama-3.1-70b"), "sn40l-16", assumptions=rule, tp=2, sensitivity=False)


def held() -> df.Result:
    """The same mapping, as if all partitions held their weights."""
    one = streamed()
    return one.model_copy(update={"mapping": one.mapping.model_copy(update={"token_blocks": None})})


def kernels_of(result: df.Result) -> list[str]:
    """Lines of the table of partitions."""
    out = io.StringIO()
    print_to(out, answer_report(result, detail=["kernels"]), plain_width=200)
    return out.getvalue().splitlines()


def test_the_table_of_partitions_says_in_how_many_blocks() -> None:
    (blocks,) = streamed().mapping.token_blocks or ()
    assert (blocks.partition, blocks.blocks) == (1, 5)
    lines = kernels_of(streamed())
    head = next(number for number, line in enumerate(lines) if "token blocks" in line)
    rows = [line.split() for line in lines[head + 1 :] if line.split() and line.split()[0] in ("0", "1")]
    assert [(row[0], row[-1]) for row in rows][1] == ("1", "5")
    assert rows[0][-1] != "5"
    assert not any("token blocks" in line for line in kernels_of(held()))


@pytest.mark.parametrize("result", [streamed, held])
def test_the_report_says_it(result: object) -> None:
    one = streamed() if result is streamed else held()
    page = result_report(one)
    assert ("token blocks" in page) == (result is streamed)
    assert ("takes its tokens in 5 blocks" in page) == (result is streamed)


def test_the_trace_says_it_of_the_partition() -> None:
    found = {
        event["args"]["partition"]: event["args"].get("token_blocks")
        for event in df.plot.trace(streamed())["traceEvents"]
        if "bound_by" in event.get("args", {})
    }
    assert found == {0: None, 1: 5}
