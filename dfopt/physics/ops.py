"""What a kernel costs and how it can be split: FLOP, bytes, sharding schemes and layouts.

Every function is pure. A *layout* says how a tensor lies on the tensor-parallel chips: ``RR``
replicated, ``SR`` split along its first (feature or head) axis, ``RS`` split along its token axis.

Sources: DFModel, section IV (schemes and the two kinds of communication) and Table III;
the two sets of rules differ where the authors' program takes a short cut:

* ``dfmodel``: the program's tables. A GEMM split by ``outer`` takes a split input, a weight update
  wants all inputs split, and a normalisation may be split along the axis it normalises.
* ``exact``: what the arithmetic needs. A GEMM split by ``outer`` reads all of a shared input, a
  weight update reads the operand it does not split whole, and a normalisation needs its whole axis.

Sequence parallelism (Korthikanti et al., "Reducing activation recomputation in large transformer models", 2022,
section 4.2) is two more choices under both: elementwise kernels, norms among them, take ``n``, and a split contraction
may end in a reduce-scatter along the tokens (``k>n``) instead of an all-reduce (``k``).
"""

from __future__ import annotations

from typing import Literal, get_args

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.experts import Experts as Experts
from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.kernel import needed as needed
from dfopt.documents.kernel import operand_shape as operand_shape
from dfopt.documents.mapping import Sharding
from dfopt.physics.collectives import Collective

Layout = Literal["RR", "SR", "RS"]
Rules = Literal["exact", "dfmodel"]

SCHEMES: tuple[Sharding, ...] = get_args(Sharding)
PRODUCED: dict[Sharding, Layout] = {
    "outer": "SR", "m": "SR", "n": "RS", "k": "RR", "k>n": "RS", "none": "RR", "even": "RS",
}  # fmt: skip

# Layouts of the first and of the second operand; an elementwise kernel reads as it produces.
_OPERANDS: dict[str, tuple[dict[Sharding, Layout], dict[Sharding, Layout]]] = {
    "matmul": (
        {"outer": "SR", "m": "RR", "k": "SR", "n": "RS", "none": "RR", "even": "RS"},
        {"outer": "SR", "m": "SR", "k": "RS", "n": "RR", "none": "RR", "even": "RS"},
    ),
    "weight_update": (
        {"outer": "SR", "m": "RR", "k": "RS", "n": "SR", "none": "RR", "even": "RS"},
        {"outer": "SR", "m": "SR", "k": "RS", "n": "RR", "none": "RR", "even": "RS"},
    ),
}
_ALL_SPLIT: dict[Sharding, Layout] = {"outer": "SR", "m": "SR", "n": "SR", "k": "RS", "none": "RR", "even": "RS"}


def flop(kernel: Kernel) -> float:
    """FLOP of one evaluation of a kernel, unsharded.

    A matrix product counts ``2 * outer * m * k * n``, an elementwise kernel ``outer * m * n``
    times its ``flop_per_element`` (DFModel counts one), for each of its ``samples``. Under a mask only the remaining
    elements count.

    Examples
    --------
    >>> flop(Kernel(name="a", op="gemm", m=4, k=8, n=16))
    1024.0
    >>> flop(Kernel(name="context", op="matmul", m=4, k=8, n=8, density=9 / 16, masked=1))
    288.0
    """
    if kernel.density is not None:
        summed = {None: kernel.k, 1: kernel.m, 2: kernel.n}[kernel.masked]  # the axis that the masked matrix lacks
        each = kernel.flop_per_element if kernel.op == "elementwise" else 2 * summed
        return float(kernel.matrices * needed(kernel, kernel.masked or 0) * each)
    elements = float(kernel.matrices) * kernel.m * kernel.n
    if kernel.op == "elementwise":
        return elements * kernel.flop_per_element
    return 2.0 * elements * kernel.k


def work_share(kernel: Kernel) -> float:
    """Share of a kernel's work that its mask leaves, equal on every chip and tile."""
    return 1.0 if kernel.density is None else flop(kernel) / flop(kernel.model_copy(update={"density": None}))


def weight_elements(kernel: Kernel) -> float:
    """Parameters of a kernel: ``outer * m * k`` for a GEMM, else 0; all experts count.

    Examples
    --------
    >>> weight_elements(Kernel(name="a", op="gemm", m=4, k=8, n=16))
    32.0
    """
    return _weights(kernel) * _of_all(kernel)


def weights_read(kernel: Kernel) -> float:
    """Parameters that one evaluation reads; of routed experts only those that some token selects.

    Examples
    --------
    >>> experts = Experts(count=8, chosen=2, touched=3.5)
    >>> grouped = Kernel(name="a", op="gemm", m=4, k=8, n=16, experts=experts)
    >>> weight_elements(grouped), weights_read(grouped), weights_at_once(grouped)
    (128.0, 56.0, 16.0)
    """
    return _weights(kernel) * _of_touched(kernel)


