"""What `dfopt check` believes of results whose sharding and fusion were found together: forgeries, sealed again."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

import dfopt as df
from dfopt.documents.assumptions import profile
from dfopt.documents.graph import Graph
from dfopt.documents.result import Result
from dfopt.documents.system import System
from dfopt.regions import lattices
from dfopt.search.assembling import proof_of, proven, status_of
from dfopt.search.kept import proven_gap
from dfopt.search.verify import Verification, seconds_for, verdict, verify

Data = dict[str, Any]
PLAIN = {"sharding_objective": "joint", "sequence_parallelism": "none", "token_blocks": "none"}


@cache
def mlp(tokens: int) -> Graph:
    """The MLP of a layer of GPT-3: seven kernels, so that many forgeries are soon checked."""
    whole = df.load_graph("gpt3-175b", seq=tokens).to_data()
    names = [kernel["name"] for kernel in whole["kernels"]]
    mine = names[names.index("Add_1") :]
    tensors = [one for one in whole["tensors"] if {one["src"], one["dst"]} <= set(mine)]
    some = [one for one in whole["kernels"] if one["name"] in mine]
    ends = [{"src": "Add_2", "dst": "Add_1"}]
    return Graph.from_data(whole | {"kernels": some, "tensors": tensors, "carried": ends})


@cache
def machine(name: str) -> System:
    """One of the zoo, with less SRAM and faster links and DRAM."""
    data = df.load_system(name).to_data()
    data["chip"]["sram"]["capacity"], data["chip"]["dram"]["bandwidth"] = "320 MiB", "800 GB/s"
    data["network"][0]["link_bandwidth"] = "100 GB/s"
    return System.from_data(data)


@cache
def stored(name: str) -> str:
    tokens, system, assumed, asked = CASES[name]
    chosen = profile("default").with_(**PLAIN | assumed)
    return json.dumps(df.optimize(mlp(tokens), machine(system), assumptions=chosen, **asked).to_data())


def case(name: str) -> Data:
    data: Data = json.loads(stored(name))
    return data


RING, CYCLE, WHOLE = "sn10-8-ring", {"compute_model": "cycle"}, {"weight_tiling": "forbid"}
FAST = {"overlap": "none", "sequence_parallelism": "allow"}
CASES: dict[str, tuple[int, str, Data, Data]] = {
    # ten plans: the best, two that are pruned, and seven under which a weight does not fit
    "three": (2048, RING, WHOLE, {"p_max": 3}),
    "two levels": (2048, RING, {**WHOLE, "sharding_objective": "seconds"}, {"p_max": 3}),
    "another plan": (2048, RING, WHOLE, {"p_max": 3, "tp": 8}),
    "one": (2048, RING, WHOLE, {"p_max": 1}),
    "one, two levels": (2048, RING, {**WHOLE, "sharding_objective": "seconds"}, {"p_max": 1}),
    "pinned": (2048, RING, WHOLE, {"p_max": 3, "pin_sharding": {"FFN0": "k"}}),
    "sequence": (2048, RING, FAST, {"tp": 8}),
    "no sequence": (2048, RING, {"overlap": "none"}, {"tp": 8}),
    "library": (2048, "h100-8", {"execution": "library"}, {"pp": 1}),
    "one by one": (2048, "h100-8", {"execution": "kernel_by_kernel"}, {"pp": 1}),
    "tiles": (4, RING, CYCLE, {"tp": 2, "pp": 1}),
}


def record(data: Data, *statuses: str) -> Data:
    return next(one for one in data["plans"] if one["status"] in statuses)


def winner(data: Data) -> Data:
    return next(one for one in data["plans"] if one["plan"] == data["plan"] and one.get("value") is not None)


def consistent(data: Data) -> None:
    """Every figure that follows from others, as a careful forger leaves it."""
    made = Result.from_data(data)
    apart = made.apart or ()
    bound, level = proven(made.value, made.plans, apart)
    gaps = proven_gap(made.value, bound), proven_gap(made.value, level)
    graphs = (made.graph, *made.variants)
    data |= {"bound": bound, "level_bound": level, "gap": gaps[0], "level_gap": gaps[1]}
    data["status"] = status_of(*gaps, made.request.gap, made.plans)
    data["proof"] = proof_of(
        graphs, made.system, made.plans, apart, made.assumptions, made.p_max, gaps[0], made.request
    )
    data["provenance"]["assumptions_digest"] = made.assumptions.digest()


def nowhere(one: Data) -> None:
    """A record that says that nothing fits."""
    one.update(status="infeasible", bound=None, level_bound=None, note="nothing fits", solves=[])
    one.pop("value", None)
    one.pop("gap", None)


def instead(data: Data, other: Data) -> None:
    """Another answer in place of this one, whose plans are all said to be no better."""
    names = ("mapping", "score", "matrices", "plan", "value", "utilization")
    data |= {name: other[name] for name in names}
    for one in data["plans"]:
        if one["bound"] is not None:
            one["bound"] = one["level_bound"] = max(one["bound"], data["value"])
            one["status"] = "pruned_by_bound"
            one.pop("value", None)
            one.pop("gap", None)
    mine = next(one for one in data["plans"] if one["plan"] == data["plan"])
    mine |= {"status": "solved", "value": data["value"], "gap": 0.0, "bound": data["value"]}
    mine["level_bound"] = data["value"]


# -- answers that another one beats, said to be the best ------------------------------------------


def of(other: str) -> Callable[[Data], None]:
    """The answer of another search as if it were that of this one."""

    def change(data: Data) -> None:
        assert case(other)["value"] > data["value"] * (1 + 1e-5), "no worse than the best"
        instead(data, case(other))
        consistent(data)

    return change


def better_plan(change: Callable[[Data], None]) -> Callable[[Data], None]:
    """The best of another plan as the answer, and something untrue of the plan that is better."""

    def both(data: Data) -> None:
        best = data["plan"]
        instead(data, case("another plan"))
        one = next(one for one in data["plans"] if one["plan"] == best)
        change(one)
        data["plans"] = [one for one in data["plans"] if one]
        consistent(data)

    return both


# -- single fields ---------------------------------------------------------------------------------


def of_record(which: str, whole: bool = False, /, **changes: Any) -> Callable[[Data], None]:
    """Changes of the first record with a status; a number is a factor. ``whole``: with all that follows."""

    def change(data: Data) -> None:
        one = record(data, which)
        for name, to in changes.items():
            one[name] = one[name] * to if isinstance(to, float) else to
        if whole:
            consistent(data)

    return change


def kernels(**changes: Any) -> Callable[[Data], None]:
    def change(data: Data) -> None:
        for one in data["mapping"]["kernels"]:
            one |= changes.get(one["name"], {})

    return change


def another_is_infeasible(data: Data) -> None:
    """A plan, or tile size, that fits and is no better than the answer."""
    nowhere(next(one for one in data["plans"] if one["bound"] is not None and one is not winner(data)))
    consistent(data)


def drop(*statuses: str) -> Callable[[Data], None]:
    def change(data: Data) -> None:
        data["plans"].remove(record(data, *statuses))
        consistent(data)

    return change


def elsewhere(name: str) -> Callable[[Data], None]:
    """A kernel in the partition of the one that follows it."""

    def change(data: Data) -> None:
        at = {one["name"]: one for one in data["mapping"]["kernels"]}
        at[name]["partition"] += 1

    return change


FORGERIES: dict[str, tuple[str, Callable[[Data], None]]] = {
    "two levels, relabelled optimal": ("three", of("two levels")),
    "the best of another plan": ("three", of("another plan")),
    "the best of one partition": ("three", of("one")),
    "the best with a pinned scheme": ("three", of("pinned")),
    "a better plan is infeasible": ("three", better_plan(nowhere)),
    "a better plan is left out": ("three", better_plan(lambda one: one.clear())),
    "a better plan is pruned by twice its bound": (
        "three",
        better_plan(lambda one: one.update(bound=one["bound"] * 2, level_bound=one["bound"] * 2)),
    ),
    "the best without sequence splits": ("sequence", of("no sequence")),
    "the best kernel by kernel": ("library", of("one by one")),
    "another plan is infeasible": ("three", another_is_infeasible),
    "another tile size is infeasible": ("tiles", another_is_infeasible),
    "an infeasible plan is left out": ("three", drop("infeasible")),
    "a pruned plan is left out": ("three", drop("pruned_by_bound")),
    "an infeasible plan is per level": ("three", of_record("infeasible", True, status="infeasible_per_level", bound=1)),
    "a pruned plan is per level": ("three", of_record("pruned_by_bound", True, status="pruned_per_level")),
    "a pruned plan was solved": ("three", of_record("pruned_by_bound", True, status="solved")),
    "a bound that excludes nothing": ("three", of_record("pruned_by_bound", True, bound=0.5, level_bound=0.5)),
    "a bound where nothing fits": ("three", of_record("infeasible", True, bound=1, level_bound=1)),
    "no bound where something fits": ("three", of_record("pruned_by_bound", bound=None)),
    "the winner was slower": ("three", of_record("solved", True, value=1.1)),
    "the winner was faster": ("three", of_record("solved", True, value=0.9)),
    "the winner's gap": ("three", lambda data: winner(data).update(gap=0.01)),
    "tiles that nobody can cut": ("tiles", of_record("solved", True, tile_count=7)),
    "a mapping of other tiles": ("tiles", lambda data: data["mapping"].update(tile_count=2)),
    "a kernel in the next partition": ("three", elsewhere("LayerNorm_2")),
    "a scheme": ("three", kernels(FFN0={"sharding": "k"})),
    "a sequence split undone": ("sequence", kernels(FFN1={"sharding": "k"})),
    "a kernel out of its library set": ("library", elsewhere("FFN0")),
    "more tiles of a kernel": ("tiles", kernels(FFN0={"tiles": 1000})),
    "optimal per level": ("three", lambda data: data.update(status="optimal_per_level")),
    "another objective of the shardings": (
        "three",
        lambda data: (data["assumptions"].update(sharding_objective="seconds"), consistent(data)),
    ),
}


def forged(name: str) -> Verification:
    of_case, change = FORGERIES[name]
    data = case(of_case)
    change(data)
    assert data != case(of_case), "nothing was forged"
    return verify(Result.from_data(data).sealed())


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_caught(name: str) -> None:
    found = forged(name)
    assert not found.ok, found.verdict


@pytest.mark.parametrize(
    "name", ["two levels, relabelled optimal", "the best without sequence splits", "the best kernel by kernel"]
)
def test_what_another_search_missed_is_what_refutes_it(name: str) -> None:
    """Not some figure that the forger forgot: everything follows from what is claimed of the plans."""
    problems = forged(name).problems
    assert problems and all("bound" in one or "gap" in one for one in problems), problems


def unsolved(data: Data) -> None:
    """Nothing of how it was found."""
    for one in data["plans"]:
        one["solves"], one["note"] = [], ""


def weaker(data: Data) -> None:
    """Less is claimed than is true: a bound below that of the file."""
    for one in data["plans"]:
        if one["bound"] is not None and one["plan"] == data["plan"]:
            one["bound"] = one["level_bound"] = 0.99 * data["value"]
            one["gap"] = 1 - 0.99
    data["request"]["gap"] = data["question"].setdefault("options", {})["gap"] = 0.02
    consistent(data)


HARMLESS: dict[str, tuple[str, Callable[[Data], None], str]] = {
    "the honest one": ("three", lambda data: None, "verified optimal"),
    "nothing of how it was found": ("three", unsolved, "verified optimal"),
    "nothing of how sequence splits were found": ("sequence", unsolved, "verified optimal"),
    "tile sizes": ("tiles", lambda data: None, "verified optimal"),
    "library sets": ("library", unsolved, "verified optimal"),
    "less than is true": ("three", weaker, "verified within 1 %"),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_true_is_verified(name: str) -> None:
    """Whatever is missing of the way there: nothing that is stored is needed."""
    of_case, change, words = HARMLESS[name]
    data = case(of_case)
    change(data)
    found = verify(Result.from_data(data).sealed())
    assert found.ok, found.problems
    assert found.verdict == words
    assert not any("nothing fits" in one for one in found.unchecked)


def test_two_levels_say_infeasible_of_what_a_bound_would_exclude_too() -> None:
    """Such a plan was looked at before the answer was known."""
    data = case("one, two levels")
    late = [one for one in data["plans"] if one["status"] == "infeasible_per_level" and one["bound"] > data["value"]]
    assert late
    found = verify(Result.from_data(data))
    assert found.ok, found.problems
    assert not any("nothing fits" in one for one in found.unchecked)


def test_it_says_what_was_checked() -> None:
    said = verdict(verify(Result.from_data(case("three"))), "three.json").splitlines()
    assert said[0] == "verified optimal"
    assert said[1] == (
        "  note: $.system: like the zoo's sn10-8-ring, but for chip.dram.bandwidth 800 GB/s, there 200 GB/s;"
        " network[0].link_bandwidth 100 GB/s, there 25 GB/s"
    )
    assert said[3] == (
        "  checked: 10 plans were listed and bounded again: in the space that $.proof states no plan, sharding or"
        " fusion is below 494.808 s by more than 0.0001 %; 7 of them fit under no sharding"
    )


def test_infeasible_is_not_said_of_what_was_not_decided() -> None:
    """Without time the plans that are said not to fit are listed as not checked."""
    data = case("three")
    found = verify(Result.from_data(data), time_limit=0.0)
    assert found.ok and any("that nothing fits under 7 plans" in one for one in found.unchecked), found


def test_what_there_is_no_time_to_show_is_not_called_wrong() -> None:
    """The verdict says how far it came, and the list which claims are left; with time the same file is verified."""
    result = Result.from_data(case("library"))
    found = verify(result, time_limit=0.0)
    short = "if the search's own code is right about 4 of 4 plans"
    assert found.verdict == f"verified within {100 * found.gap:.3g} %, {short}"
    assert any(one.startswith("$.gap: the file claims 0, ") and "in 0 s" in one for one in found.unchecked)
    assert any("bounds of 2 plans (" in one for one in found.unchecked)
    assert any("0 s were too short" in one and "--time-limit" in one for one in found.unchecked)
    assert [seconds_for(s) for s in (1.0, 100.0, 1e4)] == [60.0, 400.0, 3600.0]
    assert verdict(verify(result, 0.0), "library.json").startswith("verified within")
    assert verify(result).verdict == "verified optimal"


def test_a_plan_that_was_not_decided_is_in_the_gap() -> None:
    """What might be better under it counts, whatever the file says."""
    data = case("three")
    better_plan(nowhere)(data)
    found = verify(Result.from_data(data).sealed(), time_limit=0.0)
    assert found.gap > 0 and any(one.startswith("$.gap: the file claims 0, ") for one in found.unchecked), found


def test_a_plan_whose_blocks_are_not_listed_may_be_infeasible(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the others are searched all the same."""
    monkeypatch.setattr(lattices, "MOST_SETS", 2)
    tokens, system, assumed, asked = CASES["one"]
    chosen = profile("default").with_(**PLAIN | assumed | {"token_blocks": "none"})
    result = df.optimize(mlp(tokens), machine(system), assumptions=chosen, **asked)
    best = case("one")
    assert result.bound <= best["value"] * (1 + 1e-9) and best["value"] <= result.value * (1 + 1e-9)
    assert "infeasible" in {record.status for record in result.plans}
    found = verify(result)
    assert found.ok and not any("nothing fits" in one for one in found.unchecked), found
