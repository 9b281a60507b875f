"""Pipeline schedules: order, dependencies, and the time that the judge charges for them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plot_cases import CASES, result, with_plan

from dfopt.documents.plan import Plan
from dfopt.errors import PlanError
from dfopt.physics.schedule import ScheduledPass, blocks, contents, overlap_of, passes, score_of_stage, trains

plans = st.builds(
    lambda pp, chunks, rounds: Plan(pp=pp, interleave=chunks, microbatches=rounds * pp, layers_per_stage=chunks),
    st.integers(2, 6),
    st.integers(1, 4),
    st.integers(1, 4),
)
times = st.tuples(st.integers(1, 9), st.integers(1, 9))
schedules = st.sampled_from(["one_f_one_b", "gpipe"])


def uniform(
    plan: Plan, one: tuple[int, int], schedule: str = "one_f_one_b", back: bool = True
) -> list[list[ScheduledPass]]:
    chunk = (one[0] / plan.interleave, one[1] / plan.interleave * back)
    return blocks(plan, schedule, [[chunk] * plan.interleave] * plan.pp, back, plan.microbatches)


def end(made: list[list[ScheduledPass]]) -> float:
    return max(block.end for stage in made for block in stage)


@given(plans, times, schedules, st.booleans())
def test_every_pass_runs_once_and_after_what_it_needs(
    plan: Plan, one: tuple[int, int], schedule: str, back: bool
) -> None:
    made = uniform(plan, one, schedule, back)
    ends = {(b.kind, b.stage, b.chunk, b.microbatch): b.end for stage in made for b in stage}
    assert len(ends) == sum(map(len, made)) == plan.pp * plan.interleave * plan.microbatches * (1 + back)
    last = plan.pp * plan.interleave - 1
    for stage in made:
        for before, after in itertools.pairwise(stage):
            assert before.end <= after.start + 1e-9
        for block in stage:
            # the chunks of all stages in a row: chunk c of stage s is number c * pp + s, and backward the other way
            number = block.chunk * plan.pp + block.stage
            if block.kind == "forward" and number > 0:
                need = ("forward", (number - 1) % plan.pp, (number - 1) // plan.pp, block.microbatch)
            elif block.kind == "backward":
                kind, of = ("backward", number + 1) if number < last else ("forward", last)
                need = (kind, of % plan.pp, of // plan.pp, block.microbatch)
            else:
                continue
            assert ends[need] <= block.start + 1e-9


@given(plans, times)
def test_one_f_one_b_takes_the_time_of_the_formula(plan: Plan, one: tuple[int, int]) -> None:
    """(m + (pp - 1) / v) stage times: Narayanan et al., SC'21, section 2.2.2."""
    plain = plan.model_copy(update={"interleave": 1})
    whole = one[0] + one[1]
    assert end(uniform(plain, one)) == pytest.approx((plain.microbatches + plain.pp - 1) * whole)
    assert end(uniform(plan, one)) == pytest.approx(whole * (plan.microbatches + (plan.pp - 1) / plan.interleave))


@given(plans, times)
def test_gpipe_and_inference_fill_once(plan: Plan, one: tuple[int, int]) -> None:
    plain = plan.model_copy(update={"interleave": 1})
    slots = plain.microbatches + plain.pp - 1
    assert end(uniform(plain, one, "gpipe")) == pytest.approx(slots * sum(one))
    assert end(uniform(plain, one, back=False)) == pytest.approx(slots * one[0])


@given(plans, times)
def test_one_f_one_b_holds_as_many_microbatches_as_stages_follow(plan: Plan, one: tuple[int, int]) -> None:
    plain = plan.model_copy(update={"interleave": 1})
    for stage, line in enumerate(uniform(plain, one)):
        held = most = 0
        for block in line:
            held += 1 if block.kind == "forward" else -1
            most = max(most, held)
        assert most == min(plain.pp - stage, plain.microbatches)


def test_an_order_that_cannot_be_kept_is_an_error() -> None:
    plan = Plan(pp=4, interleave=3, microbatches=5, layers_per_stage=3)
    chunk = [[(1.0, 1.0)] * 3] * 4
    with pytest.raises(PlanError, match=r"5 microbatches do not run through 4 stages of 3 chunks.*multiple of 4"):
        blocks(plan, "one_f_one_b", chunk, True, 5)


@pytest.mark.parametrize("name", CASES)
def test_passes_add_up_to_the_judged_stage(name: str) -> None:
    one = result(name)
    for stage, chunks in enumerate(passes(one)):
        assert sum(map(sum, chunks)) == pytest.approx(score_of_stage(one, stage).time_s, rel=1e-9)
        assert len(chunks) == one.plan.interleave


@pytest.mark.parametrize("name", ["fused", "pipeline"])
def test_the_whole_schedule_takes_the_steady_and_the_filling_time_of_the_judge(name: str) -> None:
    one = result(name)
    made = blocks(one.plan, one.assumptions.schedule, passes(one), trains(one), one.plan.microbatches)
    slowest = max(stage.time_s for stage in one.score.stages)
    assert end(made) == pytest.approx(one.plan.microbatches * slowest + one.score.pipeline_fill_s, rel=1e-9)


def test_what_runs_once_is_in_the_first_and_in_the_last_stage() -> None:
    one = result("ends")
    names = [
        [part.kernels for times, parts in contents(one, stage)[0][0].runs if times == 1 for part, _ in parts]
        for stage in range(one.plan.pp)
    ]
    assert names[0] and names[-1] and not any(names[1:-1])


def test_layers_that_do_not_divide_into_chunks_are_an_error() -> None:
    with pytest.raises(PlanError, match="found 3 layers in stage 0, expected a multiple of 2 chunks"):
        contents(with_plan(result("pipeline"), interleave=2), 0)


def test_what_overlaps_follows_the_chip() -> None:
    assert overlap_of(result("fused")) == "perfect"
    assert overlap_of(result("ends")) == "compute_memory"
