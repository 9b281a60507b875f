"""The fill of a pipeline by the own time of its stages: a training step with embedding and logits, by hand."""

from __future__ import annotations

import pytest

import dfopt as df
from dfopt.documents.assumptions import Assumptions

SIZES = {"layers": 12, "hidden": 256, "heads": 4, "kv_heads": 4, "ffn": 1024, "vocab": 50000, "seq": 512}


@pytest.mark.parametrize("schedule", ["one_f_one_b", "gpipe"])
def test_a_step_with_logits(schedule: str) -> None:
    """The last stage is the slowest: all its work, and what a microbatch takes in each of the others, once."""
    graph = df.load_graph("llama-3.1-8b", mode="training", ends=True, batch=16, microbatch=1, **SIZES)
    found = {}
    asked = {"tp": 1, "pp": 4, "dp": 2, "interleave": 1, "first_layers": 3, "last_layers": 3}
    for bubble, sent in (("one_f_one_b", "per_microbatch"), ("stages", "per_microbatch"), ("stages", "per_neighbour")):
        assumptions = Assumptions(overlap="none", bubble=bubble, point_to_point=sent, schedule=schedule)
        found[bubble, sent] = df.optimize(graph, "a100-8", assumptions=assumptions, **asked)
    result = found["stages", "per_neighbour"]
    score, often = result.score, result.mapping.plan.microbatches
    first, middle, last = (stage.time_s for stage in score.stages)
    assert last > middle and often > 4
    assert score.step_time_s - score.gradient_reduction_s == pytest.approx(first + 2 * middle + often * last, rel=1e-12)
    assert score.pipeline_fill_s == pytest.approx(first + 2 * middle, rel=1e-9)
    hops = [stage.point_to_point_s for stage in score.stages]
    assert hops[0] + hops[2] == pytest.approx(hops[1], rel=1e-12) and min(hops) > 0
    whole = found["stages", "per_microbatch"].score
    assert {stage.point_to_point_s for stage in whole.stages} == {hops[1]}
    older = found["one_f_one_b", "per_microbatch"].score
    assert older.pipeline_fill_s == pytest.approx(3 * max(stage.time_s for stage in older.stages), rel=1e-12)
    assert score.step_time_s < whole.step_time_s < older.step_time_s
    assert all(one.status == "optimal" for one in found.values())
