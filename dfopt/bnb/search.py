"""Best-first branch and bound over the regions of a problem.

The region with the least bound is worked on first, and only as far as it takes to raise that bound above that of
another one: by its next relaxation, then by dividing it. So an expensive relaxation is asked only about regions that no
cheaper one excludes. Source of the scheme: Land and Doig, "An automatic method of solving discrete programming
problems", Econometrica 28 (1960); lists of entries as the plug-ins of SCIP (Achterberg, Mathematical Programming
Computation 1 (2009)).
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic

from dfopt.bnb.answers import NOTHING_SHOWN, Bound, Candidate, LeafAnswer, RegionT, SolutionT
from dfopt.bnb.clock import Clock, OutOfTime
from dfopt.bnb.entries import BRANCHING, Problem, Relaxation
from dfopt.bnb.node import BestFirst, Node, NodeSelection, OpenNodes
from dfopt.bnb.outcome import Outcome, SearchEnding, Snapshot
from dfopt.bnb.parameters import SearchParameters
from dfopt.bnb.proof_log import BoundRaised, Branched, Closed, ProofLog, Reduced
from dfopt.bnb.state import BoundStore, Incumbents, Stored
from dfopt.interrupts import LIMIT, cause, interruptible


def branch_and_bound(
    problem: Problem[RegionT, SolutionT],
    parameters: SearchParameters | None = None,
    *,
    clock: Clock | None = None,
    selection: NodeSelection | None = None,
    kept: Sequence[Candidate] = (),
    progress: Callable[[Snapshot[SolutionT]], None] | None = None,
) -> Outcome[RegionT, SolutionT]:
    """Find the solution, or the several solutions, with the least value, and a bound on all others.

    Parameters
    ----------
    problem
        Regions, and the entries that bound and divide them.
    parameters
        Gap, number of solutions to keep, and tolerances; the defaults if left out.
    clock
        Limit on work and time. When it is over, the outcome has the best solutions so far and a valid bound; a step
        that has begun is finished. Left out: no limit.
    selection
        Rule that chooses the next node; by default the least bound first.
    kept
        Solutions that are known already, the best first: no more than the parameters ask for.
    progress
        Called after each step.

    Raises
    ------
    ValueError
        If two relaxations have the same name, or no entry divides or decides a region.

    Examples
    --------
    The least of x^2 - 10 x over the integers from 0 to 100, in regions of integers from a to b:

    >>> from dfopt.bnb import BranchingRule, Heuristic, Problem, Relaxation
    >>> class Interval(Relaxation):
    ...     name = "interval"
    ...     def answers(self, regions, cutoff, clock):
    ...         return [a**2 - 10 * b for a, b in regions]
    >>> class Middle(Heuristic):
    ...     def propose(self, node, view):
    ...         middle = sum(node.region) // 2
    ...         return [Candidate(middle**2 - 10 * middle, middle)]
    >>> class Halves(BranchingRule):
    ...     def children(self, region, bound, view):
    ...         (a, b), middle = region, sum(region) // 2
    ...         return [((a, middle), bound.value), ((middle + 1, b), bound.value)] if a < b else []
    >>> found = branch_and_bound(Problem([(0, 100)], [Interval()], [Halves()], [Middle()]))
    >>> found.solution, found.best, found.bound, found.ending
    (5, -25, -25, 'optimal')
    """
    return _Search(
        problem, parameters or SearchParameters(), clock or Clock(), selection or BestFirst(), kept, progress
    ).run()


class _Search(Generic[RegionT, SolutionT]):
    """A run: it asks entries, and keeps what they answer in the store, the incumbents and the log."""

    def __init__(
        self,
        problem: Problem[RegionT, SolutionT],
        parameters: SearchParameters,
        clock: Clock,
        selection: NodeSelection,
        kept: Sequence[Candidate],
        progress: Callable[[Snapshot[SolutionT]], None] | None,
    ) -> None:
        self.problem, self.parameters, self.clock, self.progress = problem, parameters, clock, progress
        self.began = time.perf_counter()
        self.store, self.log = BoundStore(), ProofLog[RegionT]()
        self.incumbents = Incumbents(parameters.top, parameters.gap, kept, parameters.limit)
        self.open = OpenNodes[RegionT](selection)
        self.prepared = set[tuple[int, str]]()  # nodes that a relaxation was told of ahead
        self.closed = math.inf  # the least bound of all that is closed
        names = [relaxation.name for relaxation in problem.relaxations]
        self.bounded = dict.fromkeys(names, 0)
        if len(self.bounded) < len(names):
            raise ValueError(f"two relaxations have the same name: {', '.join(names)}")

    def run(self) -> Outcome[RegionT, SolutionT]:
        stopped: SearchEnding | None = None
        try:
            for region in self.problem.roots:
                self.open.put(Node(region, self.log.number(region), NOTHING_SHOWN))
            while self.open:
                node = self.open.first()
                if node.bound.value >= self.incumbents.cutoff:
                    self._close(node, node.bound.value)
                elif self.clock.over:
                    stopped = "time_limit"
                    break
                else:
                    self._step(node)
        except OutOfTime:  # in the middle of a step: what it was taken with stays open
            stopped = "time_limit"
        except KeyboardInterrupt:
            stopped = "time_limit" if cause() == LIMIT else "interrupted"
        return self._ended(stopped)

    # -- a step -----------------------------------------------------------------------------------------------------

    def _step(self, node: Node[RegionT]) -> None:
        """Raise the bound of a node, or divide it, or decide it."""
        relaxation = self._next_relaxation(node)
        if relaxation is None:
            self._expand(node)
        else:
            if relaxation.ahead and (node.number, relaxation.name) not in self.prepared:
                self._prepare(relaxation)
                if self.open.first() is not node:  # of equal bounds another one comes first now
                    return
            for member in self._together(node, relaxation):
                self._take_up(member, relaxation)
                self.open.put(member)
            self._propose(node, relaxation.name)
        if self.progress is not None:
            self.progress(self._now())

    def _next_relaxation(self, node: Node[RegionT]) -> Relaxation[RegionT, Any] | None:
        """The first relaxation that has not had its say and applies."""
        relaxations = self.problem.relaxations
        while node.answered < len(relaxations) and not relaxations[node.answered].applies(node.region):
            node.answered += 1
        return relaxations[node.answered] if node.answered < len(relaxations) else None

    def _together(self, node: Node[RegionT], relaxation: Relaxation[RegionT, Any]) -> list[Node[RegionT]]:
        """The node, and others that wait for the same relaxation, as many as this answers about in one call.

        Their answers are in the store then.
        """
        nodes = [node]
        if relaxation.batch > 1 and not node.deferrals:
            waiting = (other for other in self.open.in_order() if other is not node and not other.deferrals)
            same = (other for other in waiting if self._next_relaxation(other) is relaxation)
            below = (other for other in same if other.bound.value < self.incumbents.cutoff)
            nodes += [other for other, _ in zip(below, range(relaxation.batch - 1), strict=False)]
        keys = {relaxation.key(member.region): member.region for member in reversed(nodes)}
        new = [key for key in keys if self.store.get(relaxation.name, key) is None]
        if new:
            with interruptible():
                part = self.clock.allowance(self.parameters.allowance)
                answers = relaxation.answers([keys[key] for key in new], self.incumbents.cutoff, part)
            for key, answer in zip(new, answers, strict=True):
                self.store.put(relaxation.name, key, answer)
        return nodes

    def _take_up(self, node: Node[RegionT], relaxation: Relaxation[RegionT, Any]) -> None:
        """Give a node the bound that is read off the answer about it, refined where the node had that before."""
        key = relaxation.key(node.region)
        stored = self.store.get(relaxation.name, key)
        assert stored is not None
        if node.deferrals and stored.refined == node.read:
            stored = self._refined(node, relaxation, key, stored)
        with interruptible():
            bound = relaxation.bound(node.region, stored.answer)
        self.bounded[relaxation.name] += 1
        self.log.events.append(BoundRaised(node.number, relaxation.name, bound.value))
        witness = node.bound.witness if bound.witness is None else bound.witness
        node.bound = Bound(max(node.bound.value, bound.value), witness)
        if bound.more:
            node.deferrals, node.read = node.deferrals + 1, stored.refined
        else:
            node.answered, node.deferrals = node.answered + 1, 0

    def _refined(
        self, node: Node[RegionT], relaxation: Relaxation[RegionT, Any], key: Hashable, stored: Stored
    ) -> Stored:
        """The answer about a node with more work: each time by a factor."""
        part = self.clock.allowance(self.parameters.allowance * self.parameters.growth**node.deferrals)
        with interruptible():
            answer = relaxation.refine(node.region, stored.answer, self.incumbents.cutoff, part)
        return self.store.put(relaxation.name, key, answer)

    def _prepare(self, relaxation: Relaxation[RegionT, Any]) -> None:
        """Tell a relaxation of the first nodes that come to it, each bounded by all relaxations before it."""
        nodes: list[Node[RegionT]] = []
        priority, number = self.open.selection.priority, [*self.problem.relaxations].index(relaxation)
        heap = [(priority(waiting), place, waiting) for place, waiting in enumerate(self.open.in_order())]
        while heap and len(nodes) < relaxation.ahead and heap[0][2].bound.value < self.incumbents.cutoff:
            _, place, node = heapq.heappop(heap)
            due = self._next_relaxation(node)
            if due is relaxation:
                if (node.number, relaxation.name) not in self.prepared:
                    nodes.append(node)
            elif due is not None and node.answered < number:
                self._together(node, due)
                self._take_up(node, due)
                self.open.put(node, same_turn=True)
                heapq.heappush(heap, (priority(node), place, node))
        self.prepared.update((node.number, relaxation.name) for node in nodes)
        with interruptible():
            relaxation.prepare([node.region for node in nodes], self.incumbents.cutoff)

    def _expand(self, node: Node[RegionT]) -> None:
        """Divide a node that no relaxation has more to say about, or decide it."""
        self._propose(node, BRANCHING)
        for leaf in self.problem.leaves:
            if leaf.accepts(node.region, node.bound):
                with interruptible():
                    answer = leaf.solve(node.region, node.bound, self.incumbents, self.clock)
                self._decide(node, answer)
                if answer.interrupted:
                    raise KeyboardInterrupt
                return
        if not self._reduce(node):
            self._divide(node)

    def _decide(self, node: Node[RegionT], answer: LeafAnswer) -> None:
        """Take what a leaf solver shows of a node."""
        for candidate in answer.candidates:  # no interrupt comes between a solution and its place
            self.incumbents.offer(candidate)
        low, value = node.bound.value, min((candidate.value for candidate in answer.candidates), default=math.inf)
        bound, others = value if answer.bound is None else answer.bound, max(low, answer.others)
        self._close(node, max(low, min(bound, others)), value, others, answer.candidates)

    def _reduce(self, node: Node[RegionT]) -> bool:
        """Replace a node by a smaller one, if a reduction can."""
        for reduction in self.problem.reductions:
            if reduction.dominance and self.parameters.top > 1:
                continue
            with interruptible():
                smaller = reduction.reduce(node.region, node.bound, self.incumbents)
            if smaller is not None:
                child = Node(smaller, self.log.number(smaller), Bound(node.bound.value))
                self.log.events.append(Reduced(node.number, reduction.name, child.number))
                self.open.put(child)
                self.open.remove(node)
                return True
        return False

    def _divide(self, node: Node[RegionT]) -> None:
        """Replace a node by the parts that the first rule divides it into; close it if it has none."""
        for rule in self.problem.branching:
            with interruptible():
                parts = rule.children(node.region, node.bound, self.incumbents)
            if parts is None:
                continue
            if not parts:
                self._close(node, node.bound.value)
                return
            children = [
                Node(region, self.log.number(region), Bound(max(low, node.bound.value))) for region, low in parts
            ]
            numbers, lows = tuple(child.number for child in children), tuple(child.bound.value for child in children)
            self.log.events.append(Branched(node.number, numbers, lows))
            for child in children:
                self.open.put(child)
            self.open.remove(node)  # last: where an interrupt may come at any time, no part of it is lost
            return
        raise ValueError(f"no branching rule divides {node.region}, and no leaf solver decides it")

    def _propose(self, node: Node[RegionT], after: str) -> None:
        """Offer the incumbents what heuristics propose."""
        for heuristic in self.problem.heuristics:
            if heuristic.due(node, after):
                for candidate in interruptible.steps(heuristic.propose(node, self.incumbents)):
                    self.incumbents.offer(candidate)

    def _close(
        self,
        node: Node[RegionT],
        bound: float,
        value: float | None = None,
        others: float | None = None,
        solutions: Sequence[Candidate] = (),
    ) -> None:
        self.log.events.append(Closed(node.number, bound, value, bound if others is None else others, solutions))
        self.closed = min(self.closed, bound)
        self.open.remove(node)

    # -- what is shown ----------------------------------------------------------------------------------------------

    def _least(self) -> float:
        """The lower bound on all solutions: of the open nodes, the closed ones and the best solution."""
        return min(self.incumbents.best, self.closed, self.open.least())

    def _now(self) -> Snapshot[SolutionT]:
        kept = self.incumbents.kept
        solution = kept[0].solution if kept else None
        seconds = time.perf_counter() - self.began
        return Snapshot(self.incumbents.best, self._least(), len(self.log.regions), solution, seconds)

    def _ended(self, stopped: SearchEnding | None) -> Outcome[RegionT, SolutionT]:
        bound = self._least()
        for node in self.open.in_order():
            self._close(node, node.bound.value)
        return Outcome(
            kept=tuple(self.incumbents.kept),
            bound=bound,
            ending=stopped or self._word(bound),
            bounded=self.bounded,
            seconds=time.perf_counter() - self.began,
            log=self.log,
        )

    def _word(self, bound: float) -> SearchEnding:
        """What a search that ended by itself shows."""
        last = min(self.incumbents.last, self.incumbents.limit)
        if not any(
            self._is_below(leaf.others, last)
            or self._is_below(leaf.bound, last if leaf.value is None else min(last, leaf.value))
            for leaf in self.log.leaves
        ):
            return "optimal" if self.incumbents.kept else "empty"
        more = bound < self.incumbents.cutoff * (1 - self.parameters.reached)
        if more and self.clock.over:  # what a leaf solver left open it had no time for
            return "time_limit"
        if not self.incumbents.kept:
            return "empty"
        return "exhausted" if more and math.isfinite(last) else "gap_reached"

    def _is_below(self, bound: float, value: float) -> bool:
        """Whether a bound is below a value by more than the rounding of the sums that both are."""
        return bound < value and not math.isclose(bound, value, rel_tol=self.parameters.tolerance)