def weights_at_once(kernel: Kernel) -> float:
    """Parameters in SRAM at a time: of routed experts, which run in sequence, those of one."""
    return _weights(kernel) * _of_one(kernel)


def _weights(kernel: Kernel) -> float:
    return float(kernel.outer) * kernel.m * kernel.k if kernel.op == "gemm" else 0.0


def _of_all(kernel: Kernel) -> float:
    """All experts over those whose weights or gradients are the kernel's matrix."""
    return kernel.experts.count / kernel.experts.chosen if kernel.experts else 1.0


def _of_touched(kernel: Kernel) -> float:
    return kernel.experts.touched / kernel.experts.chosen if kernel.experts else 1.0


def _of_one(kernel: Kernel) -> float:
    return 1.0 / kernel.experts.chosen if kernel.experts else 1.0


def gradient_elements(kernel: Kernel) -> float:
    """Elements of the weight gradient of a ``weight_update`` kernel after a step; all experts count.

    Examples
    --------
    >>> experts = Experts(count=8, chosen=2, touched=3.5)
    >>> update = Kernel(name="a", op="weight_update", m=4, k=16, n=8, pass_="update", experts=experts)
    >>> gradient_elements(update), gradients_added(update), gradients_at_once(update)
    (128.0, 56.0, 16.0)
    """
    return _gradients(kernel) * _of_all(kernel)


def gradients_added(kernel: Kernel) -> float:
    """Elements of the weight gradient that one evaluation adds to: of routed experts those that some token selects."""
    return _gradients(kernel) * _of_touched(kernel)


def gradients_at_once(kernel: Kernel) -> float:
    """Elements of the weight gradient in SRAM at a time: of routed experts those of one."""
    return _gradients(kernel) * _of_one(kernel)


def _gradients(kernel: Kernel) -> float:
    return float(kernel.outer) * kernel.m * kernel.n if kernel.op == "weight_update" else 0.0


def split_axis(scheme: Sharding) -> Sharding:
    """Axis of a kernel that a scheme splits, as a scheme: ``k>n`` splits ``k``.

    Examples
    --------
    >>> split_axis("k>n")
    'k'
    """
    return "k" if scheme == "k>n" else scheme


def output_axis(scheme: Sharding) -> Sharding:
    """Axis along which a scheme leaves the output split: ``k>n`` leaves ``n``."""
    return "n" if scheme == "k>n" else scheme


def splits_tiles(kernel: Kernel, scheme: Sharding) -> bool:
    """Whether chips share the rows of each tile of a kernel's output, so that a tile needs one row a chip."""
    return kernel.streamed == "n" and output_axis(scheme) == "n"


def legal_schemes(kernel: Kernel, degree: int, assumptions: Assumptions) -> tuple[Sharding, ...]:
    """Sharding schemes that a kernel may take over ``degree`` tensor-parallel chips.

    An axis of size 1 and the streamed axis cannot be split. A batched kernel (``outer`` > 1) is
    split by ``outer``. A weighted GEMM must be split if it can be, because its weights would
    otherwise be held by every chip (DFModel, section IV, and its program); a router is small, and may be
    held so, as may the projection to a latent that all heads share. A kernel that the workload itself spreads over the
    chips (``distributed``) has the scheme ``even``: every chip has an equal share of work, output and weight.

    With sequence parallelism tokens may be split, if a tile has one for every chip. Weight gradients have no tokens,
    and a kernel that leaves partial sums to another kernel reduces nothing itself. If sequence parallelism is forced,
    every elementwise kernel that can split its tokens does so, and every sum that can be reduce-scattered is.

    Examples
    --------
    >>> gemm = Kernel(name="a", op="gemm", m=4, k=8, n=16)
    >>> legal_schemes(gemm, 2, Assumptions(sequence_parallelism="none"))
    ('m', 'k')
    >>> [legal_schemes(gemm, 2, Assumptions(sequence_parallelism=said)) for said in ("allow", "force")]
    [('m', 'k', 'k>n'), ('m', 'k>n')]
    """
    rules = assumptions.sharding_rules
    if degree == 1:
        return ("none",)
    if kernel.distributed:
        return ("even",)
    if kernel.outer > 1:
        return ("outer",)
    schemes: list[Sharding] = []
    if kernel.m > 1 and not (rules == "exact" and kernel.normalizes):
        schemes.append("m")
    tokens = assumptions.splits_tokens and (assumptions.tile_rows or degree) >= degree
    forced = assumptions.sequence_parallelism == "force"
    if kernel.op != "elementwise" and kernel.k > 1 and kernel.streamed != "k":
        sums_up = kernel.op != "weight_update" and not leaves_partial_sums(kernel, "k", degree, rules)
        scatters = tokens and kernel.n > 1 and sums_up
        schemes += (["k>n"] if forced else ["k", "k>n"]) if scatters else ["k"]
    by_tokens = tokens and kernel.n > 1 and kernel.op == "elementwise"
    if by_tokens or (kernel.n > 1 and kernel.streamed != "n"):
        schemes.append("n")
    unsplit = kernel.op != "gemm" or kernel.role in ("router", "latent") or not schemes
    if unsplit and not (forced and by_tokens):
        schemes.append("none")
    return tuple(schemes)


