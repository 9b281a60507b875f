"""Mappings of textbooks as first solutions: :mod:`dfopt.search.starts` for a search over one space."""

from __future__ import annotations

from dfopt.bnb import Candidate, Clock
from dfopt.regions.judged import JudgedMapping
from dfopt.regions.space import Space
from dfopt.search.options import Options
from dfopt.search.starts import begin
from dfopt.search.state import SearchState

__all__ = ["textbook_starts"]


def textbook_starts(space: Space, clock: Clock) -> list[Candidate]:
    """The best textbook mapping of a large space, valued by the judge; none of a small one, which needs none.

    Parameters
    ----------
    space : Space
        All mappings of a question.
    clock : Clock
        Of the search that follows.

    Raises
    ------
    KeyboardInterrupt
        If an interrupt came meanwhile.
    """
    state = SearchState(Options(space.request, clock))
    begin(state, [space.bounds])
    if state.stopped:
        raise KeyboardInterrupt
    return [Candidate(each.value, JudgedMapping.of(each, space.request)) for each in state.found]
