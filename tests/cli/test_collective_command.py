"""``dfopt collective``: the figures of nccl-tests, worked by hand."""

from __future__ import annotations

import json

import pytest
from cli_tools import call

import dfopt as df

BYTES = 8 * 2**30


def test_it_says_time_algorithm_and_bandwidths() -> None:
    said = call("collective", "all_to_all", "h100-256", "--set", "network.cluster.size=2", "--bytes", "8 GiB").out
    assert "over 16 chips: node, cluster" in said
    assert "at the same time" in said
    assert "93.73 GB/s" in said  # 15/16 of 8 GiB over half of it at 50 GB/s, and 17 us


# by hand: h100-8 has 450 GB/s per chip, 9 us of overhead, and 2 us per round
@pytest.mark.parametrize(
    ("kind", "share", "factor"),
    [("all_reduce", 2 * 7 / 8, 2 * 7 / 8), ("all_gather", 7 / 8, 7 / 8), ("reduce_scatter", 7 / 8, 7 / 8),
     ("all_to_all", 7 / 8, 7 / 8), ("broadcast", 2 * 7 / 8, 1), ("point_to_point", 1, 1)],
)  # fmt: skip
def test_python_and_the_command_line_agree(kind: str, share: float, factor: float) -> None:
    made = df.collective(kind, "h100-8", BYTES)
    assert made.time_s - made.latency_s == pytest.approx(share * BYTES / 450e9)
    assert made.algorithm_bandwidth == BYTES / made.time_s
    assert made.bus_bandwidth == pytest.approx(factor * BYTES / made.time_s)
    told = json.loads(call("collective", kind, "h100-8", "--bytes", "8 GiB", "--json").out)
    assert (told["time_s"], told["bus_bandwidth"]) == (made.time_s, made.bus_bandwidth)


def test_assumptions_and_dims_change_it() -> None:
    names = ("node", "cluster[2]")
    in_turn = df.collective("all_to_all", "h100-256", BYTES, names, df.Assumptions(all_to_all_dims="in_turn"))
    assert in_turn.bus_bandwidth == pytest.approx(78.5e9, rel=1e-3)
    assert in_turn.algorithm.endswith("one after the other")
    slower = df.collective("all_reduce", "h100-8", BYTES, assumptions="calibrated")
    assert slower.time_s > df.collective("all_reduce", "h100-8", BYTES).time_s
    assert "(measured)" in slower.algorithm


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("all_gathr", "h100-8", "--bytes", "1 GB"), "did you mean 'all_gather'"),
        (("all_gather", "h100-8", "--bytes", "0 B"), "bytes: found 0, expected more than 0"),
        (("all_gather", "h100-8", "--bytes", "1 GB", "--dims", "node"), "has no network dim 'node'; it has nvlink"),
        (("all_gather", "h100-8", "--bytes", "1 GB", "--dims", "nvlink[2],nvlink"), "have chips of nvlink twice"),
        (("all_gather", "h100-8", "--bytes", "1 GB", "--dims", "nvlink[1]"), "which is one chip"),
    ],
)
def test_what_it_cannot_answer_it_refuses(words: tuple[str, ...], says: str) -> None:
    refused = call("collective", *words)
    assert refused.code in (2, 3)
    assert says in refused.err
