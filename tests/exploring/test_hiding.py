"""Chips that compute faster and hide less: no bound of several designs is above what one of them does."""

from __future__ import annotations

from itertools import pairwise

import pytest
from design_cases import GPT2, SIZES, chosen

import dfopt as df
from dfopt.documents.assumptions import profile
from dfopt.documents.exploration_request import ExplorationRequest
from dfopt.documents.request import Request
from dfopt.exploring.problems import workload_of
from dfopt.exploring.space import Box


@pytest.mark.parametrize(("way", "overlap"), [("ring", "perfect"), ("waves", "compute_memory")])
def test_no_bound_of_neighbours_is_above_what_either_does(way: str, overlap: str) -> None:
    """Designs with less SRAM have more cores, and a product that waits for memory hides less on them."""
    assumed = profile("default").with_(tensor_overlap=way, overlap=overlap, execution="kernel_by_kernel")
    asked = ExplorationRequest(gap=0.0, options=Request.of(tp=8))
    workload = workload_of([GPT2], [chosen(**SIZES)], assumed, asked)
    (space,) = workload.spaces
    slowest = [(size, 0, 0) for size in range(len(space.sizes["L2"]))]
    seconds = {}
    for at in slowest:
        system = workload.system(space.root.at(at))
        assert system is not None and system.chip.hiding_share is None
        seconds[at] = df.solve(GPT2, system, assumptions=assumed, tp=8).step_time_s
    for low, high in pairwise(slowest):
        for name in workload.bounds:
            assert workload.bound(name, Box(low, high), float("inf")) <= min(seconds[low], seconds[high]) * (
                1 + 1e-9
            ), name


def test_a_corner_of_many_designs_hides_all_that_can_be_hidden() -> None:
    assumed = profile("default").with_(tensor_overlap="ring", overlap="perfect")
    workload = workload_of([GPT2], [chosen()], assumed, ExplorationRequest())
    (root,) = workload.roots
    corner = workload.bounding(root)
    assert corner is not None and corner.chip.hiding_share == 0.0
