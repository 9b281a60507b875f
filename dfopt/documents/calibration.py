"""A calibration: numbers of a machine fitted to what was measured on it, with where they come from."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.base import Document, Part
from dfopt.documents.communication import CollectiveKind
from dfopt.documents.efficiency import EfficiencyRow
from dfopt.documents.network import CollectiveFactor
from dfopt.documents.system import System
from dfopt.errors import Issue, SystemSpecError
from dfopt.units import Ratio


class FittedNumber(Part):
    """A fitted number with the bounds of its fit.

    Attributes
    ----------
    name : e.g. matrix
        Name of the number that was fitted.
    value : unit of the number, e.g. 0.71
        Fitted value of the number.
    least : unit of the number, e.g. 0.01
        Smallest value that the fit allowed.
    most : unit of the number, e.g. 1.0
        Largest value that the fit allowed.
    """

    name: str
    value: float
    least: float
    most: float

    @property
    def at_bound(self) -> bool:
        """Whether the fit ended at a bound, so that the rows need something that the model lacks.

        Examples
        --------
        >>> FittedNumber(name="vector", value=1.0, least=0.01, most=1.0).at_bound
        True
        """
        close = 1e-3 * (self.most - self.least)
        return min(self.value - self.least, self.most - self.value) <= close


class SourceError(Part):
    """Relative errors of the rows of one source; ``left_out``: mean error when the fit excludes that source.

    Attributes
    ----------
    source : e.g. megatron-table-1
        Name of the source of the measurements.
    rows : rows, e.g. 12
        Number of measurements that the source has.
    mean : share, e.g. 0.03
        Mean of the relative errors |predicted / measured - 1| over the measurements of the source.
    most : share, e.g. 0.08
        Largest of the relative errors |predicted / measured - 1| over the measurements of the source.
    bias : share, e.g. -0.01
        Mean of the signed relative errors (predicted / measured - 1); negative values predict too little time.
    left_out : share, e.g. 0.05
        Mean relative error of the source if the numbers are fitted to all other sources. None: there is no other
        source.
    """

    source: str
    rows: int = Field(ge=1)
    mean: float = Field(ge=0)
    most: float = Field(ge=0)
    bias: float
    left_out: float | None = Field(default=None, ge=0)


class Evidence(Part):
    """A file of measurements that a calibration used.

    Attributes
    ----------
    file : e.g. megatron.csv
        Name of the file with measurements.
    sha256 : e.g. 0123456789abcdef
        SHA-256 digest of the file, by which a later run recognizes it.
    rows : rows, e.g. 12
        Number of measurements that were read from the file.
    regime : e.g. sustained
        Regime whose measurements were used: sustained runs or short bursts. None: all rows were used.
    """

    file: str
    sha256: str
    rows: int = Field(ge=1)
    regime: str | None = None


class Calibration(Document):
    """Numbers fitted to measurements of a chip: assumptions, and shares of its rates and network.

    Attributes
    ----------
    profile : e.g. a100-calibrated
        Name of the calibration, which results show.
    chip : e.g. a100-sxm
        Name of the chip that was measured.
    assumptions : e.g. {profile: a100-calibrated}
        Assumptions under which the numbers were fitted, and which the calibration implies.
    efficiency : e.g. [{unit: matrix, share: 0.7}, {unit: vector, share: 0.1}]
        Fitted shares of the chip's peak rate and memory bandwidth, by the size of a kernel.
    network : e.g. {node: 0.8, cluster: 0.7}
        Fitted share of the link bandwidth for each network dim, by name.
    factors : e.g. {node: {all_reduce: {bandwidth_share: 0.8}}}
        Fitted figures of single collectives, by network dim and kind of collective. Kinds are ``all_reduce``,
        ``all_gather``, ``reduce_scatter``, ``all_to_all``, ``broadcast`` and ``point_to_point``. None: the share of a
        dim in ``network`` holds for all collectives.
    fitted
        Numbers that were fitted, with the range that the fit allowed.
    taken_over
        Numbers from the calibration of another chip, for effects that nobody measured on this one. None: there are
        none.
    errors
        Prediction errors for each source of measurements.
    evidence
        Files of measurements that were read.
    version : e.g. 1.0.0
        Version of dfopt that made the calibration.

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
    network: dict[str, Ratio]
    factors: dict[str, dict[CollectiveKind, CollectiveFactor]] | None = None
    fitted: tuple[FittedNumber, ...]
    taken_over: tuple[FittedNumber, ...] | None = None
    errors: tuple[SourceError, ...]
    evidence: tuple[Evidence, ...]
    version: str

    def numbers(self) -> dict[str, float]:
        """Fitted and adopted numbers by name."""
        return {number.name: number.value for number in (*(self.taken_over or ()), *self.fitted)}

    @property
    def stamp(self) -> str:
        """Name with digest, which distinguishes fits of the same name."""
        return f"{self.profile} {self.digest()}"

    def applied(self, system: System) -> System:
        """A system with the calibrated shares; `SystemSpecError` for another chip or more network levels.

        Dims are matched by name, or else by position: figures measured in a node are for the first dim.
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
        """A system with the calibrated shares for any chip; further dims take those of the last calibrated one."""
        places, dims = list(self.network), []
        for place, dim in enumerate(system.network):
            name = dim.name if dim.name in self.network else places[min(place, len(places) - 1)]
            factors = {**dim.factors, **(self.factors or {}).get(name, {})}
            dims.append(dim.model_copy(update={"efficiency": self.network[name], "factors": factors}))
        chip = system.chip.model_copy(update={"efficiency": self.efficiency})
        return system.model_copy(update={"chip": chip, "network": tuple(dims)})
