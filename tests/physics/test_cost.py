"""Price and power of systems: against DFModel's logged figures, its table of counts, and links counted one by one."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfopt.documents.system import Chip, Dram, NetworkDim, Sram, System
from dfopt.errors import SystemSpecError
from dfopt.physics.cost import dim_counts, system_cost

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "system_cost.json").read_text())["cases"]
KIND = {"r": "ring", "sw": "switch", "fc": "fully_connected"}

# research on the authors' program: links x bandwidth and switch ports x bandwidth of every topology it knows.
TABLE: dict[str, Callable[..., tuple[list[int], list[int]]]] = {
    "r": lambda x: ([x], [2]),
    "sw": lambda x: ([x], [x]),
    "fc": lambda x: ([x * (x - 1)], [0]),
    "r_r": lambda x, y: ([x * y, x * y], [2 * y, 2 * x]),
    "fc_fc": lambda x, y: ([x * (x - 1) * y, y * (y - 1)], [0, y**2]),
    "r_fc": lambda x, y: ([x * y, y * (y - 1)], [2 * y, y**2]),
    "r_sw": lambda x, y: ([x * y, y], [2 * y, y]),
    "sw_sw": lambda x, y: ([x * y, y], [x * y, y]),
    "r_r_r": lambda x, y, z: ([x * y * z] * 3, [2 * y * z, 2 * x * z, 2 * x * y]),
    "r_sw_sw": lambda x, y, z: ([x * y * z, y * z, z], [2 * y * z, y * z, z]),
    "sw_sw_sw": lambda x, y, z: ([x * y * z, y * z, z], [x * y * z, y * z, z]),
}


def dims(topology: str, sizes: list[int], **more: Any) -> list[NetworkDim]:
    kinds = zip(topology.split("_"), sizes, strict=True)
    return [
        NetworkDim(name=f"d{i}", topology=KIND.get(kind, kind), size=size, link_bandwidth=1e9, **more)
        for i, (kind, size) in enumerate(kinds)
    ]


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case["case"])
def test_prices_and_powers_of_the_authors_logs(case: dict[str, Any]) -> None:
    dram = Dram(
        bandwidth=case["dram_gb_s"] * 1e9, usd_per_gb_s=case["dram_unit_price"], w_per_gb_s=case["dram_unit_power"]
    )
    chip = Chip(
        name="c", tiles=1, peak=1e12, sram=Sram(capacity=1e6), dram=dram,
        price_usd=case["accelerator_price"], power_w=case["accelerator_power"],
    )  # fmt: skip
    network = tuple(
        NetworkDim(
            name=f"d{i}", topology=KIND[kind], size=dim["size"], link_bandwidth=dim["gb_s"] * 1e9,
            link_usd_per_gb_s=case["link_unit_price"], link_w_per_gb_s=dim["link_w"],
            switch_usd_per_gb_s=case["switch_unit_price"], switch_w_per_gb_s=case["switch_unit_power"],
        )
        for i, (kind, dim) in enumerate(zip(case["topology"].split("_"), case["dims"], strict=True))
    )  # fmt: skip
    system = System(name="s", chip=chip, network=network)
    assert system.chips == case["chips"]
    found = system_cost(system, "dfmodel")
    assert found.total_usd == pytest.approx(case["system_cost"], rel=1e-6)
    assert found.total_w == pytest.approx(case["system_power_w"], rel=1e-6)
    assert found.missing == ()


@pytest.mark.parametrize("topology", TABLE)
@given(data=st.data())
def test_the_authors_counts(topology: str, data: st.DataObject) -> None:
    count = len(topology.split("_"))
    sizes = data.draw(st.lists(st.integers(2, 9), min_size=count, max_size=count))
    links, ports = TABLE[topology](*sizes)
    if math.prod(sizes) <= 4:
        ports = [0] * count  # no switch for up to four chips
    found = dim_counts(dims(topology, sizes), "dfmodel")
    assert [(each.links, each.switch_ports) for each in found] == list(zip(links, ports, strict=True))


def test_the_authors_charge_one_chip_no_links() -> None:
    assert [(c.links, c.switch_ports) for c in dim_counts(dims("r_sw", [1, 1]), "dfmodel")] == [(0, 0), (0, 0)]


def cables(kind: str, size: int) -> list[tuple[int, int]]:
    """Cables of a group, two ends each; -1 is the switch. A ring of two has two cables."""
    if kind == "switch":
        return [(i, -1) for i in range(size)] if size > 1 else []
    if kind == "fully_connected":
        return list(itertools.combinations(range(size), 2))
    chain = [(i, i + 1) for i in range(size - 1)]
    return [*chain, (size - 1, 0)] if kind == "ring" and size > 1 else chain


@given(
    st.lists(
        st.tuples(st.sampled_from(["ring", "line", "switch", "fully_connected"]), st.integers(1, 5)),
        min_size=1,
        max_size=3,
    )
)
def test_exact_counts_are_the_cables_of_all_groups(shape: list[tuple[str, int]]) -> None:
    network = [
        NetworkDim(name=f"d{i}", topology=kind, size=size, link_bandwidth=1e9) for i, (kind, size) in enumerate(shape)
    ]
    chips = list(itertools.product(*(range(size) for _, size in shape)))
    for axis, ((kind, size), found) in enumerate(zip(shape, dim_counts(network), strict=True)):
        groups = {chip[:axis] + chip[axis + 1 :] for chip in chips}
        all_cables = [(group, ends) for group in sorted(groups) for ends in cables(kind, size)]
        assert found.links == len(all_cables)
        assert found.switch_ports == sum(-1 in ends for _, ends in all_cables)


def priced(**chip: Any) -> Chip:
    return Chip(name="c", tiles=1, peak=1e12, sram=Sram(capacity=1e6), dram=Dram(bandwidth=1e9), **chip)


def test_what_is_missing_is_listed_and_not_taken_as_nothing() -> None:
    network = tuple(dims("r_sw", [2, 3], link_usd_per_gb_s=5.0))
    found = system_cost(System(name="s", chip=priced(price_usd=10.0), network=network))
    assert found.usd["accelerators"] == 60 and found.usd["links"] == (2 * 3 + 3 * 2) * 5.0
    assert found.usd["memory"] is found.usd["switches"] is found.total_w is None
    assert found.total_usd == 60 + 60 and found.complete("usd") is found.complete("w") is None
    assert found.without("usd") == ("$.chip.dram.usd_per_gb_s", "$.network[1].switch_usd_per_gb_s")
    assert found.incomplete["price"] == f"120 USD without {', '.join(found.without('usd'))}"
    assert found.incomplete["power"] == f"unknown without {', '.join(found.without('w'))}"
    assert set(found.missing) == {
        "$.chip.power_w", "$.chip.dram.usd_per_gb_s", "$.chip.dram.w_per_gb_s", "$.network[0].link_w_per_gb_s",
        "$.network[1].link_w_per_gb_s", "$.network[1].switch_usd_per_gb_s", "$.network[1].switch_w_per_gb_s",
    }  # fmt: skip


@given(st.lists(st.sampled_from([None, 1.0, 3.0]), max_size=4), st.sampled_from([None, 0.0, 7.0]))
def test_a_total_is_of_what_has_a_price_and_says_what_has_none(links: list[float | None], chip: float | None) -> None:
    """Up to four rings of two: as many cables of each as there are chips, at 1 GB/s; what is not there has no price."""
    chips = 2 ** len(links)
    dram = Dram(bandwidth=1e9, usd_per_gb_s=0, w_per_gb_s=0)
    of = priced(price_usd=chip, power_w=chip).model_copy(update={"dram": dram})
    network = [
        dims("r", [2], link_usd_per_gb_s=price, link_w_per_gb_s=price)[0].model_copy(update={"name": f"d{i}"})
        for i, price in enumerate(links)
    ]
    found = system_cost(System(name="s", chip=of, network=tuple(network)))
    known = chips * (chip or 0.0) + math.fsum(chips * price for price in links if price is not None)
    lacking = ["$.chip.price_usd"] * (chip is None)
    lacking += [f"$.network[{i}].link_usd_per_gb_s" for i, price in enumerate(links) if price is None]
    assert found.without("usd") == tuple(lacking) and len(found.without("w")) == len(lacking)
    assert found.complete("usd") == found.complete("w") == (None if lacking else known)
    assert found.total_usd == found.total_w == (known or (None if lacking else 0.0))
    assert set(found.incomplete) == ({"price", "power"} if lacking else set())


def test_authors_do_not_count_a_line() -> None:
    with pytest.raises(SystemSpecError, match=r"\$\.network\[1\]\.topology: found 'line'"):
        dim_counts(dims("r_line", [2, 2]), "dfmodel")
