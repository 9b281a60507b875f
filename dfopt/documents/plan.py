"""How the chips are shared out: which network dims carry tensor, pipeline and data parallelism."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from dfopt.documents.base import Document


class Plan(Document):
    """Degrees of parallelism and the network dims that carry them.

    ``tp * pp * dp`` equals the number of chips. A dim that two parallelisms share is named by its parts:
    ``x[8]`` are groups of eight neighbours, ``x[4@8]`` groups of four chips that are eight apart.
    ``microbatches`` is how many microbatches one pipeline works through per step, ``layers_per_stage`` how many
    repeats its heaviest stage has, ``interleave`` in how many chunks of consecutive layers a stage holds them
    (virtual stages of the interleaved 1F1B schedule). ``first_layers`` and ``last_layers`` are the repeats of the
    first and of the last stage, where those have other work as well and therefore fewer of them.
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
    interleave: int = Field(default=1, ge=1)
    first_layers: int | None = Field(default=None, ge=1, description="none: layers_per_stage, like all others")
    last_layers: int | None = Field(default=None, ge=1, description="none: layers_per_stage, like all others")

    @property
    def shards(self) -> int:
        """Chips that share the work of a kernel."""
        return self.tp

    @property
    def stages(self) -> int:
        """Stages of the pipeline."""
        return self.pp

    @property
    def copies(self) -> int:
        """Copies that work on the batch, each on its part."""
        return self.dp

    @property
    def shard_dims(self) -> tuple[str, ...]:
        """Network dims, or parts of dims, along which the chips that share a kernel lie."""
        return self.tp_dims

    @property
    def stage_dims(self) -> tuple[str, ...]:
        """Network dims along which the pipeline runs."""
        return self.pp_dims

    @property
    def copy_dims(self) -> tuple[str, ...]:
        """Network dims along which the copies lie."""
        return self.dp_dims

    @property
    def stage_layers(self) -> tuple[int, int, int]:
        """Repeats in the first stage, in each one in the middle, and in the last.

        Examples
        --------
        >>> Plan(pp=4, layers_per_stage=8, last_layers=6).stage_layers
        (8, 8, 6)
        """
        most = self.layers_per_stage
        return self.first_layers or most, most, self.last_layers or most

    @property
    def uneven(self) -> bool:
        """Whether the first or the last stage says for itself how many repeats it has."""
        return self.first_layers is not None or self.last_layers is not None

    @property
    def label(self) -> str:
        """Short name, such as ``TP8(ring) PP1 DP1``, with the layers of the stages where they differ.

        Examples
        --------
        >>> Plan(pp=8, pp_dims=("x",), layers_per_stage=8, first_layers=7, last_layers=6).label
        'TP1 PP8(x) DP1 L7+8..8+6'
        """
        parts = []
        for kind, degree, dims in (
            ("TP", self.tp, self.tp_dims),
            ("PP", self.pp, self.pp_dims),
            ("DP", self.dp, self.dp_dims),
        ):
            parts.append(f"{kind}{degree}" + (f"({'*'.join(dims)})" if dims else ""))
        if self.interleave > 1:
            parts.append(f"v{self.interleave}")
        if self.uneven:
            first, middle, last = self.stage_layers
            between = {2: "", 3: f"+{middle}"}.get(self.pp, f"+{middle}..{middle}")
            parts.append(f"L{first}{between}+{last}")
        return " ".join(parts)
