"""What one chip does of a kernel under a scheme, and what it does at least under any of some schemes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Final

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.mapping import KernelMapping
from dfopt.documents.system import System
from dfopt.judge.placed import Placed
from dfopt.judge.types import held_word, peak, reduced_word, weight_word, word
from dfopt.physics import operands, ops
from dfopt.physics.states import cached_bytes
from dfopt.physics.working import activation_gradients, collective_buffers

_FIGURES: Final = tuple(figure.name for figure in fields(Placed) if figure.type == "float")


def least(options: Sequence[Placed]) -> Placed:
    """A kernel with the least of each figure over several options; its scheme, the first, has no meaning."""
    if len(options) == 1:
        return options[0]
    return replace(options[0], **{name: min(getattr(option, name) for option in options) for name in _FIGURES})


def no_more(first: Placed, second: Placed) -> bool:
    """Whether no figure of a kernel is larger under the first option than under the second."""
    return all(getattr(first, name) <= getattr(second, name) for name in _FIGURES)


class Placing:
    """Computes what chips do for each kernel of a graph under given schemes; assumptions are resolved."""

    def __init__(self, graph: Graph, system: System, assume: Assumptions, degree: int) -> None:
        self.graph, self.system, self.assume, self.degree = graph, system, assume, degree
        self._sums = operands.adding(graph)
        # of a gradient on its way to memory, over those on the chip
        self._wider = held_word(graph) / word(graph) if assume.gradient_traffic == "held" else 1.0

    def of(self, kernel: Kernel, here: KernelMapping) -> Placed:
        """The figures of a kernel with its place and scheme."""
        graph, assume, degree, scheme = self.graph, self.assume, self.degree, here.sharding
        rules = assume.sharding_rules
        share = ops.output_share(kernel, scheme, degree, rules)
        adds = share * word(graph) if assume.gradients == "exact" else 0.0
        part = ops.weight_share(kernel, scheme, degree, rules) if kernel.op == "gemm" else 0.0
        held = part * weight_word(graph, kernel)
        undivided = operands.work_whole(kernel, scheme, self._sums, assume)
        placed = Placed(
            kernel=kernel,
            sharding=scheme,
            place=(here.stage, here.partition),
            tiles=here.tiles,
            forward=kernel.pass_ == "forward",
            flop=ops.flop(kernel) * (1.0 if undivided else ops.split_share(kernel, scheme, degree, rules)),
            peak=peak(graph, kernel, self.system.chip),
            share=share,
            parameters=ops.weight_elements(kernel) * part,
            weight=ops.weight_elements(kernel) * held,
            read=ops.weights_read(kernel) * held,
            at_once=ops.weights_at_once(kernel) * held,
            adding=ops.gradients_at_once(kernel) * adds,
            accumulator=ops.gradients_added(kernel) * (adds * self._wider),
            gradient=ops.gradient_elements(kernel) * (share * reduced_word(graph)),
            cached=cached_bytes(kernel, scheme, degree),
        )
        if not assume.by_layer:
            return placed
        asked, tiled = (scheme, degree, rules), assume.by_tiles
        buffers = collective_buffers(graph, kernel, *asked, tiled=tiled)
        gradients = activation_gradients(graph, kernel, *asked, tiled=tiled) + buffers[1]
        return replace(placed, buffers=buffers[0], activation_gradients=gradients)
