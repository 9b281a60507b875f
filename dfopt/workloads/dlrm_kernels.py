"""The kernels of a recommendation model and the tensors between them, see :mod:`dfopt.workloads.dlrm`.

Features lie along ``m``, samples along ``n``. A backward kernel is called after the forward one it mirrors, with
``_bwd`` behind the name, and sits in the same pipeline stage.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from dfopt.documents.graph import Communication, Kernel, Phase, Tensor

__all__ = ["Sizes", "draw", "draw_dfmodel"]

Drawn = tuple[tuple[Kernel, ...], tuple[Tensor, ...]]


@dataclass(frozen=True)
class Sizes:
    """Sizes of one evaluation: ``samples`` of one copy, each with ``lookups`` rows of ``dim`` elements.

    ``rows`` counts the rows of all tables; ``bottom`` and ``top`` are widths along the MLPs, inputs first.
    """

    samples: int
    word: int
    dim: int
    tables: int
    lookups: int
    rows: int
    bottom: tuple[int, ...]
    top: tuple[int, ...]
    interaction: Literal["dot", "concat", "dcn", "none"]
    dcn_layers: int
    dcn_rank: int
    stream: Literal["n", "none"]
    trains: bool

    @property
    def pooled(self) -> int:
        """Elements of a sample's pooled rows."""
        return self.tables * self.dim

    @property
    def looked_up_bytes(self) -> float:
        """All rows that the samples look up, before they are added."""
        return float(self.samples * self.lookups * self.dim * self.word)

    @property
    def pooled_bytes(self) -> float:
        """All pooled rows of the samples."""
        return float(self.samples * self.pooled * self.word)

    @property
    def resident_bytes(self) -> float:
        """All tables."""
        return float(self.rows * self.dim * self.word)

    @property
    def adds(self) -> int:
        """Rows per pooled one, rounded up: FLOP per element of the lookups."""
        return -(-self.lookups // self.tables)


@dataclass
class _Sketch:
    """Kernels and tensors drawn so far; every method draws one kernel with its inputs and returns its name.

    An input is a producer's name for its whole output, or a tensor's ``(name, features)`` for a part of it.
    """

    s: Sizes
    kernels: list[Kernel] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)

    def draw(self, kernel: Kernel, *inputs: tuple[str | tuple[str, int], Literal[1, 2] | None]) -> str:
        before = kernel.name.find("_bwd")
        staged = {"stage_with": kernel.name[:before]} if before >= 0 else {}
        self.kernels.append(kernel.model_copy(update=staged))
        for source, operand in inputs:
            name, size = (source, None) if isinstance(source, str) else (source[0], self.of(source[1]))
            self.tensors.append(Tensor(src=name, dst=kernel.name, operand=operand, bytes=size))
        return kernel.name

    def of(self, features: int) -> float:
        """Bytes of so many features of all samples."""
        return float(features * self.s.samples * self.s.word)

    def _common(self, phase: Phase) -> dict[str, Any]:
        # Left out, the streamed axis is n, and k (also the samples) in a weight update.
        streamed = {} if self.s.stream == "n" else {"stream": "none"}
        return {"phase": phase, **streamed}

    def pointwise(
        self, name: str, m: int, *inputs: str | tuple[str, int], phase: Phase = "forward", flop: int = 1, **more: Any
    ) -> str:
        kernel = Kernel(
            name=name, op="elementwise", m=m, n=self.s.samples, flop_per_element=flop, **self._common(phase), **more
        )
        return self.draw(kernel, *((source, None) for source in inputs))

    def linear(self, name: str, m: int, k: int, source: str | None, phase: Phase = "forward", **more: Any) -> str:
        kernel = Kernel(name=name, op="gemm", m=m, k=k, n=self.s.samples, **self._common(phase), **more)
        return self.draw(kernel, *([(source, None)] if source else []))

    def update(self, gemm: str, m: int, n: int, gradient: str | None, activation: str | None) -> str:
        """Gradient of a weight: the output's gradient is operand 1, the forward input operand 2."""
        kernel = Kernel(
            name=f"{gemm}_bwd_weight_update", op="weight_update", m=m, k=self.s.samples, n=n, **self._common("update")
        )
        inputs: list[tuple[str | tuple[str, int], Literal[1, 2] | None]] = []
        if gradient:
            inputs.append((gradient, 1))
        if activation:
            inputs.append((activation, 2))
        return self.draw(kernel, *inputs)

    def products(self, name: str, m: int, k: int, n: int, first: str, second: str, phase: Phase = "forward") -> str:
        """A product of two activations within every sample."""
        # n is streamed, a feature axis, because a kernel has no way to say that its samples are.
        kernel = Kernel(name=name, op="matmul", outer=self.s.samples, m=m, k=k, n=n, phase=phase)
        return self.draw(kernel, (first, 1), (second, 2))


