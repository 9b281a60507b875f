"""Random small workloads, machines and assumptions for property tests (hypothesis).

Figures are chosen so that compute, memory and network times are of one size: FLOP in the hundreds at 1000
FLOP/s, bytes in the tens at 100 B/s, so that every term decides something now and then.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeVar, get_args

import pytest
from hypothesis import assume, settings
from hypothesis import strategies as st

from dfopt.bnb import Clock
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.axes import groups
from dfopt.documents.dtypes import Dtype, Dtypes, Trained
from dfopt.documents.experts import Experts
from dfopt.documents.graph import CollectiveKind, Communication, Graph, Kernel, SequenceState, Tensor
from dfopt.documents.mapping import Sharding
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.documents.sections import Section
from dfopt.documents.system import Chip, CollectiveFactor, Dram, EfficiencyRow, NetworkDim, Sram, System
from dfopt.errors import PlanError
from dfopt.physics import ops
from dfopt.physics.pipeline import resolve
from dfopt.setting.instance import Instance, Setting
from dfopt.setting.plans import Rejected, asked_plans
from dfopt.solving.options import Options

T = TypeVar("T")

LEVELS = Assumptions(sharding_objective="seconds")  # for what is about a sharding, and then its fusion
WORD = 2
SIZES = (1, 2, 3, 4, 6, 8)
ROWS = [1, None, 2, 4]  # tile_rows for those whose oracle chooses too

# Every field of Assumptions but `profile`. Not drawn: tile_rows None, the optimizer's choice, see ROWS.
CHOICES: dict[str, list[Any]] = {
    "execution": ["auto", "auto", "library", "kernel_by_kernel"],
    "overlap": ["auto", "perfect", "none", "compute_memory"],
    "compute_model": ["fixed", "cycle", "efficiency"],
    "compute_utilization": [None, 0.5, 1.0],
    "sharding_objective": ["seconds", "bytes"],
    "sharding_rules": ["exact", "dfmodel"],
    "sequence_parallelism": ["none", "allow", "force"],
    "collective_model": ["exact", "dfmodel", "two_stage"],
    "all_reduce_passes": [1, 2],
    "all_to_all_messages": ["crossing", "all"],
    "stage_time": ["sum", "max"],
    "weights_from_dram": [True, False],
    "point_to_point_parts": [None, "scattered", "calculon"],
    "point_to_point_overlap": [None, "hidden", "exposed", "interleaved"],
    "layer_boundary": ["dram", "free"],
    "empty_partitions": ["allow", "forbid"],
    "forward_backward": ["separate", "halves", "shared"],
    "fanout": ["shared", "per_consumer"],
    "skew_buffers": ["depth", "double"],
    "weight_tiling": ["reread", "reread_all", "free", "forbid"],
    "token_blocks": ["none"],  # drawn by tests of their own: test_token_block_prices, _fusion, _schemes
    "gradients": ["exact", "dfmodel"],
    "gradient_bandwidth": [None, None, 40.0],
    "gradient_overlap": [None, None, "backward"],  # where gradients are exact; by windows: test_calculon_windows
    "parameter_overlap": [None, "forward"],  # where gradients are added up behind the backward pass
    "gradient_traffic": [None, "written", "held"],
    # drawn by tests of their own: test_beside, test_training_memory, test_offload, test_collective_command,
    # test_masks, test_memory_reserve
    "all_to_all_dims": ["together"],
    "masked_scores": ["skipped"],  # an oracle takes the graph as it is
    "memory_reserve": [None],
    "backward_gathers": [None],
    "collective_work": [None],
    "tensor_overlap": [None],
    "optimizer_step": [None],
    "operand_traffic": [None],
    "training_memory": [None],
    "offload": [None],
    "layers_exchanged": [None, None, 1, 2],
    "exchange_buffers": [None, None, 64.0],
    "kernel_overhead": [None, None, 0.05],
    "step_overhead": [None, None, 0.5],
    "network_dims": ["parts", "whole"],
    "schedule": ["one_f_one_b", "one_f_one_b", "gpipe"],
    "bubble": ["one_f_one_b", "interleaved", "stages"],
    "point_to_point": ["per_microbatch", "per_step", "per_neighbour"],
    "optimizer_bytes_per_parameter": [0.0, 12.0],
    "tile_rows": [1, 2, 4],
    "module_schemes": [None],  # of a second axis, which these worlds lack: tests/setting/test_module_schemes.py
}

TRAINED: list[Trained] = [
    Trained(reduced="fp32"),
    Trained(reduced="fp8", main_weights="fp32", moments="fp8"),
    Trained(main_weights="bf16", moments="bf16"),
]
"""What a training step has beside the data of its graph, of other types."""


def share(part: float, *, nightly: float | None = None) -> Callable[[T], T]:
    """Give a property a part of the profile's examples, at least five.

    With a part for the nightly profile, the property is marked ``nightly`` there, too.
    """
    marked = nightly is not None and os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
    if marked:
        part = nightly
    examples = settings(max_examples=max(5, int(settings().max_examples * part)))
    return (lambda test: pytest.mark.nightly(examples(test))) if marked else examples


class Dice:
    """Many small choices out of a few draws: hypothesis takes 0.2 ms for a draw, and a world is 150 choices.

    The first option is the simplest: what fails is shrunk towards it.
    """

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._left = iter(b"")

    def _byte(self) -> int:
        for byte in self._left:
            return byte
        self._left = iter(self._draw(st.binary(min_size=64, max_size=64)))
        return next(self._left)

    def __call__(self, options: Sequence[T]) -> T:
        """One of some options."""
        return options[self._byte() % len(options)]

    def some(self, options: Sequence[T], most: int) -> list[T]:
        """Up to ``most`` of some options, each any number of times."""
        return [self(options) for _ in range(self(range(most + 1)))]

    def shuffled(self, items: Sequence[T]) -> tuple[T, ...]:
        """The items in any order."""
        left = list(items)
        return tuple(left.pop(self(range(len(left)))) for _ in items)


@st.composite
def assumptions(draw: st.DrawFn, **fixed: Any) -> Assumptions:
    """Any assumptions, some fields fixed (a list is a choice)."""
    dice = Dice(draw)
    lists = {name: value if isinstance(value, list) else [value] for name, value in fixed.items()}
    found = {name: dice(lists.get(name, values)) for name, values in CHOICES.items()}
    if found["gradients"] == "dfmodel" and "gradient_overlap" not in fixed:
        found["gradient_overlap"] = None  # refused: see test_beside
    return Assumptions(profile="random", **found)


def _consumer(dice: Dice, op: str, number: int, made: list[Kernel]) -> tuple[dict[str, Any], list[Tensor]]:
    """Shapes of a kernel of some op and tensors from earlier kernels that agree with them."""
    name = f"k{number}"
    if not made or dice(range(6)) == 0:  # a source of its own
        samples = {"samples": dice([None, None, 2])} if op in ("matmul", "elementwise") else {}
        return {"m": dice(SIZES), "n": dice(SIZES), "outer": dice([1, 1, 1, 2, 3]), **samples}, []
    first = dice(made[-3:])
    elements = first.matrices * first.m * first.n
    bytes_ = float(dice([elements * WORD] * 3 + [elements])) if op != "gemm" else None
    stated = bytes_ if bytes_ != elements * WORD else dice([None, bytes_])
    tensors = [Tensor(src=first.name, dst=name, bytes=stated, operand=1)]
    if op == "elementwise":
        shape = {"outer": first.outer, "samples": first.samples, "m": first.m, "n": first.n}
        for other in dice.some(made, 2):
            # bytes stated, because sizes need not agree
            tensors.append(Tensor(src=other.name, dst=name, bytes=float(other.matrices * other.m * other.n * WORD)))
        return shape, tensors
    if op == "gemm":
        tokens = first.n * (first.samples or 1)
        other = dice(made)
        if other is not first and not dice(range(3)):  # two parts of one operand
            parts = [one.matrices * one.m * one.n for one in (first, other)]
            tensors = [
                Tensor(src=one.name, dst=name, bytes=float(size * WORD), operand=1)
                for one, size in zip((first, other), parts, strict=True)
            ]
            return {"outer": dice([1, 1, 2]), "m": dice(SIZES), "k": -(-sum(parts) // tokens), "n": tokens}, tensors
        if dice([False, True]):
            return {"outer": first.outer, "m": dice(SIZES), "k": first.m, "n": tokens}, tensors
        shape = {"outer": dice([1, 1, 2]), "m": dice(SIZES), "k": first.outer * first.m, "n": tokens}
        return shape, tensors
    shape = {"outer": first.outer, "m": dice(SIZES), "k": first.m, "n": first.n}
    shape |= {"samples": first.samples} if op == "matmul" else {"n": first.n * (first.samples or 1)}
    here = shape["outer"] * (shape.get("samples") or 1)
    fits = [k for k in made if k.matrices * k.m * k.n % (here * shape["k"]) == 0]
    if fits and dice(range(4)):
        second = dice(fits)
        shape["m"] = second.matrices * second.m * second.n // (here * shape["k"])
        tensors.append(Tensor(src=second.name, dst=name, operand=2))
    return shape, tensors


def _extras(dice: Dice) -> dict[str, Any]:
    """What most kernels do not have, one at a time."""
    which = dice([5, 0, 1, 2, 3, 4, *range(6, 12)])
    if which == 0:
        return {"dram_bytes": 36.0}
    if which == 1:
        return {"resident_bytes": 20.0, **dice([{}, {"resident_over": ()}, {"resident_optimizer_bytes": 6.0}])}
    if which == 2:
        return {"distributed": True}
    if which > 4:
        return {}
    found = tuple(
        Communication(kind=dice(get_args(CollectiveKind)), bytes=dice([8.0, 24.0]), over=dice(list(groups())))
        for _ in range(which - 2)
    )
    return {"communications": found, "distributed": dice([False, True]), "resident_bytes": dice([0.0, 20.0])}


def layered(repeat: int, kernels: Sequence[Kernel], **fields: Any) -> Graph:
    """Kernels that repeat, and those of the layers `first` and `last` before and after them; once, they are as any."""
    ends = {kernel.layer for kernel in kernels} - {None}
    if repeat == 1 or not ends:
        plain = [kernel.model_copy(update={"layer": None}) for kernel in kernels]
        return Graph(**{"name": "g", "repeat": repeat, "kernels": tuple(plain), **fields})
    first, last = ([Section(layers=(name,))] if name in ends else [] for name in ("first", "last"))
    sections = (*first, Section(repeat=repeat), *last)
    return Graph(**{"name": "g", "sections": sections, "kernels": tuple(kernels), **fields})


@st.composite
def graphs(
    draw: st.DrawFn,
    most: int = 5,
    least: int = 1,
    trains: bool | None = None,
    repeats: tuple[int, ...] = (1, 4),
    pieces: bool = True,
) -> Graph:
    """A DAG of kernels whose shapes agree, listed in any order; half of the repeated ones with pieces, if wanted."""
    dice = Dice(draw)
    repeat = dice(repeats)
    runs = [*(["first"] * 2), *(["last"] * 2)] if pieces and dice([False, True]) else []
    graph = _in_one_piece(dice, most, least, trains, repeat)
    graph = _with_pieces(dice, graph, runs) if runs and len(graph.kernels) > 1 else graph
    return _with_kinds(dice, graph) if pieces and graph.folded and dice([False, False, True]) else graph


def _with_pieces(dice: Dice, graph: Graph, runs: list[str]) -> Graph:
    """Kernels of a graph shared out among pieces, without what would connect those."""
    here = {kernel.name: dice([None, *runs]) for kernel in graph.kernels}
    here[dice(sorted(here))] = None
    kernels = [
        kernel.model_copy(
            update={
                "layer": here[kernel.name],
                **{
                    key: None
                    for key in ("accumulates_into", "stage_with")
                    if getattr(kernel, key) is not None and here[getattr(kernel, key)] != here[kernel.name]
                },
            }
        )
        for kernel in graph.kernels
    ]
    kept = {name: getattr(graph, name) for name in Graph.model_fields if name not in ("schema_", "sections")}
    tensors = tuple(t for t in graph.tensors if here[t.src] == here[t.dst])
    carried = tuple(t for t in graph.carried if here[t.src] is here[t.dst] is None)
    return layered(graph.repeat, **{**kept, "kernels": kernels, "tensors": tensors, "carried": carried})


def _with_kinds(dice: Dice, graph: Graph) -> Graph:
    """Two kinds of layers instead of one, which hand on the same tensors, with what would connect them left out."""
    names = [kernel.name for kernel in graph.kernels if kernel.layer is None]
    if len(names) < 2:
        return graph
    other = {name for name in names if dice([False, True])} or {names[0]}
    other = other if len(other) < len(names) else {names[0]}
    two, four = Section(layers=("layer", "other"), repeat=2), (Section(repeat=2), Section(layers=("other",), repeat=2))
    three = Section(layers=("layer", "other", "other"))
    sections: list[Section] = []
    for one in graph.sections or ():
        sections += dice([(two,), (three,), four]) if one.layers == ("layer",) else [one]
    kernels = []
    for kernel in graph.kernels:
        partners = {key: getattr(kernel, key) for key in ("accumulates_into", "stage_with")}
        apart = {key: None for key, name in partners.items() if name and (name in other) != (kernel.name in other)}
        layer = {"layer": "other"} if kernel.name in other else {}
        kernels.append(kernel.model_copy(update={**layer, **apart}))
    sizes = {kernel.name: graph.output_bytes(kernel.name) for kernel in kernels}
    carried = []
    for _ in range(dice(range(3))):
        ends = [(dice(sorted(kind)), dice(sorted(kind))) for kind in ({*names} - other, other)]
        size, direction = min(sizes[src] for src, _ in ends), dice(["forward", "backward"])
        carried += [Tensor(src=src, dst=dst, bytes=size, direction=direction) for src, dst in ends]
    kept = {name: getattr(graph, name) for name in Graph.model_fields if name != "schema_"}
    changed = {"sections": tuple(sections), "kernels": tuple(kernels), "carried": tuple(carried)}
    tensors = tuple(t for t in graph.tensors if (t.src in other) == (t.dst in other))
    return Graph(**{**kept, **changed, "tensors": tensors})


def _in_one_piece(dice: Dice, most: int, least: int, trains: bool | None, repeat: int) -> Graph:
    count = dice(range(least, most + 1))
    trains = dice([False, True]) if trains is None else trains
    forward = dice(range(count + 1)) if trains else count
    kernels: list[Kernel] = []
    tensors: list[Tensor] = []
    for number in range(count):
        later = number >= forward
        op = dice(["gemm", "gemm", "matmul", "elementwise", *(["weight_update"] * 2 if later else [])])
        shape, mine = _consumer(dice, op, number, kernels)
        if op == "elementwise":
            shape["k"] = 1
        elif "k" not in shape:
            shape["k"] = dice(SIZES)
        pass_ = "forward" if not later else "update" if op == "weight_update" else "backward"
        gemms = [k.name for k in kernels if k.op == "gemm"]
        kernels.append(
            Kernel(
                name=f"k{number}",
                op=op,
                **shape,
                pass_=pass_,
                stream=dice([None, None, None, "n", "none", *([] if op == "elementwise" else ["k"])]),
                flop_per_element=dice([1, 1, 5]) if op == "elementwise" else 1,
                normalizes=op == "elementwise" and dice([False, True]),
                accumulates_into=dice([None, None, *gemms]) if op == "gemm" else None,
                stage_with=dice([None] * 5 + [k.name for k in kernels]) if kernels else None,
                dram_bytes_per_chip=dice([0.0, 0.0, 0.0, 24.0]),
                **_extras(dice),
            )
        )
        tensors += mine
    kernels = [_with_state(dice, _with_experts(dice, _with_role(dice, kernel))) for kernel in kernels]
    if dice([False, True]):
        kernels, tensors = _masked(dice, kernels, tensors)
    names = [k.name for k in kernels]
    carried = [Tensor(src=dice(names), dst=dice(names)) for _ in range(dice(range(3)))]
    dtypes = None
    if dice(range(3)) == 2:
        dtypes, kernels, tensors = _typed(dice, kernels, tensors)
    return Graph(
        name="random",
        repeat=repeat,
        word_bytes=WORD,
        dtypes=dtypes,
        batch=dice([4, 12]),
        microbatch=dice([1, 1, 2]),
        kernels=dice.shuffled(kernels),
        tensors=dice.shuffled(tensors),
        carried=tuple(carried),
        trained=dice([None, None, *TRAINED]),
        main_gradients=dice([None, None, "fp32"]),
    )


def _typed(dice: Dice, kernels: list[Kernel], tensors: list[Tensor]) -> tuple[Dtypes, list[Kernel], list[Tensor]]:
    """Types for every class of data, some outputs as logits, and the tensors as large as those make them."""
    types: tuple[Dtype, ...] = ("bf16", "fp8", "fp32", "mxfp4", "int4_g32_zp")
    classes = {data: dice([None, *types]) for data in ("experts", "ends", "operands", "logits", "saved")}
    dtypes = Dtypes(weights=dice(types), activations=dice(types), **classes)
    if "fp32" in (dtypes.weights, dtypes.activations):
        dtypes = dtypes.model_copy(update={"products": dice([None, "tf32"])})
    kernels = [kernel.model_copy(update={"output_class": dice([None, None, "logits"])}) for kernel in kernels]
    made = {kernel.name: dtypes.words().of_output(kernel) for kernel in kernels}
    sizes = [None if tensor.bytes is None else tensor.bytes * made[tensor.src] / WORD for tensor in tensors]
    return dtypes, kernels, [t.model_copy(update={"bytes": size}) for t, size in zip(tensors, sizes, strict=True)]


def _with_state(dice: Dice, kernel: Kernel) -> Kernel:
    """Something that a forward kernel keeps for every sequence, of heads that its matrices share."""
    if kernel.pass_ != "forward" or dice(range(6)):
        return kernel
    state = SequenceState(
        name="state",
        sequences=dice([1, 2]),
        heads=dice([heads for heads in range(1, kernel.outer + 1) if kernel.outer % heads == 0]),
        bytes_per_token=dice([0, 3]),
        bytes_per_sequence=dice([0, 12]),
        tokens=dice([1, 5]),
        reads=dice([0, 4]),
        writes=dice([0, 1]),
        page=dice([1, 4]),
    )
    return kernel.model_copy(update={"states": (state,)})


def _with_experts(dice: Dice, kernel: Kernel) -> Kernel:
    """Weights or gradients of four experts, of which two or more are read or added to."""
    if kernel.op not in ("gemm", "weight_update") or dice(range(5)):
        return kernel
    return kernel.model_copy(update={"experts": Experts(count=4, chosen=2, touched=dice([2.0, 3.5]))})


def _with_role(dice: Dice, kernel: Kernel) -> Kernel:
    """A role that many others have too, so that some are neighbours."""
    return kernel.model_copy(update={"role": dice([None, "norm", "residual", "scores", "softmax", "gate"])})


def _masked(dice: Dice, kernels: list[Kernel], tensors: list[Tensor]) -> tuple[list[Kernel], list[Tensor]]:
    """Some kernels with a mask; of what they make tensors bring no more than is left."""
    found = []
    for kernel in kernels:
        density = dice([None, 0.5, 0.3, 1.0]) if kernel.op in ("matmul", "elementwise") else None
        masked = dice([None, 1, 2]) if density and kernel.op == "matmul" else None
        found.append(Kernel(**{**dict(kernel), "density": density, "masked": masked}))
    now = Graph(name="masked", word_bytes=WORD, kernels=tuple(found))
    whole = Graph(name="whole", word_bytes=WORD, kernels=tuple(kernels))
    sizes = [min(t.bytes or whole.output_bytes(t.src), now.output_bytes(t.src)) for t in tensors]
    return found, [t.model_copy(update={"bytes": size}) for t, size in zip(tensors, sizes, strict=True)]


def footprint(graph: Graph) -> float:
    """Bytes of all tensors and weights, unsharded: a yardstick for memories that are just too small."""
    words = graph.words
    weights = sum(ops.weight_elements(k) * words.of_weight(k) for k in graph.kernels)
    weights += sum(ops.gradient_elements(k) * words.activations for k in graph.kernels)
    ends = sum(size for _, _, size in graph.reads()) + sum(size for _, size in graph.writes())
    return weights + sum(graph.bytes_of(t) for t in (*graph.tensors, *graph.carried)) + ends + 1.0


@st.composite
def efficiency_tables(draw: st.DrawFn, memory: bool = False) -> tuple[EfficiencyRow, ...]:
    """Shares of peak, whose limits lie among the FLOP and extents of these graphs and are often met exactly.

    ``memory``: of bandwidth too.
    """
    dice = Dice(draw)
    rows: list[EfficiencyRow] = []
    shares = [0.1, 0.3, 0.6, 1.0]
    for unit, limits in (("matrix", [None, 16.0, 64.0, 256.0]), ("vector", [None, 8.0, 32.0])):
        for _ in range(dice(range(4))):
            flop, extent = dice(limits), dice([None, 2, 3, 6])
            op = dice([None, None, "matmul", "attention"]) if unit == "matrix" else None
            row = EfficiencyRow(unit=unit, flop=flop, extent=extent, op=op, share=dice(shares))
            if row.conditions and not any(earlier.covers(row) for earlier in rows):
                rows.append(row)
        rows.append(EfficiencyRow(unit=unit, share=dice(shares)))
    return (*rows, *(_memory_rows(dice) if memory else ()))


def _memory_rows(dice: Dice) -> list[EfficiencyRow]:
    """Shares of bandwidth, rising and falling with bytes that many partitions of these graphs move."""
    rows: list[EfficiencyRow] = []
    limits, shares = [16.0, 32.0, 64.0, 128.0, 256.0], [0.1, 0.3, 0.6, 1.0]
    for _ in range(dice(range(4))):
        row = EfficiencyRow(unit="memory", bytes=dice(limits), share=dice(shares))
        if not any(earlier.covers(row) for earlier in rows):
            rows.append(row)
    step = [EfficiencyRow(unit="memory", op="optimizer", share=dice(shares))] if dice([False, True]) else []
    return [*step, *rows, EfficiencyRow(unit="memory", share=dice(shares))]


def falls(system: System) -> bool:
    """Whether some share of bandwidth is smaller for more bytes."""
    rows = [row for row in system.chip.efficiency or () if row.unit == "memory" and row.op is None]
    shares = [row.share for row in sorted(rows, key=lambda row: row.bytes or 0.0)]
    return any(later < share for share, later in pairwise(shares))


_WITH_FORMULAS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "point_to_point")


def _formula(dice: Dice) -> CollectiveFactor:
    """A collective that has a formula of its own."""
    figures = {"scale": dice([0.5, 1.0, 2.0]), "offset": dice([-1.0, 0.0, 1.0]), "latency": dice([None, 0.0, 0.02])}
    return CollectiveFactor(**figures)


@st.composite
def systems(
    draw: st.DrawFn,
    graph: Graph,
    dims: int = 2,
    cycle: bool = True,
    roomy: bool = False,
    efficiency: bool = False,
    memory: bool = False,
) -> System:
    """A small machine; memories are sometimes tight for this graph."""
    dice = Dice(draw)
    tiles = dice([2, 4, 5] if not roomy else [8])
    size = footprint(graph)
    sram = 1e9 if roomy else dice([1e9, 4.0, 2.0, 1.0, 0.7, 0.5]) * size
    dram = None if roomy else dice([None, None, 20.0, 8.0, 3.0, 1.0, 0.5])
    network = [
        NetworkDim(
            name="xyz"[i],
            topology=dice(["ring", "line", "switch", "fully_connected"]),
            size=dice([1, 2, 2, 3, 4]),
            link_bandwidth=dice([20.0, 100.0, 500.0]),
            latency=dice([0.0, 0.01]),
            efficiency=dice([0.3, 1.0]),
            factors={kind: _formula(dice) for kind in _WITH_FORMULAS if dice([True, False, False])},
        )
        for i in range(dice(range(dims + 1)))
    ]
    chip: dict[str, Any] = {"peak": dice([300.0, 3000.0])}
    rates = {"fp32": 0.5, **{name: factor for name, factor in (("fp8", 1.5), ("fp4", 4.0)) if dice([False, True])}}
    by_type = dice([False, True])
    if cycle:
        lanes, stages, frequency = dice([(2, 1, 100.0), (1, 2, 40.0), (2, 2, 30.0)])
        chip = {"lanes": lanes, "stages": stages, "frequency": frequency}
        chip["peak"] = dice([None, 0.99 * 2 * lanes * stages * tiles * frequency])
    if by_type and chip["peak"] is not None:
        chip["peak"] = {"bf16": chip["peak"], **{name: factor * chip["peak"] for name, factor in rates.items()}}
    if efficiency:
        chip["efficiency"] = draw(efficiency_tables(memory=memory))
    return System(
        name="toy",
        chip=Chip(
            name="toy",
            tiles=tiles,
            sram=Sram(capacity=sram, bandwidth=dice([None, None, 50.0, 300.0])),
            dram=Dram(bandwidth=dice([40.0, 100.0, 1000.0]), capacity=dram and dram * size),
            compute_utilization=dice([0.5, 0.9]),
            **chip,
        ),
        network=tuple(network),
        collective_overhead=dice([0.0, 0.02]),
    )


@dataclass(frozen=True)
class World:
    """What one plan's solve is given; assumptions are resolved.

    ``model``: the whole graph, where this one is what a chip of a second axis sees of it.
    """

    graph: Graph
    system: System
    plan: Plan
    assumptions: Assumptions
    model: Graph | None = None

    @property
    def instance(self) -> Instance:
        return Setting(self.model or self.graph, self.system, self.assumptions).under(self.plan)


@st.composite
def worlds(
    draw: st.DrawFn,
    most: int = 5,
    least: int = 1,
    trains: bool | None = None,
    repeats: tuple[int, ...] = (1, 4),
    max_pp: int = 3,
    min_pp: int = 1,
    roomy: bool = False,
    dims: int = 2,
    pieces: bool = True,
    memory: bool = False,
    zero: bool = True,
    **fixed: Any,
) -> World:
    """A graph, a machine, one of its plans, and assumptions.

    ``memory``: with shares of bandwidth by bytes; ``zero``: copies may share out what they hold.
    """
    graph = draw(graphs(most=most, least=least, trains=trains, repeats=repeats, pieces=pieces))
    chosen = draw(assumptions(**fixed))
    model = chosen.compute_model
    cycle = model == "cycle" or draw(st.booleans())
    system = draw(systems(graph, roomy=roomy, dims=dims, cycle=cycle, efficiency=model == "efficiency", memory=memory))
    try:
        asked = Request(zero=(0, 1, 2, 3), zero_replicas="all") if zero else Request()
        legal, _ = asked_plans(graph, system, asked, chosen)
    except PlanError:
        assume(False)
    legal = [plan for plan in legal if min_pp <= plan.pp <= max_pp]
    assume(legal)
    plan = draw(st.sampled_from(legal))
    # where tokens have to be split, some plans would have no row of a tile for a chip; which is refused by itself
    assume(chosen.sequence_parallelism != "force" or (chosen.tile_rows or system.chips) >= system.chips)
    return World(graph, system, plan, resolve(chosen, system.chip.execution, system.chip.compute_utilization))


def shardings(graph: Graph, plan: Plan, chosen: Assumptions) -> st.SearchStrategy[dict[str, Sharding]]:
    """Any legal sharding that keeps partial sums together."""
    legal = {k.name: st.sampled_from(ops.legal_schemes(k, plan.tp, chosen)) for k in graph.kernels}
    return st.fixed_dictionaries(legal).filter(lambda z: sums_meet(graph, plan, chosen, z))


def sums_meet(graph: Graph, plan: Plan, chosen: Assumptions, sharding: dict[str, Sharding]) -> bool:
    """Whether split accumulating GEMMs meet a reduction, and layers of all kinds hand tensors on in one layout."""
    if plan.tp > 1 and chosen.layer_boundary == "dram" and graph.folded:
        axis = {"outer": "features", "m": "features", "n": "tokens", "k>n": "tokens", "even": "tokens"}
        of, handed = {k.name: k.layer or "layer" for k in graph.kernels}, dict[str, list[str]]()
        for tensor in graph.carried:
            handed.setdefault(of[tensor.src], []).append(axis.get(sharding[tensor.src], "all"))
        if len({tuple(layouts) for layouts in handed.values()}) > 1:
            return False
    if chosen.sharding_rules != "exact" or plan.tp == 1:
        return True
    return all(
        sharding[k.name] not in ("outer", "k") or sharding[k.accumulates_into] in ("k", "k>n")
        for k in graph.kernels
        if k.accumulates_into is not None and k.op == "gemm"
    )


def options_of(**asked: Any) -> Options:
    """What a search is asked, by default nothing in particular, with a minute of time."""
    return Options(Request(**asked), Clock.of_limit(60.0))


def busy(world: World, usage: float) -> World:
    """The same on links that take a part of the chip where they overlap with products."""
    dims = tuple(dim.model_copy(update={"processor_usage": usage}) for dim in world.system.network)
    return replace(world, system=world.system.model_copy(update={"network": dims}))


def with_dram(system: System, capacity: float | None) -> System:
    """A machine whose chips have so many bytes of DRAM."""
    dram = system.chip.dram.model_copy(update={"capacity": capacity})
    return system.model_copy(update={"chip": system.chip.model_copy(update={"dram": dram})})


def with_sram(system: System, capacity: float) -> System:
    """A machine whose chips have so many bytes of SRAM."""
    sram = system.chip.sram.model_copy(update={"capacity": capacity})
    return system.model_copy(update={"chip": system.chip.model_copy(update={"sram": sram})})


@st.composite
def keeping(draw: st.DrawFn, drawn_worlds: st.SearchStrategy[World]) -> World:
    """A world of which some kernels keep their outputs or masks, or not for long; some run twice."""
    world = draw(drawn_worlds)
    kernels = []
    for kernel in world.graph.kernels:
        again = kernel.pass_ == "backward" and draw(st.booleans())
        keeps = {
            "pass_": "recompute" if again else kernel.pass_,
            "output_saved": draw(st.sampled_from([None, True, False])),
            "mask_bytes": draw(st.sampled_from([None, None, 1.0])),
            "role": draw(st.sampled_from([None, "dropout"])) if kernel.role is None else kernel.role,
        }
        kernels.append(kernel.model_copy(update=keeps))
    held = draw(st.sampled_from([None, "fp32", "bf16"]))
    graph = world.graph.model_copy(update={"kernels": tuple(kernels), "main_gradients": held})
    rules = world.assumptions.with_(training_memory=draw(st.sampled_from([None, "calculon"])))
    return replace(world, graph=graph, assumptions=rules)


def plans_on(graph: Graph, system: System, *, parts: bool = False, **asked: Any) -> tuple[list[Plan], list[Rejected]]:
    """The plans that a request leaves free on dims, each whole or shared by several axes, without levels of ZeRO."""
    assumptions = Assumptions(network_dims="parts" if parts else "whole")
    return asked_plans(graph, system, Request.of(**{"zero": (0,), **asked}), assumptions)
