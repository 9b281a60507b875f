"""A deep learning recommendation model (DLRM): embedding tables, two MLPs, and what combines their features.

The model is that of Naumov et al. (arXiv 1906.00091): dense features pass a bottom MLP, every sparse feature looks
up rows of its table and adds them up (pooling), an interaction combines both, and a top MLP gives the prediction.
The MLPs are data-parallel. The tables are spread over all chips, tensor-parallel ones and copies alike, so the
pooled rows of a microbatch reach its copy by an all-to-all, and their gradients go back by another.

``microbatch`` counts the samples that one copy works on at a time; samples are the ``n`` axis of every kernel.

What is counted: a table row is read once per lookup, and when training read and written again by its update; dense
features are read from DRAM, which also holds the optimizer's state of the tables. What is not: biases, reading row
indices, and the traffic of that state.

``encoding: dfmodel`` draws the 60 kernels of DFModel's program instead: MLP layers of one width only, with lookups
and exchanges riding on the last bottom layer, and rows exchanged before they are pooled.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from dfopt.documents.graph import Communication, Graph, Kernel
from dfopt.workloads.backward import Gradient, backward_of
from dfopt.workloads.checks import NOTHING_FROM_DRAM
from dfopt.workloads.dlrm_parameters import DlrmParameters, Tables
from dfopt.workloads.sketch import Read, Sketch

__all__ = ["DlrmParameters", "Parameters", "Tables", "build"]

Parameters = DlrmParameters


def build(p: DlrmParameters, **about: str) -> Graph:
    """Graph of a recommendation model (DLRM).

    Features lie along ``m``, samples along ``n``. A backward kernel is called after the forward one it mirrors, with
    ``_bwd`` behind the name, and sits in the same pipeline stage.

    Returns
    -------
    Graph
        Forward, two kernels per MLP layer, one for the lookups and a few for the interaction; training adds up to
        three per MLP layer, and the way back through the others. ``encoding: dfmodel`` has three kernels per layer.

    Examples
    --------
    >>> tables = (Tables(count=3, rows=1000, pooling=2),)
    >>> p = DlrmParameters(
    ...     tables=tables, embedding_dim=16, dense_features=13, bottom=(16,), top=(1,), microbatch=8, mode="forward"
    ... )
    >>> graph = build(p, name="small")
    >>> [kernel.name for kernel in graph.kernels]
    ['Bottom_1', 'Bottom_1_Act', 'Lookup', 'Concat', 'Interaction', 'Interaction_Cat', 'Top_1', 'Top_1_Act']
    >>> lookup = graph.kernels[2]
    >>> lookup.dram_bytes, lookup.resident_bytes, lookup.communications[0].bytes
    (1536.0, 96000.0, 768.0)
    """
    dfmodel = p.encoding == "dfmodel"
    sketch = _dfmodel(p) if dfmodel else _exact(p)
    graph = Graph(
        **about,
        word_bytes=p.word_bytes,
        microbatch=p.microbatch,
        batch=p.batch or p.microbatch,
        kernels=tuple(sketch.kernels),
        tensors=tuple(sketch.tensors),
        **(NOTHING_FROM_DRAM if dfmodel else {}),
    )
    if p.mode == "forward":
        return graph
    return backward_of(graph, {"MLP_1": Gradient()}) if dfmodel else _trained(graph, p)


class _Sketch(Sketch):
    """A sketch whose kernels work on the samples of one evaluation."""

    def __init__(self, p: DlrmParameters) -> None:
        super().__init__()
        self.p = p
        # Left out, the streamed axis is n.
        self.common: dict[str, Any] = {"n": p.microbatch, **({} if p.stream == "n" else {"stream": "none"})}

    def part(self, name: str, features: int) -> Read:
        """A read of the first ``features`` features of a kernel's output, for every sample."""
        return Read(name, None, float(features * self.p.microbatch * self.p.word_bytes))

    def pointwise(self, name: str, m: int, *inputs: str | Read, flop: int = 1, **more: Any) -> str:
        return self.draw(
            Kernel(name=name, op="elementwise", m=m, flop_per_element=flop, **self.common, **more), *inputs
        )

    def linear(self, name: str, m: int, k: int, *inputs: str, **more: Any) -> str:
        return self.draw(Kernel(name=name, op="gemm", m=m, k=k, **self.common, **more), *inputs)

    def products(self, name: str, m: int, k: int, n: int, source: str) -> str:
        """Products of an activation with itself within every sample."""
        # n is streamed, a feature axis, because a kernel has no way to say that its samples are.
        kernel = Kernel(name=name, op="matmul", outer=self.p.microbatch, m=m, k=k, n=n)
        return self.draw(kernel, Read(source, 1), Read(source, 2))


def _lookups(p: DlrmParameters, exchanged: float) -> dict[str, Any]:
    """Fields of the kernel that reads rows of the tables and exchanges so many bytes."""
    return {
        "communications": (Communication(kind="all_to_all", bytes=exchanged, over="all"),),
        "dram_bytes": p.looked_up_bytes,
        "resident_bytes": p.table_bytes,
        "resident_optimizer_bytes": 4.0 * p.table_moments,
    }


