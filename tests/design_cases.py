"""Designs as their files have them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any

from dfopt.documents.design import Design
from dfopt.documents.exploration_request import ExplorationRequest
from dfopt.exploring.costs import cost_of
from dfopt.exploring.problems import workload_of
from dfopt.exploring.space import Box
from dfopt.exploring.workload import ExplorationProblem
from dfopt.workloads import load_graph

SUPPLY = {"nominal_v": 0.8, "threshold_v": 0.2, "margin_v": 0.35}


def data() -> dict[str, Any]:
    """A design as its file has it."""
    return {
        "schema": "dfopt/design/1",
        "name": "small",
        "technology": {
            "schema": "dfopt/technology/1",
            "name": "test",
            "core": {
                "area_mm2": 0.4, "flop_per_cycle": 128, "power": "130 mW", "frequency": "1.3 GHz", "supply": SUPPLY,
                "units_per_cluster": 8,
            },
            "sram": [
                {"name": "L2", "bit_area_mm2": 6e-8, "energy": "0.13 pJ/bit", "static_w_per_bit": 8e-12,
                 "bank": "32 KiB"},
            ],
            "dram": {
                "stack": "4 GiB", "stack_area_mm2": 100, "controller_area_mm2": 5, "links_per_stack": 1024,
                "links_per_mm": 400, "frequency": "1.4 GHz", "supply": SUPPLY, "energy": "4 pJ/bit",
                "static_w_per_bit": 6e-13,
            },
        },
        "budgets": {"chip_area_mm2": 800, "package_area_mm2": 1200, "power": "300 W"},
        "shares": {"area": {"core": "50 %", "L2": 0.2, "dram": "rest"}, "power": {"core": "rest", "dram": 0.25}},
    }  # fmt: skip


def searched() -> dict[str, Any]:
    """A design with sizes that are to be chosen, and a template."""
    given = data()
    given["technology"]["links"] = {
        "between_packages": {
            "area_mm2": 1.6, "links_per_mm": 2, "frequency": "200 GHz", "supply": SUPPLY, "energy": "6.5 pJ/bit",
        }
    }  # fmt: skip
    auto = {"core": "rest", "L2": "auto", "dram": "auto", "between_packages": "auto"}
    given["shares"] = {
        "area": auto,
        "power": {**auto, "L2": 0.05},
        "perimeter": {"dram": "auto", "between_packages": "auto"},
    }
    given["choices"] = {
        "stacks": {"most": 4},
        "capacity": {"L2": {"least": "8 MiB", "most": "64 MiB", "step": "8 MiB"}},
        "rate": {"between_packages": {"least": "50 GB/s", "most": "450 GB/s", "step": "50 GB/s"}},
    }
    dim = {"name": "node", "topology": "switch", "size": 8, "links": "between_packages"}
    given["template"] = {"sram": "L2", "tiles": 64, "network": [dim]}
    return given


def chosen(**changes: Any) -> Design:
    """The design of those tests; changes name fields by their path."""
    given: Any = searched()
    for path, value in changes.items():
        at, (*keys, last) = given, path.split("__")
        for key in keys:
            at = at[int(key)] if isinstance(at, list) else at[key]
        if isinstance(at, list):
            at[int(last) :] = [value]
        else:
            at[last] = deepcopy(value)  # later changes may be inside
    return Design.from_data(given)


GPT2 = load_graph("gpt2-small")

SIZES: dict[str, Any] = {
    "choices__capacity__L2": {"least": "4 MiB", "most": "36 MiB", "step": "8 MiB"},
    "choices__stacks": {"least": 1, "most": 3},
    "choices__rate__between_packages": {"least": "50 GB/s", "most": "250 GB/s", "step": "100 GB/s"},
}

PRICED: dict[str, Any] = {
    "technology__wafer": {"usd": 16988, "defects_per_cm2": 0.11},
    "technology__package": {"usd_per_mm2": 0.005, "area_factor": 4, "bonding_yield": 0.99},
    "technology__dram__usd_per_gb": 10,
    "template__network__0__link_usd_per_gb_s": 2.0,
    "template__network__0__switch_usd_per_gb_s": 20.0,
    "template__network__0__switch_w_per_gb_s": 0.05,
}
"""Prices and powers of what is beside the chips (assumptions)."""


def problem(graph: str, designs: Sequence[Design], **asked: Any) -> ExplorationProblem:
    """The problem of an exploration, of a workload as it is drawn where nothing is free."""
    return workload_of([load_graph(graph)], designs, request=ExplorationRequest(**{"gap": 0.0, **asked}))


def check_costs(workload: ExplorationProblem, box: Box, inside: Iterable[tuple[int, ...]]) -> None:
    """Hold the power and the price that are said of a box against those of designs in it."""
    least = cost_of(workload.spaces[0], box, workload.system(box))
    for at in inside:
        one = workload.spaces[0].root.at(at)
        cost = cost_of(workload.spaces[0], one, workload.system(one))
        if cost is None:
            continue
        assert least is not None and least.total_w is not None and least.total_usd is not None
        assert cost.total_w is not None and cost.total_usd is not None
        assert least.total_w <= cost.total_w * (1 + 1e-9)
        assert least.total_usd <= cost.total_usd * (1 + 1e-9)
