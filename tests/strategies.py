"""Random small workloads, machines and assumptions for property tests (hypothesis).

Figures are chosen so that compute, memory and network times are of one size: FLOP in the hundreds at 1000
FLOP/s, bytes in the tens at 100 B/s, so that every term decides something now and then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

from hypothesis import assume, settings
from hypothesis import strategies as st

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import CollectiveKind, Communication, Graph, Group, Kernel, Tensor
from dfopt.documents.mapping import Sharding
from dfopt.documents.plan import Plan
from dfopt.documents.result import Request
from dfopt.documents.system import Chip, Dram, EfficiencyRow, NetworkDim, Sram, System
from dfopt.errors import PlanError
from dfopt.physics import ops
from dfopt.physics.pipeline import resolve
from dfopt.problems.plans import asked_plans

WORD = 2
SIZES = (1, 2, 3, 4, 6, 8)

# Every field of Assumptions but `profile`. Not drawn: tile_rows None under the cycle model (the optimizer's choice).
CHOICES: dict[str, list[Any]] = {
    "execution": ["auto", "auto", "auto", "kernel_by_kernel"],
    "overlap": ["auto", "perfect", "none", "compute_memory"],
    "compute_model": ["fixed", "cycle", "efficiency"],
    "compute_utilization": [None, 0.5, 1.0],
    "sharding_objective": ["seconds", "bytes"],
    "sharding_rules": ["exact", "dfmodel"],
    "collective_model": ["exact", "dfmodel", "two_stage"],
    "all_reduce_passes": [1, 2],
    "all_to_all_messages": ["crossing", "all"],
    "stage_time": ["sum", "max"],
    "weights_from_dram": [True, False],
    "layer_boundary": ["dram", "free"],
    "empty_partitions": ["allow", "forbid"],
    "forward_backward": ["separate", "halves", "shared"],
    "fanout": ["shared", "per_consumer"],
    "skew_buffers": ["depth", "double"],
    "weight_tiling": ["reread", "reread_all", "free", "forbid"],
    "gradients": ["exact", "dfmodel"],
    "gradient_bandwidth": [None, None, 40.0],
    "network_dims": ["parts", "whole"],
    "schedule": ["one_f_one_b", "one_f_one_b", "gpipe"],
    "bubble": ["one_f_one_b", "interleaved"],
    "point_to_point": ["per_microbatch", "per_step"],
    "optimizer_bytes_per_parameter": [0.0, 12.0],
    "tile_rows": [1, 2],
}


def share(part: float) -> settings:
    """Settings with a part of the profile's examples, at least five."""
    return settings(max_examples=max(5, int(settings().max_examples * part)))


def assumptions(**fixed: Any) -> st.SearchStrategy[Assumptions]:
    """Any assumptions, some fields fixed (a list is a choice)."""
    fields = {
        name: st.sampled_from(fixed[name] if isinstance(fixed.get(name), list) else [fixed[name]])
        if name in fixed
        else st.sampled_from(values)
        for name, values in CHOICES.items()
    }
    return st.fixed_dictionaries(fields).map(lambda values: Assumptions(profile="random", **values))


def _consumer(draw: st.DrawFn, op: str, number: int, made: list[Kernel]) -> tuple[dict[str, Any], list[Tensor]]:
    """Shapes of a kernel of some op and tensors from earlier kernels that agree with them."""
    size = st.sampled_from(SIZES)
    name = f"k{number}"
    if not made or draw(st.integers(0, 5)) == 0:  # a source of its own
        return {"m": draw(size), "n": draw(size), "outer": draw(st.sampled_from([1, 1, 1, 2, 3]))}, []
    first = made[draw(st.integers(max(0, len(made) - 3), len(made) - 1))]
    elements = first.outer * first.m * first.n
    bytes_ = float(draw(st.sampled_from([elements * WORD] * 3 + [elements]))) if op != "gemm" else None
    stated = bytes_ if bytes_ != elements * WORD else draw(st.sampled_from([None, bytes_]))
    tensors = [Tensor(src=first.name, dst=name, bytes=stated, operand=1)]
    if op == "elementwise":
        shape = {"outer": first.outer, "m": first.m, "n": first.n}
        for other in draw(st.lists(st.sampled_from(made), max_size=2)):
            tensors.append(Tensor(src=other.name, dst=name))
        return shape, tensors
    if op == "gemm":
        if draw(st.booleans()):
            return {"outer": first.outer, "m": draw(size), "k": first.m, "n": first.n}, tensors
        shape = {"outer": draw(st.sampled_from([1, 1, 2])), "m": draw(size), "k": first.outer * first.m, "n": first.n}
        return shape, tensors
    shape = {"outer": first.outer, "m": draw(size), "k": first.m, "n": first.n}
    fits = [k for k in made if k.outer * k.m * k.n % (shape["outer"] * shape["k"]) == 0]
    if fits and draw(st.integers(0, 3)):
        second = draw(st.sampled_from(fits))
        shape["m"] = second.outer * second.m * second.n // (shape["outer"] * shape["k"])
        tensors.append(Tensor(src=second.name, dst=name, operand=2))
    return shape, tensors


