"""What the regions of mappings cover so far; everything else is refused, never answered in part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.errors import DfoptError
from dfopt.setting.instance import Setting
from dfopt.terms.step.offload import moves
from dfopt.terms.step.overlap import hides_any

__all__ = ["NotCovered", "check_covered"]


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
    reasons = [*_of_assumptions(setting), *_of_plans(setting, plans)]
    if reasons:
        raise NotCovered("; ".join(dict.fromkeys(reasons)))


def _of_assumptions(setting: Setting) -> Iterator[str]:
    assumptions, graph = setting.assumptions, setting.graph
    if hides_any(assumptions, graph):
        yield "gradient_overlap: what shows of exchanges depends on passes"


def _of_plans(setting: Setting, plans: Sequence[Plan]) -> Iterator[str]:
    for plan in plans:
        if plan.stages > 1 and not setting.graph.folded:
            yield "kernels that are drawn once may be in any pipeline stage"
        if moves(setting.under(plan)):
            yield "plans under which layers wait for what slower memories move"
        if plan.two_batch_overlap:
            yield "plans with two-batch overlap"