def draw(sizes: Sizes) -> Drawn:
    """What the model computes, forward or with its backward pass.

    Examples
    --------
    >>> mlps = {"bottom": (13, 16), "top": (22, 1), "dcn_layers": 1, "dcn_rank": 1, "stream": "n", "trains": False}
    >>> tables = {"dim": 16, "tables": 3, "lookups": 6, "rows": 3000, "interaction": "dot"}
    >>> [kernel.name for kernel in draw(Sizes(samples=8, word=2, **tables, **mlps))[0]]
    ['Bottom_1', 'Bottom_1_Act', 'Lookup', 'Concat', 'Interaction', 'Interaction_Cat', 'Top_1', 'Top_1_Act']
    """
    sketch = _Sketch(sizes)
    dense = _mlp(sketch, "Bottom", sizes.bottom, None)
    sketch.pointwise(
        "Lookup",
        sizes.pooled,
        flop=sizes.adds,
        distributed=True,
        communications=(Communication(kind="all_to_all", bytes=sizes.pooled_bytes, over="all"),),
        dram_bytes=sizes.looked_up_bytes,
        resident_bytes=sizes.resident_bytes,
    )
    combined = _interaction(sketch, dense)
    answer = _mlp(sketch, "Top", sizes.top, combined)
    if sizes.trains:
        # The derivative of the loss and of the last activation are one kernel, the prediction less the label.
        gradient = _mlp_back(sketch, "Top", sizes.top, combined, answer)
        to_dense, to_pooled = _interaction_back(sketch, str(gradient), dense)
        sketch.pointwise(
            "Lookup_bwd",
            sizes.pooled,
            to_pooled,
            phase="backward",
            flop=2 * sizes.adds,  # every row that was looked up takes a step: scaled gradient, added
            distributed=True,
            communications=(Communication(kind="all_to_all", bytes=sizes.pooled_bytes, over="all"),),
            dram_bytes=2 * sizes.looked_up_bytes,  # rows are read and written
        )
        _mlp_back(sketch, "Bottom", sizes.bottom, None, to_dense)
    return tuple(sketch.kernels), tuple(sketch.tensors)


def _mlp(sketch: _Sketch, part: str, widths: tuple[int, ...], source: str | None) -> str:
    """Layers ``PART_1``, ``PART_2`` ..., each with its activation; returns the last activation."""
    for number, (before, width) in enumerate(pairwise(widths), start=1):
        source = sketch.pointwise(
            f"{part}_{number}_Act", width, sketch.linear(f"{part}_{number}", width, before, source)
        )
    return str(source)


def _mlp_back(
    sketch: _Sketch, part: str, widths: tuple[int, ...], first: str | None, gradient: str | tuple[str, int]
) -> str | None:
    """The way back through the MLP that reads ``first``; returns the gradient of that, if there is any."""
    layers = list(enumerate(pairwise(widths), start=1))
    back: str | None = None
    for number, (before, width) in reversed(layers):
        name = f"{part}_{number}"
        own = f"{name}_Act"
        inputs = (gradient,) if gradient == own else (gradient, own)
        local = sketch.pointwise(f"{own}_bwd", width, *inputs, phase="backward")
        activation = first if number == 1 else f"{part}_{number - 1}_Act"
        sketch.update(name, before, width, local, activation)
        if activation is None:  # the dense features themselves have no gradient
            return None
        back = gradient = sketch.linear(f"{name}_bwd", before, width, local, phase="backward")
    return back


def _interaction(sketch: _Sketch, dense: str) -> str:
    """What the top MLP reads."""
    s = sketch.s
    width, features = s.bottom[-1], s.tables + 1
    if s.interaction == "none":
        return sketch.pointwise("Join", width, dense, "Lookup")
    joined = sketch.pointwise("Concat", width + s.pooled, dense, "Lookup")
    if s.interaction == "dot":
        sketch.products("Interaction", features, s.dim, features, joined, joined)
        # Of the symmetric matrix the top MLP reads what is below the diagonal.
        return sketch.pointwise("Interaction_Cat", s.top[0], ("Interaction", s.top[0] - width), dense)
    if s.interaction == "dcn":
        # x_next = x_0 * (U V x + bias) + x: Wang et al., DCN V2, arXiv 2008.13535, eq. 2 (equation number unconfirmed)
        start = joined
        for number in range(1, s.dcn_layers + 1):
            name, full = f"Cross_{number}", width + s.pooled
            sketch.linear(f"{name}_V", s.dcn_rank, full, joined)
            sketch.linear(f"{name}_U", full, s.dcn_rank, f"{name}_V")
            inputs = dict.fromkeys((f"{name}_U", start, joined))  # the first layer reads x_0 once
            joined = sketch.pointwise(name, full, *inputs, flop=3)
    return joined


