"""How the chips are shared out: which network dims carry tensor, pipeline and data parallelism."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from dfopt.documents.base import Document


class Plan(Document):
    """Degrees of parallelism and the network dims that carry them.

    ``tp * pp * dp`` equals the number of chips. ``microbatches`` is how many microbatches one
    pipeline works through per step, ``layers_per_stage`` how many repeats its heaviest stage has.
    """

    SCHEMA: ClassVar[str] = "dfopt/plan/1"

    tp: int = Field(default=1, ge=1)
    pp: int = Field(default=1, ge=1)
    dp: int = Field(default=1, ge=1)
    tp_dims: tuple[str, ...] = ()
    pp_dims: tuple[str, ...] = ()
    dp_dims: tuple[str, ...] = ()
    microbatches: int = Field(default=1, ge=1)
    layers_per_stage: int = Field(default=1, ge=1)

    @property
    def label(self) -> str:
        """Short name, such as ``TP8(ring) PP1 DP1``."""
        parts = []
        for kind, degree, dims in (
            ("TP", self.tp, self.tp_dims),
            ("PP", self.pp, self.pp_dims),
            ("DP", self.dp, self.dp_dims),
        ):
            parts.append(f"{kind}{degree}" + (f"({'x'.join(dims)})" if dims else ""))
        return " ".join(parts)
