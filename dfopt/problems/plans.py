"""The plans a system allows: which network dims carry tensor, pipeline and data parallelism."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from dfopt.documents.graph import Graph
from dfopt.documents.plan import Plan
from dfopt.documents.system import System
from dfopt.errors import PlanError
from dfopt.physics.pipeline import layers_per_stage


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
) -> tuple[list[Plan], list[Rejected]]:
    """All plans: every network dim carries exactly one parallelism (DFModel, section IV.C).

    Parameters
    ----------
    graph, system : Graph, System
        The batch must divide over data-parallel copies, the layers over pipeline stages.
    tp, pp, dp : int, optional
        Degrees asked for; a plan with another degree is left out.
    tp_dims, pp_dims, dp_dims : tuple of str, optional
        Dims asked for.

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
    found: list[Plan] = []
    rejected: list[Rejected] = []
    dims = [dim for dim in system.network if dim.size > 1]
    for choice in itertools.product(("tp", "pp", "dp"), repeat=len(dims)):
        groups = {
            kind: tuple(dim.name for dim, carries in zip(dims, choice, strict=True) if carries == kind)
            for kind in ("tp", "pp", "dp")
        }
        degree = {kind: math.prod(system.dim(name).size for name in names) for kind, names in groups.items()}
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
        else:
            found.append(plan)
    if not found:
        raise PlanError(_nothing_left(system, wanted, wanted_dims, rejected))
    return found, rejected


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
    known = [dim.name for dim in system.network]
    for kind, names in wanted.items():
        for name in names or ():
            if name not in known:
                raise PlanError(f"--{kind}-dims: {system.name} has no network dim {name!r}; it has {', '.join(known)}")


def _nothing_left(
    system: System,
    wanted: dict[str, int | None],
    wanted_dims: dict[str, tuple[str, ...] | None],
    rejected: list[Rejected],
) -> str:
    if rejected:
        return "no plan is usable: " + "; ".join(f"{r.plan.label}: {r.reason}" for r in rejected[:4])
    sizes = ", ".join(f"{dim.name} ({dim.topology} of {dim.size})" for dim in system.network) or "none"
    asked = ", ".join(f"{kind.upper()} {value}" for kind, value in wanted.items() if value is not None)
    asked_dims = ", ".join(
        f"{kind.upper()} on {'x'.join(v) or 'no dim'}" for kind, v in wanted_dims.items() if v is not None
    )
    degrees = sorted(
        {
            math.prod(combination)
            for count in range(len(system.network) + 1)
            for combination in itertools.combinations([dim.size for dim in system.network], count)
        }
    )
    return (
        f"no plan on {system.name} has {', '.join(filter(None, (asked, asked_dims)))}: the network dims are {sizes},"
        f" {system.chips} chips; each dim carries one parallelism whole, so a degree is one of {degrees},"
        f" and TP x PP x DP must be {system.chips}"
    )
