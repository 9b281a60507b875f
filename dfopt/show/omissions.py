"""What the model leaves out of an answer, told beside it: an entry goes when the model has it.

Each entry looks at the graph, the chip, the plan and the mode, never at names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dfopt.documents.result import Result
from dfopt.units import format as show_unit

__all__ = ["OMISSIONS", "left_out"]


def _one_by_one(result: Result) -> bool:
    """Whether the chip runs one kernel after another."""
    execution = result.assumptions.execution
    return (result.system.chip.execution if execution == "auto" else execution) == "kernel_by_kernel"


def _follows(result: Result, first: str, then: str) -> bool:
    """Whether a kernel of one op reads what one of another op wrote."""
    kernels = {kernel.name: kernel for kernel in result.graph.kernels}
    pairs = ((kernels[tensor.src], kernels[tensor.dst]) for tensor in result.graph.tensors)
    return any(a.op == first and b.op == then for a, b in pairs)


OMISSIONS: Final[tuple[tuple[Callable[[Result], bool], str], ...]] = (
    (
        lambda result: _one_by_one(result) and _follows(result, "matmul", "elementwise"),
        "fused attention",
    ),
    (
        lambda result: _one_by_one(result) and _follows(result, "gemm", "elementwise"),
        "elementwise kernels fused into others",
    ),
    (_one_by_one, "kernel launches"),
    (lambda result: not _one_by_one(result) and len(result.score.partitions) > 1, "switching between partitions"),
    (lambda result: result.graph.trains, "recomputation of activations"),
    (
        lambda result: result.graph.trains and result.plan.copies > 1,
        "ZeRO, gradients reduced during the backward pass",
    ),
    # peaks are stated for one word size, which is two bytes in the whole zoo
    (lambda result: result.graph.word_bytes != 2, "a peak of its own for words of {word} B ({peak} is taken)"),
)
"""When something is left out of the answer, and what it is."""


def left_out(result: Result) -> str:
    """What the model leaves out of a result, on one line; empty if nothing that is known."""
    word, peak = result.graph.word_bytes, show_unit(result.system.chip.peak_flops, "flop_rate")
    return ", ".join(what.format(word=word, peak=peak) for applies, what in OMISSIONS if applies(result))
