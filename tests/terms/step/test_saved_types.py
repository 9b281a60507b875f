"""What products take is kept in a type of its own, against a count by hand."""

from __future__ import annotations

from typing import Any

import pytest
from test_memory_by_hand import LAYERS, RULES, H, S, solved
from test_memory_by_hand import graph as drawn

import dfopt as df
from dfopt.documents.dtypes import FORMATS, Dtype, Dtypes
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.saved import kept_beside
from dfopt.terms.working import kept_bytes


@pytest.mark.parametrize(("saved", "tp"), [("fp8", 1), ("mxfp8", 2), ("nvfp4", 1)])
def test_a_layer_keeps_what_its_products_take_in_that_type(saved: Dtype, tp: int) -> None:
    """Of 7 sbh elements that products take (Korthikanti et al., section 4) two bytes become one, or so."""

    def activations(types: dict[str, Any]) -> float:
        found = solved(drawn(recompute="attention", dtypes=types), tp, 4 // tp)
        assert df.evaluate(found.mapping, found.graph, found.system, RULES).step_time_s == found.step_time_s
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
