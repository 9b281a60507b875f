"""What a log of a search shows by itself: children cover, bounds hold, and the least bound is that of the answer."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from unittest.mock import patch

import pytest
from covered import covered, request_of, space_of
from hypothesis import assume, given
from hypothesis import strategies as st
from members import Members
from replayed import replay
from strategies import World, share

import dfopt as df
from dfopt.bnb import BoundRaised, Clock, SearchParameters, branch_and_bound
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.errors import PlanError
from dfopt.regions.problem import ROUNDED, ClassesFirst, problem_in, searched
from dfopt.regions.region import Branch, Unclassed, Unlisted, listed
from dfopt.regions.relaxations import PathBound
from dfopt.setting.instance import Setting
from dfopt.solving.options import Options
from dfopt.terms.table import Domain

MANY = 400


def held(of: Unclassed, parts: Sequence[Branch]) -> Counter[tuple[Plan, int, Domain]]:
    """How often parts hold a plan in a number of tiles, with options, when all of their plans are in classes."""
    later = (of.space.in_classes(dict(part.lows)) for part in parts if isinstance(part, Unclassed))
    regions = listed([*chain.from_iterable(later), *(part for part in parts if not isinstance(part, Unclassed))])
    return Counter((root.of.plans[i], root.of.tiles, root.domain) for root in regions for i in root.plans)


def covers(region: Branch, parts: Sequence[Branch]) -> bool:
    """Whether each plan with each vector of options is in exactly one part."""
    if isinstance(region, Unlisted):
        return [*parts] == [region.space.unclassed or region]
    if isinstance(region, Unclassed):
        return held(region, parts) == held(region, [region])
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
    with patch("dfopt.regions.branching._FIRST", data.draw(st.integers(1, 3))):
        found = branch_and_bound(problem, SearchParameters(gap=ROUNDED), selection=order)

    def shows(region: Branch, relaxation: str, value: float) -> bool:
        if isinstance(region, Unlisted | Unclassed):
            return value <= max(min(map(members.least, roots), default=math.inf), found.best) * (1 + 1e-9)
        return value <= max(members.least(region), found.best) * (1 + 1e-9)

    least = replay(found.log, problem.roots, covers, shows)
    assert math.isinf(found.best) if math.isinf(least) else least == pytest.approx(found.best, rel=1e-9)


def test_the_class_of_the_mapping_that_is_known_at_the_start_is_bounded_first() -> None:
    """Whichever it is: under its plan good mappings are near, and it has to be bounded anyway."""
    setting = Setting.resolved(df.load_graph("gpt2-small"), df.load_system("h100-8"), df.Assumptions())
    space = space_of(setting, Request(top=6))
    options = Options(space.request)
    first = set[frozenset[Plan]]()
    for candidate in searched(problem_in([space], options), SearchParameters(top=6), Clock()).kept:
        log = searched(problem_in([space], options), SearchParameters(), Clock(), [candidate]).log
        of_paths = (
            event for event in log.events if isinstance(event, BoundRaised) and event.relaxation == PathBound.name
        )
        [region] = listed([log.regions[next(of_paths).node]])
        assert candidate.solution.solved.plan in region.of.plans
        first.add(frozenset(region.of.plans))
    assert len(first) > 1