@st.composite
def extras(draw: st.DrawFn) -> dict[str, Any]:
    """What most kernels do not have, one at a time: a draw for each of them would take longer than the tests."""
    which = draw(st.integers(0, 11))
    if which == 0:
        return {"dram_bytes": 36.0}
    if which == 1:
        return {"resident_bytes": 20.0}
    if which == 2:
        return {"distributed": True}
    if which > 4:
        return {}
    found = tuple(
        Communication(
            kind=draw(st.sampled_from(get_args(CollectiveKind))),
            bytes=draw(st.sampled_from([8.0, 24.0])),
            over=draw(st.sampled_from(get_args(Group))),
        )
        for _ in range(which - 2)
    )
    return {"communications": found, "distributed": draw(st.booleans())}


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
    repeat = draw(st.sampled_from(repeats))
    runs = [*(["first"] * 2), *(["last"] * 2)] if pieces and draw(st.booleans()) else []
    graph = _in_one_piece(draw, most, least, trains, repeat)
    return _with_pieces(draw, graph, runs) if runs and len(graph.kernels) > 1 else graph


def _with_pieces(draw: st.DrawFn, graph: Graph, runs: list[str]) -> Graph:
    """Kernels of a graph shared out among pieces, without what would connect those."""
    here = {kernel.name: draw(st.sampled_from(["every_layer", *runs])) for kernel in graph.kernels}
    here[draw(st.sampled_from(sorted(here)))] = "every_layer"
    kernels = [
        kernel.model_copy(
            update={
                "runs": here[kernel.name],
                **{
                    key: None
                    for key in ("accumulates_into", "stage_with")
                    if getattr(kernel, key) is not None and here[getattr(kernel, key)] != here[kernel.name]
                },
            }
        )
        for kernel in graph.kernels
    ]
    return Graph(
        **{
            **{name: getattr(graph, name) for name in Graph.model_fields if name != "schema_"},
            "kernels": tuple(kernels),
            "tensors": tuple(t for t in graph.tensors if here[t.src] == here[t.dst]),
            "carried": tuple(t for t in graph.carried if here[t.src] == here[t.dst] == "every_layer"),
        }
    )


def _in_one_piece(draw: st.DrawFn, most: int, least: int, trains: bool | None, repeat: int) -> Graph:
    count = draw(st.integers(least, most))
    trains = draw(st.booleans()) if trains is None else trains
    forward = draw(st.integers(0, count)) if trains else count
    kernels: list[Kernel] = []
    tensors: list[Tensor] = []
    for number in range(count):
        later = number >= forward
        op = draw(st.sampled_from(["gemm", "gemm", "matmul", "elementwise", *(["weight_update"] * 2 if later else [])]))
        shape, mine = _consumer(draw, op, number, kernels)
        if op == "elementwise":
            shape["k"] = 1
        elif "k" not in shape:
            shape["k"] = draw(st.sampled_from(SIZES))
        phase = "forward" if not later else "update" if op == "weight_update" else "backward"
        gemms = [k.name for k in kernels if k.op == "gemm"]
        kernels.append(
            Kernel(
                name=f"k{number}",
                op=op,
                **shape,
                phase=phase,
                stream=draw(st.sampled_from([None, None, None, "n", "none", *([] if op == "elementwise" else ["k"])])),
                flop_per_element=draw(st.sampled_from([1, 1, 5])) if op == "elementwise" else 1,
                normalizes=op == "elementwise" and draw(st.booleans()),
                accumulates_into=draw(st.sampled_from([None, None, *gemms])) if op == "gemm" else None,
                stage_with=draw(st.sampled_from([None] * 5 + [k.name for k in kernels])) if kernels else None,
                dram_bytes_per_chip=draw(st.sampled_from([0.0, 0.0, 0.0, 24.0])),
                **draw(extras()),
            )
        )
        tensors += mine
    names = st.sampled_from([k.name for k in kernels])
    carried = draw(st.lists(st.builds(Tensor, src=names, dst=names), max_size=2))
    return Graph(
        name="random",
        repeat=repeat,
        word_bytes=WORD,
        batch=draw(st.sampled_from([4, 12])),
        microbatch=draw(st.sampled_from([1, 1, 2])),
        kernels=tuple(draw(st.permutations(kernels))),
        tensors=tuple(draw(st.permutations(tensors))),
        carried=tuple(carried),
    )


def footprint(graph: Graph) -> float:
    """Bytes of all tensors and weights, unsharded: a yardstick for memories that are just too small."""
    weights = sum(ops.weight_elements(k) + ops.gradient_elements(k) for k in graph.kernels)
    return weights * WORD + sum(graph.bytes_of(t) for t in (*graph.tensors, *graph.carried)) + 1.0


