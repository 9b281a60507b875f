"""Layers in which a tensor has very many readers: what conversions take is listed for some of them only."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from brute import joint_optimum
from covered import asked_of, covered, jointly
from hypothesis import given, note
from hypothesis import strategies as st
from strategies import World, share

from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.request import Request
from dfopt.errors import Infeasible
from dfopt.search import solve
from dfopt.search.verify import verify

FEW: dict[str, Any] = {"MOST_LISTED": 4, "MERGED": 8}
"""Amounts that are listed of a conversion, and that bound it: those of one or two readers."""


@share(1)
@given(covered(most=4), st.data())
def test_what_is_shown_holds_for_all_mappings(world: World, data: st.DataObject) -> None:
    """A mapping is found where there is one, and no bound is above the best; what is called optimal is."""
    asked = asked_of(world, data.draw)
    best = joint_optimum(world.graph, world.system, jointly(world), Request(**asked))
    with patch.multiple("dfopt.terms.rules.network", **FEW):
        try:
            result = solve(world.graph, world.system, assumptions=jointly(world), **asked)
        except Infeasible:
            assert best is None
            return
        assert best is not None
        note(f"{result.value} {result.bound} {result.status} {best.value}")
        assert result.bound <= best.value * (1 + 1e-9)
        assert result.value >= best.value * (1 - 1e-9)
        if result.status == "optimal":
            assert result.value <= best.value * (1 + 1e-6)
        found = verify(result)
        assert not found.problems, found.problems


def test_a_mask_that_forty_products_read_can_be_mapped() -> None:
    """5^41 amounts of a conversion would not fit any memory."""
    product = {"op": "gemm", "m": 64, "k": 64, "n": 64}
    readers = [Kernel(name=f"product {i}", **product) for i in range(40)]
    mask = Kernel(name="mask", **product)
    tensors = tuple(Tensor(src="mask", dst=reader.name) for reader in readers)
    graph = Graph(name="mask", kernels=(mask, *readers), tensors=tensors, batch=8, microbatch=1)
    result = solve(graph, "sn10-8-ring", tp=8, time_limit=5)
    assert result.plan.tp == 8 and 0 < result.bound <= result.value
