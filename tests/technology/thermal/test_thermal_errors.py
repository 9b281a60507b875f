"""Bad input gives one error with all paths."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from thermal_cases import PACKAGES, SIDE, stack

from dfopt.errors import SystemSpecError
from dfopt.technology.thermal import Body, HtcPackage, PlatesPackage, Rect, Slab, ThermalModel

DIE = Slab("die", 1e-4, 120.0, 1.75e6)


def body(**changes: Any) -> Body:
    given: dict[str, Any] = {"side_x": SIDE, "side_y": SIDE, "slabs": (DIE,), "package": HtcPackage(1e4),
                             "ambient_k": 300.0, **changes}  # fmt: skip
    return Body(**given)


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"side_x": 0.0}, "$.side_x"),
        ({"side_y": float("inf")}, "$.side_y"),
        ({"ambient_k": -1.0}, "$.ambient_k"),
        ({"ambient_k": "300"}, "$.ambient_k"),
        ({"far_htc": -1.0}, "$.far_htc"),
        ({"far_htc": float("nan")}, "$.far_htc"),
        ({"slabs": ()}, "$.slabs"),
        ({"slabs": (DIE, DIE)}, "$.slabs[1].name"),
        ({"slabs": (replace(DIE, thickness_m=0.0),)}, "$.slabs[0].thickness_m"),
        ({"slabs": (replace(DIE, conductivity=np.array([[1.0, -1.0]])),)}, "$.slabs[0].conductivity"),
        ({"slabs": (replace(DIE, heat_capacity=float("nan")),)}, "$.slabs[0].heat_capacity"),
        ({"slabs": (replace(DIE, source_thickness_m=2e-4),)}, "$.slabs[0].source_thickness_m"),
        ({"slabs": (replace(DIE, source_thickness_m=0.0),)}, "$.slabs[0].source_thickness_m"),
        ({"package": HtcPackage(0.0)}, "$.package.htc"),
        ({"package": replace(PACKAGES["hotspot"], r_convec=0.0)}, "$.package.r_convec"),  # type: ignore[call-arg]
        ({"package": replace(PACKAGES["hotspot"], s_spreader=0.009)}, "$.package.s_spreader"),  # type: ignore[call-arg]
        ({"package": replace(PACKAGES["hotspot"], s_sink=0.02)}, "$.package.s_sink"),  # type: ignore[call-arg]
        ({"package": replace(PACKAGES["plates"], htc=1e3)}, "$.package"),
        ({"package": replace(PACKAGES["plates"], r_convec=None)}, "$.package"),  # type: ignore[call-arg]
        ({"package": replace(PACKAGES["plates"], sink_cells=0)}, "$.package.sink_cells"),  # type: ignore[call-arg]
        ({"package": PACKAGES["plates"], "slabs": (replace(DIE, name="sink"),)}, "$.slabs[0].name"),
    ],
)
def test_bodies(changes: dict[str, Any], where: str) -> None:
    with pytest.raises(SystemSpecError) as caught:
        body(**changes)
    assert [issue.where for issue in caught.value.issues] == [where]
    assert "found" in str(caught.value) or "expected" in str(caught.value)


def test_all_that_is_wrong_is_said_at_once() -> None:
    wrong = replace(DIE, thickness_m=-1.0, conductivity=0.0)
    with pytest.raises(SystemSpecError, match=r"3 problems"):
        body(slabs=(wrong,), side_x=-1.0)


def test_a_slab_may_be_called_sink_where_the_package_has_none() -> None:
    assert body(slabs=(replace(DIE, name="sink"),)).names == ("sink",)


def test_grids() -> None:
    with pytest.raises(SystemSpecError, match=r"\$\.nx: found 0"):
        ThermalModel(body(), 0, 4)
    varied = replace(DIE, conductivity=np.ones((3, 4)))
    assert ThermalModel(body(slabs=(varied,)), 4, 3).network.nodes == 12
    with pytest.raises(SystemSpecError, match=r"\$\.slabs\[0\]\.conductivity: found shape \(3, 4\)"):
        ThermalModel(body(slabs=(varied,)), 3, 4)


def test_power() -> None:
    model = ThermalModel(stack(HtcPackage(1e4)), 4, 3)
    with pytest.raises(SystemSpecError, match="did you mean 'logic'"):
        model.steady({"logik": np.zeros((3, 4))})
    with pytest.raises(SystemSpecError, match=r"\$\.power\.logic: found shape \(4, 3\), expected \(3, 4\)"):
        model.steady({"logic": np.zeros((4, 3))})
    with pytest.raises(SystemSpecError, match="not finite"):
        model.steady({"logic": np.full((3, 4), np.inf)})
    with pytest.raises(SystemSpecError, match=r"\$\.power\[1\]\.dram0"):
        model.transient([{}, {"dram0": np.zeros(3)}], 1e-3)


def test_no_power_is_ambient() -> None:
    model = ThermalModel(stack(PACKAGES["hotspot"]), 4, 4)
    field = model.steady({})
    np.testing.assert_array_equal(field.temperature_k, 318.15)
    assert field.max() == field.mean("sink") == field.min("spreader") == 318.15


def test_transients() -> None:
    model = ThermalModel(body(), 2, 2)
    for step in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(SystemSpecError, match=r"\$\.step_s"):
            model.transient([{}], step)
    with pytest.raises(SystemSpecError, match="found no steps"):
        model.transient([], 1.0)
    other = ThermalModel(body(), 3, 2).steady({})
    with pytest.raises(SystemSpecError, match=r"\$\.initial: found a field of another body"):
        model.transient([{}], 1.0, other)


def test_tiles_and_names() -> None:
    model = ThermalModel(stack(PlatesPackage(0.06, 6.9e-3, 0.03, 1e-3, htc=1e3)), 2, 2)
    tile = Rect(0.0, 0.0, SIDE, SIDE)
    with pytest.raises(SystemSpecError, match=r"\$\.tiles\[1\]\[0\]: found 'sink'"):
        model.influence([("logic", tile), ("sink", tile)])
    with pytest.raises(SystemSpecError, match="inside the die"):
        model.influence([("logic", Rect(0.0, 0.0, 2 * SIDE, SIDE))])
    with pytest.raises(SystemSpecError, match="slabs are logic, bond0"):
        model.steady({}).of("nothing like it")
