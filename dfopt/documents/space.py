"""How many mappings a search covers, in figures and in words."""

from __future__ import annotations

from pydantic import Field

from dfopt.documents.base import Part

__all__ = ["Space"]


class Space(Part):
    """How many mappings the search covered, as powers of ten; limits such as SRAM exclude some of them."""

    plans: int
    log10_shardings: float = Field(description="of one plan, at the degree of tensor parallelism with the most")
    log10_stages: float = Field(description="of one plan: kernels drawn once, over the pipeline stages")
    log10_fusions: float = Field(description="of one stage: ordered partitions of its kernels into convex blocks")
    tile_counts: int
    log10_total: float
    exact: bool = Field(description="false: at least so many, where counting them all would take too long")

    def __str__(self) -> str:
        counts = {"sharding": self.log10_shardings, "stage": self.log10_stages, "fusion": self.log10_fusions}
        parts = [f"{self.plans:,} plan{'' if self.plans == 1 else 's'}"]
        parts += [_counted(log10, name) for name, log10 in counts.items() if log10 or name != "stage"]
        parts += [f"{self.tile_counts} tile sizes"] if self.tile_counts > 1 else []
        least = "" if self.exact else "at least "
        return f"{' x '.join(parts)}: {least}{_counted(self.log10_total, 'mapping')}"


def _counted(log10: float, name: str) -> str:
    """So many of a thing: as a number up to a million, above as a power of ten."""
    count = f"{10**log10:,.0f}" if log10 < 6 else f"10^{log10:.1f}"
    return f"{count} {name}{'' if count == '1' else 's'}"
