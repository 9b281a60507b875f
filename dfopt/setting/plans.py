"""The plans a system allows: which network dims, or parts of them, carry tensor, pipeline and data parallelism."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.documents.plan import Plan
from dfopt.documents.result import Request
from dfopt.documents.system import NetworkDim, System, part_name, split_part_name
from dfopt.errors import PlanError
from dfopt.physics.pipeline import layers_per_stage

KINDS = ("tp", "pp", "dp")
_SPARED = 3  # layers at most that a stage with an embedding or logits has less than the others
_Share = tuple[tuple[str, ...], int]


@dataclass(frozen=True)
class Rejected:
    """A share-out of the network dims that this graph cannot use, and why."""

    plan: Plan
    reason: str


def plans(
    graph: Graph,
    system: System,
    *,
    tp: int | None = None,
    pp: int | None = None,
    dp: int | None = None,
    tp_dims: tuple[str, ...] | None = None,
    pp_dims: tuple[str, ...] | None = None,
    dp_dims: tuple[str, ...] | None = None,
    interleave: int | None = None,
    parts: bool = False,
    interleaved: bool = False,
) -> tuple[list[Plan], list[Rejected]]:
    """All plans: every network dim carries one parallelism, or shares its chips out among several.

    Where kernels run once per microbatch before the first or after the last layer, the pipeline stage that has them
    may have up to three layers less than the others (:func:`uneven_layers`); interleaved stages are all alike.

    Inside a dim that is shared, groups of neighbours carry what communicates most often: tensor parallelism (every
    kernel), then pipeline parallelism (every microbatch), then data parallelism (every step). DFModel (section
    IV.C) leaves dims whole.

    Parameters
    ----------
    graph, system : Graph, System
        The batch must divide over data-parallel copies, the layers over pipeline stages.
    tp, pp, dp : int, optional
        Degrees asked for; a plan with another degree is left out.
    tp_dims, pp_dims, dp_dims : tuple of str, optional
        Dims asked for, or parts of dims such as ``x[8]``.
    interleave : int, optional
        Chunks of layers per stage asked for.
    parts : bool
        Whether a dim may be shared by several parallelisms.
    interleaved : bool
        Whether a stage may hold its layers in several chunks (the interleaved 1F1B schedule).

    Returns
    -------
    (plans, rejected) : list of Plan, list of Rejected
        Legal plans, and those the graph cannot use with the reason.

    Raises
    ------
    PlanError
        If nothing is left, saying which degrees the dims allow.
    """
    wanted = {"tp": tp, "pp": pp, "dp": dp}
    wanted_dims = {"tp": tp_dims, "pp": pp_dims, "dp": dp_dims}
    _check_dims(system, wanted_dims)
    parts = parts or any("[" in name for names in wanted_dims.values() for name in names or ())
    found: list[Plan] = []
    rejected: list[Rejected] = []
    for dims, degrees in shares([dim for dim in system.network if dim.size > 1], parts):
        degree: dict[str, int] = dict(zip(KINDS, degrees, strict=True))
        groups: dict[str, tuple[str, ...]] = dict(zip(KINDS, dims, strict=True))
        if any(value is not None and degree[kind] != value for kind, value in wanted.items()):
            continue
        if any(names is not None and set(groups[kind]) != set(names) for kind, names in wanted_dims.items()):
            continue
        plan = Plan(
            tp=degree["tp"],
            pp=degree["pp"],
            dp=degree["dp"],
            tp_dims=groups["tp"],
            pp_dims=groups["pp"],
            dp_dims=groups["dp"],
            microbatches=max(graph.batch // (graph.microbatch * degree["dp"]), 1),
            layers_per_stage=layers_per_stage(graph.repeat, degree["pp"]),
        )
        reason = _unusable(graph, plan)
        if reason:
            rejected.append(Rejected(plan, reason))
            continue
        chunks = [v for v in _chunks(graph, plan, interleaved) if interleave in (None, v)]
        if not chunks:
            rejected.append(Rejected(plan, f"its layers cannot be interleaved {interleave} times"))
        for v in chunks:
            found.append(plan.model_copy(update={"interleave": v}))
            if v == 1:
                found += [plan.model_copy(update=layers) for layers in uneven_layers(graph, plan.pp)]
    if not found:
        raise PlanError(_nothing_left(system, wanted, wanted_dims, rejected, parts))
    return found, rejected


def asked_plans(
    graph: Graph, system: System, asked: Request, assumptions: Assumptions
) -> tuple[list[Plan], list[Rejected]]:
    """The plans that a request leaves free under given assumptions, see :func:`plans`."""
    return plans(
        graph,
        system,
        tp=asked.tp,
        pp=asked.pp,
        dp=asked.dp,
        tp_dims=asked.tp_dims,
        pp_dims=asked.pp_dims,
        dp_dims=asked.dp_dims,
        interleave=asked.interleave,
        parts=assumptions.network_dims == "parts",
        interleaved=graph.trains and assumptions.schedule == assumptions.bubble == "one_f_one_b",
    )


def shares(dims: list[NetworkDim], parts: bool) -> Iterator[tuple[list[tuple[str, ...]], tuple[int, int, int]]]:
    """Every way to share dims out: for tp, pp and dp the names of dims or parts, and the degrees.

    Examples
    --------
    >>> x = NetworkDim(name="x", topology="switch", size=4, link_bandwidth=1e9)
    >>> [degrees for _, degrees in shares([x], parts=False)]
    [(4, 1, 1), (1, 4, 1), (1, 1, 4)]
    >>> len(list(shares([x], parts=True)))
    6
    """
    for choice in itertools.product(*(_of_one(dim, parts) for dim in dims)):
        names = [tuple(name for of_dim in choice for name in of_dim[kind][0]) for kind in range(3)]
        tp, pp, dp = (math.prod(of_dim[kind][1] for of_dim in choice) for kind in range(3))
        yield names, (tp, pp, dp)


def _of_one(dim: NetworkDim, parts: bool) -> list[tuple[_Share, ...]]:
    """Every share-out of one dim: what tp, pp and dp get of it, in the order of their neighbourhood."""
    n = dim.size
    found = []
    for tp in _divisors(n) if parts else [n, 1]:
        for pp in _divisors(n // tp) if parts else [n // tp, 1][: 1 if tp == n else 2]:
            share: list[_Share] = []
            stride = 1
            for size in (tp, pp, n // (tp * pp)):
                name = dim.name if size == n else part_name(dim.name, size, stride)
                share.append(((name,) if size > 1 else (), size))
                stride *= size
            found.append(tuple(share))
    return found


def _divisors(n: int) -> list[int]:
    """All divisors, largest first."""
    low = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return sorted({*low, *(n // d for d in low)}, reverse=True)


def _chunks(graph: Graph, plan: Plan, interleaved: bool) -> list[int]:
    """Chunks of layers that a stage may be cut into; the microbatches go around in groups of one per stage."""
    if not interleaved or plan.pp == 1 or graph.repeat == 1 or plan.microbatches % plan.pp:
        return [1]
    return sorted(_divisors(plan.layers_per_stage))


def uneven_layers(graph: Graph, pp: int) -> list[dict[str, int | None]]:
    """Layers of the first, the middle and the last pipeline stages where those have different numbers of them.

    A stage that has kernels of its own has up to three layers less than the middle ones; of two stages, one takes
    up to three layers over from the other. What has no less in some stage than another choice, and more in one, is
    left out.

    Returns
    -------
    list of dict
        Changes of a :class:`Plan`; none where all stages are alike.

    Examples
    --------
    >>> from dfopt.documents.graph import Kernel
    >>> kernels = [Kernel(name="a", op="elementwise", m=1, n=1), Kernel(name="b", op="gemm", m=1, n=1, runs="last")]
    >>> graph = Graph(name="g", repeat=16, kernels=tuple(kernels))
    >>> [tuple(plan.values()) for plan in uneven_layers(graph, 4)]
    [(5, 5, 2)]
    """
    if pp == 1 or not graph.has_pieces:
        return []
    even = layers_per_stage(graph.repeat, pp)
    kinds = {kernel.runs for kernel in graph.kernels}
    spared_first = range(_SPARED + 1 if "first" in kinds else 1)
    spared_last = range(_SPARED + 1 if "last" in kinds else 1)
    if pp == 2:
        choices = {(first, 0, graph.repeat - first) for first in range(even - _SPARED, even + _SPARED + 1)}
    else:
        choices = set()
        for fewer_first, fewer_last in itertools.product(spared_first, spared_last):
            most = -(-(graph.repeat + fewer_first + fewer_last) // pp)
            choices.add((most - fewer_first, most, most - fewer_last))
    choices = {layers for layers in choices if min(layers[0], layers[2]) >= 1}
    choices -= {(even, even, even), (even, 0, even)}

    def beaten(layers: tuple[int, int, int]) -> bool:
        others = choices | ({(even, even, even)} if pp > 2 else set())
        return any(o != layers and all(a <= b for a, b in zip(o, layers, strict=True)) for o in others)

    return [
        {"layers_per_stage": max(layers), "first_layers": layers[0], "last_layers": layers[2]}
        for layers in sorted(choices, reverse=True)
        if not beaten(layers)
    ]


def _unusable(graph: Graph, plan: Plan) -> str | None:
    if graph.batch % (graph.microbatch * plan.dp):
        return (
            f"a batch of {graph.batch} samples in microbatches of {graph.microbatch}"
            f" does not divide over DP {plan.dp} (needs a multiple of {graph.microbatch * plan.dp})"
        )
    if plan.pp > 1 and graph.repeat > 1 and plan.pp > graph.repeat:
        return f"PP {plan.pp} has more stages than the graph has layers ({graph.repeat})"
    if plan.pp > len(graph.kernels) * graph.repeat:
        return f"PP {plan.pp} has more stages than the graph has kernels ({len(graph.kernels)})"
    return None


def _check_dims(system: System, wanted: dict[str, tuple[str, ...] | None]) -> None:
    known = {dim.name: dim for dim in system.network}
    for kind, names in wanted.items():
        for written in names or ():
            try:
                name, size, stride = split_part_name(written)
                if name not in known:
                    raise ValueError(f"{system.name} has no network dim {name!r}; it has {', '.join(known)}")
                if size is not None:
                    known[name].part(size, stride)
            except ValueError as error:
                raise PlanError(f"--{kind}-dims: {error}") from None


def _nothing_left(
    system: System,
    wanted: dict[str, int | None],
    wanted_dims: dict[str, tuple[str, ...] | None],
    rejected: list[Rejected],
    parts: bool,
) -> str:
    if rejected:
        return "no plan is usable: " + "; ".join(f"{r.plan.label}: {r.reason}" for r in rejected[:4])
    sizes = ", ".join(f"{dim.name} ({dim.topology} of {dim.size})" for dim in system.network) or "none"
    asked = ", ".join(f"{kind.upper()} {value}" for kind, value in wanted.items() if value is not None)
    asked_dims = ", ".join(
        f"{kind.upper()} on {'*'.join(v) or 'no dim'}" for kind, v in wanted_dims.items() if v is not None
    )
    dims = [dim for dim in system.network if dim.size > 1]
    degrees = sorted({degree for _, found in shares(dims, parts) for degree in found})
    rule = "a dim may be shared, in divisors of its size" if parts else "each dim carries one parallelism whole"
    return (
        f"no plan on {system.name} has {', '.join(filter(None, (asked, asked_dims)))}: the network dims are {sizes},"
        f" {system.chips} chips; {rule}, so a degree is one of {degrees},"
        f" and TP x PP x DP must be {system.chips}"
    )