@st.composite
def efficiency_tables(draw: st.DrawFn) -> tuple[EfficiencyRow, ...]:
    """Shares of peak, whose limits lie among the FLOP and extents of these graphs and are often met exactly."""
    rows: list[EfficiencyRow] = []
    shares = st.sampled_from([0.1, 0.3, 0.6, 1.0])
    for unit, limits in (("matrix", [None, 16.0, 64.0, 256.0]), ("vector", [None, 8.0, 32.0])):
        for _ in range(draw(st.integers(0, 3))):
            flop, extent = draw(st.sampled_from(limits)), draw(st.sampled_from([None, 2, 3, 6]))
            row = EfficiencyRow(unit=unit, flop=flop, extent=extent, share=draw(shares))
            if (flop or extent) and not any(earlier.covers(row) for earlier in rows):
                rows.append(row)
        rows.append(EfficiencyRow(unit=unit, share=draw(shares)))
    return tuple(rows)


@st.composite
def systems(
    draw: st.DrawFn, graph: Graph, dims: int = 2, cycle: bool = True, roomy: bool = False, efficiency: bool = False
) -> System:
    """A small machine; memories are sometimes tight for this graph."""
    tiles = draw(st.sampled_from([2, 4, 5] if not roomy else [8]))
    size = footprint(graph)
    sram = 1e9 if roomy else draw(st.sampled_from([1e9, 4.0, 2.0, 1.0, 0.7, 0.5])) * size
    dram = None if roomy else draw(st.sampled_from([None, None, 20.0, 8.0, 3.0, 1.0, 0.5]))
    network = [
        NetworkDim(
            name="xyz"[i],
            topology=draw(st.sampled_from(["ring", "line", "switch", "fully_connected"])),
            size=draw(st.sampled_from([1, 2, 2, 3, 4])),
            link_bandwidth=draw(st.sampled_from([20.0, 100.0, 500.0])),
            latency=draw(st.sampled_from([0.0, 0.01])),
        )
        for i in range(draw(st.integers(0, dims)))
    ]
    chip: dict[str, Any] = {"peak": draw(st.sampled_from([300.0, 3000.0]))}
    if cycle:
        lanes, stages, frequency = draw(st.sampled_from([(2, 1, 100.0), (1, 2, 40.0), (2, 2, 30.0)]))
        chip = {"lanes": lanes, "stages": stages, "frequency": frequency}
        chip["peak"] = draw(st.sampled_from([None, 0.99 * 2 * lanes * stages * tiles * frequency]))
    if efficiency:
        chip["efficiency"] = draw(efficiency_tables())
    return System(
        name="toy",
        chip=Chip(
            name="toy",
            tiles=tiles,
            sram=Sram(capacity=sram),
            dram=Dram(bandwidth=draw(st.sampled_from([40.0, 100.0, 1000.0])), capacity=dram and dram * size),
            compute_utilization=draw(st.sampled_from([0.5, 0.9])),
            **chip,
        ),
        network=tuple(network),
        collective_overhead=draw(st.sampled_from([0.0, 0.02])),
    )


@dataclass(frozen=True)
class World:
    """What one plan's solve is given; assumptions are resolved."""

    graph: Graph
    system: System
    plan: Plan
    assumptions: Assumptions


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
    **fixed: Any,
) -> World:
    """A graph, a machine, one of its plans, and assumptions."""
    graph = draw(graphs(most=most, least=least, trains=trains, repeats=repeats, pieces=pieces))
    chosen = draw(assumptions(**fixed))
    model = chosen.compute_model
    cycle = model == "cycle" or draw(st.booleans())
    system = draw(systems(graph, roomy=roomy, dims=dims, cycle=cycle, efficiency=model == "efficiency"))
    try:
        legal, _ = asked_plans(graph, system, Request(), chosen)
    except PlanError:
        assume(False)
    legal = [plan for plan in legal if min_pp <= plan.pp <= max_pp]
    assume(legal)
    plan = draw(st.sampled_from(legal))
    return World(graph, system, plan, resolve(chosen, system.chip.execution, system.chip.compute_utilization))


def shardings(graph: Graph, plan: Plan, chosen: Assumptions) -> st.SearchStrategy[dict[str, Sharding]]:
    """Any legal sharding that keeps partial sums together."""
    legal = {k.name: st.sampled_from(ops.legal_schemes(k, plan.tp, chosen.sharding_rules)) for k in graph.kernels}
    return st.fixed_dictionaries(legal).filter(lambda z: sums_meet(graph, plan, chosen, z))


def sums_meet(graph: Graph, plan: Plan, chosen: Assumptions, sharding: dict[str, Sharding]) -> bool:
    """Whether split accumulating GEMMs meet a reduction."""
    if chosen.sharding_rules != "exact" or plan.tp == 1:
        return True
    return all(
        sharding[k.name] not in ("outer", "k") or sharding[k.accumulates_into] == "k"
        for k in graph.kernels
        if k.accumulates_into is not None and k.op == "gemm"
    )
