"""Branch and bound over regions of any space, which knows nothing of what it searches.

A :class:`Problem` is regions to start from and lists of entries: relaxations that bound a region, heuristics that
propose solutions, reductions that make a region smaller, leaf solvers that decide one, and rules that divide one.
:func:`branch_and_bound` asks them. Entries hold no state of the search; that is in four objects: the bound store, the
incumbents, the proof log and the clock. So several workers could share bounds and incumbents.

Examples
--------
A knapsack: of items with a value and a weight, those with the highest value that weigh 10 together at most. A region is
what is decided of the first items. Filling up with parts of the others bounds it, and the whole ones of these are a
solution. Values are negative, as lower is better.

>>> items = [(60.0, 5.0), (50.0, 5.0), (70.0, 7.0), (20.0, 3.0)]
>>> items.sort(key=lambda item: -item[0] / item[1])
>>> def filled(region):
...     value = sum(items[i][0] for i, taken in enumerate(region) if taken)
...     left, whole = 10.0 - sum(items[i][1] for i, taken in enumerate(region) if taken), list(region)
...     if left < 0:
...         return float("inf"), None
...     for item in items[len(region):]:
...         part = min(1.0, left / item[1])
...         value, left = value + part * item[0], left - part * item[1]
...         whole.append(part == 1.0)
...     return -value, tuple(whole)
>>> class Fractional(Relaxation):
...     name = "fractional"
...     def answers(self, regions, cutoff, clock):
...         return [filled(region) for region in regions]
...     def bound(self, region, answer):
...         return Bound(*answer)
>>> class RoundedDown(Heuristic):
...     def propose(self, node, view):
...         taken = node.bound.witness
...         return [] if taken is None else [Candidate(-sum(i[0] for i, t in zip(items, taken) if t), taken)]
>>> class NextItem(BranchingRule):
...     def children(self, region, bound, view):
...         return [((*region, t), bound.value) for t in (True, False)] if len(region) < len(items) else []
>>> found = branch_and_bound(Problem([()], [Fractional()], [NextItem()], [RoundedDown()]))
>>> found.best, found.solution, found.ending
(-110.0, (True, True, False, False), 'optimal')
"""

from dfopt.bnb.answers import Bound, Candidate, LeafAnswer
from dfopt.bnb.clock import ENDED, UNITS_PER_S, UNLIMITED, Clock, OutOfTime
from dfopt.bnb.entries import BRANCHING, BranchingRule, Heuristic, LeafSolver, Problem, Reduction, Relaxation, View
from dfopt.bnb.node import BestFirst, Node, NodeSelection
from dfopt.bnb.outcome import Leaf, Outcome, SearchEnding, Snapshot
from dfopt.bnb.parameters import SearchParameters
from dfopt.bnb.proof_log import BoundRaised, Branched, Closed, ProofLog, Reduced
from dfopt.bnb.search import branch_and_bound
from dfopt.bnb.state import BoundStore, Incumbents

__all__ = [
    "BestFirst", "Bound", "BoundRaised", "BoundStore", "branch_and_bound", "Branched", "BRANCHING", "BranchingRule",
    "Candidate", "Clock", "Closed", "ENDED", "Heuristic", "Incumbents", "Leaf", "LeafAnswer", "LeafSolver", "Node",
    "NodeSelection", "Outcome", "OutOfTime", "Problem", "ProofLog", "Reduced", "Reduction", "Relaxation",
    "SearchEnding", "SearchParameters", "Snapshot", "UNITS_PER_S", "UNLIMITED", "View",
]  # fmt: skip
