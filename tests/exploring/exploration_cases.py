"""Designs looked at one by one, boxes of them, and explorations whose claims are forged."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import pytest
from design_cases import PRICED, SIZES, chosen
from hypothesis import strategies as st

import dfopt as df
from dfopt.documents.design import Design
from dfopt.documents.exploration import Exploration
from dfopt.documents.score import Score
from dfopt.documents.system import System
from dfopt.errors import DocumentError, Infeasible, SystemSpecError
from dfopt.exploring.checking import check_exploration
from dfopt.exploring.explore import asked_workload
from dfopt.exploring.layer_space import LayerSpace
from dfopt.exploring.problems import workload_of
from dfopt.exploring.space import Box, DesignSpace
from dfopt.exploring.workload import ExplorationProblem

Place = tuple[int, ...]
Judged = tuple[System, Score]

FEW: dict[str, Any] = {
    **SIZES, "choices__capacity__L2__most": "4 MiB", "choices__rate__between_packages__most": "50 GB/s",
}  # fmt: skip
"""Three designs."""


def places(space: DesignSpace) -> Iterator[Place]:
    """Where every design of a space is."""
    return itertools.product(*(range(len(sizes)) for sizes in space.sizes.values()))


def every_design(workload: ExplorationProblem, **asked: Any) -> dict[Place, Judged]:
    """Every design with its best mapping alone; those that cannot be had, or hold nothing, are left out."""
    (space,) = workload.spaces
    found = {}
    for at in places(space):
        if (system := workload.system(space.root.at(at))) is not None:
            with suppress(Infeasible):
                variants = workload.graphs[1:]
                found[at] = system, df.optimize(workload.graph, system, variants=variants, **asked).score
    return found


def every_layered(space: LayerSpace, on: str | None = None) -> dict[Place, Judged]:
    """Every design of DRAM layers with its best mapping alone, where it can be had and holds a mapping."""
    found = {}
    for at in places(space):
        with suppress(SystemSpecError, DocumentError, Infeasible):
            design = Design.from_data(space.one_design(at).to_data())  # more layers than there are cannot be connected
            chip = df.derive(design, *([] if on is None else [on]))
            system = chip.system.model_copy(update={"stack": chip.stack}) if on else chip.system
            found[at] = system, df.solve("gpt2-small", system).score
    return found


def seconds_under_heat(score: Score) -> float:
    """Seconds of a step on a stack; infinite where it is too hot."""
    on_stack = score.physical
    assert on_stack is not None
    return math.inf if on_stack.limits_broken or on_stack.runaway else on_stack.step_time_s


def decoding(designs: list[Design], most: int | None = None) -> ExplorationProblem:
    """Steps of decoding a small model, of at most so many ways to draw it."""
    graphs, _ = asked_workload("llama-68m", {"phase": "decode", "batch": 8, "context": 64})
    return workload_of(graphs[:most], designs)


@st.composite
def drawn_designs(draw: st.DrawFn) -> Design:
    """Designs with prices, whose powers and sizes are bound by one thing or another."""
    options: dict[str, list[Any]] = {
        "budgets__power": ["150 W", "300 W", "900 W"],
        "budgets__chip_area_mm2": [200, 500, 800],
        "technology__core__supply__max_v": [None, 0.6, 0.85],
        "technology__core__static_power": [None, "10 mW", "50 mW"],
        "technology__core__units_per_cluster": [1, 4, 9],
        "technology__sram__0__link_area_mm2": [0.0, 1e-4, 1e-3],
        "technology__sram__0__shared": [False, True],
        "technology__sram__0__port": [None, "16 B", "128 B"],
        "technology__sram__0__static_w_per_bit": [0.0, 8e-12, 2e-8],
        "technology__dram__static_w_per_bit": [0.0, 1e-12, 2e-10],
        "technology__package__layers": [(), ((500.0, 3.0), (1000.0, 1.0))],
        "shares__power__dram": ["auto", 0.1, 0.3],
        "shares__power__between_packages": ["auto", 0.05],
        "shares__perimeter__dram": ["auto", 0.4],
    }
    changes = PRICED | {path: draw(st.sampled_from(values)) for path, values in options.items()}
    if changes["technology__sram__0__port"] is not None:
        changes["shares__power__L2"] = draw(st.sampled_from(["auto", 0.05]))
    if draw(st.booleans()):
        level = {"name": "L1", "bit_area_mm2": 1e-7, "energy": "0.1 pJ/bit", "static_w_per_bit": 1e-8, "bank": "16 KiB"}
        changes |= {"technology__sram__1": level, "shares__area__L1": 0.02, "shares__power__L1": 0.02}
    if draw(st.booleans()):  # a size that is not to be chosen
        changes |= {"shares__area__L2": 0.1, "shares__power__L2": 0.05, "choices__capacity": {}}
    if draw(st.booleans()):  # or a power that is
        changes["choices__power"] = {"least": "60 W", "most": "900 W", "step": "120 W"}
    return chosen(**changes)


def drawn_box(draw: Callable[[Any], Any], sizes: Mapping[str, Any]) -> Box:
    """Any box of the designs that have so many sizes of each kind."""
    ends = [sorted(draw(st.tuples(*[st.integers(0, len(each) - 1)] * 2))) for each in sizes.values()]
    return Box(tuple(low for low, _ in ends), tuple(high for _, high in ends))


def inside(box: Box) -> Iterator[Place]:
    """Where every design of a box is."""
    return itertools.product(*(range(low, high + 1) for low, high in zip(box.low, box.high, strict=True)))


def corners(box: Box) -> Iterator[Place]:
    """Where the designs at the corners of a box are."""
    return itertools.product(*(sorted({*ends}) for ends in zip(box.low, box.high, strict=True)))


def singles_of(space: DesignSpace) -> list[Box]:
    """Boxes of one design each, from halves of halves."""
    boxes, singles = [space.root], list[Box]()
    while boxes:
        box = boxes.pop()
        parts = space.halves(box)
        boxes += parts[len(boxes) % len(parts)] if parts else ()
        singles += [] if parts else [box]
    return singles


def answer_of(made: Exploration) -> Any:
    """All that an exploration says, but for seconds and what holds them."""
    data: Any = made.to_data()
    del data["seal"], data["effort"]["seconds"], data["result"]
    return data


def forged(made: Exploration, *path: str | int, value: Any) -> Exploration:
    """The exploration with another value of a field, or a function of what is there."""
    data: Any = made.to_data()
    at = data
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value(at[path[-1]]) if callable(value) else value
    changed = Exploration.from_data(data)
    return changed.model_copy(update={"asked": changed.asked_digest()}).sealed()


def asking(made: Exploration, **changes: Any) -> Exploration:
    """The exploration as if something else had been asked."""
    changed = made.model_copy(update={"request": made.request.model_copy(update=changes)})
    return changed.model_copy(update={"asked": changed.asked_digest()}).sealed()


def is_refused(forged: Exploration, words: str) -> None:
    """A check says what is wrong with an exploration."""
    with pytest.raises(DocumentError, match=words):
        check_exploration(forged, "it")
