"""The judge's side of what kernels keep beside tensors, and of what a chip holds only while a layer runs."""

from __future__ import annotations

from collections.abc import Iterable

from dfopt.documents.kernel import needed
from dfopt.judge.case import LATER, Case, Fan, Placed
from dfopt.judge.types import copied_word, made_word


def is_beside(case: Case, fan: Fan) -> bool:
    """Whether a tensor is counted by its kernel, which keeps it though no later pass reads it."""
    source = case.kernels[fan.src].kernel
    keeps = bool(source.output_saved) and source.pass_ in LATER and case.assume.fanout == "shared"
    return keeps and case.is_whole(fan) and fan.src not in case.brought


def kept(case: Case, kernels: Iterable[Placed], pass_: str) -> list[float]:
    """Bytes on a chip that kernels of a pass keep in addition to saved tensors, as a list of summands.

    Summands are masks, kept outputs, and, with a minus sign, saved outputs that the kernel releases earlier.

    Parameters
    ----------
    case
        Tables of the mapping.
    kernels
        Kernels of one pipeline stage.
    pass_ : str
        Name of the pass, such as ``forward``.
    """
    sizes = []
    for placed in kernels:
        kernel = placed.kernel
        if kernel.pass_ != pass_ or not case.trains:
            continue
        sizes.append((kernel.mask_bytes or 0.0) * _elements(placed))
        if kernel.output_saved and case.graph.index()[kernel.name] not in case.brought:
            sizes.append(made_word(case.graph, kernel) * _elements(placed))
        elif _is_let_go(case, placed):
            sizes.append(-made_word(case.graph, kernel) * _elements(placed))
    return sizes


def left_of(case: Case, fan: Fan) -> float:
    """Bytes on a chip that the forward pass saves of a tensor: as stored, as its readers convert it, or both."""
    later = {reader for reader in fan.readers if not case.kernels[reader].forward}
    narrow = {reader for reader in later if copied_word(case.graph, case.kernels[reader].kernel) is not None}
    source = case.kernels[fan.src].kernel
    kept = source.output_saved if case.is_whole(fan) else None
    if not narrow or kept is False:
        return fan.chip
    word = copied_word(case.graph, case.kernels[min(narrow)].kernel) or 0.0
    copy = fan.chip / made_word(case.graph, source) * word
    return fan.chip + copy if kept or narrow != later else copy


def _elements(placed: Placed) -> float:
    """Elements of an output on a chip."""
    return placed.share * placed.kernel.matrices * needed(placed.kernel)


def _is_let_go(case: Case, placed: Placed) -> bool:
    """Whether what a later pass reads is there only while that runs, though a tensor brings it from the forward one."""
    return (
        placed.forward
        and placed.kernel.output_saved is False
        and case.graph.index()[placed.kernel.name] in case.brought
    )


def working(case: Case, stage: int, *, checkpoints: bool) -> tuple[list[float], list[float]]:
    """Bytes on a chip while a layer of a stage runs: summands for activations, and for their gradients.

    They are the activations that the layer recomputes, and under Calculon's rules all others as well.

    Parameters
    ----------
    case, stage : Case, int
        The mapping, and one of its stages.
    checkpoints : bool
        Whether to count the checkpoints of recomputation.
    """
    here = case.of_stage[stage]
    activations = [*kept(case, here, "recompute"), *kept(case, here, "backward")]
    activations += [
        made_word(case.graph, placed.kernel) * _elements(placed) for placed in here if _is_let_go(case, placed)
    ]
    if not (case.trains and case.assume.by_layer):
        return activations, []
    fans = [fan for fan in case.touching[stage] if fan.home[0] == stage and case.is_read_later(fan)]
    passes = ("recompute", "forward") if checkpoints else ("recompute",)  # the input of the layer at work once more
    activations += [fan.chip for fan in fans if case.kernels[fan.src].kernel.pass_ in passes]
    activations += kept(case, here, "forward") if checkpoints else []
    activations += [placed.buffers for placed in here]
    return activations, [placed.activation_gradients for placed in here]
