"""The kernels of a recommendation model and the tensors between them, see :mod:`dfopt.workloads.dlrm`.

Features lie along ``m``, samples along ``n``. A backward kernel is called after the forward one it mirrors, with
``_bwd`` behind the name, and sits in the same pipeline stage.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from dfopt.documents.graph import Communication, Graph, Kernel, Tensor
from dfopt.workloads.backward import Gradient, backward_of

__all__ = ["Sizes", "draw", "draw_dfmodel", "trained", "trained_dfmodel"]

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
        self.kernels.append(kernel)
        for source, operand in inputs:
            name, size = (source, None) if isinstance(source, str) else (source[0], self.of(source[1]))
            self.tensors.append(Tensor(src=name, dst=kernel.name, operand=operand, bytes=size))
        return kernel.name

    def of(self, features: int) -> float:
        """Bytes of so many features of all samples."""
        return float(features * self.s.samples * self.s.word)

    @property
    def streamed(self) -> dict[str, Any]:
        """Left out, the streamed axis is n."""
        return {} if self.s.stream == "n" else {"stream": "none"}

    def pointwise(self, name: str, m: int, *inputs: str | tuple[str, int], flop: int = 1, **more: Any) -> str:
        sizes = {"m": m, "n": self.s.samples, "flop_per_element": flop}
        kernel = Kernel(name=name, op="elementwise", **sizes, **self.streamed, **more)
        return self.draw(kernel, *((source, None) for source in inputs))

    def linear(self, name: str, m: int, k: int, source: str | None, **more: Any) -> str:
        kernel = Kernel(name=name, op="gemm", m=m, k=k, n=self.s.samples, **self.streamed, **more)
        return self.draw(kernel, *([(source, None)] if source else []))

    def products(self, name: str, m: int, k: int, n: int, first: str, second: str) -> str:
        """A product of two activations within every sample."""
        # n is streamed, a feature axis, because a kernel has no way to say that its samples are.
        kernel = Kernel(name=name, op="matmul", outer=self.s.samples, m=m, k=k, n=n)
        return self.draw(kernel, (first, 1), (second, 2))


def draw(sizes: Sizes) -> Drawn:
    """What the model computes forward.

    Examples
    --------
    >>> mlps = {"bottom": (13, 16), "top": (22, 1), "dcn_layers": 1, "dcn_rank": 1, "stream": "n"}
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
    _mlp(sketch, "Top", sizes.top, combined)
    return tuple(sketch.kernels), tuple(sketch.tensors)


def _mlp(sketch: _Sketch, part: str, widths: tuple[int, ...], source: str | None) -> str:
    """Layers ``PART_1``, ``PART_2`` ..., each with its activation; returns the last activation."""
    for number, (before, width) in enumerate(pairwise(widths), start=1):
        source = sketch.pointwise(
            f"{part}_{number}_Act", width, sketch.linear(f"{part}_{number}", width, before, source)
        )
    return str(source)


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


def trained(graph: Graph, sizes: Sizes) -> Graph:
    """The model with its backward pass and updates.

    The derivative of the loss and of the last activation are one kernel, the prediction less the label.
    """
    dense = f"Bottom_{len(sizes.bottom) - 1}_Act"
    rules: dict[str, Gradient | tuple[Gradient, ...]] = {
        kernel.name: Gradient(reads=(kernel.name,)) for kernel in graph.kernels if kernel.name.endswith("_Act")
    }
    # Every row that was looked up takes a step: scaled gradient, added.
    rules["Lookup"] = Gradient(fields={"flop_per_element": 2 * sizes.adds})
    sums: dict[str, tuple[str, str]] = {}
    if sizes.interaction == "none":
        rules["Join"] = (Gradient(of=("Lookup",), fields={"m": sizes.pooled}), Gradient(of=(dense,), drawn=False))
    if sizes.interaction == "concat":
        rules["Concat"] = Gradient(drawn=False)
    if sizes.interaction == "dot":
        square = {"outer": 1, "m": (sizes.tables + 1) ** 2, "n": sizes.samples}
        # Both operands of the product have a gradient, as if they were two matrices.
        rules["Interaction"] = (Gradient(), Gradient(turned=True))
        # What the top MLP reads of the bottom one is a part of Concat, and so is its gradient.
        rules["Interaction_Cat"] = (
            Gradient(of=("Interaction",), fields=square),
            Gradient(of=(dense,), drawn=False, to="Concat"),
        )
    if sizes.interaction == "dcn":
        for number in range(1, sizes.dcn_layers + 1):
            name, joined = f"Cross_{number}", "Concat" if number == 1 else f"Cross_{number - 1}"
            # The part of x_0's gradient that comes from its product in every layer is summed from layer to layer.
            so_far = {"flop_per_element": 1 if number == sizes.dcn_layers else 2}
            rules[name] = (
                Gradient(f"{name}_bwd_start", of=("Concat",), reads=(f"{name}_U",), adds=True, fields=so_far),
                Gradient(of=(f"{name}_U",), reads=("Concat",), fields={"flop_per_element": 1}),
                Gradient(of=(joined,), drawn=False),
            )
            sums[joined] = (f"{name}_bwd_sum", name)
    return backward_of(graph, rules, sums=sums, updates="beside")


def draw_dfmodel(sizes: Sizes) -> Drawn:
    """The kernels of DFModel's generator (github.com/fengqian-ayce/DFModel, commit 04f93d5), in its order.

    Layers ``MLP_1`` ..., without activations. The last bottom layer and its backward kernel read all looked-up rows
    from DRAM and exchange them *before* pooling; the first layer computes a gradient of its input, which no one needs.

    Examples
    --------
    >>> mlps = {"bottom": (8, 8), "top": (8, 8, 8), "dcn_layers": 1, "dcn_rank": 1, "stream": "n"}
    >>> tables = {"dim": 16, "tables": 3, "lookups": 6, "rows": 3000, "interaction": "none"}
    >>> kernels, tensors = draw_dfmodel(Sizes(samples=8, word=2, **tables, **mlps))
    >>> [kernel.name for kernel in kernels if kernel.communications], len(kernels), len(tensors)
    (['MLP_1'], 3, 2)
    """
    sketch = _Sketch(sizes)
    width, bottom = sizes.bottom[0], len(sizes.bottom) - 1
    last = bottom + len(sizes.top) - 1
    for number in range(1, last + 1):
        more: dict[str, Any] = {}
        if number == bottom:
            exchange = Communication(kind="all_to_all", bytes=sizes.looked_up_bytes, over="all")
            more = {"communications": (exchange,), "dram_bytes": sizes.looked_up_bytes}
            more["resident_bytes"] = sizes.resident_bytes
        sketch.linear(f"MLP_{number}", width, width, f"MLP_{number - 1}" if number > 1 else None, **more)
    return tuple(sketch.kernels), tuple(sketch.tensors)


def trained_dfmodel(graph: Graph) -> Graph:
    """With the backward pass of DFModel's generator."""
    return backward_of(graph, {"MLP_1": Gradient()})
