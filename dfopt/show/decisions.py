"""What was decided of a training step, option by option, beside what was tried."""

from __future__ import annotations

from collections.abc import Iterable

from dfopt.documents.passes import way_of
from dfopt.documents.request import FREE_ZERO
from dfopt.documents.result import Result
from dfopt.physics.ops import output_axis
from dfopt.show.grid import Grid
from dfopt.show.stages import order_of

_ASSUMED = "(assumed)"
_MOST = 8  # values that are listed one by one


def decisions(result: Result) -> Grid | None:
    """Table with one row for every option of a step with a searched execution; None for other results."""
    drawn = (result.graph, *result.variants)
    if not result.graph.trains or (len(drawn) == 1 and len(result.request.zero or FREE_ZERO) < 2):
        return None
    plan, plans = result.plan, [record.plan for record in result.plans]
    rows = []
    for place, (axis, degree, dims) in enumerate(plan.axes):
        degrees = {plan.axes[place].degree for plan in plans}
        of = f" on {', '.join(dims)}" if dims else ""
        if degrees != {1}:
            rows.append((axis.title, f"{degree}{of}", listed(degrees)))
    chunks = {plan.interleave for plan in plans}
    if any(plan.stages > 1 for plan in plans):
        rows.append(("schedule", order_of(result), f"chunks of layers {listed(chunks)}"))
    rows.append(("microbatch", str(result.graph.microbatch), listed(graph.microbatch for graph in drawn)))
    ways = sorted({way_of(graph.variant) for graph in drawn}, key=lambda way: (way != "none", way))
    rows.append(("recomputation", way_of(result.graph.variant), ", ".join(ways)))
    levels = {plan.zero or 0 for plan in plans}
    rows.append(("optimizer sharding", f"ZeRO-{plan.zero}" if plan.zero else "none", f"ZeRO {listed(levels)}"))
    split = sum(output_axis(kernel.sharding) == "n" for kernel in result.mapping.kernels)
    how = {"allow": "allowed of every kernel", "none": "not allowed", "force": "wherever it can be"}
    parts = f"{split} of {len(result.mapping.kernels)} kernels"
    rows.append(("sequence parallelism", parts, how[result.assumptions.sequence_parallelism]))
    rows += _hidden(result)
    if seen := _seen(result):
        rows.append(("attention scores", seen, "(the model's: --param causal)"))
    return Grid("Decisions", {"option": "word", "decided": "text", "of": "text"}, rows)


def _hidden(result: Result) -> list[tuple[str, str, str]]:
    """What hides behind what, and what lies in a slower memory."""
    asked, plan, chip = result.request, result.plan, result.system.chip
    ways = {"any": "none, ring, pipe"}
    way = result.assumptions.hiding(plan.tensor_overlap).tensor_overlap
    rows = [
        (
            "tensor-parallel overlap",
            str(way or "none"),
            ways.get(asked.tensor_overlap or "", asked.tensor_overlap or _ASSUMED),
        )
    ]
    behind = {True: "behind the backward pass", False: "after the backward pass"}
    free = ", ".join(behind.values()) if asked.gradient_overlap == "any" else asked.gradient_overlap or _ASSUMED
    rows.append(("gradient reduction", behind[result.hides_gradients], free))
    placed = "nothing" if plan.placement is None else plan.placement.label or "nothing"
    of = "one memory" if len(chip.tiers) == 1 else "(not asked for)"
    if asked.offload is not None:
        of = "every item" if asked.offload == "any" else ", ".join(asked.offload)
    elif asked.place:
        of = "(asked for)"
    return [*rows, ("offload", placed, of)]


def listed(values: Iterable[int]) -> str:
    """Distinct integers as text in ascending order, with the middle of long lists left out.

    Examples
    --------
    >>> listed([4, 1, 2]), listed(range(1, 100))
    ('1, 2, 4', '1, 2, 3, ... 99 (99 values)')
    """
    ordered = sorted(set(values))
    if len(ordered) <= _MOST:
        return ", ".join(map(str, ordered))
    return f"{', '.join(map(str, ordered[:3]))}, ... {ordered[-1]} ({len(ordered)} values)"


def _seen(result: Result) -> str:
    """How many scores are counted, which a library may skip that knows the mask; nothing where there are none."""
    shares = sorted({kernel.density or 1.0 for kernel in result.graph.kernels if kernel.role == "scores"})
    return ", ".join("all" if share == 1 else f"{share:.4g} of them" for share in shares)
