"""The parts and systems of the zoo: all load, say where their figures come from, and are what the study needs."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from dfopt.documents.dtypes import Peaks
from dfopt.documents.parts import PARTS, ChipPart
from dfopt.documents.zoo import KINDS, PART_KINDS, find, singular, zoo
from dfopt.library import load_any
from dfopt.machines.compose import compose, load_system
from dfopt.machines.topologies import TOPOLOGIES
from dfopt.physics.cost import system_cost
from dfopt.show.report.sources import remarks

STUDY_CHIPS = ("tpu-v4", "sn30", "h100", "wse-2")  # DFModel, table V
ALL_PARTS = [(kind, name) for kind in PART_KINDS for name in zoo(kind)]
CHIPS = [ChipPart.load(find("chips", name)) for name in zoo("chips")]
BELOW_CHIPS = [(kind, name) for kind in ("technologies", "designs") for name in zoo(kind)]


@pytest.mark.parametrize("kind, name", [*ALL_PARTS, *BELOW_CHIPS, *(("systems", name) for name in zoo("systems"))])
def test_every_document_loads_and_survives_a_file(kind: str, name: str, tmp_path: Path) -> None:
    document = load_any(f"{kind}/{name}")
    assert document.source and document.description  # type: ignore[attr-defined]
    assert kind == "chips" or document.name == name  # type: ignore[attr-defined]  # the name of a chip is the product's
    document.dump(tmp_path / "one.yaml")
    assert load_any(str(tmp_path / "one.yaml")) == document
    assert type(document).load(tmp_path / "one.yaml") == document


def test_every_number_of_a_part_has_a_comment() -> None:
    bare = [
        (name, line)
        for kind, name in ALL_PARTS + BELOW_CHIPS
        for line in find(kind, name).read_text().splitlines()
        if line.partition(":")[2].strip()[:1] in set("0123456789[")
        and line.partition(":")[2].strip()
        and "#" not in line
        and not line.strip().startswith(("name", "description", "source", "parts"))
    ]
    assert bare == []


def test_every_chip_is_in_a_ready_system() -> None:
    assert {chip.name for chip in CHIPS} <= {load_system(each).chip.name for each in zoo("systems")}


def test_lanes_stages_and_tiles_make_the_peak() -> None:
    """Where a chip's array is given, a peak that is given too is near it; the validation allows 2 %."""
    for chip in CHIPS:
        if chip.lanes and chip.stages and chip.frequency:
            array = 2 * chip.lanes * chip.stages * chip.tiles * chip.frequency
            assert array == pytest.approx(chip.peak_flops, rel=5e-3), chip.name


@pytest.mark.parametrize("name", zoo("topologies"))
def test_topologies_are_named_ones_or_plain_products(name: str) -> None:
    system = compose(chip="sn30", memory="ddr4", network={"part": name, "links": "pcie-4"})
    part = PARTS["topologies"].load(find("topologies", name))
    assert isinstance(part.topology, tuple) or part.topology in TOPOLOGIES
    assert name.endswith(str(system.chips)) or str(system.chips) in name


def test_kinds_of_the_zoo() -> None:
    assert zoo("systems") == sorted(path.stem for path in find("systems", "sn10-8-ring").parent.glob("*.yaml"))
    assert [singular(kind) for kind in KINDS] == ["graph", "system", "chip", "memory", "link", "topology", "stack",
                                            "technology", "design", "calibration"]  # fmt: skip
    assert not set(zoo("chips")) & set(zoo("systems"))


STUDY_TOPOLOGIES = ("torus-2d-1024", "torus-3d-1024", "dragonfly-1024", "dgx-1-1024", "dgx-2-1024")


def test_the_80_machines_of_the_study() -> None:
    """Four chips x five topologies x two memories x two links, section VI.C: all of 1024 chips and with a price."""
    every = itertools.product(STUDY_CHIPS, STUDY_TOPOLOGIES, ("ddr4", "hbm3"), ("pcie-4", "nvlink-4"))
    systems = [compose(chip=c, memory=m, network={"part": t, "links": link}) for c, t, m, link in every]
    assert len({system.digest() for system in systems}) == 80 and {system.chips for system in systems} == {1024}
    for system in systems:
        for counts in ("exact", "dfmodel"):
            cost = system_cost(system, counts)
            assert cost.missing == () and cost.total_usd and cost.total_w


@pytest.mark.parametrize(
    "chip, memory, topology, links, usd, watts",
    [
        ("sn30", "ddr4-300", "torus-2d-1024", "pcie-4-50", 17757184.0, 511325.01135492325),
        ("tpu-v4", "ddr4-300", "dragonfly-1024", "pcie-4-50", 26892612.5, 328140.6727409363),
        ("h100", "hbm3-3072", "torus-3d-1024", ["nvlink-4-450"] + ["pcie-4-50"] * 2, 42096128.0, 963768.862490654),
        ("h100", "hbm3-3072", "dgx-1-1024", "pcie-4-50", 37513728.0, 948909.3422698975),
        ("h100", "ddr4-300", "dgx-2-1024", ["nvlink-4-450", "pcie-4-50"], 46246400.0, 847333.3755016327),
        ("wse-2", "hbm3-3072", "dragonfly-1024", ["nvlink-4-450", "pcie-4-50"], 3129470464.0, 21080603.98402977),
    ],
)
def test_parts_make_the_machines_of_the_study_setups(
    chip: str, memory: str, topology: str, links: str | list[str], usd: float, watts: float
) -> None:
    """Price and power that the logs of fig. 10's cases report (GPT3-1T; DFModel's repository, commit 04f93d5)."""
    cost = system_cost(compose(chip=chip, memory=memory, network={"part": topology, "links": links}), "dfmodel")
    assert cost.total_usd == pytest.approx(usd, rel=1e-6) and cost.total_w == pytest.approx(watts, rel=1e-6)


def test_only_chips_that_are_not_sold_lack_a_price_or_a_power() -> None:
    lacking = {name: set(system_cost(load_system(name)).missing) for name in zoo("systems")}
    assert set().union(*lacking.values()) == {"$.chip.price_usd", "$.chip.power_w"}
    assert {load_system(name).chip.name for name, paths in lacking.items() if paths} == {
        chip.name for chip in CHIPS if chip.price_usd is None or chip.power_w is None
    }


def test_an_unconfirmed_overhead_is_among_the_remarks_of_its_system() -> None:
    assert "collective_overhead: 9 us" in {remark.line for remark in remarks("systems", "b300-8")}


def test_the_power_of_the_study_chips_is_the_parabola_of_fig_9() -> None:
    """kW over TFLOP/s; the caption prints b with a minus, with which three of the four would have a negative power."""
    chips = [ChipPart.load(find("chips", name)) for name in STUDY_CHIPS]
    fitted = np.polyfit([chip.peak_flops / 1e12 for chip in chips], [(chip.power_w or 0) / 1e3 for chip in chips], 2)
    assert fitted == pytest.approx((3e-7, 4.3e-4, 0.04), rel=0.15)


def test_narrower_types_are_no_slower() -> None:
    for chip in CHIPS:
        if isinstance(peak := chip.peak, Peaks):
            for order in (("fp32", "tf32", "bf16", "fp8", "fp6", "fp4"), ("bf16", "int8", "int4")):
                rates = [rate for one in order if (rate := getattr(peak, one)) is not None]
                assert rates == sorted(rates), chip.name
            assert peak.fp16 in (None, peak.bf16) and peak.usual == peak.bf16, chip.name
