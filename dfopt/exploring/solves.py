"""Solves of one workload on many machines: each machine once, below a cutoff, and only the plans that may be below it.

What bounds plans on a machine says which of them may be better than what is known; the others are not solved again and
again. A solve that was not cut short goes into the store, and several run beside one another where there are processes.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

import dfopt
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.base import digest_of
from dfopt.documents.graph import Graph
from dfopt.documents.plan import Plan
from dfopt.documents.question import Question
from dfopt.documents.request import Limit, Objective, Request
from dfopt.documents.result import Result
from dfopt.documents.store import Store
from dfopt.documents.system import System
from dfopt.errors import SolverFailure
from dfopt.exploring.least_plans import PlanLows
from dfopt.processes.executor import INTERRUPTED, Executor
from dfopt.processes.packing import pack
from dfopt.processes.worker import Bounded, bounded
from dfopt.solving.options import Only

_log = logging.getLogger("dfopt.exploring")
_packed = lru_cache(maxsize=64)(pack)  # graphs go to processes again and again
_NEAR: Final = 1.3  # times the least bound of a plan: what is searched first
_ROUND: Final = 1e-9
_LEAST_S: Final = 1.0  # for a solve that has begun
_SPENT: Final = 0.8  # of its time, for a solve that more time may help
_OF_TIME: Final = 0.5  # of what is left, for one solve among others: none takes what all of them need
_ALONE: Final = 0.9  # for the only one: the rest is for what comes after it
_WHOLE: Final = ("optimal", "optimal_per_level", "gap_reached")  # of a solve that no limit cut short


@dataclass
class SolveResources:
    """Resources of the solves: a deadline (`time.perf_counter`, s), a store and processes."""

    deadline: float = math.inf
    store: Store | None = None
    processes: Executor | None = None

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return max(self.deadline - time.perf_counter(), 0.0)


class BoundedResult(NamedTuple):
    """Outcome of the solve of one machine.

    Attributes
    ----------
    bound : float
        Lower bound on every mapping.
    result : Result, optional
        Best mapping among the plans searched.
    decided : bool
        Whether those are all plans that may be below the cutoff.
    cut : bool
        Whether its time limit ended it.
    """

    bound: float
    result: Result | None
    decided: bool = True
    cut: bool = False


class _Left(NamedTuple):
    """The graphs and plans that may have a mapping below a cutoff, and what no other plan is below.

    ``only``: none where all plans are left.
    """

    graphs: Sequence[Graph]
    only: Only | None
    others: float
    places: list[tuple[int, list[int]]]  # of these plans, by graph

    @property
    def shown(self) -> list[tuple[int, list[int], list[float]]]:
        """What is known of each now, by graph and place."""
        lows = [] if self.only is None else [[*plans.values()] for plans in self.only.values()]
        return [(number, at, low) for (number, at), low in zip(self.places, lows, strict=True)]


@dataclass
class Solves:
    """Cache and scheduler of the solves of one workload on many machines.

    Attributes
    ----------
    graphs
        The workload, drawn in several ways.
    assumptions, request
        Assumptions and request of every solve.
    run
        Processes and deadline of the solves.
    plans
        Gives the plans of a graph, by its place.
    lows
        Lower bounds on the step over all plans of a machine, by its digest, as far as they were computed.
    alone
        Whether there is one design.
    count, refused, latest
        Number of solves, the reason why a machine has no mapping, and the last mapping of any machine.
    """

    graphs: tuple[Graph, ...]
    assumptions: Assumptions
    request: Request
    run: SolveResources
    plans: Callable[[int], Sequence[Plan]]
    lows: dict[str, tuple[float, PlanLows]]
    alone: bool = False
    count: int = 0
    refused: str = ""
    latest: Result | None = None
    solved: dict[str, BoundedResult] = field(default_factory=dict)

    def ahead(self, wanted: Sequence[tuple[System, float]]) -> None:
        """Solve several machines in parallel, each with a cutoff.

        Without processes it is one after the other, below the same cutoffs, so that the answers are the same. A mapping
        that is found ends it.
        """
        todo = {system.digest(): (system, cutoff) for system, cutoff in wanted if self._is_open(system, cutoff)}
        answers, left, ended, processes = dict[str, dict[str, Any]](), dict[str, _Left](), "", self.run.processes
        if processes is not None:
            unrecorded = {
                key: (system, cutoff)
                for key, (system, cutoff) in todo.items()
                if self._recorded(system, self._asked(cutoff)) is None
            }
            if len(unrecorded) > 1:
                left = {key: self._open_plans(system, cutoff) for key, (system, cutoff) in unrecorded.items()}
                tasks = [self._task(key, *todo[key], of) for key, of in left.items() if of.graphs]
                ended = processes.run(tasks, lambda answer: answers.update({answer["cell"]: answer}))
        if ended and ended != INTERRUPTED:  # a cluster is lost: the rest is solved here
            _log.warning("%s; the search goes on here", ended)
            self.run.processes, ended = None, ""
        for key, (system, cutoff) in todo.items():  # in their order, whichever came first
            before = self.latest
            if key in answers:
                self.count += 1
                self.solved[key] = self._keep(system, cutoff, _read(answers[key], left[key].only), left[key])
            if not ended:
                self.solve(system, cutoff)
            if self.latest is not before:
                break  # the others may have to beat it, and are solved later
        if ended:
            raise KeyboardInterrupt

    def mapping(self, system: System | None) -> Result | None:
        """The mapping known for a machine, or None."""
        solved = None if system is None else self.solved.get(system.digest())
        return None if solved is None else solved.result

    def _is_open(self, system: System, cutoff: float) -> bool:
        solved = self.solved.get(system.digest())
        if solved is None:
            return True
        if solved.result is None:
            return solved.bound < cutoff
        return not solved.decided and solved.bound < self._near(system, cutoff)

    def solve(self, system: System, cutoff: float) -> tuple[float, Result | None]:
        """Lower bound on the step of a system (at least the cutoff if none is below), and the best mapping if known."""
        key = system.digest()
        while self._is_open(system, cutoff):
            solved, near = self.solved.get(key), self._near(system, cutoff)
            anew = self._solve_anew(system, near)
            if solved is not None and solved.result is not None and anew.result is None:
                anew = anew._replace(result=solved.result)
            self.solved[key] = anew
            if anew.decided or not self.run.left:
                break
        return self.solved[key][:2]

    def _near(self, system: System, cutoff: float) -> float:
        """A cutoff, or what a mapping must be below to be better by more than the gap than one that is known."""
        solved = self.solved.get(system.digest())
        if solved is None or solved.result is None:
            return cutoff
        return min(cutoff, solved.result.score.step_time_s * (1 - self.request.gap))

    def _solve_anew(self, system: System, cutoff: float) -> BoundedResult:
        request = self._asked(cutoff)
        if (record := self._recorded(system, request)) is not None:
            self.count += 1
            answer = Bounded.of_data(record)
            self.refused = self.refused or answer.refused
            self._raise(system.digest(), [(number, at, list(map(_number, low))) for number, at, low in record["lows"]])
            self.latest = answer.result or self.latest
            return BoundedResult(answer.bound, answer.result)
        left = self._open_plans(system, cutoff)
        if not left.graphs:
            return BoundedResult(left.others, None)  # no plan is below the cutoff
        self.count += 1
        answer = self._bounded(system, left.graphs, request, left.only)
        return self._keep(system, cutoff, answer, left)

    def _open_plans(self, system: System, cutoff: float) -> _Left:
        """What may have a mapping below a cutoff.

        While there is none and nothing is known of a system, those whose bounds are near the least. No plans are named
        where these have no bounds, or none fits: then a solve says why.
        """
        key = system.digest()
        least, lows = self.lows.get(key, (math.inf, []))
        if math.isinf(least):
            return _Left(self.graphs, None, math.inf, [])
        below = _NEAR * least if math.isinf(cutoff) and key not in self.solved else cutoff
        open_, only, others, places = list[Graph](), Only(), math.inf, list[tuple[int, list[int]]]()
        for number, (graph, low) in enumerate(zip(self.graphs, lows, strict=True)):
            low_i = (
                np.broadcast_to(low, len(self.plans(number))) if np.min(low, initial=np.inf) < below else np.ravel(low)
            )
            near = low_i < below
            others = min(others, float(low_i[~near].min(initial=np.inf)))
            if near.any():
                open_.append(graph)
                plans = self.plans(number)
                places.append((number, np.flatnonzero(near).tolist()))
                only[graph.microbatch, graph.variant] = {plans[i]: float(low_i[i]) for i in places[-1][1]}
        return _Left(open_, only, others, places)

    def _raise(self, key: str, shown: list[tuple[int, list[int], list[float]]]) -> None:
        """Take up what a solve showed of plans, by graph and place: of machines that are no better it holds, too."""
        if not shown:
            return
        least, lows = self.lows[key]
        for number, at, low in shown:
            low_before = lows[number]
            low_i = np.full(len(self.plans(number)), low_before) if isinstance(low_before, float) else low_before.copy()
            low_i[at] = np.maximum(low_i[at], low)
            lows[number] = low_i
        self.lows[key] = max(least, min(float(np.min(low, initial=math.inf)) for low in lows)), lows

    def complete(self, system: System, result: Result) -> Result:
        """The complete answer for one machine; if time is up, that under the plan of ``result``."""
        complete = self.answer(system, self.graphs, self.request).result
        if complete is not None and complete.score.step_time_s <= result.score.step_time_s * (1 + _ROUND):
            return complete
        return self.fixed(system, result)

    def fixed(self, system: System, result: Result) -> Result:
        """The best mapping of another machine under the plan of a result; the result itself if that is as fast."""
        answered = self.answer(system, (self.drawn_as(result),), _fixing(self.request, result.plan)).result
        most = math.inf if result.system != system else result.score.step_time_s * (1 + _ROUND)
        return result if answered is None or answered.score.step_time_s > most else answered

    def drawn_as(self, result: Result) -> Graph:
        """The given graph that a result maps."""
        of = result.graph
        return next(graph for graph in self.graphs if (graph.microbatch, graph.variant) == (of.microbatch, of.variant))

    def answer(self, system: System, graphs: tuple[Graph, ...], request: Request) -> Bounded:
        """Bound and best mapping of some graphs on a system, over all plans that the request allows.

        Parameters
        ----------
        system, graphs : System, tuple of Graph
            Machine, and graphs of the workload.
        request : Request
            The request, with fixed parts of the mapping.
        """
        self.count += 1
        if (record := self._recorded(system, request, graphs)) is not None:
            return Bounded.of_data(record)
        answer = self._bounded(system, graphs, request)
        if answer.status in _WHOLE:
            self._record(system, request, answer, graphs=graphs)
        return answer

    def _bounded(self, system: System, graphs: Sequence[Graph], request: Request, only: Only | None = None) -> Bounded:
        options = self.timed(request)
        question = Question(graph=graphs[0], system=system, assumptions=self.assumptions, options=options)
        return bounded(question, graphs[1:], only)

    def _asked(self, cutoff: float) -> Request:
        """The request, limited where a limit rules out mappings of any sharding: in a search for the joint optimum."""
        if not self._is_limited(cutoff):
            return self.request
        objective = Objective(limits=(Limit(metric="step_time", at_most=cutoff),))
        return self.request.model_copy(update={"objective": objective, "gap": 0.0})  # the cutoff has the gap already

    def _is_limited(self, cutoff: float) -> bool:
        return math.isfinite(cutoff) and self.assumptions.sharding_objective == "joint"

    def timed(self, request: Request) -> Request:
        """A request with the time limit of one solve: its default, or a share of the time left."""
        left = self.run.left
        share = left * (_ALONE if self.alone else _OF_TIME) if math.isfinite(left) else 0.0
        return request.model_copy(update={"time_limit": max(share, min(request.time_limit, left), _LEAST_S)})

    def _recorded(self, system: System, request: Request, graphs: tuple[Graph, ...] = ()) -> Mapping[str, Any] | None:
        """What the store has of a solve."""
        return None if self.run.store is None else self.run.store.records.get(self._key(system, request, graphs))

    def _keep(self, system: System, cutoff: float, answer: Bounded, left: _Left) -> BoundedResult:
        """What a solve of what was left shows; it goes into the store, unless time was up."""
        shown, others = left.shown, left.others
        self._raise(system.digest(), shown)
        bound = cutoff if answer.status == "infeasible" and self._is_limited(cutoff) else answer.bound
        self.refused = self.refused or answer.refused
        value = math.inf if answer.result is None else answer.result.score.step_time_s * (1 - self.request.gap)
        decided = others >= min(bound, value, cutoff)
        bound = min(bound, others)
        self.latest = answer.result or self.latest
        if decided and answer.status in ("infeasible", *_WHOLE):
            self._record(system, self._asked(cutoff), answer._replace(bound=bound), shown)
        late = answer.result is not None and answer.result.seconds >= _SPENT * answer.result.request.time_limit
        return BoundedResult(bound, answer.result, decided, cut=late and answer.status not in _WHOLE)

    def reopen(self) -> bool:
        """Allow solves cut short by a time limit to continue; return whether there are any."""
        cut = {key: solved for key, solved in self.solved.items() if solved.cut}
        self.solved |= {key: solved._replace(decided=False) for key, solved in cut.items()}
        return bool(cut)

    def _record(
        self,
        system: System,
        request: Request,
        answer: Bounded,
        shown: Sequence[tuple[int, list[int], list[float]]] = (),
        graphs: tuple[Graph, ...] = (),
    ) -> None:
        if self.run.store is not None:
            lows = [
                (number, at, [value if math.isfinite(value) else None for value in low]) for number, at, low in shown
            ]
            self.run.store.append({"cell": self._key(system, request, graphs), **answer.to_data(), "lows": lows})

    def _task(self, key: str, system: System, cutoff: float, left: _Left) -> dict[str, Any]:
        """A solve for a process."""
        request = self.timed(self._asked(cutoff))
        asked = {
            "graphs": _packed(*left.graphs),
            "system": system.to_data(),
            "assumptions": self.assumptions.to_data(),
            "options": request.stated(),
            "seed": request.seed,
        }
        sent = None
        if left.only is not None:
            sent = [(*way, [(plan.to_data(), low) for plan, low in plans.items()]) for way, plans in left.only.items()]
        limit = {"time_limit": request.time_limit}  # the process is ended after twice of it
        return {"cell": key, "asked": asked, "bounded": True, "only": sent, "options": limit}

    def _key(self, system: System, request: Request, graphs: tuple[Graph, ...] = ()) -> str:
        """What a solve depends on, in 16 hex digits; its time limit aside, as only what was not cut short is kept.

        ``graphs``: those of a question that is answered with all plans, where others leave plans out.
        """
        asked = {
            "graphs": [graph.digest() for graph in graphs or self.graphs],
            "system": system.digest(),
            "assumptions": self.assumptions.digest(),
            "request": request.stated(),
            "complete": bool(graphs),
            "dfopt": dfopt.__version__,
        }
        return digest_of(asked)


def _fixing(request: Request, plan: Plan) -> Request:
    """A request for mappings under one plan."""
    given = {key: value for key, value in request.asked().items() if key != "rank_order"}
    return Request.of(**{**given, **plan.request_fields})


def _number(low: float | None) -> float:
    return math.inf if low is None else low


def _read(answer: dict[str, Any], only: Only | None) -> Bounded:
    """The answer of a process, with what it shows of plans."""
    if answer["status"] == "failed":
        raise SolverFailure(answer["message"])
    for plans, lows in zip((only or {}).values(), answer["lows"], strict=True):
        plans.update(zip(plans, map(_number, lows), strict=True))
    return Bounded.of_data(answer)
