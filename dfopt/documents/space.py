"""How many mappings a search covers, in figures and in words."""

from __future__ import annotations

from dfopt.documents.base import Part


class Space(Part):
    """Size of the search space as powers of ten, before limits such as SRAM.

    Attributes
    ----------
    plans : plans, e.g. 18
        Number of plans that the search covered.
    log10_shardings : no unit, e.g. 11.8
        Number of shardings of one plan as a power of ten, at the degree of tensor parallelism with the most.
    log10_stages : no unit, e.g. 2.1
        Number of ways to distribute the kernels of one plan over pipeline stages, as a power of ten.
    log10_fusions : no unit, e.g. 9.4
        Number of ways to fuse the kernels of one stage into ordered partitions, as a power of ten.
    tile_counts : no unit, e.g. 1
        Number of tile counts that the search tried.
    log10_total : no unit, e.g. 30.3
        Number of mappings in the whole space, as a power of ten.
    exact : e.g. true
        Whether the numbers of plans and mappings are exact. False: they are lower limits, since an
        exact count would take too long.
    """

    plans: int
    log10_shardings: float
    log10_stages: float
    log10_fusions: float
    tile_counts: int
    log10_total: float
    exact: bool

    def __str__(self) -> str:
        counts = {"sharding": self.log10_shardings, "stage": self.log10_stages, "fusion": self.log10_fusions}
        parts = [f"{self.plans:,} plan{'' if self.plans == 1 else 's'}"]
        parts += [_counted(log10, name) for name, log10 in counts.items() if log10 or name != "stage"]
        parts += [f"{self.tile_counts} tile sizes"] if self.tile_counts > 1 else []
        return f"{' x '.join(parts)}: {self.total}"

    @property
    def total(self) -> str:
        """Number of all mappings as text."""
        return ("" if self.exact else "at least ") + _counted(self.log10_total, "mapping")


def _counted(log10: float, name: str) -> str:
    """So many of a thing: as a number up to a million, above as a power of ten."""
    count = f"{10**log10:,.0f}" if log10 < 6 else f"10^{log10:.1f}"
    return f"{count} {name}{'' if count == '1' else 's'}"
