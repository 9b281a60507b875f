"""The search over all graphs of a workload: one branch and bound, what it reports, and why nothing fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from dfopt.arrays import Floats
from dfopt.bnb import Candidate, Incumbents, Leaf, Outcome, Problem, SearchParameters, Snapshot
from dfopt.documents.plan_records import OPEN, GraphRecord
from dfopt.errors import Infeasible, NoSolution, SolveError
from dfopt.interrupts import LIMIT, SIGNALS, now
from dfopt.regions.judged import JudgedMapping, cutoffs_of
from dfopt.regions.plan_group import PlanGroup
from dfopt.regions.problem import parameters_of, problem_in, searched
from dfopt.regions.region import Branch, Region, Unclassed, Undivided, Unlisted, Unsharded
from dfopt.search.graph_search import GraphSearch
from dfopt.search.status_record import AnyRecord
from dfopt.solving.options import Progress

_POINTS: Final = 200
"""Points of a trace; a longer one loses every other."""
_REPORT_S: Final = 1.0
"""Seconds between two reports, but of better mappings."""


class WorkloadSearch:
    """A search over the mappings of several graphs that draw the same workload in different ways.

    Parameters
    ----------
    graphs : sequence of GraphSearch
        One for each graph; they share a state.

    Attributes
    ----------
    state : SearchState
        The best mappings, and the reason why the search was stopped.
    trace : list
        Trace of (seconds, best value, bound), one entry for each change.
    """

    def __init__(self, graphs: Sequence[GraphSearch]) -> None:
        self.graphs, self.state = graphs, graphs[0].state
        self.state.report = self.report
        self.trace: list[tuple[float, float | None, float]] = []
        self._least = self._shown = min(graph.least for graph in self.graphs)  # what no mapping is below
        self._due_s = 0.0
        if self.state.options.progress is not None:
            self.state.clock.watch = self._report_if_due  # one step may take long
        self._of_model = {id(graph.setting.model): graph for graph in self.graphs}

    @property
    def usable(self) -> list[GraphSearch]:
        """Searches of those graphs that some plan can use."""
        return [graph for graph in self.graphs if graph.refused is None]

    def run(self) -> None:
        """Run the search and write the records of all graphs."""
        request, options = self.state.request, self.state.options
        problem = problem_in([graph.space for graph in self.graphs], options)
        # programs find, and show, what is there by themselves
        kept = [] if request.formulation == "assignment" else self.state.incumbents.kept
        for each in self.state.solutions:
            self._of_model[id(each.graph)].keep(each)
        parameters = parameters_of(request)
        self._write(self.outcome(problem, parameters, kept), parameters)

    def outcome(
        self, problem: Problem[Branch, JudgedMapping], parameters: SearchParameters, kept: Sequence[Candidate] = ()
    ) -> Outcome[Branch, JudgedMapping]:
        """Run branch and bound on a problem and keep the mappings that it finds.

        Parameters
        ----------
        problem, parameters, kept
            As for :func:`dfopt.bnb.branch_and_bound`.
        """
        outcome = searched(problem, parameters, self.state.clock, kept, self._stepped)
        if outcome.ending == "interrupted":
            self.state.stop()
        of_leaves = [each for leaf in outcome.leaves for each in leaf.solutions] if parameters.top > 1 else []
        for candidate in [*outcome.kept, *of_leaves]:  # a plan may have mappings like those that are kept
            self._keep(candidate.solution)
        return outcome

    def _stepped(self, step: Snapshot[JudgedMapping]) -> None:
        self._shown = max(self._least, min(step.bound, step.best))
        self._keep(step.solution)
        self._report_if_due()
        if self.state.stopped:  # by an interrupt of a solve, which ended with a mapping
            raise KeyboardInterrupt

    def _keep(self, mapping: JudgedMapping | None) -> None:
        if mapping is not None and mapping.solved is not None:
            self._of_model[id(mapping.solved.graph)].keep(mapping.solved)

    def _write(self, outcome: Outcome[Branch, JudgedMapping], parameters: SearchParameters) -> None:
        """The records of all graphs, from what a search shows of every plan."""
        late = is_late(outcome)
        self.state.stopped = self.state.stopped or (LIMIT if late else "")
        unlisted = self.leave(outcome, parameters)
        for graph in self.graphs:
            if graph in unlisted:
                graph.give_up_graph(unlisted[graph], late=late)
            else:
                graph.write_records()

    def leave(self, outcome: Outcome[Branch, JudgedMapping], parameters: SearchParameters) -> dict[GraphSearch, float]:
        """Close all searched plans with the bounds that an outcome proves.

        Returns
        -------
        dict
            Lower bounds on all mappings of graphs whose plans were not listed.
        """
        late, unlisted = is_late(outcome), dict[GraphSearch, float]()
        for leaf in outcome.leaves:
            if isinstance(leaf.region, Unlisted) and leaf.bound < np.inf:  # else it was listed, and has no plan
                unlisted[self._of_model[id(leaf.region.space.setting.model)]] = leaf.bound
            if isinstance(leaf.region, Unclassed | Unsharded):
                graph = self._of_model[id(leaf.region.space.setting.model)]
                for plan, low in leaf.region.lows:
                    graph.give_up_unit((plan, None), max(leaf.bound, low), late=late)
        low_of = lows(outcome, parameters, several=self.state.request.several)
        searched: dict[PlanGroup, set[int]] = {}
        for part in outcome.log.regions:
            if isinstance(part, Region | Undivided):
                searched.setdefault(part.of, set()).update(part.plans)
        for of, plan_i in searched.items():
            self._of_model[id(of.setting.model)].give_up(of, sorted(plan_i), low_of(of), late=late)
        return unlisted

    def _report_if_due(self) -> None:
        if now() >= self._due_s:
            self.report()

    def report(self) -> None:
        """Call the progress callback with the best value and the bound so far."""
        state = self.state
        seconds, best = state.seconds, next(iter(state.solutions), None)
        self._due_s = now() + _REPORT_S
        label, value = ("no mapping yet", np.inf) if best is None else (best.plan.label, best.value)
        low, incumbent = min(value, self._shown), None if best is None else value
        if not self.trace or self.trace[-1][1:] != (incumbent, low):
            self.trace.append((seconds, incumbent, low))
        if len(self.trace) > _POINTS:
            del self.trace[1:-1:2]
        if state.options.progress is None:
            return
        open_, listed = map(sum, zip(*(graph.counts() for graph in self.graphs), strict=True))
        problem = f"{open_:,} of {listed:,} plans open" if listed else "no plans listed yet"
        state.options.progress(Progress(label, problem, seconds, value, low))

    # -- why there is no mapping ------------------------------------------------------------------------------------

    def failure(self) -> SolveError | KeyboardInterrupt:
        """The error for a search without any mapping: infeasible only if that is proven for all plans."""
        if self.state.stopped in SIGNALS:
            return KeyboardInterrupt()
        graphs = self.usable
        if any(record.status in OPEN for graph in graphs for record in _all_records(graph)):
            bounds = [record.bound for graph in graphs for record in _all_records(graph)]
            least = min((bound for bound in bounds if bound is not None), default=0.0)
            return NoSolution(least, self.state.seconds, _counted(graphs))
        from dfopt.search.shortage import least_held

        unbounded = [graph for graph in graphs if self._lacks_memory(graph)]
        nearest = least_held([(graph.setting, graph.least_shares) for graph in unbounded], self.state.options)
        if nearest is None:
            return self._infeasible(graphs[0])
        place, held = nearest
        return Infeasible(_reasons(unbounded[place]), held)

    def _limit_of_objective(self, graph: GraphSearch) -> list[float]:
        """Bounds of the plans of a graph that only the limit of the objective excludes."""
        beaten = [record.bound or 0.0 for record in _all_records(graph) if record.status.startswith("pruned")]
        return beaten if np.isfinite(self.state.incumbents.limit) else []

    def _lacks_memory(self, graph: GraphSearch) -> bool:
        """Whether all plans of a graph are known to fit no mapping."""
        bounded = graph.apart or any(record.bound is not None for record in graph.records)
        return not bounded and not self._limit_of_objective(graph)

    def _infeasible(self, graph: GraphSearch) -> Infeasible:
        """Why no plan of a graph has a mapping."""
        if beaten := self._limit_of_objective(graph):
            ceiling = self.state.incumbents.limit
            what = f"{self.state.request.objective.metric} of at most {ceiling:.6g}"
            return Infeasible(
                f"no mapping keeps the limit of the objective, a {what}: the best plan allows {min(beaten):.6g} with"
                " shardings that are optimal for the inter-chip problem; levers: a higher limit, more chips"
            )
        return Infeasible(_reasons(graph))


def _reasons(graph: GraphSearch) -> str:
    """Why the plans of a graph fit no mapping."""
    reasons = [*dict.fromkeys(graph.reasons)]
    return reasons[0] if len(reasons) == 1 else "no plan fits:\n  " + "\n  ".join(reasons)


def _all_records(graph: GraphSearch) -> list[AnyRecord | GraphRecord]:
    """The records of all plans of a graph, or of all together."""
    return [*graph.records, *([graph.apart] if graph.apart is not None else [])]


def _counted(graphs: Sequence[GraphSearch]) -> str:
    """How many plans of some graphs, listed as far as there was time, may be solutions."""
    listed, given_up = sum(len(graph.bounds) for graph in graphs), sum(graph.apart is not None for graph in graphs)
    left = [
        graph.bounds if graph.apart else {record.plan for record in graph.records if record.status in OPEN}
        for graph in graphs
    ]
    open_ = sum(map(len, left))
    others = f", and of {given_up} of {len(graphs)} graphs not all plans are listed" if given_up else ""
    return f"{open_:,} of {listed:,} plans {'is' if open_ == 1 else 'are'} open{others}"


def is_late(outcome: Outcome[Branch, JudgedMapping]) -> bool:
    """Whether the time limit or an interrupt ended a search."""
    return outcome.ending in ("time_limit", "interrupted")


def lows(
    outcome: Outcome[Branch, JudgedMapping], parameters: SearchParameters, *, several: bool
) -> Callable[[PlanGroup], Floats]:
    """Function that gives, for a class, lower bounds on the step under each plan: the least over its leaves.

    Plans without a leaf were removed by reductions: they exceed a memory or reach the cutoff.

    Parameters
    ----------
    outcome, parameters : Outcome, SearchParameters
        Outcome and tolerances of the search.
    several : bool
        Whether the bound excludes the mappings that are kept.
    """
    kept = Incumbents(parameters.top, parameters.gap, outcome.kept, parameters.limit)
    low_of = dict[PlanGroup, Floats]()
    for leaf in outcome.leaves:
        if isinstance(leaf.region, Region | Undivided):
            of, plan_i = leaf.region.of, leaf.region.plan_i
            low_i = low_of.setdefault(of, np.full(len(of.plans), np.nan))
            shown_i = np.maximum(_shown(of, leaf, kept, several), of.least_i)
            low_i[plan_i] = np.fmin(low_i[plan_i], shown_i[plan_i])

    def low_of_plans(of: PlanGroup) -> Floats:
        dropped_i = cutoffs_of(kept, of)
        low_i = low_of.get(of, dropped_i)
        return np.where(np.isnan(low_i), dropped_i, low_i)

    return low_of_plans


def _shown(of: PlanGroup, leaf: Leaf[Branch], kept: Incumbents, several: bool) -> Floats:
    """What no mapping of a leaf is below, by plan of its class, but for those that are kept among several of one.

    Among several a leaf solver looks for mappings of a plan that is kept only below its value, and others may have
    taken its place since.
    """
    if leaf.value is None:
        return np.full(len(of.plans), leaf.bound)
    low_i = np.minimum(leaf.others, cutoffs_of(kept, of) if kept.top > 1 else np.full(len(of.plans), np.inf))
    for candidate in () if several else leaf.solutions:
        low_i[of.places[candidate.solution.different]] = min(candidate.value, leaf.others)
    return low_i