def split_share(kernel: Kernel, scheme: Sharding, degree: int, rules: Rules) -> float:
    """Share of a kernel's work that falls on the most loaded chip: ``ceil(axis / degree) / axis``.

    The program's rule splits heads along their features too (``outer * m``); exactly, a head is whole.

    Examples
    --------
    >>> split_share(Kernel(name="a", op="matmul", outer=40, m=2, k=8, n=16), "outer", 16, "exact")
    0.075
    """
    if scheme == "none" or degree == 1:
        return 1.0
    if scheme == "even":
        return 1.0 / degree
    axis = {"outer": kernel.outer, "m": kernel.m, "k": kernel.k, "n": kernel.n}[split_axis(scheme)]
    if scheme == "outer" and rules == "dfmodel":
        axis = kernel.matrices * kernel.m
    return -(-axis // degree) / axis


def shard_extents(kernel: Kernel, scheme: Sharding, degree: int, rules: Rules) -> tuple[int, int, int]:
    """Extents of the largest shard for the cycle model: rows (``outer * m`` of all samples), columns and contraction.

    Examples
    --------
    >>> shard_extents(Kernel(name="a", op="matmul", outer=40, m=2, k=8, n=16), "outer", 16, "exact")
    (6, 16, 8)
    """
    rows, columns, depth = kernel.matrices * kernel.m, kernel.n, kernel.k
    if scheme == "outer" and rules == "exact":  # a head is whole
        rows = -(-kernel.outer // degree) * (kernel.matrices // kernel.outer) * kernel.m
    elif scheme in ("outer", "m"):
        rows = -(-rows // degree)
    elif scheme == "n":
        columns = -(-columns // degree)
    elif split_axis(scheme) == "k":
        depth = -(-depth // degree)
    elif scheme == "even":  # whole columns as long as there are enough
        rows, columns = (rows, -(-columns // degree)) if columns >= degree else (-(-rows * columns // degree), 1)
    return rows, columns, depth


def output_share(kernel: Kernel, scheme: Sharding, degree: int, rules: Rules) -> float:
    """Share of a kernel's output that one chip stores; 1 if it is replicated."""
    return 1.0 if PRODUCED[scheme] == "RR" else split_share(kernel, output_axis(scheme), degree, rules)


def weight_share(kernel: Kernel, scheme: Sharding, degree: int, rules: Rules) -> float:
    """Share of a GEMM's weight (``m x k``) that one chip stores; 1 if tokens are split."""
    return 1.0 if scheme == "n" else split_share(kernel, scheme, degree, rules)


def required_layout(
    kernel: Kernel, operand: int, scheme: Sharding, rules: Rules, input_elements: float | None = None
) -> Layout:
    """Layout in which a kernel under a sharding scheme needs one of its inputs.

    ``operand`` is 1 or 2, see :func:`operands`. ``input_elements``, the size of the whole input, tells an input shared
    by all ``outer`` (heads reading one activation) from one that has its own part for each, and whether an elementwise
    kernel's input of another size than its output can be split as that is.

    Examples
    --------
    >>> q = Kernel(name="Q", op="gemm", outer=96, m=128, k=12288, n=2048)
    >>> required_layout(q, 1, "outer", "exact", 12288 * 2048), required_layout(q, 1, "outer", "dfmodel")
    ('RR', 'SR')
    """
    if kernel.op == "elementwise":
        alike = rules != "exact" or input_elements is None or _splits_alike(kernel, scheme, input_elements)
        return PRODUCED[scheme] if alike else "RR"
    if kernel.op == "weight_update" and rules == "dfmodel":
        return _ALL_SPLIT[scheme]
    if kernel.op != "gemm":
        return _OPERANDS[kernel.op][operand - 1][split_axis(scheme)]
    if scheme == "outer" and rules == "exact" and kernel.accumulates_into is None:
        shared = input_elements is None or input_elements <= kernel.k * kernel.n
        return "RR" if shared else "SR"
    return _OPERANDS["matmul"][0][split_axis(scheme)]


def _splits_alike(kernel: Kernel, scheme: Sharding, elements: float) -> bool:
    """Whether an elementwise kernel's share of its output needs no more than the same share of an input.

    Not of an input that lacks the split axis (a value per token or per feature, spread along it), nor of one that is
    larger but no whole number of times, whose features each chip needs all of. A smaller one is taken for a part of
    what lies side by side.
    """
    used, unmasked = float(kernel.matrices * needed(kernel)), float(kernel.matrices * kernel.m * kernel.n)
    axis = {"m": kernel.m, "n": kernel.n, "outer": kernel.outer}.get(scheme, 1)
    if axis == 1 or elements == used:
        return True
    if elements == unmasked / axis:
        return False
    return elements % kernel.n == 0 if scheme == "n" else elements < used or elements % used == 0


def streamed_rows(graph: Graph) -> int:
    """Length of the shortest streamed axis of a graph; all streamed axes are cut into equally many tiles.

    Examples
    --------
    >>> streamed_rows(Graph(name="g", kernels=(Kernel(name="a", op="gemm", m=4, k=8, n=16),)))
    16
    """
    return min((k.n if k.streamed == "n" else k.k for k in graph.kernels if k.streamed != "none"), default=1)


def tile_share(kernel: Kernel, tile_count: int) -> float:
    """Share of a kernel's output in one of ``tile_count`` tiles, in whole rows; 1 if it is not streamed.

    Under a mask the longest rows are as long as without it.

    Examples
    --------
    >>> tile_share(Kernel(name="a", op="gemm", m=4, k=8, n=10), 4)
    0.3
    """
    return _of_needed(kernel, 0, -(-kernel.n // tile_count) / kernel.n) if kernel.streamed == "n" else 1.0


def _of_needed(kernel: Kernel, operand: int, share: float) -> float:
    """A share of a whole matrix as a share of what a mask leaves of it, at most all of that."""
    left = needed(kernel, operand)
    rows, columns = operand_shape(kernel, operand) if operand else (kernel.m, kernel.n)
    return share if left == rows * columns else min(share * rows * columns / left, 1.0)


def input_share(kernel: Kernel, layout: Layout, scheme: Sharding, degree: int, rules: Rules) -> float:
    """Share of an input that one chip reads; 1 if its layout is replicated."""
    return 1.0 if layout == "RR" else split_share(kernel, scheme, degree, rules)


def input_tile_share(kernel: Kernel, tile_count: int, operand: int = 1) -> float:
    """Share of an operand in one of ``tile_count`` tiles, which a streamed kernel reads as it runs.

    Examples
    --------
    >>> input_tile_share(Kernel(name="a", op="weight_update", m=4, k=10, n=8), 4)
    0.3
    """
    if kernel.streamed == "none":
        return 1.0
    length = kernel.n if kernel.streamed == "n" else kernel.k
    return _of_needed(kernel, operand, -(-length // tile_count) / length)


def conversion(produced: Layout, required: Layout) -> Collective | None:
    """Collective that converts one layout into another; None if no communication is needed.

    Examples
    --------
    >>> conversion("SR", "RR").value, conversion("RR", "SR")
    ('all_gather', None)
    """
    if produced == required or produced == "RR":
        return None
    return Collective.ALL_GATHER if required == "RR" else Collective.ALL_TO_ALL


def leaves_partial_sums(kernel: Kernel, scheme: Sharding, degree: int, rules: Rules) -> bool:
    """Whether a GEMM leaves its partial sums to the collective of the kernel that accumulates its output.

    Examples
    --------
    >>> q_bwd = Kernel(name="Q_bwd", op="gemm", outer=4, m=2, k=8, n=16, accumulates_into="V_bwd")
    >>> leaves_partial_sums(q_bwd, "outer", 2, "exact"), leaves_partial_sums(q_bwd, "outer", 2, "dfmodel")
    (True, False)
    """
    accumulates = kernel.op == "gemm" and kernel.accumulates_into is not None and rules == "exact"
    return accumulates and degree > 1 and split_axis(scheme) in ("outer", "k")


def inherent(kernel: Kernel, scheme: Sharding, degree: int, rules: Rules) -> Collective | None:
    """Collective that a sharding scheme needs on the output, since a split contraction leaves partial sums."""
    if split_axis(scheme) != "k" or degree == 1 or leaves_partial_sums(kernel, scheme, degree, rules):
        return None
    return Collective.ALL_REDUCE if scheme == "k" else Collective.REDUCE_SCATTER
