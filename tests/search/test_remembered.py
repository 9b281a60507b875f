"""In whole searches every answer that was remembered by what was read is the one that is worked out anew.

Nothing else can show that what works an answer out depends on a plan alone: it may hold an array of another plan.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest
from counted_clock import over_when

import dfopt as df
from dfopt.documents.graph import Graph
from dfopt.errors import NoSolution
from dfopt.setting.instance import Instance, Setting
from dfopt.setting.reads import ByReads, Recorder

WHOLE = (Setting, Instance, Graph)  # they are compared by what they hold; new ones would know nothing
EVERY = 5  # of answers that were known before, so many are worked out again
MOST = 2000  # after so many the search ends


def same(a: Any, b: Any) -> bool:
    if isinstance(a, Instance):
        return bool(a.plan == b.plan and a.graph == b.graph)
    if isinstance(a, Setting):
        return bool(a.graph == b.graph and a.assumptions == b.assumptions)
    if isinstance(a, np.ndarray):
        return bool(np.array_equal(a, b))
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if is_dataclass(a) and not isinstance(a, type):
        return all(same(getattr(a, field.name), getattr(b, field.name)) for field in fields(a))
    return bool(a == b)


class Checked:
    """Stands for `ByReads.answer`: works some answers out anew, with nothing remembered on the way."""

    def __init__(self) -> None:
        self.original, self.calls, self.anew, self.checked = ByReads.answer, 0, False, 0

    def answer(self, question: ByReads, plan: Any, work: Callable[[Any], Any]) -> Any:
        if self.anew:
            found = work(plan)
            return self.original(question, plan, work) if isinstance(found, WHOLE) else found
        before = question.worked_out
        found = self.original(question, plan, work)
        if question.worked_out > before:
            return found
        while isinstance(plan, Recorder):  # of an answer that another one asks for
            plan = plan._read_of
        self.calls += 1
        if self.calls % EVERY == 0:
            self.anew, self.checked = True, self.checked + 1
            try:
                assert same(found, work(plan)), (work, plan)
            finally:
                self.anew = False
        return found


QUESTIONS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "training, exchanges behind layers": (
        "gpt2-small", "h100-8",
        {
            "phase": "training", "batch": 64, "isl": 128, "recompute": "none",
            "set": {"gradient_overlap": "backward", "optimizer_step": "adam"},
        },
    ),
    "training, calculon": ("gpt2-small", "h100-8", {
        "phase": "training", "batch": 32, "isl": 128, "set": {"training_memory": "calculon", "bubble": "interleaved"},
    }),
    "experts": ("qwen3-30b-a3b", "h100-8", {"phase": "decode", "batch": 64, "context": 512}),
    "dfmodel": ("gpt2-small", "sn10-8-torus", {"batch": 32, "assumptions": "dfmodel", "p_max": 4}),
    "dataflow": ("gpt2-small", "sn10-8-ring", {"phase": "training", "batch": 64, "recompute": "none"}),
}  # fmt: skip


@pytest.mark.parametrize("name", QUESTIONS)
def test_what_is_remembered_is_what_would_be_worked_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, system, asked = QUESTIONS[name]
    checked = Checked()
    monkeypatch.setattr(ByReads, "answer", lambda self, plan, work: checked.answer(self, plan, work))
    over_when(monkeypatch, lambda: checked.checked > MOST)
    with suppress(NoSolution):
        df.solve(graph, system, sensitivity=False, **asked)
    assert checked.checked > 100
