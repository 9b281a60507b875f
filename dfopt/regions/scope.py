"""What the regions of mappings cover so far; everything else is refused, never answered in part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dfopt.documents.graph import Graph
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.errors import DfoptError
from dfopt.setting.instance import Setting
from dfopt.terms.step.ledger import offloaded
from dfopt.terms.step.offload import moves
from dfopt.terms.step.overlap import hides_any

__all__ = ["NotCovered", "check_covered", "check_stages", "is_cut"]

_ANY_STAGE = "kernels that are drawn once may be in any pipeline stage"


class NotCovered(DfoptError):
    """A question outside of what is searched as regions so far; the text says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.args = (reason,)


def check_covered(setting: Setting, request: Request, plans: Sequence[Plan]) -> None:
    """Refuse a question that regions do not cover.

    Parameters
    ----------
    setting : Setting
        Graph, system and resolved assumptions.
    request : Request
        What is asked for.
    plans : sequence of Plan
        All plans that are searched.

    Raises
    ------
    NotCovered
        With all reasons.
    """
    cut = [plan for plan in plans if is_cut(setting.graph, plan)]
    reasons = [*_of_levels(setting, plans), *_of_stages(setting, request, cut)]
    if reasons:
        raise NotCovered("; ".join(dict.fromkeys(reasons)))


def _of_levels(setting: Setting, plans: Sequence[Plan]) -> Iterator[str]:
    """Reasons by plans whose sharding comes first: a check of the answer shows each of their fusions by itself."""
    if setting.assumptions.sharding_objective == "joint":
        return
    if hides_any(setting.assumptions, setting.graph):
        yield "gradient_overlap: where the sharding comes first, a fusion that hides exchanges is not verified"
    if any(moves(setting.under(plan)) for plan in plans):
        yield "where the sharding comes first, a fusion that waits for what slower memories move is not verified"
    if any(plan.two_batch_overlap for plan in plans):
        yield "where the sharding comes first, a fusion of two microbatches that take turns is not verified"


def _of_stages(setting: Setting, request: Request, plans: Sequence[Plan]) -> Iterator[str]:
    """Reasons by plans whose kernels may be in any pipeline stage."""
    if plans and setting.assumptions.sharding_objective != "joint":
        yield f"{_ANY_STAGE}: where the sharding comes first, stages do, too"
    if plans and request.formulation == "assignment":
        yield f"{_ANY_STAGE}: a program over assignment matrices has one stage"
    if any(offloaded(setting.under(plan)) for plan in plans):
        yield f"{_ANY_STAGE}: what lies in slower memories while a graph trains is counted by layers"
    if any(plan.two_batch_overlap for plan in plans):
        yield f"{_ANY_STAGE}: microbatches take turns in layers"


def is_cut(graph: Graph, plan: Plan) -> bool:
    """Whether a plan has several pipeline stages that kernels, which are drawn once, may be in."""
    return plan.stages > 1 and not graph.folded


def check_stages(setting: Setting, plans: Sequence[Plan]) -> None:
    """Refuse plans whose stages are open where a leaf decides the partitions of given stages only.

    Raises
    ------
    NotCovered
        With the reason.
    """
    if any(is_cut(setting.graph, plan) for plan in plans):
        raise NotCovered(f"{_ANY_STAGE}: limits on heat and budgets are kept by the partitions of given stages")
