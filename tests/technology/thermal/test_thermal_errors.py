"""Bad input gives one error with all paths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from thermal_bodies import PACKAGES, SIDE, cooled, stack
from thermal_fields import ThermalModel

from dfopt.errors import SystemSpecError
from dfopt.technology.thermal.types import Body, Slab

DIE = Slab("die", 1e-4, 120.0, 1.75e6)


def body(**changes: Any) -> Body:
    given: dict[str, Any] = {"side_x": SIDE, "side_y": SIDE, "slabs": (DIE,), "package": cooled(1e4),
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
        ({"package": PACKAGES["hotspot"], "side_x": 0.031}, "$.package.spreader.side"),
        ({"package": PACKAGES["plates"], "slabs": (replace(DIE, name="sink"),)}, "$.slabs[0].name"),
    ],
)
def test_bodies(changes: dict[str, Any], where: str) -> None:
    with pytest.raises(SystemSpecError) as caught:
        ThermalModel(body(**changes), 2, 1)
    assert [issue.where for issue in caught.value.issues] == [where]
    assert "found" in str(caught.value) or "expected" in str(caught.value)


def test_all_that_is_wrong_is_said_at_once() -> None:
    wrong = replace(DIE, thickness_m=-1.0, conductivity=0.0)
    with pytest.raises(SystemSpecError, match=r"3 problems"):
        ThermalModel(body(slabs=(wrong,), side_x=-1.0))


def test_a_slab_may_be_called_sink_where_the_package_has_none() -> None:
    assert ThermalModel(body(slabs=(replace(DIE, name="sink"),)), 2, 2).body.names == ("sink",)


VARIED = body(slabs=(replace(DIE, conductivity=np.ones((3, 4))),))


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda model: ThermalModel(body(), 0, 4), r"\$\.nx: found 0"),
        (lambda model: ThermalModel(VARIED, 3, 4), r"\$\.slabs\[0\]\.conductivity: found shape \(3, 4\)"),
        (lambda model: model.steady({"logik": np.zeros((3, 4))}), "did you mean 'logic'"),
        (lambda model: model.steady({"logic": np.zeros((4, 3))}), r"\.logic: found shape \(4, 3\), expected \(3, 4\)"),
        (lambda model: model.steady({"logic": np.full((3, 4), np.inf)}), "not finite"),
        (lambda model: model.transient([{}, {"dram0": np.zeros(3)}], 1e-3), r"\$\.power\[1\]\.dram0"),
        *(
            (lambda model, step=step: model.transient([{}], step), r"\$\.step_s")
            for step in (0.0, -1.0, np.nan, np.inf)
        ),
        (lambda model: model.transient([], 1.0), "found no steps"),
        (
            lambda model: model.transient([{}], 1.0, ThermalModel(body(), 3, 2).steady({})),
            "found a field of another bod",
        ),
        (lambda model: model.steady({}).of("nothing like it"), "slabs are logic, bond0"),
    ],
)
def test_what_a_model_cannot_be_asked_is_said(ask: Callable[[ThermalModel], Any], words: str) -> None:
    with pytest.raises(SystemSpecError, match=words):
        ask(ThermalModel(stack(cooled(1e4)), 4, 3))


def test_a_grid_that_fits_what_varies_is_taken() -> None:
    assert ThermalModel(VARIED, 4, 3).network.nodes == 12


def test_no_power_is_ambient() -> None:
    model = ThermalModel(stack(PACKAGES["hotspot"]), 4, 4)
    field = model.steady({})
    np.testing.assert_array_equal(field.temperature_k, 318.15)
    assert field.max() == field.mean("sink") == field.min("spreader") == 318.15
