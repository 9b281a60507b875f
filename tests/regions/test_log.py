"""What a log of a search shows by itself: children cover, bounds hold, and the least bound is that of the answer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pytest
from covered import covered, request_of
from hypothesis import assume, given
from hypothesis import strategies as st
from members import Members
from strategies import World, share

from dfopt.bnb import Parameters, branch_and_bound, replay
from dfopt.errors import PlanError
from dfopt.regions.problem import ROUNDED, ClassesFirst, problem_in
from dfopt.regions.region import Part, Unlisted, listed
from dfopt.solving.options import Options

MANY = 400


def covers(region: Part, parts: Sequence[Part]) -> bool:
    """Whether each plan with each vector of options is in exactly one part."""
    if isinstance(region, Unlisted):
        return [*parts] == ([*region.space.roots] or [region])
    parts = listed(parts)
    every = sorted(itertools.product(region.plans, *region.domain))
    found = [one for part in parts for one in itertools.product(part.plans, *part.domain)]
    return sorted(found) == every and all(part.of is region.of for part in parts)


@share(1)
@given(covered(most=4), st.data())
def test_a_log_shows_the_bound_and_each_of_its_bounds_holds(world: World, data: st.DataObject) -> None:
    """No member of a region is below what the log says of it, unless it does not beat the answer."""
    members = Members(world, request_of(world, data.draw))
    try:
        roots = members.space.roots
    except PlanError:
        assume(False)
    assume(sum(len(root.plans) * root.vectors for root in roots) <= MANY)
    problem = problem_in([members.space], Options(members.space.request))
    order = ClassesFirst(len(problem.relaxations))
    found = branch_and_bound(problem, Parameters(gap=ROUNDED), selection=order)

    def shows(region: Part, relaxation: str, value: float) -> bool:
        if isinstance(region, Unlisted):
            return value <= max(min(map(members.least, roots), default=math.inf), found.best) * (1 + 1e-9)
        return value <= max(members.least(region), found.best) * (1 + 1e-9)

    least = replay(found.log, problem.roots, covers, shows)
    assert math.isinf(found.best) if math.isinf(least) else least == pytest.approx(found.best, rel=1e-9)
