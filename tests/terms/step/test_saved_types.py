"""What products take is kept in a type of its own: both books, the bound, and a count by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from strategies import World, keeping, share, worlds
from test_ledger import mapped, optimisers

import dfopt as df
from dfopt.documents.dtypes import FORMATS, Dtype, Dtypes
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.mapping import Mapping
from dfopt.documents.saved import kept_beside
from dfopt.frontends.megatron.shardings import megatron_shardings
from dfopt.judge import case as judged
from dfopt.judge import ledger as judge
from dfopt.setting.instance import Setting
from dfopt.terms.bounds import PlanBounds
from dfopt.terms.working import kept_bytes
from dfopt.workloads import expand

H, A, S, LAYERS, BATCH = 64, 4, 32, 4, 8
RULES = df.Assumptions(execution="kernel_by_kernel", sharding_objective="seconds")


def narrow(world: World) -> World:
    """The same world, whose weight updates take a byte for an element."""
    types = world.graph.dtypes or Dtypes()
    return replace(world, graph=world.graph.model_copy(update={"dtypes": types.model_copy(update={"saved": "fp8"})}))


WORLDS = mapped(keeping(worlds(roomy=True, zero=True, trains=True)).map(narrow))


@share(0.5)
@given(WORLDS)
def test_both_books_are_equal_and_the_bound_is_below(drawn: tuple[World, Mapping]) -> None:
    world, mapping = drawn
    case, most = judged.build(mapping, world.graph, world.system, world.assumptions), 0.0
    for rank, mine in zip(case.ranks, optimisers(world, mapping), strict=True):
        theirs = judge.held(case, rank)
        assert theirs.get("dram", {}) == pytest.approx(mine["dram"], rel=1e-12, abs=1e-9)
        parts = judge.memory(judge.entries(case, rank, partial(judge.amounts, case)))
        assert parts.total == pytest.approx(math.fsum(mine["dram"].values()), rel=1e-9, abs=1e-9)
        most = max(most, sum(mine["dram"].values()))
    dram = world.system.chip.dram.model_copy(update={"capacity": most * (1 + 1e-9) + 1e-9})
    system = world.system.model_copy(update={"chip": world.system.chip.model_copy(update={"dram": dram})})
    setting = Setting(world.graph, system, world.assumptions)
    PlanBounds(setting).check_dram(setting.under(world.plan))


@pytest.mark.parametrize(("saved", "tp"), [("fp8", 1), ("mxfp8", 2), ("nvfp4", 1)])
def test_a_layer_keeps_what_its_products_take_in_that_type(saved: Dtype, tp: int) -> None:
    """Of 7 sbh elements that products take (Korthikanti et al., section 4) two bytes become one, or so."""

    def activations(types: dict[str, Any]) -> float:
        parameters = {
            "hidden": H, "heads": A, "head_dim": H // A, "ffn": 4 * H, "vocab": 512, "seq": S, "layers": LAYERS,
            "batch": BATCH, "microbatch": 1, "mode": "training", "ends": True, "rotary": False, "gated_mlp": False,
            "norm": "layernorm", "recompute": "attention", "dtypes": types,
        }  # fmt: skip
        graph = expand({"schema": df.Graph.SCHEMA, "name": "g", "workload": "decoder", "parameters": parameters}, "")
        found = df.optimize(
            graph, "a100-8", assumptions=RULES, tp=tp, pp=4 // tp, dp=2, interleave=1, sensitivity=False,
            pin_sharding=megatron_shardings(graph, tp, True),
        )  # fmt: skip
        assert df.evaluate(found.mapping, graph, found.system, RULES).step_time_s == found.step_time_s
        return found.score.stages[0].states["dram"]["activations"]

    operands = {"operands": saved, "ends": "bf16"}
    whole, some = activations(operands), activations({**operands, "saved": saved})
    word, element = float(FORMATS[saved].bytes), S * H / tp
    less = (2 - word) * (1 + 1 + 4) - word  # attention's own backward pass needs what it gave, beside the copy
    at_work = (2 - word) * (1 + 1 + 4)  # the layer at work has them as it makes them
    # as many microbatches are at the first stage as there are stages
    assert whole - some == pytest.approx((less * LAYERS - at_work) * element)


def test_what_a_backward_kernel_keeps_is_brought_to_no_later_pass() -> None:
    """Another kernel of the backward pass reads it: both books count it while the layer runs."""
    kernels = tuple(Kernel(name=name, op="gemm", m=2, k=2, n=2, pass_="backward", output_saved=True) for name in "ab")
    graph = Graph(name="g", kernels=kernels, tensors=(Tensor(src="a", dst="b"),))
    kept, working = kept_beside(graph)
    assert (kept, working) == ({}, {"a": graph.output_bytes("a"), "b": graph.output_bytes("b")})


def test_copies_of_two_tensors_of_one_output_are_counted_each_by_itself() -> None:
    """A part and all of an output are converted: the layer at work has the part as it was made, whatever the other."""
    made = Kernel(name="a", op="gemm", m=1, k=1, n=1, output_saved=True)
    update = Kernel(name="b", op="weight_update", m=1, k=1, n=1, pass_="update")
    tensors = (Tensor(src="a", dst="b", operand=1, bytes=1.0), Tensor(src="a", dst="b", operand=2))
    graph = Graph(name="g", kernels=(made, update), tensors=tensors, dtypes=Dtypes(saved="fp8"))
    extra = kept_bytes(graph, df.profile("default"))
    # kept: a byte beside the output of two, and half a byte in place of the part's one
    assert (extra.kept, extra.working) == ({"a": 0.5}, {"a": 0.5})
