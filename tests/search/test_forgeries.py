"""Forged results, sealed again: each is caught, or `dfopt check` lists the field as not checked; in few words, too."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Callable
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest
from by_path import module_at

import dfopt as df
from dfopt.documents.modules import Modules
from dfopt.documents.packed import packed, unpacked
from dfopt.documents.result import Result
from dfopt.errors import DocumentError
from dfopt.search import unlisted
from dfopt.search.verify import verify

Data = dict[str, Any]
instrument = module_at(Path(__file__).parents[2] / "benchmarks" / "forgeries.py")


@cache
def honest(objective: Literal["seconds", "joint"] = "seconds") -> str:
    """Many plans, of which some are solved, pruned both ways and infeasible; alternatives and sensitivities."""
    levels = df.Assumptions(sharding_objective=objective, sequence_parallelism="none")
    result = df.optimize("gpt3-175b", "sn10-8-torus", microbatch=1, top=2, sensitivity=True, assumptions=levels)
    return json.dumps(result.to_data())


def with_status(data: Data, *statuses: str) -> Data:
    """The first record with one of some statuses."""
    return next(record for record in data["plans"] if record["status"] in statuses)


def winner(data: Data) -> Data:
    return next(r for r in data["plans"] if r["plan"] == data["plan"] and r.get("value") is not None)


def claim_optimal(data: Data) -> None:
    """Everywhere, and consistently."""
    for record in data["plans"]:
        if record["bound"] is not None:
            record["bound"] = max(record["bound"], data["value"])
            if record["status"] == "pruned_per_level":
                record["status"] = "pruned_by_bound"
            if record.get("level_bound") is not None:
                record["level_bound"] = max(record["level_bound"], record["bound"])
    winner(data)["level_bound"] = winner(data)["bound"] = data["value"]
    data |= {"bound": data["value"], "gap": 0.0, "status": "optimal"}


def drop(data: Data, record: Data) -> None:
    data["plans"].remove(record)


def edit(**changes: Any) -> Callable[[Data], None]:
    """Changes of the whole; a number is a factor of what stands there."""

    def change(data: Data) -> None:
        for name, to in changes.items():
            data[name] = data[name] * to if isinstance(to, float) else to

    return change


def of_record(which: str, /, **changes: Any) -> Callable[[Data], None]:
    def change(data: Data) -> None:
        record = with_status(data, which)
        for name, to in changes.items():
            record[name] = record[name] * to if isinstance(to, float) else to

    return change


def deep(*path: Any, to: Any) -> Callable[[Data], None]:
    def change(data: Data) -> None:
        at = data
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] = at[path[-1]] * to if isinstance(to, float) else to

    return change


FORGERIES: dict[str, Callable[[Data], None]] = {
    "no plans at all": edit(plans=[]),
    "the winner's record is gone": lambda data: drop(data, winner(data)),
    "a plan that was pruned is gone": lambda data: drop(data, with_status(data, "pruned_per_level")),
    "a plan that was excluded is gone": lambda data: drop(data, with_status(data, "pruned_by_bound")),
    "a plan twice": lambda data: data["plans"].append(with_status(data, "pruned_by_bound")),
    "a plan of another machine": deep("plans", 0, "plan", "tp", to=3),
    "another plan won": lambda data: data.update(plan=with_status(data, "pruned_per_level")["plan"]),
    "solved in one second": lambda data: winner(data).update(value=1.0),
    "the winner was slower": lambda data: winner(data).update(value=data["value"] * 1.1),
    "optimal, consistently": claim_optimal,
    "optimal in the status": edit(status="optimal"),
    "stopped by Ctrl-C": edit(status="interrupted_with_solution"),
    "a gap of nothing": edit(gap=0.0),
    "half the gap": edit(gap=0.5),
    "a gap per level": edit(level_gap=0.25, status="gap_reached"),
    "a higher bound": edit(bound=1.001),
    "a lower bound": edit(bound=0.9),
    "a lower bound per level": edit(level_bound=0.9),
    "a faster step": edit(value=0.5),
    "more use of the chip": edit(utilization=1.01),
    "another sentence as proof": edit(proof="of all plans: no mapping is better"),
    "fewer plans in the proof": lambda data: data.update(proof=data["proof"].replace("of 18", "of 17")),
    "a bound that excludes": of_record("pruned_per_level", bound=1.5),
    "excluded by a bound on every mapping": of_record("pruned_per_level", status="pruned_by_bound"),
    "infeasible": of_record("pruned_per_level", status="infeasible", bound=None, level_bound=None),
    "infeasible under its sharding": of_record("pruned_per_level", status="infeasible_per_level", level_bound=None),
    "a lower bound of a plan that excludes nothing": of_record("pruned_per_level", level_bound=0.5),
    "not reached": of_record("pruned_by_bound", status="solved"),
    "a bigger space": deep("space", "plans", to=1000),
    "more shardings": deep("space", "log10_shardings", to=2.0),
    "more fusions": deep("space", "log10_fusions", to=2.0),
    "more in all": deep("space", "log10_total", to=2.0),
    "more partitions allowed": edit(p_max=1000),
    "fewer partitions than used": edit(p_max=1),
    "more compute helps more": deep("sensitivity", 0, "speedup", to=1.5),
    "more compute hurts": deep("sensitivity", 0, "value", to=2.0),
    "an alternative in one second": deep("alternatives", 0, "value", to=0.01),
    "an alternative that is the winner": lambda data: data["alternatives"][0].update(mapping=data["mapping"]),
    "a kernel in another partition": deep("mapping", "kernels", 3, "partition", to=1),
    "a kernel sharded otherwise": deep("mapping", "kernels", 2, "sharding", to="n"),
    "a matrix": deep("matrices", 0, "A", to=[]),
    "a faster partition": deep("score", "partitions", 0, "time_s", to=0.5),
    "less DRAM": deep("score", "stages", 0, "states", "dram", "weights", to=0.5),
    "digest of another graph": deep("provenance", "graph_digest", to="0" * 16),
    "with another seed": deep("provenance", "seed", to=7),
    "more compute helps more, consistently": lambda data: data["sensitivity"][0].update(
        value=data["sensitivity"][0]["value"] * 0.9, speedup=data["sensitivity"][0]["speedup"] / 0.9
    ),
    "a resource twice": lambda data: data["sensitivity"].append(data["sensitivity"][0]),
    "more time was asked for": lambda data: data["request"].update(time_limit="1000 s"),
    "a proof about heat without a stack": lambda data: data.update(heat=HEAT),
    "a mapping of another graph": deep("mapping", "graph", to="gpt5"),
    "not all fusions counted": deep("space", "exact", to=False),
    "nothing was fixed": lambda data: data.update(fixed=[]),
    "plans in another order": lambda data: data["plans"].insert(0, data["plans"].pop()),
    "a reason of a plan that is excluded": of_record("pruned_by_bound", note="time limit"),
    "a bound that no sharding has": of_record("pruned_per_level", bound=0.99),
    "no bound under a sharding": of_record("pruned_per_level", level_bound=None),
    "a higher bound under a sharding": of_record("pruned_per_level", level_bound=1.5),
    "more compute is not proven": deep("sensitivity", 0, "proven", to=False),
}


HEAT = {
    "status": "optimal_per_level", "bound_s": 1.0, "interval_s": 1.0, "gap": 0.0, "blocks": 1, "levels": 1,
    "columns": 1, "rounds": 1, "seconds": 1.0,
}  # fmt: skip
SPACE = {
    "a bigger space": "plans",
    "more shardings": "log10_shardings",
    "more fusions": "log10_fusions",
    "more in all": "log10_total",
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_caught(name: str) -> None:
    data = json.loads(honest())
    FORGERIES[name](data)
    assert data != json.loads(honest()), "nothing was forged"
    found = verify(Result.from_data(data).sealed())
    assert not found.ok, found.verdict


@pytest.mark.parametrize("name", SPACE)
def test_the_space_is_counted_again_where_bounds_on_plans_prove_all(name: str) -> None:
    """Then nothing of the check itself asks for the down-sets of a layer, but their number is a claim."""
    data = json.loads(honest("joint"))
    found = verify(Result.from_data(data))
    assert found.ok and not any("$.space" in listed for listed in found.unchecked)
    FORGERIES[name](data)
    found = verify(Result.from_data(data).sealed())
    assert [problem.split(":")[0] for problem in found.problems] == [f"$.space.{SPACE[name]}"]


def test_graphs_that_were_given_up_together_have_an_order() -> None:
    data = json.loads(json.dumps(df.optimize("gpt2-small", "sn10-8-torus", gap=0.3).to_data()))
    assert len(data["apart"]) > 1
    data["apart"].reverse()
    assert [one.split(":")[0] for one in verify(Result.from_data(data).sealed()).problems] == ["$.apart"]


@cache
def of_many_sets() -> str:
    """An honest answer with more down-sets than are counted."""
    asked: Data = {"phase": "training", "batch": 16, "microbatch": 1, "tp": 2, "recompute": "none"}
    result = df.solve("llama-68m", "sn10-8-ring", **asked)
    assert verify(result).ok
    return json.dumps(result.to_data())


@pytest.mark.parametrize("change", [{"log10_total": 1.001}, {"log10_fusions": 0.999}, {"exact": True}])
def test_a_space_that_is_not_counted_exactly_is_counted_in_the_same_ways(change: Data) -> None:
    """With more down-sets than are counted, as here, there is one way only."""
    data = json.loads(of_many_sets())
    assert not data["space"]["exact"]
    for name, to in change.items():
        data["space"][name] = to if isinstance(to, bool) else data["space"][name] * to
    found = verify(Result.from_data(data).sealed())
    assert [one.split(":")[0] for one in found.problems] == [f"$.space.{name}" for name in change]


LISTED: dict[str, tuple[Callable[[Data], None], str]] = {
    "found in no time": (edit(seconds=0.001), "$.seconds"),
    "with another program": (deep("provenance", "highs", to="0.1"), "$.provenance"),
    "a solve without nodes": (deep("plans", 0, "solves", to=[]), "$.plans[*].solves"),
    "a bound of a plan that lost": (of_record("pruned_by_bound", bound=1e30, level_bound=1e30), "$.plans[*].bound"),
}


@pytest.mark.parametrize("name", LISTED)
def test_what_cannot_be_checked_is_listed(name: str) -> None:
    data = json.loads(honest())
    change, where = LISTED[name]
    change(data)
    found = verify(Result.from_data(data).sealed())
    assert not found.ok or any(where in listed for listed in found.unchecked), found


def test_the_honest_one_is_verified() -> None:
    found = verify(Result.from_data(json.loads(honest())))
    assert found.ok, found.problems
    assert found.verdict.startswith("verified optimal per level; another sharding could be up to 0.4")
    assert found.level_gap == 0.0 and found.gap is not None and 0.004 < found.gap < 0.0041


def test_plans_that_are_excluded_twice_claim_what_holds_for_every_mapping() -> None:
    """Earlier versions excluded plans under their sharding whose bound of every mapping excludes them, too."""
    data = json.loads(honest())
    number, record = next((n, r) for n, r in enumerate(data["plans"]) if r["status"] == "pruned_by_bound")
    assert record["bound"] > data["value"]
    record["status"] = "pruned_per_level"
    problems = verify(Result.from_data(data).sealed()).problems
    assert [problem.split(":")[0] for problem in problems] == ["$.proof"]  # which counts them
    record["level_bound"] *= 1.01
    problems = verify(Result.from_data(data).sealed()).problems
    assert problems[0].startswith(f"$.plans[{number}].level_bound: ")


def test_a_plan_without_a_choice_is_optimal() -> None:
    """Of one chip per kernel there is one sharding: the proof is of every mapping."""
    result = df.optimize("gpt2-small", "sn10-8-ring", pp=8, microbatch=1)
    assert (result.status, result.gap) == ("optimal", 0.0)
    assert {record.status for record in result.plans} <= {"solved", "pruned_by_bound"}
    assert verify(result).verdict == "verified optimal"


@pytest.mark.parametrize("kind", ["proven", "pins", "top 3", "certificate", "exploration", "store"])
def test_a_field_that_is_changed_is_caught_or_listed(kind: str) -> None:
    """A few of `benchmarks/forgeries.py`, which does it with every field of more kinds of documents."""
    seed = f"{date.today()}"
    drawn = instrument.tried(instrument.case(kind), seed, 15)
    wrong = [f"--only {number}: {came}" for number, _, came in drawn if came.startswith(("passed", "crash"))]
    assert not wrong, f"python benchmarks/forgeries.py --seed {seed} --kind '{kind}' {wrong}"


NAMES: dict[str, tuple[Callable[[Data], None], str]] = {
    "graph": (lambda data: data["graph"].update(name="gpt5"), "$.graph: like gpt2-small, but for name gpt5"),
    "system": (lambda data: data["system"].update(name="rubin-ultra"), "$.system: like sn10-8-ring, but for name"),
    "profile": (
        lambda data: data["assumptions"].update(profile="h100-calibrated"), "$.assumptions: like default, but for prof"
    ),
    "memory": (
        deep("system", "chip", "dram", "bandwidth", to="2 TB/s"),
        "$.system: like sn10-8-ring, but for chip.dram.bandwidth 2 TB/s, there 200 GB/s",
    ),
}  # fmt: skip


@cache
def of_names() -> str:
    """An answer about documents of the zoo."""
    return json.dumps(df.optimize("gpt2-small", "sn10-8-ring", tp=8, microbatch=1).to_data())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("asked", [True, False])
def test_a_name_is_compared_with_what_it_names(name: str, asked: bool) -> None:
    """Everything that follows is made anew: where the question is in the file it names another document."""
    change, said = NAMES[name]
    data = json.loads(of_names())
    change(data)
    forged = Result.from_data(data)
    again = df.optimize(forged.graph, forged.system, forged.request, assumptions=forged.assumptions)
    again = again.model_copy(update={"question": forged.question if asked else None}).sealed()
    found = verify(again)
    if asked:
        assert [problem for problem in found.problems if problem.startswith(said)], found.problems
        return
    assert found.ok and any("$.question: names no graph and no system" in one for one in found.unchecked)
    unknown = {"graph": "'gpt5' is no graph of the zoo", "system": "'rubin-ultra' is no system of the zoo"}
    unknown |= {"memory": "like the zoo's sn10-8-ring, but for chip.dram.bandwidth 2 TB/s, there 200 GB/s"}
    assert any(unknown.get(name, "$.assumptions: ") in note for note in found.notes), found.notes


# -- many plans in few words: read again plan by plan, they hold no other claim ----------------


QUESTION = {"batch": 8, "sensitivity": False, "time_limit": 600}


@pytest.fixture(scope="module", params=[0.0, 0.5], ids=["optimal", "gap"])
def results(request: Any) -> tuple[Result, Result]:
    """An answer with a record of every plan, and the same in few words."""
    question = {**QUESTION, "gap": request.param}
    found = []
    for listed in (10**9, 4):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(unlisted, "LISTED", listed)
            patch.setattr(unlisted, "_NEAREST", 2)
            found.append(df.optimize("gpt2-small", "h100:4", **question))
    return found[0], found[1]


def test_a_file_in_few_words_says_the_same(results: tuple[Result, Result], tmp_path: Path) -> None:
    every, few = results
    assert few.unlisted
    assert len(few.plans) < len(every.plans)
    assert (few.proof, few.status, few.bound) == (every.proof, every.status, every.bound)
    assert few.plan_counts == every.plan_counts == Counter(record.status for record in every.plans)
    few.dump(tmp_path / "few.json")
    assert Result.load(tmp_path / "few.json") == few
    found = verify(few)
    assert found.ok, found.problems
    assert found.verdict == verify(every).verdict


def test_plans_are_in_the_order_of_their_text() -> None:
    fields: list[dict[str, Any]] = [
        {}, {"tp": 2, "tp_dims": ("x[2]",)}, {"tp": 16, "tp_dims": ("x", "y")}, {"mp": 2, "mp_dims": ("x[2]",)},
        {"mp": 2, "mp_dims": ("x[2]",), "modules": Modules(stream="n", dense="m")}, {"interleave": 2}, {"zero": 1},
        {"two_batch_overlap": True}, {"first_layers": 0, "layers_per_stage": 16}, {"layers_per_stage": 2},
    ]  # fmt: skip
    plans = [df.Plan(microbatches=number, **each) for each in fields for number in (1, 2, 16)]
    order = [plan for plan, _ in unlisted._in_order(plans, [])]
    assert order == sorted(plans, key=df.Plan.model_dump_json)


def test_every_degree_has_a_record(results: tuple[Result, Result]) -> None:
    for axis in range(len(results[0].plan.axes)):
        degrees = [{record.plan.axes[axis].degree for record in each.plans} for each in results]
        assert degrees[0] == degrees[1]


def forged(result: Result, letters: str) -> Result:
    data = copy.deepcopy(result.to_data())
    data["unlisted"][0]["members"] = packed(letters)
    return Result.from_data(data).sealed()


def test_another_status_of_a_plan_is_noticed(results: tuple[Result, Result]) -> None:
    few = results[1]
    letters = unpacked((few.unlisted or ())[0].members)
    kinds = sorted(set(letters) - {"."})
    for letter in kinds:
        place = letters.index(letter)
        for other in {*kinds, "."} - {letter}:
            changed = letters[:place] + other + letters[place + 1 :]
            assert not verify(forged(few, changed)).ok, (place, letter, other)
    assert any("members: of" in problem for problem in verify(forged(few, letters[:-1])).problems)


def test_plans_that_are_left_out_are_noticed(results: tuple[Result, Result]) -> None:
    few = results[1]
    gone = few.model_copy(update={"unlisted": None}).sealed()
    assert any("no record of" in problem for problem in verify(gone).problems)
    twice = few.model_copy(update={"unlisted": (few.unlisted or ())[:1] * 2}).sealed()
    assert "$.unlisted: two records of one graph" in verify(twice).problems


@pytest.mark.parametrize("text", ["", "abc", packed(["a"]), packed("az"), packed("a") + "0"])
def test_damaged_letters_are_refused(results: tuple[Result, Result], text: str) -> None:
    data = copy.deepcopy(results[1].to_data())
    data["unlisted"][0]["members"] = text
    with pytest.raises(DocumentError, match="packed letters"):
        Result.from_data(data)


def test_variants_are_one_text_in_a_file(results: tuple[Result, Result], tmp_path: Path) -> None:
    data = results[1].to_data()
    with pytest.raises(DocumentError, match=r"\$\.variants: found 'abc', expected graphs"):
        Result.from_data({**data, "variants": "abc"})
    assert Result.from_data({**data, "variants": packed(data["variants"])}) == results[1]
