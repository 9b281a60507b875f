"""Schemes of modules on the second axis: those that are tried, and the words for what is left out."""

from __future__ import annotations

from functools import cache

import dfopt as df
from dfopt.documents.request import Request
from dfopt.documents.result import Result
from dfopt.search.verify import verify
from dfopt.setting.plans import asked_plans

EVERY = df.Assumptions(module_schemes="all")
COMMON = "module_schemes common"


@cache
def answer(module_schemes: str | None = None, **asked: int) -> Result:
    found = df.Assumptions.model_validate({"module_schemes": module_schemes})
    graph, system = df.load_graph("mixtral-8x7b", phase="decode", batch=8, context=1024, microbatch=8), "h100-8"
    return df.optimize(graph, system, assumptions=found, **asked)


def test_all_schemes_are_those_of_every_degree() -> None:
    """The union over degrees is its own oracle: with a degree given, every scheme was listed all along."""
    graph = df.load_graph("mixtral-8x7b", phase="decode", batch=8, context=1024, microbatch=8)
    system = df.load_system("h100-8")

    def listed(assumptions: df.Assumptions, **asked: int) -> set[str]:
        return {plan.label for plan in asked_plans(graph, system, Request(**asked), assumptions)[0]}

    each = set[str]().union(*(listed(df.Assumptions(), mp=degree) for degree in (1, 2, 4, 8)))
    assert listed(EVERY) == each
    assert listed(df.Assumptions()) < each


def test_an_answer_names_the_schemes_that_it_did_not_try() -> None:
    common, every, given = answer(), answer("all"), answer(mp=8)
    assert common.fixed is not None and COMMON in common.fixed and f"{COMMON}, " in common.proof
    for other in (every, given):
        assert other.fixed is not None and COMMON not in other.fixed and COMMON not in other.proof
    assert every.value <= min(common.value, given.value) * (1 + 1e-9)
    assert any(COMMON in line for line in verify(common).checked)


def test_an_answer_that_does_not_name_what_it_left_out_is_seen() -> None:
    made = answer()
    for fixed in (("microbatch 8",), ()):
        forged = made.model_copy(update={"fixed": fixed}).sealed()
        assert any("$.fixed" in problem for problem in verify(forged).problems)
