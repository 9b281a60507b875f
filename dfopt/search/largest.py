"""The largest batch that a machine holds: what no plan holds more of, and a mapping that holds it.

What a chip keeps grows with the sequences of its copy and with nothing else of the batch. So the states of two small
batches, each at its least over all shardings, say for every plan above which batch nothing fits; the optimiser then
looks for a mapping from there on downwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from dfopt.arrays import ROUNDING
from dfopt.divisors import divisors
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.documents.plan import Plan
from dfopt.documents.question import Question
from dfopt.documents.request import Request
from dfopt.documents.result import Result
from dfopt.documents.system import System
from dfopt.errors import Infeasible, NoSolution, PlanError
from dfopt.interrupts import now
from dfopt.physics.states import LABELS
from dfopt.questions import GraphBuilder, Resolved
from dfopt.search.optimization import search
from dfopt.search.shortage import named
from dfopt.setting.instance import Setting
from dfopt.setting.plans import asked_plans, may_share
from dfopt.terms.bounds import PlanBounds, PlanTable
from dfopt.terms.step.ledger import held, usable_words


@dataclass(frozen=True)
class Room:
    """Upper bound on the number of sequences that the replicas of a plan can store.

    Attributes
    ----------
    plan : Plan
        The plan.
    sequences, unit : int
        Number of sequences on each replica, and the unit in which they are distributed.
    states : dict
        Lower bound on the bytes that a chip of the fullest stage then stores, by name of the state.
    capacity : float
        Capacity of that memory in bytes.
    """

    plan: Plan
    sequences: int
    unit: int
    states: dict[str, float]
    capacity: float

    @property
    def batch(self) -> int:
        """Upper bound on the batch, over all replicas."""
        return self.plan.copies * self.sequences


@dataclass(frozen=True)
class LargestBatch:
    """The largest batch with a known mapping, and an upper bound on all batches.

    Attributes
    ----------
    batch : int
        The batch.
    room : Room
        Room of the plan that has most: no larger batch than this fits. The batch is proven largest if the two are
        equal.
    result : Result
        A mapping that holds the batch, any under the plans that were tried.
    """

    batch: int
    room: Room
    result: Result

    def __str__(self) -> str:
        room, most = self.room, self.room.batch
        of = usable_words(room.capacity, self.result.assumptions)
        proven = "the largest that fits" if self.batch == most else f"the largest found, at most {most} fit"
        return f"batch {self.batch}: {proven} ({room.plan.label}: {named(room.states)} of {of})"


def largest_batch(
    draw: GraphBuilder,
    system: System,
    request: Request,
    assumptions: Assumptions,
    microbatches: Sequence[int] | None = None,
    began: float | None = None,
) -> LargestBatch:
    """Find the largest batch that fits.

    Parameters
    ----------
    draw : callable
        Gives the graph of a batch and a microbatch.
    system : System
        The machine.
    request : Request
        Fields that decide where data is stored are kept; the time limit is that of all tries together.
    assumptions : Assumptions
        The assumptions.
    microbatches : sequence of int, optional
        Microbatch sizes to try; by default all.
    began : float, optional
        Reading of :func:`time.perf_counter` from which the time limit counts; by default now.

    Raises
    ------
    Infeasible
        If nothing fits even for one sequence on each copy.
    PlanError
        If nothing that the graph keeps grows with the batch, or the chips have no limit.

    Examples
    --------
    >>> from dfopt.documents.assumptions import profile
    >>> from dfopt.machines.compose import load_system
    >>> from dfopt.workloads import load_graph
    >>> def draw(batch, microbatch):
    ...     return load_graph("llama-3.1-8b", phase="decode", context=32768, batch=batch, microbatch=microbatch)
    >>> found = largest_batch(draw, load_system("h100-8"), Request(tp=8), profile("default"))  # 14.5 % is reserved
    >>> found.batch == found.room.batch, found.batch
    (True, 132)
    """
    since, asked, results = now() if began is None else began, request.holding(), dict[int, Result]()
    chosen = Request.of(**asked).assuming(assumptions)

    def solve(batch: int, graphs: Sequence[Graph], **changes: Any) -> None:
        resolved = Resolved(Question(), graphs, system, system, chosen, Request.of(**{**asked, **changes}))
        results[batch] = search(resolved, since)

    def fits(room: Room, units: int) -> bool:
        sequences, copies = units * room.unit, room.plan.copies
        sizes = [size for size in divisors(sequences) if microbatches is None or size in microbatches]
        drawn = [draw(copies * sequences, size) for size in sorted(sizes, reverse=True)]
        common = {"dp": copies, "sensitivity": False, "gap": 1.0}  # any mapping will do
        own = {"modules": {}, **room.plan.request_fields}
        # the plan that may hold most is likely to, if not in one microbatch
        for graphs, more in ((drawn[:1], own), (drawn, own), (drawn, {})) if drawn else ():
            with suppress(Infeasible, PlanError):  # a graph that no plan can use is none that fits
                solve(copies * sequences, graphs, **{**common, **more})
                return True
        return False

    rooms = sorted(_rooms(draw, system, chosen, asked), key=lambda room: -room.batch)
    if not rooms:
        solve(1, [draw(1, 1)])  # says what a single one lacks
        raise Infeasible("one sequence fits, but not one on each copy of the plans that were asked for")
    try:
        for room in rooms:
            if room.batch <= max(results, default=0):
                break
            _try(partial(fits, room), room.sequences // room.unit)
    except (NoSolution, KeyboardInterrupt):  # what was found until then is an answer
        if not results:
            raise
    if not results:
        solve(rooms[0].plan.copies, [draw(rooms[0].plan.copies, 1)])
    return LargestBatch(max(results), rooms[0], results[max(results)])


def _rooms(draw: GraphBuilder, system: System, chosen: Assumptions, asked: dict[str, Any]) -> Iterator[Room]:
    """For every number of copies the plan that may hold most sequences on each; ``asked``: fields of a request."""
    if asked["offload"] is not None:
        raise PlanError("offload: found beside the largest batch, of which nothing says what lies where; use place")
    copies = [asked["dp"]] if asked.get("dp") else divisors(system.chips)
    several = may_share(draw(1, 1), Request.of(**asked))
    drawn = cache(lambda size: Setting.resolved(draw(size, size), system, chosen))
    for count in copies:
        each = system.chips // count if several else 1  # whatever the degree, its chips have as many each
        listed = Setting.resolved(draw(count * each, each), system, chosen)
        try:
            legal, _ = asked_plans(listed.graph, system, Request.of(**{**asked, "dp": count}), listed.assumptions)
        except PlanError:  # no plan has so many copies
            continue
        single, two = drawn(each), drawn(2 * each)  # a chip keeps of a microbatch what it keeps, whatever the batch
        # of the same plan without turns the copies hold no less
        some = [plan for plan in legal if not plan.two_batch_overlap]
        tables = zip(PlanBounds(single).tables(some), PlanBounds(two).tables(some), strict=True)
        most = max((_most(*pair, each) for pair in tables), key=lambda room: room.sequences, default=None)
        if most is not None and most.sequences > 0:
            yield most


def _most(single: PlanTable, two: PlanTable, each: int) -> Room:
    """The plan whose fullest stage has room for most sequences, each state at its least over all shardings.

    The tables are of the same plans with ``each`` sequences on a chip, and with twice as many.
    """
    shared_i = [plan.modules is not None and "n" in plan.modules.schemes.values() for plan in single.plans]
    unit_i = np.array([plan.members if shared else 1 for plan, shared in zip(single.plans, shared_i, strict=True)])
    first_mr, capacity_m, unit_r = single.least_held_mr, single.holding.capacity_m, unit_i[single.plan_r]
    grow_mr = two.least_held_mr - first_mr
    with np.errstate(divide="ignore", invalid="ignore"):
        units_mr = (capacity_m[:, None] - first_mr + grow_mr) / grow_mr * each / unit_r * (1 + ROUNDING)
    sequences_mr = np.where(grow_mr > 0, np.maximum(np.floor(units_mr), 0) * unit_r, np.inf)
    i = int((-single.slowest(-sequences_mr.min(axis=0))).argmax())
    fullest_mr = np.where(single.plan_r == i, sequences_mr, np.inf)
    m, r = np.unravel_index(fullest_mr.argmin(), fullest_mr.shape)
    if np.isinf(fullest_mr[m, r]):
        raise PlanError("--batch max: nothing that the graph keeps grows with the batch, or the memory has no limit")
    sequences, tier = int(fullest_mr[m, r]), [*single.setting.system.chip.tiers][m]
    under = single.under_i[i], two.under_i[i]
    states = (PlanBounds(instance.setting).least_states(instance) for instance in under)
    _, stage = single.run[single.row_r[r]]
    books = [held(instance, stage, least)[tier] for instance, least in zip(under, states, strict=True)]
    full = {
        LABELS[name]: books[0][name] + (books[1][name] - books[0][name]) * (sequences / each - 1) for name in books[1]
    }
    return Room(single.plans[i], sequences, int(unit_i[i]), full, float(capacity_m[m]))


def _try(fits: Callable[[int], bool], most: int) -> None:
    """Find the largest number up to ``most`` that fits: near it in ever larger steps, then by halves."""
    step, fails, number = 1, most + 1, most
    while number > 0 and not fits(number):
        fails, number, step = number, number - step, 2 * step
    number = max(number, 0)
    while fails - number > 1:
        middle = (number + fails) // 2
        number, fails = (middle, fails) if fits(middle) else (number, middle)
