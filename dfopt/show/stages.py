"""What single pipeline stages have to say beside their sizes: turns of two microbatches, layers to be recomputed."""

from __future__ import annotations

from dfopt.documents.result import Result
from dfopt.documents.score import StageScore
from dfopt.show.omissions import JudgedResult
from dfopt.units import show_unit


def stage_facts(result: Result) -> list[tuple[str, str]]:
    """Label and text on schedule, overlap, recomputation and gradients of a result, as far as they apply."""
    facts = []
    stages, plan = result.score.stages, result.plan
    if result.graph.trains and plan.stages > 1 and (result.request.schedule or order_of(result) == "GPipe"):
        facts.append(("schedule", order_of(result)))
    if plan.two_batch_overlap:
        facts.append(("two batches", _in_turns(max(stages, key=lambda stage: stage.time_s))))
    if plan.recomputed:
        needs = [(_named(stage, plan.stages), stage.recomputed) for stage in stages if stage.recomputed is not None]
        words = ", ".join(f"{name} {count}" for name, count in needs)
        facts.append(("recomputed", f"{plan.recomputed} layers of each stage; to fit {words}"))
    way = result.assumptions.hiding(plan.tensor_overlap).tensor_overlap
    if way is not None and plan.shards > 1:
        facts.append(("products", f"hide collectives tile by tile: {way}"))
    if (link_s := result.score.gradient_link_s) is not None and plan.copies > 1:
        when = "behind the backward pass" if result.hides_gradients else "after the step"
        shown, linked = (show_unit(time, "time") for time in (result.score.gradient_reduction_s, link_s))
        facts.append(("gradients", f"added up {when}: {shown} of {linked} show"))
    return facts


def order_of(result: JudgedResult) -> str:
    """Text on the order of microbatches in the pipeline."""
    if result.plan.stages == 1:
        return "one stage"
    if result.assumptions.schedule == "gpipe":
        return "GPipe"
    return f"1F1B, interleaved over {result.plan.interleave} chunks" if result.plan.interleave > 1 else "1F1B"


def _named(stage: StageScore, stages: int) -> str:
    if stages == 1:
        return "it needs"
    return "the first stage" if stage.stage == 0 else "the last" if stage.stage == stages - 1 else f"from {stage.stage}"


def _in_turns(stage: StageScore) -> str:
    """What two microbatches that take turns save."""
    in_sequence_s = 2 * (stage.layers * stage.layer_time_s + stage.once_time_s + stage.point_to_point_s)
    return f"{show_unit(stage.time_s, 'time')} in turns, {show_unit(in_sequence_s, 'time')} one after the other"
