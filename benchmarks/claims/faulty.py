"""Faults put into what the search shows: whether `dfopt check`, with the same fault, believes the wrong answer.

Each question of `faulty_answers.json` is a small one, with faults so high that a region with the best mapping is
closed: the answer claims more than is true. A check runs with the same fault, as users of such a version would. It has
*refused* the answer where it calls it wrong. It believes it *on condition* where the verdict holds only if the search's
own code is right, which it says. Else it has *accepted* a false claim.
"""

from __future__ import annotations

import importlib
import json
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal
from unittest import mock

import dfopt.search as optimizer
from claims import drawn_worlds as worlds
from claims.faults import FAULTS, Fault
from claims.rows import Asked, Row
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.documents.result import Result
from dfopt.documents.system import System
from dfopt.errors import DfoptError
from dfopt.regions.heuristics import ChosenTogether, Rounding
from dfopt.regions.unrolled import OneLayer
from dfopt.search import optimization
from dfopt.search.verify import verify

CASES: Final = Path(__file__).parent / "faulty_answers.json"
FACTORS: Final = (1.01, 1.05, 1.2)
"""How much too high a bound is, in drawn questions."""
_DRAWN: Final = 100
_CLOSE: Final = 1e-6
"""Relative: what counts as a claim above the best mapping."""
Word = Literal["right", "no answer", "refused", "on condition", "accepted"]


@dataclass(frozen=True)
class Question:
    """A small question whose best mapping is known.

    Attributes
    ----------
    graphs, system, assumptions, asked
        What is mapped onto what, where it may be drawn in several ways; and what is asked for.
    value : s
        Of the best mapping.
    faults : dict
        By fault the least factor by which it leads to a wrong answer.
    limits : dict
        Limits of what is listed, by ``module:name``, so that there is more than that.
    late : bool
        Whether the search has no heuristics: it meets the best mapping late, and a fault may matter before.
    """

    graphs: tuple[Graph, ...]
    system: System
    assumptions: Assumptions
    asked: dict[str, Any]
    value: float
    faults: dict[str, float] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)
    late: bool = False

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Question:
        """A committed one."""
        graphs = tuple(map(Graph.from_data, data["graphs"]))
        system, assumptions = System.from_data(data["system"]), Assumptions.from_data(data["assumptions"])
        same = {name: data[name] for name in ("asked", "value", "faults", "limits", "late")}
        return cls(graphs, system, assumptions, **same)

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Have the limits of the question in this process for a while."""
        with ExitStack() as stack:
            for place, value in self.limits.items():
                module, _, name = place.partition(":")
                stack.enter_context(mock.patch.object(importlib.import_module(module), name, value))
            if self.late:
                for heuristic in (Rounding, ChosenTogether, OneLayer):
                    stack.enter_context(mock.patch.object(heuristic, "due", return_value=False))
                stack.enter_context(mock.patch.object(optimization, "begin", return_value=None))
            yield

    def solved(self) -> Result:
        """The answer of the search as it is now."""
        first, *others = self.graphs
        with self.limited():
            return optimizer.solve(first, self.system, assumptions=self.assumptions, variants=others, **self.asked)

    def word(self, fault: Fault, factor: float) -> Word:
        """What a check with a fault says of the answer with that fault."""
        with fault.put_in(factor):
            try:
                result = self.solved()
            except DfoptError:  # it claims that nothing fits, in no file that could be checked
                return "no answer"
            if result.bound <= self.value * (1 + _CLOSE):
                return "right"
            with self.limited():
                found = verify(result)
        if not found.ok:
            return "refused"
        assert found.rests is not None
        return "on condition" if found.rests.condition else "accepted"


def committed() -> list[Question]:
    """The questions that are kept: the first three are quick, and other code refuses each of their answers."""
    return [*map(Question.from_data, json.loads(CASES.read_text(encoding="utf-8")))]


def drawn(number: int) -> Iterator[Question]:
    """Random questions with an answer that is proven."""
    for world in worlds.drawn(2 * _DRAWN, number):
        assumptions = world.assumptions.with_(sharding_objective="joint")
        question = Question((world.graph,), world.system, assumptions, {}, math.inf)
        try:
            result = question.solved()
        except DfoptError:
            continue
        if result.status == "optimal":
            yield replace(question, value=result.value)


def faults(asked: Asked) -> Iterator[Row]:
    """What a check says of wrong answers: of kept ones, and of drawn ones where none of these is refused."""
    questions, others = committed(), list[Question]()
    for fault in FAULTS:
        pairs = [(each, each.faults[fault.name]) for each in questions if fault.name in each.faults]
        words, ran = Counter(question.word(fault, factor) for question, factor in pairs), fault.name
        ran += f", {min(factor for _, factor in pairs):g} times" if pairs else ""
        if not words["refused"]:
            others = others or [*islice(drawn(1), asked.most or _DRAWN)]
            words += Counter(question.word(fault, factor) for question in others for factor in FACTORS)
            ran += f", {len(others)} drawn questions"
        seen = ", ".join(f"{count} {word}" for word, count in words.items())
        yield Row("faults", ran, seen, "no false claim accepted", not words["accepted"])