def _interaction_back(
    sketch: _Sketch, gradient: str, dense: str
) -> tuple[str | tuple[str, int], str | tuple[str, int]]:
    """Gradients of the bottom MLP's output and of the pooled rows."""
    s = sketch.s
    width, features = s.bottom[-1], s.tables + 1
    if s.interaction == "none":
        return gradient, sketch.pointwise("Join_bwd", s.pooled, gradient, phase="backward")
    if s.interaction == "dot":
        square = sketch.pointwise("Interaction_Cat_bwd", features * features, gradient, phase="backward")
        # Both operands of the product have a gradient, as if they were two matrices.
        halves = [
            sketch.products(f"Interaction_bwd{side}", s.dim, features, features, square, "Concat", phase="backward")
            for side in (1, 2)
        ]
        # bytes: of the top MLP's gradient only the part of the bottom MLP's output is added here
        gradient = sketch.pointwise("Concat_bwd", width + s.pooled, *halves, (gradient, width), phase="backward")
    if s.interaction == "dcn":
        gradient = _crossing_back(sketch, gradient)
    return (gradient, width), (gradient, s.pooled)


def _crossing_back(sketch: _Sketch, gradient: str) -> str:
    """Gradient of what the cross layers start from."""
    s = sketch.s
    full = s.bottom[-1] + s.pooled
    so_far: list[str] = []  # the part of x_0's gradient that comes from its product in every layer
    for number in range(s.dcn_layers, 0, -1):
        name = f"Cross_{number}"
        so_far = [
            sketch.pointwise(
                f"{name}_bwd_start", full, gradient, f"{name}_U", *so_far, phase="backward", flop=1 + len(so_far)
            )
        ]
        local = sketch.pointwise(f"{name}_bwd", full, gradient, "Concat", phase="backward")
        sketch.update(f"{name}_U", s.dcn_rank, full, local, f"{name}_V")
        inner = sketch.linear(f"{name}_U_bwd", s.dcn_rank, full, local, phase="backward")
        sketch.update(f"{name}_V", full, s.dcn_rank, inner, "Concat" if number == 1 else f"Cross_{number - 1}")
        outer = sketch.linear(f"{name}_V_bwd", full, s.dcn_rank, inner, phase="backward")
        gradient = sketch.pointwise(f"{name}_bwd_sum", full, gradient, outer, phase="backward")
    return sketch.pointwise("Concat_bwd", full, gradient, *so_far, phase="backward")


def draw_dfmodel(sizes: Sizes) -> Drawn:
    """The kernels of DFModel's generator (github.com/fengqian-ayce/DFModel, commit 04f93d5), in its order.

    Layers ``MLP_1`` ..., without activations. The last bottom layer and its backward kernel read all looked-up rows
    from DRAM and exchange them *before* pooling; the first layer computes a gradient of its input, which no one needs.

    Examples
    --------
    >>> mlps = {"bottom": (8, 8), "top": (8, 8, 8), "dcn_layers": 1, "dcn_rank": 1, "stream": "n", "trains": True}
    >>> tables = {"dim": 16, "tables": 3, "lookups": 6, "rows": 3000, "interaction": "none"}
    >>> kernels, tensors = draw_dfmodel(Sizes(samples=8, word=2, **tables, **mlps))
    >>> [kernel.name for kernel in kernels if kernel.communications], len(kernels), len(tensors)
    (['MLP_1', 'MLP_1_bwd'], 9, 8)
    """
    sketch = _Sketch(sizes)
    width, bottom = sizes.bottom[0], len(sizes.bottom) - 1
    last = bottom + len(sizes.top) - 1
    rows: dict[str, Any] = {
        "dram_bytes": sizes.looked_up_bytes,
        "communications": (Communication(kind="all_to_all", bytes=sizes.looked_up_bytes, over="all"),),
    }
    for number in range(1, last + 1):
        more = {**rows, "resident_bytes": sizes.resident_bytes} if number == bottom else {}
        sketch.linear(f"MLP_{number}", width, width, f"MLP_{number - 1}" if number > 1 else None, **more)
    if sizes.trains:
        for number in range(last, 0, -1):
            after = f"MLP_{number + 1}_bwd" if number < last else None
            more = rows if number == bottom else {}
            sketch.linear(f"MLP_{number}_bwd", width, width, after, phase="backward", **more)
        for number in range(last, 0, -1):
            gradient = f"MLP_{number + 1}_bwd" if number < last else None
            sketch.update(f"MLP_{number}", width, width, gradient, f"MLP_{number - 1}" if number > 1 else None)
    return tuple(sketch.kernels), tuple(sketch.tensors)
