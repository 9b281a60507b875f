"""What is known of one collective on a network dim beyond the wiring: measured figures, or a formula of its own."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from dfopt.documents.base import Part, problem
from dfopt.units import Ratio, Seconds

__all__ = ["CollectiveFactor"]


class CollectiveFactor(Part):
    """What a measurement says about one collective on a network dim, in place of the formula's figures.

    With ``scale`` the collective has a formula of its own, that of Calculon (Isaev et al., SC23): over ``n`` chips a
    tensor of ``V`` bytes takes ``latency + scale * (1 + offset / n) * V / (bandwidth * efficiency * bandwidth_share)``,
    where bandwidth and efficiency are those of the dim's links. Such a formula holds for any number of chips.

    Attributes
    ----------
    bandwidth_share : e.g. 0.8
        Share of the link bandwidth that this collective sustains for large tensors.
    latency : e.g. 10 us
        Time of this collective for a very small tensor. None: the formula for the wiring gives it.
    step_latency : e.g. 1 us
        Time of each of the n - 1 steps of a ring over n chips, in addition to ``latency``. An all-reduce has twice as
        many steps. None: ``latency`` holds for all chips of the dimension.
    scale : no unit, e.g. 2.0
        Number of times that the bytes of a tensor pass a link, for many chips. It replaces the formula for the wiring.
        None: the formula counts.
    offset : no unit, e.g. -1.0
        Correction of ``scale`` for n chips: the factor is ``scale * (1 + offset / n)``. None: 0.

    Examples
    --------
    >>> CollectiveFactor(scale=2.0, offset=-1.0, latency=10e-6).of_fewer().latency
    1e-05
    >>> CollectiveFactor(bandwidth_share=0.8, latency=10e-6).of_fewer().latency is None
    True

    With ``step_latency`` the fixed time over ``n`` chips is ``latency + (n - 1) * step_latency``, of an all-reduce with
    twice as many steps: that of a ring (Patarasuk and Yuan, JPDC 2009), and of any number of chips.

    >>> CollectiveFactor(latency=10e-6, step_latency=0.0).of_fewer().latency
    1e-05
    """

    bandwidth_share: Ratio = Field(default=1.0, gt=0, le=1)
    latency: Seconds | None = Field(default=None, ge=0)
    step_latency: Seconds | None = Field(default=None, ge=0)
    scale: float | None = Field(default=None, gt=0)
    offset: float | None = Field(default=None, ge=-1)

    def of_fewer(self) -> CollectiveFactor:
        """The factor for a part of the dim.

        A latency measured over the whole dim says nothing about fewer chips; a share of a link and a formula do.
        """
        of_any = self.scale is not None or self.step_latency is not None
        return self if of_any else self.model_copy(update={"latency": None})

    @model_validator(mode="after")
    def _of_a_formula(self) -> Self:
        if self.offset and self.scale is None:
            raise problem(f"found {self.offset:g}, but no scale", "give scale too, or leave it out", "$.offset")
        return self
