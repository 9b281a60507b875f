"""Whether a mapping belongs to a graph and a system at all: names, degrees, dims, legal shardings.

What does not fit cannot be timed, so it is an error. What fits but breaks a capacity or an order is
timed and reported, see `dfopt.judge.limits`.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Mapping
from dfopt.documents.plan import Plan
from dfopt.documents.system import Chip, System
from dfopt.errors import DocumentError, Issue, PlanError, SystemSpecError
from dfopt.physics import ops, pipeline


def check(mapping: Mapping, graph: Graph, system: System, assumptions: Assumptions) -> None:
    """Raise everything that keeps a mapping from being timed, all at once.

    Raises
    ------
    PlanError
        If the plan does not fit the system or the graph; the message lists the kernels' issues too.
    DocumentError
        If only kernels do not fit. The path is ``mapping.graph``.
    SystemSpecError
        If the chip lacks what the compute model needs: how its tiles are built, or a table of shares of peak.
    """
    plan = list(_plan_issues(mapping.plan, graph, system))
    kernels = list(_kernel_issues(mapping, graph, assumptions))
    if plan:
        count = len(plan) + len(kernels)
        head = f"{mapping.graph} on {mapping.system}: {count} problem{'' if count == 1 else 's'}"
        raise PlanError("\n".join([head, *(f"  {issue}" for issue in [*plan, *kernels])]))
    if kernels:
        raise DocumentError(mapping.graph, kernels)
    missing = list(_chip_issues(system.chip, assumptions.compute_model))
    if missing:
        raise SystemSpecError(system.name, missing)


def _chip_issues(chip: Chip, model: str) -> Iterator[Issue]:
    """What a compute model needs of the chip and does not find."""
    needs = {"cycle": ("lanes", "stages", "frequency"), "efficiency": ("efficiency",)}
    for key in needs.get(model, ()):
        if getattr(chip, key) is None:
            message = f"the key is missing, but the {model} model needs it"
            yield Issue(f"$.chip.{key}", message, "give it, or assume compute_model: fixed")


def _plan_issues(plan: Plan, graph: Graph, system: System) -> Iterator[Issue]:
    degrees = plan.tp * plan.pp * plan.dp
    if degrees != system.chips:
        yield Issue(
            "$.plan",
            f"tp x pp x dp is {plan.tp} x {plan.pp} x {plan.dp} = {degrees}, but the system has {system.chips} chips",
            "choose degrees that multiply to the chips",
        )
    sizes = {dim.name: dim.size for dim in system.network}
    user: dict[str, str] = {}
    for kind, degree, dims in (
        ("tp", plan.tp, plan.tp_dims),
        ("pp", plan.pp, plan.pp_dims),
        ("dp", plan.dp, plan.dp_dims),
    ):
        known = True
        for position, name in enumerate(dims):
            where = f"$.plan.{kind}_dims[{position}]"
            if name not in sizes:
                known = False
                have = ", ".join(sizes) or "none"
                yield Issue(where, f"no network dim is called {name!r}", f"the system's dims: {have}")
            elif name in user:
                yield Issue(where, f"dim {name!r} already carries {user[name]}", "use every dim once")
            user.setdefault(name, kind)
        product = math.prod(sizes.get(name, 1) for name in dims)
        if known and product != degree:
            shown = " x ".join(f"{name} {sizes[name]}" for name in dims) or "no dims"
            yield Issue(
                f"$.plan.{kind}_dims",
                f"{shown} give {product} chips, but {kind} is {degree}",
                f"name dims whose sizes multiply to {degree}",
            )
    share = graph.microbatch * plan.dp
    wanted, rest = divmod(graph.batch, share)
    if rest:
        yield Issue(
            "$.plan.dp",
            f"a batch of {graph.batch} cannot be cut into microbatches of {graph.microbatch} on {plan.dp} copies",
            f"batch must be a multiple of microbatch x dp = {share}",
        )
    elif plan.microbatches != wanted:
        yield Issue(
            "$.plan.microbatches",
            f"found {plan.microbatches}, but batch / (microbatch x dp) is {wanted}",
            f"write {wanted}",
        )
    layers = pipeline.layers_per_stage(graph.repeat, plan.pp)
    if plan.layers_per_stage != layers:
        yield Issue(
            "$.plan.layers_per_stage",
            f"found {plan.layers_per_stage}, but {graph.repeat} repeats on {plan.pp} stages are {layers} each",
            f"write {layers}",
        )


def _kernel_issues(mapping: Mapping, graph: Graph, assumptions: Assumptions) -> Iterator[Issue]:
    known = {kernel.name: kernel for kernel in graph.kernels}
    mapped = {one.name for one in mapping.kernels}
    missing = [name for name in known if name not in mapped]
    for name in missing:
        yield Issue("$.kernels", f"kernel {name!r} of the graph has no place", "add an entry for it")
    plan, rules = mapping.plan, assumptions.sharding_rules
    for position, one in enumerate(mapping.kernels):
        where = f"$.kernels[{position}]"
        kernel = known.get(one.name)
        if kernel is None:
            near = difflib.get_close_matches(one.name, missing or list(known), 2)
            meant = f"did you mean {' or '.join(map(repr, near))}?" if near else "remove the entry"
            yield Issue(f"{where}.name", f"the graph has no kernel {one.name!r}", meant)
            continue
        legal = ops.legal_schemes(kernel, plan.tp, rules)
        if one.sharding not in legal:
            yield Issue(
                f"{where}.sharding",
                f"{kernel.op} kernel {one.name!r} cannot be split by {one.sharding!r} over {plan.tp} chips",
                f"choose {' or '.join(legal)}",
            )
        if graph.repeat > 1 and one.stage != 0:
            yield Issue(
                f"{where}.stage",
                f"found {one.stage}, but one drawn layer stands for all {graph.repeat}, whatever their stage",
                "write 0",
            )
        elif one.stage >= plan.pp:
            yield Issue(
                f"{where}.stage",
                f"found {one.stage}, but the plan has {plan.pp} stage{'' if plan.pp == 1 else 's'}",
                f"use 0 to {plan.pp - 1}, or a plan with more pipeline stages",
            )
