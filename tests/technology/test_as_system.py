"""Systems of derived chips: what their templates say, and the rates of the chips."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from design_cases import searched

import dfopt as df
from dfopt.documents.design import Design
from dfopt.errors import SystemSpecError
from dfopt.technology.as_system import derived_system
from dfopt.technology.derive import derive_design


def fixed(**template: Any) -> Design:
    """The design of those tests with sizes that are given."""
    given = searched()
    share = {"core": 0.5, "L2": 0.1, "dram": 0.05, "between_packages": 0.05}
    given["shares"] = {"area": share, "power": share, "perimeter": {"dram": 0.5, "between_packages": 0.2}}
    del given["choices"]
    given["template"] |= template
    return Design.from_data(given)


def test_rates_are_those_of_the_chip() -> None:
    design = fixed()
    chip, made = derive_design(design), derived_system(design)
    assert made.chip.peak_flops == chip.core.peak and made.chip.tiles == 64
    assert (made.chip.sram.capacity, made.chip.sram.bandwidth) == (chip.sram["L2"].size, chip.sram["L2"].rate)
    assert (made.chip.fastest.bandwidth, made.chip.fastest.capacity) == (chip.dram.bandwidth, chip.dram.size)
    assert made.dim("node").link_bandwidth == chip.links["between_packages"].rate
    assert made.chip.power_w == pytest.approx(chip.power)
    assert made.chips == 8


def test_ports_share_the_links_of_their_role() -> None:
    dims: list[dict[str, Any]] = [
        {"name": "x", "topology": "ring", "size": 4, "links": "between_packages"},
        {"name": "y", "topology": "switch", "size": 8, "links": "between_packages", "latency": "1 us"},
        {"name": "z", "topology": "switch", "size": 2, "link_bandwidth": "10 GB/s"},
    ]
    design = fixed(network=dims)
    rate = derive_design(design).links["between_packages"].rate
    made = derived_system(design)
    assert [dim.link_bandwidth for dim in made.network] == [rate / 3, rate / 3, 10e9]
    assert made.dim("y").latency == 1e-6


def test_power_of_memory_and_links_is_in_that_of_the_chip() -> None:
    design = fixed()
    found = df.system_cost(derived_system(design))
    missing = [path for path in found.missing if "_w" in path]
    assert missing == ["$.network[0].switch_w_per_gb_s"]
    dim = {**design.to_data()["template"]["network"][0], "switch_w_per_gb_s": 0.1}
    found = df.system_cost(derived_system(fixed(network=[dim])))
    rate = derive_design(design).links["between_packages"].rate
    assert found.total_w == pytest.approx(8 * (derive_design(design).power + 0.1 * rate / 1e9))


def test_latency_is_that_of_the_role_unless_a_dim_has_its_own() -> None:
    given = fixed().to_data()
    given["technology"]["links"]["between_packages"]["latency"] = "700 ns"
    dim = given["template"]["network"][0]
    assert derived_system(Design.from_data(given)).network[0].latency == pytest.approx(700e-9)
    dim["latency"] = "1 us"
    assert derived_system(Design.from_data(given)).network[0].latency == 1e-6


def test_a_tile_is_a_cluster_where_none_are_given() -> None:
    design = fixed(tiles=None)
    assert derived_system(design).chip.tiles == derive_design(design).core.clusters


def test_mappings_take_a_derived_system() -> None:
    result = df.optimize(df.load_graph("gpt2-small"), derived_system(fixed()), time_limit=20)
    assert result.status == "optimal"


def test_what_is_missing_is_said() -> None:
    given = fixed().to_data()
    del given["template"]
    with pytest.raises(SystemSpecError, match=r"template: found none, expected how the chips make a system"):
        derived_system(Design.from_data(given))
    given = fixed().to_data()
    given["shares"]["perimeter"] = {"dram": 0.5}
    says = r"found a chip without between_packages \(perimeter ends it\), expected links for its dim node"
    with pytest.raises(SystemSpecError, match=says):
        derived_system(Design.from_data(given))
    given["template"]["network"][0]["size"] = 1
    with pytest.raises(SystemSpecError, match=says):
        derived_system(Design.from_data(given))


def test_a_design_and_its_file_say_what_they_make(tmp_path: Path) -> None:
    design, file = fixed(), tmp_path / "d.yaml"
    design.dump(file)
    for given in (design, file, str(file)):
        made = df.derive(given)
        assert made.components == derive_design(design)
        assert made.system == derived_system(design) and made.system is made.system
    with pytest.raises(df.PlanError, match="found a value of type dict, expected a design"):
        df.derive({})  # type: ignore[arg-type]
    bare = design.model_copy(update={"template": None})
    assert df.derive(bare).components.core.units > 0
    with pytest.raises(SystemSpecError, match=r"\$.template: found none"):
        _ = df.derive(bare).system
