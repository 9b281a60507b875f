"""A calibration: numbers of a machine fitted to what was measured on it, with where they come from."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.base import Document, Part
from dfopt.documents.communication import CollectiveKind
from dfopt.documents.efficiency import EfficiencyRow
from dfopt.documents.factors import CollectiveFactor
from dfopt.documents.system import System
from dfopt.errors import Issue, SystemSpecError
from dfopt.units import Ratio

__all__ = ["Calibration", "Evidence", "FittedNumber", "SourceError"]


class FittedNumber(Part):
    """A number that was fitted, and between what."""

    name: str
    value: float
    least: float
    most: float

    @property
    def at_bound(self) -> bool:
        """Whether a bound stopped it: then the rows ask for what the model does not have.

        Examples
        --------
        >>> FittedNumber(name="vector", value=1.0, least=0.01, most=1.0).at_bound
        True
        """
        close = 1e-3 * (self.most - self.least)
        return min(self.value - self.least, self.most - self.value) <= close


class SourceError(Part):
    """Relative errors of the rows of a source; ``left_out``: the mean where the numbers are fitted to the others."""

    source: str
    rows: int = Field(ge=1)
    mean: float = Field(ge=0, description="of |predicted / measured - 1|")
    most: float = Field(ge=0)
    bias: float
    left_out: float | None = Field(default=None, ge=0)


class Evidence(Part):
    """A file that was read."""

    file: str
    sha256: str
    rows: int = Field(ge=1)
    regime: str | None = Field(default=None, description="of its rows those that were measured so; none = all")


class Calibration(Document):
    """What was fitted to measurements of a chip, as assumptions and as shares of its rates and of its network's.

    Examples
    --------
    >>> rows = [EfficiencyRow(unit=unit, share=share) for unit, share in (("matrix", 0.7), ("vector", 0.1))]
    >>> fitted = Calibration(profile="mine", chip="other", assumptions=Assumptions(), efficiency=rows,
    ...                      network={}, fitted=[], errors=[], evidence=[], version="1")
    >>> from dfopt.documents.system import Chip, Dram, Sram
    >>> chip = Chip(name="c", tiles=1, peak=1.0, sram=Sram(capacity=1), dram=Dram(bandwidth=1))
    >>> fitted.applied(System(name="s", chip=chip))
    Traceback (most recent call last):
    dfopt.errors.SystemSpecError: s: 1 problem
      $.chip.name: found 'c', the calibration mine is of 'other' (calibrate this chip, or use assumptions)
    """

    SCHEMA: ClassVar[str] = "dfopt/calibration/1"

    profile: str
    chip: str
    assumptions: Assumptions
    efficiency: tuple[EfficiencyRow, ...]
    network: dict[str, Ratio] = Field(description="dim -> efficiency")
    factors: dict[str, dict[CollectiveKind, CollectiveFactor]] | None = Field(
        default=None, description="dim -> collective -> what was measured of it; none = nothing beyond efficiency"
    )
    fitted: tuple[FittedNumber, ...]
    taken_over: tuple[FittedNumber, ...] | None = Field(
        default=None, description="from the calibration of another chip, where nothing of this one was measured"
    )
    errors: tuple[SourceError, ...]
    evidence: tuple[Evidence, ...]
    version: str = Field(description="of dfopt")

    def numbers(self) -> dict[str, float]:
        """What was fitted or taken over, by name."""
        return {number.name: number.value for number in (*(self.taken_over or ()), *self.fitted)}

    @property
    def stamp(self) -> str:
        """Its name with its digest, which tells it from an earlier or later fit of that name."""
        return f"{self.profile} {self.digest()}"

    def applied(self, system: System) -> System:
        """The system with these shares; `SystemSpecError` for another chip, or a system of more levels.

        Dims are matched by their names, or else by their place: what is measured in a node is for the first dim.
        """
        issues = []
        if system.chip.name != self.chip:
            message = f"found {system.chip.name!r}, the calibration {self.profile} is of {self.chip!r}"
            issues.append(Issue("$.chip.name", message, "calibrate this chip, or use assumptions"))
        elif len(system.network) > len(self.network):
            message = f"found {len(system.network)} dims, the calibration {self.profile} has {', '.join(self.network)}"
            issues.append(Issue("$.network", message, "use a system of nodes, or calibrate this one"))
        if issues:
            raise SystemSpecError(system.name, issues)
        return self.lent(system)

    def lent(self, system: System) -> System:
        """The system with these shares whatever its chip; dims beyond those that are known are as the last of them."""
        places, dims = list(self.network), []
        for place, dim in enumerate(system.network):
            name = dim.name if dim.name in self.network else places[min(place, len(places) - 1)]
            factors = {**dim.factors, **(self.factors or {}).get(name, {})}
            dims.append(dim.model_copy(update={"efficiency": self.network[name], "factors": factors}))
        chip = system.chip.model_copy(update={"efficiency": self.efficiency})
        return system.model_copy(update={"chip": chip, "network": tuple(dims)})