def _exact(p: DlrmParameters) -> Sketch:
    """What the model computes forward."""
    sketch = _Sketch(p)
    dense = _mlp(sketch, "Bottom", p.bottom_widths)
    pooled_bytes = float(p.microbatch * p.pooled_width * p.word_bytes)
    sketch.pointwise("Lookup", p.pooled_width, flop=p.adds, distributed=True, **_lookups(p, pooled_bytes))
    _mlp(sketch, "Top", p.top_widths, _interaction(sketch, dense))
    return sketch


def _mlp(sketch: _Sketch, part: str, widths: tuple[int, ...], *source: str) -> str:
    """Layers ``PART_1``, ``PART_2`` ..., each with its activation; returns the last activation."""
    for number, (before, width) in enumerate(pairwise(widths), start=1):
        layer = sketch.linear(f"{part}_{number}", width, before, *source)
        source = (sketch.pointwise(f"{part}_{number}_Act", width, layer),)
    return source[0]


def _interaction(sketch: _Sketch, dense: str) -> str:
    """What the top MLP reads."""
    p = sketch.p
    width, features = p.bottom_widths[-1], p.table_count + 1
    full = width + p.pooled_width
    if p.interaction == "none":
        return sketch.pointwise("Join", width, dense, "Lookup")
    joined = sketch.pointwise("Concat", full, dense, "Lookup")
    if p.interaction == "dot":
        sketch.products("Interaction", features, p.embedding_dim, features, joined)
        products = p.interaction_width - width  # of the symmetric matrix the top MLP reads what is below the diagonal
        return sketch.pointwise("Interaction_Cat", p.interaction_width, sketch.part("Interaction", products), dense)
    if p.interaction == "dcn":
        # x_next = x_0 * (U V x + bias) + x: Wang et al., DCN V2, arXiv 2008.13535, eq. 2 (equation number unconfirmed)
        start = joined
        for number in range(1, p.dcn_layers + 1):
            name = f"Cross_{number}"
            sketch.linear(f"{name}_V", p.dcn_rank, full, joined)
            sketch.linear(f"{name}_U", full, p.dcn_rank, f"{name}_V")
            inputs = dict.fromkeys((f"{name}_U", start, joined))  # the first layer reads x_0 once
            joined = sketch.pointwise(name, full, *inputs, flop=3)
    return joined


def _trained(graph: Graph, p: DlrmParameters) -> Graph:
    """The model with its backward pass and updates.

    The derivative of the loss and of the last activation are one kernel, the prediction less the label.
    """
    dense = f"Bottom_{len(p.bottom_widths) - 1}_Act"
    rules: dict[str, Gradient | tuple[Gradient, ...]] = {
        kernel.name: Gradient(reads=(kernel.name,)) for kernel in graph.kernels if kernel.name.endswith("_Act")
    }
    # Every row that was looked up takes a step: scaled gradient, added.
    rules["Lookup"] = Gradient(fields={"flop_per_element": 2 * p.adds})
    sum_kernels: dict[str, tuple[str, str]] = {}
    if p.interaction == "none":
        rules["Join"] = (Gradient(of=("Lookup",), fields={"m": p.pooled_width}), Gradient(of=(dense,), drawn=False))
    if p.interaction == "concat":
        rules["Concat"] = Gradient(drawn=False)
    if p.interaction == "dot":
        square = {"outer": 1, "m": (p.table_count + 1) ** 2, "n": p.microbatch}
        # Both operands of the product have a gradient, as if they were two matrices.
        rules["Interaction"] = (Gradient(), Gradient(turned=True))
        # What the top MLP reads of the bottom one is a part of Concat, and so is its gradient.
        rules["Interaction_Cat"] = (
            Gradient(of=("Interaction",), fields=square),
            Gradient(of=(dense,), drawn=False, to="Concat"),
        )
    if p.interaction == "dcn":
        for number in range(1, p.dcn_layers + 1):
            name, joined = f"Cross_{number}", "Concat" if number == 1 else f"Cross_{number - 1}"
            # The part of x_0's gradient that comes from its product in every layer is summed from layer to layer.
            so_far = {"flop_per_element": 1 if number == p.dcn_layers else 2}
            rules[name] = (
                Gradient(f"{name}_bwd_start", of=("Concat",), reads=(f"{name}_U",), adds=True, fields=so_far),
                Gradient(of=(f"{name}_U",), reads=("Concat",), fields={"flop_per_element": 1}),
                Gradient(of=(joined,), drawn=False),
            )
            sum_kernels[joined] = (f"{name}_bwd_sum", name)
    return backward_of(graph, rules, sum_kernels=sum_kernels, updates="beside")


def _dfmodel(p: DlrmParameters) -> Sketch:
    """The forward kernels of DFModel's generator (github.com/fengqian-ayce/DFModel, commit 04f93d5), in its order.

    Layers ``MLP_1`` ..., without activations. The last bottom layer and its backward kernel read all looked-up rows
    from DRAM and exchange them *before* pooling; the first layer computes a gradient of its input, which no one needs.
    """
    sketch = _Sketch(p)
    width, bottom = p.bottom_widths[0], len(p.bottom_widths) - 1
    source: tuple[str, ...] = ()
    for number in range(1, bottom + len(p.top_widths)):
        more = _lookups(p, p.looked_up_bytes) if number == bottom else {}
        source = (sketch.linear(f"MLP_{number}", width, width, *source, **more),)
    return sketch
