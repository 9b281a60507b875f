"""The area law of stacked chips: what was fitted is what the technology has, and published counts are met."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from by_path import module_at

from dfopt.library import as_design

ROOT = Path(__file__).resolve().parents[2]
LAW = module_at(ROOT / "benchmarks" / "stacked" / "area_law.py")
DESIGN = as_design("stacked-256")


def test_the_technology_has_the_figures_of_the_fit() -> None:
    network = LAW.network_of(DESIGN)
    layer, connection, rate = LAW.fit_figure_15(DESIGN.technology, DESIGN.budgets.chip_area_mm2, network)
    part = DESIGN.technology.layers
    assert part is not None
    fitted = layer, connection, rate
    assert fitted == pytest.approx((part.area_mm2, part.connection_mm2, part.rate), rel=1e-4)


def test_figure_15_comes_back_from_the_technology() -> None:
    network = LAW.network_of(DESIGN)
    usable = [LAW.usable_of(DESIGN.technology, DESIGN.budgets.chip_area_mm2, network, at) for at in range(1, 13)]
    assert usable.index(max(usable)) + 1 == 9
    assert 1 - usable[11] / max(usable) == pytest.approx(0.396226, abs=1e-4)


def test_the_law_meets_the_published_counts() -> None:
    rows = LAW.published()
    areas = LAW.fit_counts(rows)
    assert LAW.met(lambda row: LAW.units_of(areas, row), rows) == (60, 60)
    # A law without the term of each layer does not.
    alone = {**areas, "layer": 0.0}
    assert LAW.met(lambda row: LAW.units_of(alone, row), rows)[0] < 54


def _ranges(file: str) -> Iterator[tuple[str, float, float, list[float]]]:
    """Path of every field with a range in its comment: both ends, and all numbers of value and comment."""
    parents: list[tuple[int, str]] = []
    for line in (ROOT / "systems" / file).read_text(encoding="utf-8").splitlines():
        if (field := re.match(r"( *)(\w+):([^#]*)(?:# (.*))?$", line)) is None:
            continue
        deep, name, value, comment = len(field[1]), field[2], field[3], (field[4] or "").replace(",", "")
        parents = [*((at, key) for at, key in parents if at < deep), (deep, name)]
        if (ends := re.search(r"([\d.]+) to ([\d.]+)", comment)) is not None:
            numbers = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", f"{value} {comment}")]
            yield ".".join(key for _, key in parents), float(ends[1]), float(ends[2]), numbers


@pytest.mark.parametrize(
    ("section", "file"), [("technology", "technologies/stacked.yaml"), ("design", "designs/stacked-256.yaml")]
)
def test_ranges_are_those_of_the_comments(section: str, file: str) -> None:
    given = yaml.safe_load(LAW.RANGES.read_text(encoding="utf-8"))[section]
    comments = {path: (least, most, numbers) for path, least, most, numbers in _ranges(file)}
    assert {name: (of["least"], of["most"]) for name, of in given.items()} == {
        path: (least, most) for path, (least, most, _) in comments.items()
    }
    assert all(of["of"] in comments[name][2] for name, of in given.items())


def test_figure_15_is_met_at_every_end() -> None:
    every = list(LAW.ends())
    assert len(every) == 2 * 26 and all(each.design is not None for each in every)
    die, numbers = DESIGN.budgets.chip_area_mm2, {(each.name, each.end): each for each in every}
    for each in every:
        part, own = each.technology.layers, each.design.budgets.chip_area_mm2
        usable = [LAW.usable_of(each.technology, own, LAW.network_of(each.design), at) for at in range(1, 13)]
        assert usable.index(max(usable)) + 1 == 9 and 1 - usable[11] / max(usable) == pytest.approx(0.396226, rel=1e-6)
        # the area of a layer with its connections is the same part of what the network leaves
        left = own - LAW.network_of(each.design)
        assert (part.area_mm2 + part.connection_mm2) / left == pytest.approx(0.396226 / (12 - 9 * 0.603774))
    split = numbers["layers.area_mm2", "least"].technology.layers
    assert split.area_mm2 == 0 and split.connection_mm2 > 4
    assert numbers["layers.capacity", "most"].technology.layers.capacity == pytest.approx(2.24 * 2**30)
    assert numbers["budgets.chip_area_mm2", "least"].design.budgets.chip_area_mm2 == pytest.approx(60) != die
    slow = numbers["core.frequency", "least"].technology.core
    assert (slow.frequency, slow.power) == pytest.approx((0.7e9, 5.4 * 7 / 9))
    more = numbers["core.flop_per_cycle_by_type.fp8", "most"].technology.core.flop_per_cycle_by_type
    assert (more["fp8"], more["bf16"]) == pytest.approx((16000, 8000))


def test_a_network_that_leaves_no_area_has_no_fit() -> None:
    assert DESIGN.sizes is not None
    wide = DESIGN.sizes.model_copy(update={"rate": {"between_nodes": 5e12}})
    assert LAW.refitted(DESIGN.model_copy(update={"sizes": wide})) is None
