"""The judge's own rules of data types: how many bytes an element has, and how fast a chip computes with it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, get_args

from dfopt.documents.dtypes import FORMATS, Arithmetic, DataClass, Dtype, Peaks
from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.system import Chip
from dfopt.errors import Issue
from dfopt.physics.dtypes import WIDER
from dfopt.physics.identity import Same

_BY_WIDTH: Final[tuple[Arithmetic, ...]] = get_args(Arithmetic)
_TOO_NARROW: Final = ("int4", "fp4", "fp6", "int8", "fp8")  # for a vector unit
_LISTED: Final = 4  # names in a sentence


def _type(graph: Graph, of: DataClass) -> Dtype | None:
    """What a class of data is said to be; what is not said of one class is said of another."""
    types = graph.dtypes
    if types is None:
        return None
    if of in ("weights", "experts", "ends"):
        return {"experts": types.experts, "ends": types.ends}.get(of) or types.weights
    return {"kv": types.kv, "logits": types.logits}.get(of) or types.activations


def word(graph: Graph, of: DataClass = "activations") -> float:
    """Bytes of an element of a class of data; gradients have the type of activations, and tables that of ends."""
    dtype = _type(graph, of)
    return float(graph.word_bytes if dtype is None else FORMATS[dtype].bytes)


def held_word(graph: Graph) -> float:
    """Bytes of an element of a stored (accumulated) gradient."""
    return word(graph) if graph.main_gradients is None else float(FORMATS[graph.main_gradients].bytes)


def reduced_word(graph: Graph) -> float:
    """Bytes of an element of a gradient as replicas reduce it."""
    types = graph.trained
    return word(graph) if types is None or types.reduced is None else float(FORMATS[types.reduced].bytes)


def optimizer_words(graph: Graph, stated: float) -> tuple[float, int]:
    """Bytes of optimizer state for a parameter, and how many times the optimizer step moves the weight itself."""
    main, moments = (None, None) if graph.trained is None else (graph.trained.main_weights, graph.trained.moments)
    if main is None and moments is None:
        return stated, 1
    is_single = graph.dtypes is None and graph.word_bytes == FORMATS["fp32"].bytes
    held = "fp32" if is_single else _type(graph, "weights") or "bf16"
    own = (main or "fp32") == held  # the weights themselves are updated: read and written
    each = [] if own else [main or "fp32"]
    return sum(float(FORMATS[dtype].bytes) for dtype in (*each, *2 * [moments or "fp32"])), 1 + own


def type_of_weight(graph: Graph, kernel: Kernel) -> Dtype | None:
    """Stated data type of a kernel's weights, or None."""
    return _type(graph, _held(kernel))


def weight_word(graph: Graph, kernel: Kernel) -> float:
    """Bytes of an element of a kernel's weight."""
    return word(graph, _held(kernel))


def _held(kernel: Kernel) -> DataClass:
    """What the weights of a kernel are: those of experts, those that make logits, or others."""
    if kernel.experts is not None:
        return "experts"
    return "weights" if kernel.output_class != "logits" else "ends"


def made_word(graph: Graph, kernel: Kernel) -> float:
    """Bytes of an element of a kernel's output."""
    return word(graph, kernel.output_class or "activations")


def copied_word(graph: Graph, reader: Kernel) -> float | None:
    """Bytes of an element of the copy saved for a weight gradient; None if no copy in another type is saved."""
    if reader.op != "weight_update" or graph.dtypes is None or graph.dtypes.saved is None:
        return None
    of = next((kernel for kernel in graph.kernels if kernel.name == reader.stage_with), None)
    as_it_is = of is not None and _held(of) == "ends" and graph.dtypes.ends is not None
    return None if as_it_is else float(FORMATS[graph.dtypes.saved].bytes)


def _fitting(graph: Graph, kernel: Kernel) -> list[Arithmetic]:
    """Types that hold every operand of a kernel, the narrowest first."""
    return _fitting_of(Same(graph), Same(kernel))


@lru_cache(maxsize=4096)
def _fitting_of(same_graph: Same[Graph], same_kernel: Same[Kernel]) -> list[Arithmetic]:
    graph, kernel = same_graph.document, same_kernel.document
    operands = [_type(graph, "activations")]
    if kernel.op in ("gemm", "weight_update") and graph.dtypes is not None and graph.dtypes.operands is not None:
        operands = [graph.dtypes.operands]  # converted in front of it
    if kernel.op == "gemm":
        held = _held(kernel)
        cast = None if graph.dtypes is None or held == "ends" else graph.dtypes.weight_operands
        operands.append(cast or _type(graph, held))
    numbers = {FORMATS[same_kernel].arithmetic for same_kernel in operands if same_kernel is not None}
    if kernel.op != "elementwise" and graph.dtypes is not None and graph.dtypes.products is not None:
        numbers = {graph.dtypes.products if same_kernel == "fp32" else same_kernel for same_kernel in numbers}
    wide = [
        same_kernel
        for same_kernel in _BY_WIDTH
        if all(same_kernel == each or same_kernel in WIDER[each] for each in numbers)
    ]
    return [same_kernel for same_kernel in wide if kernel.op != "elementwise" or same_kernel not in _TOO_NARROW]


def _peaks(graph: Graph, chip: Chip) -> Peaks | None:
    """The rates of a chip by type, where types decide."""
    return chip.peak if graph.dtypes is not None and isinstance(chip.peak, Peaks) else None


def _rates(graph: Graph, kernel: Kernel, peaks: Peaks) -> dict[Arithmetic, float]:
    """Rates of a chip in those of its types that hold the operands of a kernel, the narrowest first."""
    rates = {arithmetic: peaks.of(arithmetic) for arithmetic in _fitting(graph, kernel)}
    return {arithmetic: rate for arithmetic, rate in rates.items() if rate is not None}


def peak(graph: Graph, kernel: Kernel, chip: Chip) -> float:
    """Peak FLOP/s of a chip in the narrowest of its types that can hold the operands of a kernel.

    Parameters
    ----------
    graph, kernel, chip
        The workload, which states data types, one of its kernels, and the chip.
    """
    peaks = _peaks(graph, chip)
    return chip.peak_flops if peaks is None else next(iter(_rates(graph, kernel, peaks).values()))


def issues(graph: Graph, chip: Chip) -> Iterator[Issue]:
    """Problems: kernels for whose operands the chip has no data type."""
    if (peaks := _peaks(graph, chip)) is None:
        return
    for kernel in graph.kernels:
        if not _rates(graph, kernel, peaks):
            wanted = _fitting(graph, kernel)
            message = f"kernel {kernel.name!r} computes in {wanted[0]}, which no type of the chip holds"
            yield Issue("$.chip.peak", message, f"give the rate of {' or '.join(wanted)}, or one rate for all types")
            return


def notes(graph: Graph, chip: Chip) -> Iterator[str]:
    """Sentences on kernels that compute in a wider type because the chip lacks theirs."""
    wider: dict[tuple[Arithmetic, Arithmetic], list[str]] = defaultdict(list)
    if (peaks := _peaks(graph, chip)) is None:
        return
    for kernel in graph.kernels:
        wanted, actual = _fitting(graph, kernel)[0], next(iter(_rates(graph, kernel, peaks)))
        if wanted != actual:
            wider[wanted, actual].append(kernel.name)
    for (wanted, actual), names in wider.items():
        yield f"{chip.name} has no {wanted}: {listed(names)} compute{'s' if len(names) == 1 else ''} in {actual}"


def listed(names: Sequence[str]) -> str:
    """Names joined to a text, at most four."""
    return ", ".join(names[:_LISTED]) + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")
