"""Technologies and designs of the zoo: real chips from few tuned numbers, and what the steps of the roadmap say."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from by_path import beside_its_own

from dfopt.documents.parts import MemoryPart
from dfopt.documents.strict_yaml import load_strict
from dfopt.documents.technology import DramStacks, Technology, TechnologyPart
from dfopt.documents.zoo import find, zoo
from dfopt.errors import DocumentError
from dfopt.library import load_any, load_system
from dfopt.machines.designs import load_design
from dfopt.machines.stacks import load_stack
from dfopt.machines.technologies import expand_technology, load_technology, technology_in
from dfopt.technology.chip_price import chip_price
from dfopt.technology.derive import derive_design

REFERENCE = Path(__file__).resolve().parents[2] / "benchmarks" / "reference"
LOGIC, MEMORY = ("n7", "n5", "n3", "n2"), ("hbm2e", "hbm3", "hbm3e", "hbm4")
STACKS = ("hybrid-4", "hybrid-8", "hybrid-12", "hybrid-16", "microbump-8", "3d-100tbps")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return beside_its_own(REFERENCE / "real_chips.py")


def part(name: str) -> TechnologyPart:
    found = load_any(f"technologies/{name}")
    assert isinstance(found, TechnologyPart)
    return found


def dram(name: str) -> DramStacks:
    found = part(name).dram
    assert found is not None
    return found


def made(*parts: str, **terms: Any) -> Technology:
    return expand_technology({"schema": "dfopt/technology/1", "name": "mine", "parts": list(parts), **terms})


def test_real_chips_are_within_the_limits_of_the_table(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main([]) == 0
    said = capsys.readouterr().out
    stored = (REFERENCE / "chips.md").read_text(encoding="utf-8")
    for line in said.splitlines():
        name, figures = line.split(" (limit")[0].split(": ", 1)
        assert f"| {name} | {figures} |" in stored
    assert script.main(["--json"]) == 0
    assert {row["table"] for row in json.loads(capsys.readouterr().out)} > {"v100", "a100", "h100", "b200"}


def test_the_table_can_miss(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(script.DATASHEETS, "a100", (350e12, 2039e9, 80e9, 300e9))
    assert script.main([]) == 1


def test_every_design_makes_a_system_or_is_to_be_chosen() -> None:
    for name in zoo("designs"):
        design = load_design(name)
        assert design.template is not None
        if not design.chosen:
            system, power = load_system(f"designs/{name}"), derive_design(design).power
            assert system.chip.power_w == pytest.approx(power) and system.name == name
            assert power <= design.budgets.power


def test_every_combination_is_a_technology_with_a_price() -> None:
    for logic in LOGIC:
        for memory in (*MEMORY, *STACKS):
            whole = made(logic, memory, "nvlink-5", "ucie-2.5d", "interposer")
            price = chip_price(whole, 800.0, 1, 4.0)
            assert price is not None and price.usd and price.usd > price.die_usd


def test_logic_shrinks() -> None:
    """What the sources in the files say of a step."""
    units = [made(name, "hbm3") for name in LOGIC]
    for older, newer in pairwise(units[1:]):
        assert newer.core.power / older.core.power == pytest.approx(0.725)
        assert newer.core.flop_per_cycle == older.core.flop_per_cycle
    assert units[2].core.area_mm2 / units[3].core.area_mm2 == pytest.approx(1.15, rel=1e-4)
    density = [1e-6 / one.sram[-1].bit_area_mm2 for one in units]  # Mb/mm2
    assert density[1:] == pytest.approx([31.8, 33.55, 38.0], rel=1e-3) and density[0] < density[1]
    assert [one.wafer.usd for one in units if one.wafer] == [9346, 16988, 19865, 24570]


@pytest.mark.parametrize("name, memory", [(name, f"{name}-stack") for name in MEMORY])
def test_stacks_are_as_fast_as_in_systems(name: str, memory: str) -> None:
    stack = dram(name)
    whole = MemoryPart.load(find("memories", memory))
    assert stack.links_per_stack * stack.frequency / 8 == pytest.approx(whole.bandwidth, rel=1e-3)
    assert stack.energy_range is not None and stack.energy == pytest.approx(sum(stack.energy_range) / 2)


@pytest.mark.parametrize("name", STACKS)
def test_vaults_are_those_of_the_stack(name: str) -> None:
    """As many as cover the die: its capacity and its rate."""
    stack, vault = load_stack(name), dram(name)
    vaults = stack.side_x * stack.side_y * 1e6 / vault.stack_area_mm2
    assert vaults == pytest.approx(stack.dram.channels, rel=1e-4)
    assert vaults * vault.stack == pytest.approx(stack.dram.capacity, rel=1e-4)
    rate = vault.links_per_stack * vault.frequency / 8
    assert vaults * rate == pytest.approx(stack.dram.peak, rel=1e-4)


def test_a_range_has_the_energy_in_it() -> None:
    assert made("n5", "hbm3", set={"dram.energy": "7 pJ/bit"}).dram.energy == pytest.approx(56e-12)
    with pytest.raises(DocumentError, match=r"\$\.dram\.energy_range: found .* to .*, expected a range that has"):
        made("n5", "hbm3", set={"dram.energy": "8 pJ/bit"})


def test_a_chip_of_ucie_lanes() -> None:
    """GB/s per mm of both directions, as Hot Interconnects 2025 has them."""
    for name, both in (("ucie-2d", 224e9), ("ucie-2.5d", 1.3e12)):
        links = part(name).links
        assert links is not None
        lane = links["between_dies"]
        assert 2 * lane.links_per_mm * lane.frequency / 8 == pytest.approx(both)


def test_files_say_what_they_tuned(script: ModuleType) -> None:
    counted = {one: found for name in ("a100", "h100") for one, found in script.tuned(name).items() if found}
    assert counted == {"n7": ["area_mm2", "power"], "n5": ["area_mm2", "power"]}
    for name, keys in counted.items():
        assert set(keys) <= set(load_strict(find("technologies", name))["core"])


def test_parts_in_the_place_of_others() -> None:
    base = load_design("h100").technology
    made = technology_in(base, "n3+nvlink-5")
    assert made.core == part("n3").core and made.dram == base.dram and made.package == base.package
    links = part("nvlink-5").links
    assert links is not None and made.links == {**base.links, **links} and made.name == "n3+nvlink-5"
    assert technology_in(base, "n3").core == made.core
    assert technology_in(base, "deepflow-p4") == load_technology("deepflow-p4")
    with pytest.raises(DocumentError, match=r"\$\.parts\[1\]: found core in n3 and in n5, expected it once"):
        technology_in(base, "n5+n3")
    with pytest.raises(DocumentError, match=r"no technology of this name and no file: 'hbm9'"):
        technology_in(base, "n3+hbm9")


def test_fields_of_designs_may_be_made_of_parts() -> None:
    """As axes of studies set them."""
    plain = load_system("designs/h100")
    parts = {"name": "mine", "parts": ["n3", "hbm4", "nvlink-5", "interposer"]}
    other = load_system("designs/h100", {"design.technology": parts, "design.shares.area.dram": 0.18})
    assert other.chip.peak_flops > plain.chip.peak_flops
    assert other.network[0].link_bandwidth > plain.network[0].link_bandwidth
    with pytest.raises(DocumentError, match=r"found core in n3 and in this document, expected it once"):
        load_system("designs/h100", {"design.technology.parts": ["n3"]})
