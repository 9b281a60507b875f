"""Schemes that are fixed by hand beside degrees that are free: plans that they forbid are left out, and say why."""

from __future__ import annotations

import pytest

import dfopt as df
from dfopt.documents.assumptions import Assumptions
from dfopt.errors import PlanError
from dfopt.search.verify import verify


@pytest.mark.parametrize("objective", ["joint", "seconds"])
def test_a_plan_that_a_pin_forbids_is_left_out(objective: str) -> None:
    chosen = Assumptions().with_(sharding_objective=objective)
    result = df.optimize(
        df.load_graph("gpt2-small"), "sn10-8-ring", assumptions=chosen, dp=1, pin_sharding={"FFN0": "n"}
    )
    left_out = {record.plan.tp: record.note for record in result.plans if record.status == "infeasible"}
    assert left_out == {
        tp: f"kernel 'FFN0' cannot be sharded by 'n' over {tp} chips; it allows m, k, k>n" for tp in (2, 4, 8)
    }
    assert (result.status[:7], result.plan.label) == ("optimal", "TP1 PP8(ring) DP1")
    assert verify(result).ok


def test_what_every_plan_forbids_is_refused_by_name() -> None:
    with pytest.raises(PlanError, match=r"'FFN0' cannot be sharded by 'n' over 8 chips; it allows m, k, k>n$"):
        df.optimize(df.load_graph("gpt2-small"), "sn10-8-ring", tp=8, pin_sharding={"FFN0": "n"})
