"""The problem of the authors' search: shares of area, power and perimeter for the shortest step of a language model.

Its objective is the time that the program gives a design, and a design must hold the workload.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from crossflow.chip import Chip, Kind
from crossflow.language_model import Model, Ring, footprint, step_time
from crossflow.tilings import NoTiles
from dfopt.documents.technology import Technology
from dfopt.frontends.deepflow import read_design
from dfopt.technology.derive import Budgets, Derived, derive
from dfopt.technology.rules import DEEPFLOW

MODEL = Model(batch=4096, steps=20, hidden=4096, vocabulary=800_000, layers=2)
CHIPS = 64
"""All of one package, with the same weights."""
SHARED = 2
"""Edges of rings on the most loaded link (a constant of the search's configuration): each has its part of the rate."""

ROUNDED = 1e-9
"""By what part of itself a number may be off where shares are multiplied and summed."""
Shares = Mapping[str, Mapping[str, float]]
"""Of ``area``, ``power`` and ``perimeter``, by component; a component that is not named has none."""
COLUMNS = {
    "core": "core", "DRAM": "dram", "L2": "L2", "L1": "L1", "reg": "registers", "intra": "in_package",
    "inter": "between_packages",
}  # fmt: skip
"""How a table of shares calls the components."""
BUDGETS = {"area": "area", "power": "power", "perim": "perimeter"}


@dataclass
class Traced:
    """What is searched.

    Attributes
    ----------
    technology, kind
        Of the configuration.
    package_area, power
        In mm2 and W. The chip has what the stacks leave of the package.
    latency
        In seconds, of a link.
    model, chips, shared
        A ring of so many chips, and the rings that share a link with it.
    evaluated
        How many designs have been timed.
    """

    technology: Technology
    kind: Kind
    package_area: float
    power: float
    latency: float
    model: Model = MODEL
    chips: int = CHIPS
    shared: int = SHARED
    evaluated: int = 0

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """The problem of a configuration of the program, whose own shares and chip area do not matter."""
        design = read_design(config, "traced")[0]
        budgets = design.budgets
        latency = config["tech_param"]["network"]["intra_node"]["latency"]
        return cls(design.technology, Kind.of(config), budgets.package_area_mm2, budgets.power, latency)

    @property
    def stacks(self) -> int:
        """Stacks that hold the workload; as many fit beside the chip."""
        return math.ceil(footprint(self.model, self.chips) / self.technology.stacks.stack)

    @property
    def chip_area(self) -> float:
        """In mm2."""
        return self.package_area - self.stacks * self.technology.stacks.stack_area_mm2

    @property
    def edge(self) -> float:
        """In mm: the perimeter of a square chip."""
        return 4 * math.sqrt(self.chip_area)

    @property
    def controllers(self) -> float:
        """The least share of the chip's area for DRAM with which it holds the workload."""
        return self.stacks * self.technology.stacks.controller_area_mm2 / self.chip_area * (1 + ROUNDED)

    def derived(self, shares: Shares) -> Derived:
        """The chip of a design, by the rules of the program."""
        areas, powers, edges = (shares[budget] for budget in BUDGETS.values())
        return derive(
            self.technology, Budgets(self.chip_area, self.package_area, self.power, areas, powers, edges), DEEPFLOW
        )

    def ring(self, rate: float) -> Ring:
        """The ring over links with so many bytes/s to each neighbour."""
        return Ring(self.chips, rate / self.shared, self.latency)

    def seconds(self, shares: Shares) -> float:
        """Of a step; infinity for a design that cannot hold the workload, or whose memories have no tiles."""
        self.evaluated += 1
        derived = self.derived(shares)
        if derived.dram.stacks < self.stacks:
            return math.inf
        try:
            return step_time(Chip.of(derived, self.kind), self.model, self.ring(derived.links["in_package"].rate))
        except NoTiles:
            return math.inf


def shares_of(row: Mapping[str, str]) -> dict[str, dict[str, float]]:
    """Those of a row of the authors' trace."""
    return {ours: dict(_columns(row, theirs)) for theirs, ours in BUDGETS.items()}


def _columns(row: Mapping[str, str], budget: str) -> Iterator[tuple[str, float]]:
    for column, value in row.items():
        head, _, component = column.partition("_")
        if head == budget:
            yield COLUMNS[component], float(value)
