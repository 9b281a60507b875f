"""In which type a kernel computes, and how fast a chip is in it.

A type is wider than another that it holds every number of: E4M3 holds E2M1, E2M3, E3M2 and int4, bf16 holds all of
them, E5M2 and int8, and tf32 holds bf16 and fp16, of which neither holds the other.

A matrix product computes in the narrowest type of the chip that holds both of its operands; activations and weights are
converted in front of it if the graph says so (``operands``, ``weight_operands``). So weights that are narrower than
activations are widened as they are read (weight-only int4), and what a chip has no unit for computes in the next wider
type that it has. Cached keys and values are widened or narrowed to the type of activations as they are read. Products
may round what is held in fp32 to tf32 (``products``; NVIDIA A100 whitepaper: of 8 and 10 bits, sums in fp32).
Elementwise kernels compute in 16 bits at least: vector units have no narrower floating-point types.
"""

from __future__ import annotations

from typing import Final, get_args

from dfopt.documents.dtypes import FORMATS, Arithmetic, Dtypes, Peaks, weights_of
from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.system import Chip
from dfopt.errors import Issue, SystemSpecError

_WIDE: Final[tuple[Arithmetic, ...]] = ("bf16", "fp16", "tf32", "fp32")
WIDER: Final[dict[Arithmetic, tuple[Arithmetic, ...]]] = {
    "int4": ("int8", "fp8", *_WIDE),
    "fp4": ("fp6", "fp8", *_WIDE),
    "fp6": ("fp8", *_WIDE),
    "int8": _WIDE,
    "fp8": _WIDE,
    "bf16": ("tf32", "fp32"),
    "fp16": ("tf32", "fp32"),
    "tf32": ("fp32",),
    "fp32": (),
}
"""Types that hold all numbers of one, from the narrowest on."""


def _holding(dtypes: Dtypes, kernel: Kernel) -> tuple[Arithmetic, ...]:
    """Types that a kernel could compute in, from the narrowest on."""
    weighted = kernel.op in ("gemm", "weight_update")
    taken = FORMATS[(dtypes.operands if weighted else None) or dtypes.activations].arithmetic
    taken = _in_products(dtypes, taken) if kernel.op != "elementwise" else taken
    candidates = (taken, *WIDER[taken])
    if kernel.op == "elementwise":
        return tuple(arithmetic for arithmetic in candidates if arithmetic in _WIDE)
    if kernel.op != "gemm":
        return candidates
    held = _in_products(dtypes, FORMATS[dtypes.taken(weights_of(kernel))].arithmetic)
    return tuple(arithmetic for arithmetic in candidates if arithmetic in (held, *WIDER[held]))


def _in_products(dtypes: Dtypes, held: Arithmetic) -> Arithmetic:
    """The type in which products take what is held in one."""
    return "tf32" if dtypes.products == "tf32" and held == "fp32" else held


def arithmetic_of(graph: Graph, kernel: Kernel, chip: Chip) -> tuple[Arithmetic, Arithmetic] | None:
    """Data type that a kernel would compute in, and the one that the chip uses for it; None if types do not matter.

    That is where the graph states none, or the chip has one rate for all.

    Parameters
    ----------
    graph, kernel, chip
        The workload, which states data types, one of its kernels, and the chip, which states rates.

    Raises
    ------
    SystemSpecError
        If the chip has no type that holds the operands of the kernel.

    Examples
    --------
    >>> from dfopt.documents.system import Dram, Sram
    >>> peaks = Peaks(bf16=312e12, fp32=19.5e12)
    >>> a100 = Chip(name="a100", tiles=108, peak=peaks, sram=Sram(capacity=1e8), dram=Dram(bandwidth=2e12))
    >>> gemm = Kernel(name="a", op="gemm", m=4, k=8, n=16)
    >>> graph = Graph(name="g", dtypes=Dtypes(weights="fp8", activations="fp8"), kernels=(gemm,))
    >>> arithmetic_of(graph, gemm, a100)
    ('fp8', 'bf16')
    """
    if graph.dtypes is None or not isinstance(chip.peak, Peaks):
        return None
    could = _holding(graph.dtypes, kernel)
    for candidate in could:
        if chip.peak.of(candidate) is not None:
            return could[0], candidate
    has = ", ".join(candidate for candidate in get_args(Arithmetic) if chip.peak.of(candidate) is not None)
    message = f"found {has}, but kernel {kernel.name!r} of {graph.name} computes in {could[0]}"
    remedy = f"give the rate of {' or '.join(could)}, or one rate for all types"
    raise SystemSpecError(chip.name, [Issue("$.chip.peak", message, remedy)])


def rate(graph: Graph, kernel: Kernel, chip: Chip) -> float:
    """Peak rate of a chip in FLOP/s in the type that a kernel computes in.

    Parameters
    ----------
    graph, kernel, chip
        The workload, one of its kernels, and the chip that runs it.
    """
    arithmetic = arithmetic_of(graph, kernel, chip)
    peak = chip.peak.of(arithmetic[1]) if arithmetic and isinstance(chip.peak, Peaks) else None
    return chip.peak_flops if peak is None else peak


def slowdown(graph: Graph, kernel: Kernel, chip: Chip) -> float:
    """Time of a kernel relative to its time without data types; below 1 for a faster type.

    Parameters
    ----------
    graph, kernel, chip
        The workload, one of its kernels, and the chip that runs it.
    """
    return chip.peak_flops / rate(graph, kernel, chip)
