"""Hardware configurations of DeepFlow (github.com/nanocad-lab/DeepFlow, 566c192) as a technology and a design.

Read are ``tech_param`` and the breakdowns of area, power and perimeter. What its generator of chips does not use is
left out: latencies, the area of a DRAM bit, the power of a controller's link, the width of the arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import ValidationError

from dfopt.documents.base import issues_of
from dfopt.documents.design import Design
from dfopt.errors import DocumentError, Issue, json_path, shown

_UNITS: Final = {"B": 1, "KB": 1024, "MB": 1024**2, "GB": 1024**3}
_SRAM: Final = (("registers", "SRAM-R", "reg_mem"), ("L1", "SRAM-L1", "L1"), ("L2", "SRAM-L2", "L2"))
_LINKS: Final = (("in_package", "intra_node"), ("between_packages", "inter_node"))
_AREAS: Final = "area_breakdown"


def read_design(config: Mapping[str, Any], name: str, path: str = "<data>") -> tuple[Design, list[str]]:
    """A design with its technology, in the profile ``deepflow``, and the keys that say nothing about it.

    Its levels of SRAM are ``registers``, ``L1`` and ``L2``; the first two belong to a cluster. Raises `DocumentError`
    for what is missing or no number.

    Parameters
    ----------
    config : mapping
        A parsed configuration of DeepFlow.
    name : str
        Of the design and its technology.
    path : str
        The file, for errors.
    """
    file = _File(config, path)
    core = ("tech_param", "core")
    scale = file.number(*core, "operating_area_per_mcu") / file.number(*core, "nominal_area_per_mcu")
    technology = {
        "name": name,
        "source": "DeepFlow configuration",
        "core": {
            "flop_per_cycle": file.number(*core, "nominal_flop_rate_per_mcu") * scale,
            "power": file.number(*core, "nominal_power_per_mcu") * scale,
            "supply": file.supply(*core),
            **file.numbers(
                *core, area_mm2="operating_area_per_mcu", frequency="nominal_frequency",
                units_per_cluster="num_mcu_per_bundle", utilization="util",
            ),
        },
        "sram": [file.sram(ours, theirs) for ours, theirs, _ in _SRAM],
        "dram": file.dram(),
        "links": {ours: file.links(theirs) for ours, theirs in _LINKS},
    }  # fmt: skip
    data = {
        "name": name,
        "technology": technology,
        "profile": "deepflow",
        "budgets": {
            "chip_area_mm2": file.number(_AREAS, "proc_chip_area_budget"),
            "package_area_mm2": file.number(_AREAS, "node_area_budget"),
            "power": file.number("power_breakdown", "TDP"),
        },
        "shares": {
            "area": file.shares(_AREAS),
            "power": file.shares("power_breakdown"),
            "perimeter": file.numbers("perimeter_breakdown", dram="DRAM", **dict(_LINKS)),
        },
    }
    try:
        design = Design.model_validate(data)
    except ValidationError as error:
        raise DocumentError(path, issues_of(Design, data, error)) from None
    return design, sorted(file.unused())


class _File:
    """A parsed configuration, whose numbers are asked for by their keys."""

    def __init__(self, config: Mapping[str, Any], path: str) -> None:
        self.config, self.path = config, path
        self.used: set[tuple[str, ...]] = set()

    def unused(self) -> Iterator[str]:
        """Keys that nobody asked for, the topmost only."""

        def walk(value: Any, *keys: str) -> Iterator[str]:
            if keys in self.used:
                return
            if isinstance(value, Mapping) and any(used[: len(keys)] == keys for used in self.used):
                for key, inner in value.items():
                    yield from walk(inner, *keys, str(key))
            else:
                yield ".".join(keys)

        return walk(self.config)

    def at(self, *keys: str) -> Any:
        value: Any = self.config
        for depth, key in enumerate(keys):
            if not isinstance(value, Mapping) or key not in value:
                where = json_path(*keys[: depth + 1])
                raise DocumentError(self.path, [Issue(where, "the key is missing", "give a configuration of DeepFlow")])
            value = value[key]
        if not isinstance(value, Mapping):
            self.used.add(keys)
        return value

    def number(self, *keys: str) -> float:
        value = self.at(*keys)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise DocumentError(self.path, [Issue(json_path(*keys), f"found {shown(value)}, expected a number")])
        return float(value)

    def size(self, *keys: str) -> float:
        """Bytes of a size such as ``32 KB``, in powers of 1024."""
        value = self.at(*keys)
        count, _, unit = value.partition(" ") if isinstance(value, str) else ("", "", "")
        try:
            return float(count) * _UNITS[unit.strip()]
        except (ValueError, KeyError):
            message = f"found {shown(value)}, expected a size such as '32 KB'"
            raise DocumentError(self.path, [Issue(json_path(*keys), message)]) from None

    def numbers(self, *keys: str, **theirs: str) -> dict[str, float]:
        """Several numbers of one part, by what we call them."""
        return {ours: self.number(*keys, name) for ours, name in theirs.items()}

    def supply(self, *keys: str) -> dict[str, float]:
        most = {"max_v": "max_voltage"} if "max_voltage" in self.at(*keys) else {}
        return self.numbers(
            *keys, nominal_v="nominal_voltage", threshold_v="threshold_voltage", margin_v="margin_voltage", **most
        )

    def per_byte(self, *keys: str) -> float:
        return self.number(*keys) * 8

    def sram(self, ours: str, theirs: str) -> dict[str, Any]:
        keys = ("tech_param", theirs)
        return {
            "name": ours,
            "energy": self.per_byte(*keys, "dynamic_energy_per_bit"),
            "bank": self.size(*keys, "bank_capacity"),
            "shared": ours == "L2",
            **self.numbers(
                *keys, bit_area_mm2="area_per_bit", static_w_per_bit="static_power_per_bit", overhead="overhead",
                link_area_mm2="controller_area_per_link", utilization="util",
            ),
        }  # fmt: skip

    def dram(self) -> dict[str, Any]:
        keys = ("tech_param", "DRAM")
        return {
            "stack": self.size(*keys, "stack_capacity"),
            "supply": self.supply(*keys),
            "energy": self.per_byte(*keys, "dynamic_energy_per_bit"),
            **self.numbers(
                *keys, stack_area_mm2="area_per_stack", controller_area_mm2="mem_ctrl_area",
                links_per_stack="num_links_per_stack", links_per_mm="num_links_per_mm", frequency="nominal_frequency",
                static_w_per_bit="static_power_per_bit", utilization="util",
            ),
        }  # fmt: skip

    def links(self, theirs: str) -> dict[str, Any]:
        keys = ("tech_param", "network", theirs)
        return {
            "supply": self.supply(*keys),
            "energy": self.per_byte(*keys, "nominal_energy_per_link"),
            **self.numbers(
                *keys, area_mm2="nominal_area_per_link", links_per_mm="num_links_per_mm",
                frequency="nominal_frequency", utilization="util",
            ),
        }  # fmt: skip

    def shares(self, breakdown: str) -> dict[str, float]:
        levels = {ours: key for ours, _, key in _SRAM}
        on_chip = self.numbers(breakdown, core="core", dram="DRAM", **levels)
        return on_chip | self.numbers(breakdown, "network", **dict(_LINKS))
