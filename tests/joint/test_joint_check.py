"""What `dfopt check` believes of results whose sharding and fusion were found together: forgeries, sealed again."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

import dfopt as df
from dfopt.documents.assumptions import profile
from dfopt.documents.result import Result
from dfopt.search.verify import verify

Data = dict[str, Any]
JOINT = profile("default").model_copy(update={"sharding_objective": "joint"})


@cache
def honest(objective: str = "joint") -> str:
    """All plans of a layer whose best sharding the two levels miss by 0.4 %."""
    chosen = JOINT.model_copy(update={"sharding_objective": objective})
    return json.dumps(df.optimize("gpt3-175b", "sn10-8-ring", assumptions=chosen).to_data())


def sealed(data: Data) -> Result:
    return Result.from_data(data).sealed()


def record(data: Data, *statuses: str) -> Data:
    return next(one for one in data["plans"] if one["status"] in statuses)


def relabelled(data: Data) -> None:
    """The answer of two levels as if they had been searched together."""
    data |= json.loads(honest("seconds"))
    data["assumptions"]["sharding_objective"] = "joint"
    data["provenance"]["assumptions_digest"] = JOINT.digest()
    for one in data["plans"]:
        whole = {"pruned_per_level": "pruned_by_bound", "infeasible_per_level": "infeasible"}
        one["status"] = whole.get(one["status"], one["status"])
        one["bound"] = one["level_bound"] = max(one["level_bound"], data["value"])
    data |= {"bound": data["value"], "gap": 0.0, "level_gap": 0.0, "level_bound": data["value"], "status": "optimal"}


def infeasible(data: Data) -> None:
    """A plan that fits, said not to."""
    record(data, "pruned_by_bound").update(status="infeasible", bound=None, level_bound=None, note="does not fit")


def slower(data: Data) -> None:
    """Everything that is proven, with a value that is one per mille higher."""
    data["value"] *= 1.001


def left_out(data: Data) -> None:
    data["plans"].remove(record(data, "pruned_by_bound"))


FORGERIES: dict[str, Callable[[Data], None]] = {f.__name__: f for f in (relabelled, infeasible, slower, left_out)}


def test_the_honest_one_is_verified() -> None:
    result = sealed(json.loads(honest()))
    assert result.status == "optimal" and result.value < 763 < df.Result.from_data(json.loads(honest("seconds"))).value
    found = verify(result)
    assert found.ok, found.problems
    assert found.verdict == "verified optimal"


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_caught(name: str) -> None:
    data = json.loads(honest())
    FORGERIES[name](data)
    assert not verify(sealed(data)).ok
