"""A result as a trace that Perfetto (https://ui.perfetto.dev) and chrome://tracing open.

The format is Chrome's trace events as JSON: Duarte, Nat, "Trace Event Format" (Google, 2016), the complete (``X``) and
metadata (``M``) events of its JSON object form. Times are in microseconds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

from dfopt.documents.files import write_text
from dfopt.documents.result import Result
from dfopt.errors import PlanError
from dfopt.physics import schedule
from dfopt.physics.schedule import TERMS, Content, ScheduledPass, score_of_stage

TraceEvent = dict[str, Any]
TRACKS: Final = ("passes, layers, partitions", "compute", "DRAM", "network", "links between stages", "SRAM")
_LINKS: Final = 4
_OF_TERM: Final = {term: track for track, term in zip((1, 2, 3, 5), TERMS, strict=True)}
_MOST: Final = 16  # microbatches
_BUDGET: Final = 60_000  # events: about 8 MB, which a browser opens in a second


def trace(result: Result, microbatches: int | None = None, events: int = _BUDGET) -> dict[str, Any]:
    """Chrome trace of the start of a step, with one process for a chip of each pipeline stage.

    The first track has the passes of microbatches, in them the layers, in these the partitions; the others say when
    compute, DRAM, network and the links to the neighbours are busy. Gradient reduction comes at the end. The dict,
    ``traceEvents`` and ``otherData``, is plain data for JSON.

    Parameters
    ----------
    microbatches : int, optional
        Number of microbatches; by default as many as fit, at most 16. The trace states the number.
    events : int
        About how many at most: passes beyond that have no layers and partitions in them, which the trace says too.

    Raises
    ------
    PlanError
        If the plan has two-batch overlap, or ``microbatches`` is below 1 or not possible in the interleaved order.

    Examples
    --------
    >>> import dfopt as df
    >>> result = df.solve(df.load_graph("gpt2-small"), df.load_system("sn10-8-ring"), tp=8)
    >>> made = df.plot.trace(result, microbatches=2)
    >>> sorted({event["ph"] for event in made["traceEvents"]})
    ['M', 'X']
    """
    plan = result.plan
    if plan.two_batch_overlap:
        raise PlanError("trace: two microbatches that take turns are not drawn; plot timeline or schedule")
    if microbatches is not None and microbatches < 1:
        raise PlanError(f"trace: microbatches: found {microbatches}, expected 1 or more")
    distinct = {score_of_stage(result, stage).stage: stage for stage in reversed(range(plan.stages))}
    contents = {key: schedule.contents(result, stage) for key, stage in distinct.items()}
    inside = [contents[score_of_stage(result, stage).stage] for stage in range(plan.stages)]
    each = sum(_size(content) for chunks in inside for both in chunks for content in both)
    count = min(microbatches or _fitting(result, events // max(each, 1)), plan.microbatches)
    order, trains = result.assumptions.schedule, schedule.trains(result)
    tokens = result.mapping.blocks_by_partition
    timeline = schedule.blocks(plan, order, schedule.passes(result), trains, count)
    overlap = schedule.overlap_of(result)
    trace_events: list[TraceEvent] = []
    left, detailed = events, 0
    passes = sum(map(len, timeline))
    for block in sorted(chain(*timeline), key=lambda block: (block.microbatch, block.start)):
        content = inside[block.stage][block.chunk][block.kind == "backward"]
        name = f"{block.kind} {block.microbatch}" + (f", chunk {block.chunk}" if plan.interleave > 1 else "")
        trace_events.append(_event(block.stage, 0, name, "pass", block.start, block.end))
        if left >= _size(content):
            inner = list(_inside(block, content, overlap, tokens))
            trace_events += inner
            left -= len(inner)
            detailed += 1
        elif content.hop_s > 0:
            trace_events.append(_hop(block, content))
    trace_events += _end_of_step(result, timeline)
    # what takes less than 0.1 ns has no width in any zoom
    trace_events = [event for event in trace_events if event["dur"] > 0]
    trace_events.sort(key=lambda event: (event["pid"], event["tid"], event["ts"], -event["dur"]))
    coverage = f"{count} of {plan.microbatches} microbatches"
    if detailed < passes:
        coverage += f", {detailed} of {passes} passes with their partitions"
    return {
        "traceEvents": [*_names(result, coverage, {event["tid"] for event in trace_events}), *trace_events],
        "displayTimeUnit": "ns" if result.score.layer_time_s < 1e-4 else "ms",
        "otherData": {
            "writer": "dfopt",
            "graph": result.mapping.graph,
            "system": result.mapping.system,
            "plan": plan.label,
            "drawn": coverage,
            "step_time_s": result.step_time,
        },
    }


def _fitting(result: Result, most: int) -> int:
    """Microbatches that the number of events allows; interleaved stages take them in whole rounds."""
    count = max(1, min(most, _MOST))
    return count if result.plan.interleave == 1 else max(result.plan.stages, count - count % result.plan.stages)


def _size(content: Content) -> int:
    """Events of one pass: itself, its layers, their partitions and what these keep busy."""
    return 2 + sum(times * (1 + 4 * len(parts)) for times, parts in content.runs)


def _event(stage: int, track: int, name: str, kind: str, start: float, end: float) -> TraceEvent:
    # ends are rounded, not lengths: what follows starts where this ends
    begin, until = round(1e6 * start, 4), round(1e6 * end, 4)
    duration = max(round(until - begin, 4), 0.0)
    return {"name": name, "cat": kind, "ph": "X", "pid": stage, "tid": track, "ts": begin, "dur": duration}


def _inside(
    block: ScheduledPass, content: Content, overlap: str, tokens: dict[tuple[int, int], int]
) -> Iterator[TraceEvent]:
    """Layers and partitions of a pass; ``tokens``: in how many blocks some partitions take their tokens."""
    stage, clock = block.stage, block.start
    for times, parts in content.runs:
        for layer in range(times):
            end = min(clock + sum(part.time_s * share for part, share in parts), block.end)
            if times > 1:
                yield _event(stage, 0, f"layer {layer}", "layer", clock, end)
            for part, share in parts:
                until = min(clock + part.time_s * share, end)
                first, *others = part.kernels
                name = first + (f" +{len(others)}" if others else "")
                args = {"partition": part.partition, "kernels": ", ".join(part.kernels), "bound_by": part.bound_by}
                if (place := (part.stage, part.partition)) in tokens:
                    args["token_blocks"] = tokens[place]
                yield _event(stage, 0, name, "partition", clock, until) | {"args": args}
                for term, (begin, done) in schedule.busy_intervals(part, overlap).items():
                    stop = min(clock + done * share, until)
                    yield _event(stage, _OF_TERM[term], name, term, min(clock + begin * share, stop), stop)
                clock = until
    if content.hop_s > 0:
        yield _hop(block, content)


def _hop(block: ScheduledPass, content: Content) -> TraceEvent:
    """To the neighbour: at the end of the pass, whether work hides it or not."""
    start = max(block.start, block.end - content.hop_s)
    return _event(block.stage, _LINKS, f"send {block.kind} {block.microbatch}", "point_to_point", start, block.end)


def _end_of_step(result: Result, timeline: list[list[ScheduledPass]]) -> Iterator[TraceEvent]:
    score = result.score
    for stage, line in enumerate(timeline):
        end = line[-1].end
        if score.point_to_point_s > 0:
            until = end + score.point_to_point_s
            yield _event(stage, _LINKS, "point to point of the step", "point_to_point", end, until)
            end = until
        if score.gradient_reduction_s > 0:
            yield _event(stage, 3, "gradient reduction", "gradient", end, end + score.gradient_reduction_s)


def _names(result: Result, coverage: str, used: set[int]) -> Iterator[TraceEvent]:
    for stage in range(result.plan.stages):
        named: list[tuple[int, str, TraceEvent]] = [
            (0, "process_name", {"name": f"stage {stage}: a chip of {result.mapping.system}"}),
            (0, "process_labels", {"labels": coverage}), (0, "process_sort_index", {"sort_index": stage}),
        ]  # fmt: skip
        for track in sorted(used):
            named += [
                (track, "thread_name", {"name": TRACKS[track]}),
                (track, "thread_sort_index", {"sort_index": track}),
            ]
        yield from ({"name": what, "ph": "M", "pid": stage, "tid": track, "args": args} for track, what, args in named)


def save_trace(result: Result, path: str | os.PathLike[str], microbatches: int | None = None) -> None:
    """Write the Chrome trace of a result (`trace`) as JSON.

    Parameters
    ----------
    result, path
        The result, and the file to write.
    microbatches : int, optional
        Most microbatches in the trace, as for `trace`.

    Raises
    ------
    DocumentError
        If the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import dfopt as df
    >>> result = df.solve(df.load_graph("gpt2-small"), df.load_system("sn10-8-ring"), tp=8)
    >>> path = Path(tempfile.mkdtemp()) / "trace.json"
    >>> df.plot.save_trace(result, path)
    >>> json.loads(path.read_text())["otherData"]["plan"]
    'TP8(ring) PP1 DP1'
    """
    text = json.dumps(trace(result, microbatches), separators=(",", ":"), allow_nan=False)
    write_text(path, text + "\n")
