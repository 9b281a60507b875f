"""What the model leaves out of an answer, told beside it: an entry goes when the model has it.

Each entry looks at the graph, the chip, the plan and the mode, never at names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.dtypes import FORMATS, Peaks
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Mapping
from dfopt.documents.plan import Plan
from dfopt.documents.result import Result
from dfopt.documents.score import Score
from dfopt.documents.system import System
from dfopt.physics.pipeline import resolve
from dfopt.show.parts import percent
from dfopt.units import show_unit


class Judged(NamedTuple):
    """A scored mapping with the documents that it was scored on."""

    graph: Graph
    system: System
    assumptions: Assumptions
    mapping: Mapping
    score: Score

    @property
    def plan(self) -> Plan:
        """The plan of the mapping."""
        return self.mapping.plan


JudgedResult = Result | Judged


_ALONE: Final = "kernel_by_kernel"
_FP32_LOSS: Final = 12  # B of a logit: log-softmax, and the gradients of nll_loss and log_softmax (torch.nn.functional)


def _runs(answer: JudgedResult, *ways: str) -> bool:
    """Whether the assumed execution is one of some kinds."""
    chip = answer.system.chip
    return resolve(answer.assumptions, chip.execution, chip.compute_utilization).execution in ways


def _follows(answer: JudgedResult, first: str, then: str) -> bool:
    """Whether a kernel of one op reads what one of another op wrote."""
    kernels = {kernel.name: kernel for kernel in answer.graph.kernels}
    pairs = ((kernels[tensor.src], kernels[tensor.dst]) for tensor in answer.graph.tensors)
    return any(a.op == first and b.op == then for a, b in pairs)


def _loss_held(answer: JudgedResult) -> float:
    """Bytes of a chip that a loss which is not fused holds beside logits; 0 where that is counted."""
    kernels = {kernel.name: kernel for kernel in answer.graph.kernels}
    pairs = ((kernels[tensor.src], kernels[tensor.dst]) for tensor in answer.graph.tensors)
    head = ("ends", "forward", "elementwise", "backward")
    losses = (loss for src, loss in pairs if (src.module, src.pass_, loss.op, loss.pass_) == head)
    logits = sum(loss.matrices * loss.m * loss.n for loss in losses if not loss.mask_bytes)
    return _FP32_LOSS * logits / (answer.plan.shards * answer.plan.members)


def _has_other_types(answer: JudgedResult) -> bool:
    """Whether a graph states types that are not of 16 bits, and the chip one rate for all."""
    if answer.graph.dtypes is None or isinstance(answer.system.chip.peak, Peaks):
        return False
    types = {FORMATS[answer.graph.dtypes.of(data)].arithmetic for data in ("weights", "experts", "activations")}
    return not types <= {"bf16", "fp16"}


def has_experts(graph: Graph) -> bool:
    """Whether a graph has routed experts."""
    return any(kernel.experts is not None for kernel in graph.kernels)


def _is_mixed(graph: Graph) -> bool:
    """Whether a sample has sequences of several shapes, which stay together on a copy of the model."""
    return len({state.sequences for kernel in graph.kernels for state in kernel.states or ()}) > 1


OMISSIONS: Final[tuple[tuple[Callable[[JudgedResult], bool], str], ...]] = (
    (lambda answer: _runs(answer, _ALONE) and _follows(answer, "matmul", "elementwise"), "fused attention"),
    (
        lambda answer: _runs(answer, _ALONE) and _follows(answer, "gemm", "elementwise"),
        "elementwise kernels fused into others",
    ),
    (lambda answer: _runs(answer, _ALONE, "library"), "kernel launches"),
    (lambda answer: _runs(answer, "dataflow") and len(answer.score.partitions) > 1, "switching between partitions"),
    # what `ends: true` adds under the H100's calibration: 9.0 % of Llama 3.2 1B, 9.6 % of 3.1 8B, 0.7 % of 70B
    (
        lambda answer: answer.graph.trains and bool(answer.graph.carried) and not answer.graph.layers.at,
        "embedding, logits and loss (usually 1 to 10 % of a step)",
    ),
    # 4096 tokens of Qwen3 30B on an H100, beside 0.66 ms of products: benchmarks/reference/training.md
    (
        lambda answer: has_experts(answer.graph),
        "order of tokens by experts on a chip (0.8 to 1.9 times as long as their products where it was measured)",
    ),
    (lambda answer: answer.graph.evaluation_tokens.produced is not None, "token sampling and host work between steps"),
    (
        lambda answer: _is_mixed(answer.graph),
        "sequences of a sample dealt out among copies (ask for more samples of fewer)",
    ),
    (lambda answer: len(answer.system.chip.tiers) > 1, "memories that move data at the same time"),
    (
        lambda answer: (
            answer.graph.trains
            and answer.plan.copies * answer.plan.members > 1
            and (answer.assumptions.gradient_overlap is None or not answer.graph.folded)
        ),
        "gradients reduced during the backward pass (at most {reduced} of the step)",
    ),
    (lambda answer: _loss_held(answer) > 0, "a loss in fp32 ({loss}: --param loss_held=12B)"),
    # peaks are stated for types, and a graph that states none has words of two bytes in the whole zoo
    (lambda answer: answer.graph.word_bytes != 2, "a peak of its own for words of {word} B ({peak} is taken)"),
    (lambda answer: _has_other_types(answer), "peaks by type ({peak} is taken for all)"),
)
"""When something is left out of the answer, and what it is."""


def omissions(answer: JudgedResult) -> list[str]:
    """Effects that the model leaves out of an answer, as texts, with their size if known."""
    words = {"word": answer.graph.word_bytes, "peak": show_unit(answer.system.chip.peak_flops, "flop_rate")}
    words["reduced"] = percent(answer.score.gradient_reduction_s / answer.score.step_time_s)
    words["loss"] = show_unit(_loss_held(answer), "bytes")
    return [what.format(**words) for applies, what in OMISSIONS if applies(answer)]


def left_out(answer: JudgedResult) -> str:
    """Effects that the model leaves out of an answer, in one line; empty if none is known."""
    return ", ".join(omissions(answer))
