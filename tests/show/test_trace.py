"""Traces: the rules of the format, and that they say what the judge says."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from plot_cases import CASES, result

import dfopt as df
from dfopt.errors import DocumentError, PlanError
from dfopt.show.trace import TRACKS

METADATA = {"process_name": "name", "process_labels": "labels", "process_sort_index": "sort_index",
            "thread_name": "name", "thread_sort_index": "sort_index"}  # fmt: skip
TICK = 1e-3  # microseconds: Perfetto counts whole nanoseconds


def problems(made: Any) -> list[str]:
    """What breaks the rules of the trace event format (Google, 2016), as far as complete and metadata events go."""
    found: list[str] = []
    if not isinstance(made, dict) or not isinstance(made.get("traceEvents"), list):
        return ["no list traceEvents"]
    if made.get("displayTimeUnit") not in ("ms", "ns"):
        found.append("displayTimeUnit")
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = {}
    names: set[tuple[int, int]] = set()
    processes: set[int] = set()
    for event in made["traceEvents"]:
        missing = {"name", "ph", "pid", "tid"} - event.keys()
        if missing or not isinstance(event["name"], str):
            found.append(f"keys {sorted(missing)}")
            continue
        if event["ph"] == "M":
            key = METADATA.get(event["name"])
            if key is None or set(event.get("args", ())) != {key}:
                found.append(f"metadata {event['name']}")
            if event["name"] == "thread_name":
                names.add((event["pid"], event["tid"]))
            if event["name"] == "process_name":
                processes.add(event["pid"])
            continue
        if event["ph"] != "X":
            found.append(f"phase {event['ph']}")
            continue
        for key in ("ts", "dur"):
            if type(event.get(key)) not in (int, float) or event[key] < 0:
                found.append(f"{key} of {event['name']}: {event.get(key)!r}")
                break
        else:
            tracks.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for track, spans in tracks.items():
        if track not in names:
            found.append(f"track {track} has no name")
        if track[0] not in processes:
            found.append(f"process {track[0]} has no name")
        open_ends: list[float] = []
        for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while open_ends and open_ends[-1] <= start + TICK:
                open_ends.pop()
            if open_ends and end > open_ends[-1] + TICK:
                found.append(f"track {track}: overlap at {start}")
            open_ends.append(end)
    return found


@pytest.mark.parametrize("name", CASES)
def test_a_trace_keeps_the_rules(name: str) -> None:
    made = df.plot.trace(result(name))
    assert problems(json.loads(json.dumps(made, allow_nan=False))) == []
    assert len(json.dumps(made)) < 20e6


def test_partitions_are_called_by_their_kernels() -> None:
    one = result("fused")
    said = {event["args"]["partition"]: event for event in df.plot.trace(one)["traceEvents"] if "bound_by" in
            event.get("args", {})}  # fmt: skip
    for part in one.score.partitions:
        event = said[part.partition]
        assert event["args"]["kernels"] == ", ".join(part.kernels)
        first, more = part.kernels[0], len(part.kernels) - 1
        assert event["name"] == (f"{first} +{more}" if more else first)
    assert any("+" in event["name"] for event in said.values())


@pytest.mark.parametrize("name", ["pipeline", "ends"])
def test_resources_do_one_thing_at_a_time(name: str) -> None:
    """Only the first track nests; the others are busy with one partition at a time."""
    made = df.plot.trace(result(name))
    lines: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in made["traceEvents"]:
        if event["ph"] == "X" and event["tid"] > 0:
            lines.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["dur"]))
    assert len(lines) >= 3
    for spans in lines.values():
        ordered = sorted(spans)
        assert all(a + d <= b + TICK for (a, d), (b, _) in itertools.pairwise(ordered))


def first(events: list[Any], **wanted: str) -> Any:
    return next(event for event in events if wanted.items() <= event.items())


def overlap(events: list[Any]) -> None:
    span = first(events, cat="compute")
    events.append({**span, "ts": span["ts"] + span["dur"] / 2})


BROKEN: dict[str, Callable[[list[Any]], Any]] = {
    "a track without a name": lambda events: events.remove(first(events, name="thread_name")),
    "spans that overlap": overlap,
    "a time in quotes": lambda events: first(events, ph="X").update(dur="1"),
    "no process": lambda events: events[-1].pop("pid"),
    "an unknown phase": lambda events: events[-1].update(ph="Q"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_the_check_of_the_rules_sees_what_breaks_them(fault: str) -> None:
    made = json.loads(json.dumps(df.plot.trace(result("pipeline"), microbatches=2)))
    BROKEN[fault](made["traceEvents"])
    assert problems(made)


@pytest.mark.parametrize("name", CASES)
def test_busy_times_are_those_of_the_judge(name: str) -> None:
    """Of a microbatch, summed over layers and stages: compute, DRAM and network time."""
    one = result(name)
    made = df.plot.trace(one, microbatches=one.plan.pp)
    pieces: dict[int, int] = {}
    for stage in range(one.plan.pp):
        ends = {s.stage: s for s in one.score.stages}
        mine = ends.get(stage, ends.get(1, ends[0]) if len(ends) > 2 else ends[0])
        for piece in mine.holds or (mine.stage,):
            layers = mine.layers if piece == (mine.holds or (mine.stage,))[0] else 1
            pieces[piece] = pieces.get(piece, 0) + layers
    count = min(one.plan.pp, one.plan.microbatches)
    for kind, track in (("compute", 1), ("memory", 2), ("network", 3)):
        wanted = sum(getattr(part, f"{kind}_s") * pieces[part.stage] for part in one.score.partitions) * count
        found = sum(e["dur"] for e in made["traceEvents"] if e["ph"] == "X" and e["tid"] == track and e["cat"] == kind)
        assert found == pytest.approx(1e6 * wanted, rel=1e-3, abs=0.01)


def test_it_says_what_it_shows() -> None:
    one = result("pipeline")
    made = df.plot.trace(one, microbatches=3)
    labels = {e["args"]["labels"] for e in made["traceEvents"] if e["name"] == "process_labels"}
    assert labels == {"3 of 32 microbatches"} == {made["otherData"]["drawn"]}
    threads = {e["args"]["name"] for e in made["traceEvents"] if e["name"] == "thread_name"}
    assert threads == set(TRACKS) - {"SRAM"}  # whose bandwidth has no limit
    assert {e["pid"] for e in made["traceEvents"]} == set(range(4))
    reduction = [e["dur"] for e in made["traceEvents"] if e.get("cat") == "gradient"]
    assert len(reduction) == (4 if one.score.gradient_reduction_s > 0 else 0)


def test_nothing_without_width_and_no_empty_track() -> None:
    one = result("many")  # on one stage, so that nothing goes over the links between stages; some kernels take nothing
    parts = [part.model_copy(update={"compute_s": 0.0 if i % 2 else 1e-15, "bound_by": "memory"})
             for i, part in enumerate(one.score.partitions)]  # fmt: skip
    made = df.plot.trace(one.model_copy(update={"score": one.score.model_copy(update={"partitions": tuple(parts)})}))
    drawn = [event for event in made["traceEvents"] if event["ph"] == "X"]
    assert drawn and all(event["dur"] > 0 for event in drawn)
    named = {(e["pid"], e["tid"]) for e in made["traceEvents"] if e["name"] == "thread_name"}
    assert named == {(event["pid"], event["tid"]) for event in drawn}


def test_a_budget_of_events_leaves_partitions_out_and_says_so() -> None:
    one = result("pipeline")
    made = df.plot.trace(one, microbatches=8, events=200)
    assert problems(made) == []
    assert "passes with their partitions" in made["otherData"]["drawn"]
    assert len(made["traceEvents"]) < len(df.plot.trace(one, microbatches=8)["traceEvents"])
    passes = [e for e in made["traceEvents"] if e.get("cat") == "pass"]
    assert len(passes) == 8 * 4 * 2


def test_errors(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="found 0, expected 1 or more"):
        df.plot.trace(result("fused"), microbatches=0)
    with pytest.raises(DocumentError, match="cannot be written"):
        df.plot.save_trace(result("fused"), tmp_path / "none" / "trace.json")
