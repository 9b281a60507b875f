"""Weights of a kernel that are those of many experts, of which every token chooses a few."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from dfopt.documents.base import Part, problem

__all__ = ["Experts", "touched_experts"]


class Experts(Part):
    """What a grouped GEMM holds and reads: its shape is that of the experts that a token chooses, side by side.

    ``m`` or ``k`` is ``chosen`` times that of one expert, so FLOP, output and partial sums are those of the tokens;
    weights are held for all experts, and read for those that some token of an evaluation chooses.

    Examples
    --------
    >>> Experts(count=128, chosen=8, touched=touched_experts(128, 8, 16)).touched
    82.4...
    """

    count: int = Field(ge=1, le=10**6, description="experts that are held")
    chosen: int = Field(ge=1, le=10**6, description="experts that every token is sent to, at most all")
    touched: float = Field(gt=0, le=10**6, description="experts that an evaluation reads, as expected under a routing")

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if not self.chosen <= self.touched * (1 + 1e-12) <= self.count * (1 + 2e-12):
            message = f"found {self.touched:g} of {self.count} experts, of which a token chooses {self.chosen}"
            raise problem(message, "as many as a token chooses at least, and all at most", "$.touched")
        return self


def touched_experts(count: int, chosen: int, tokens: int) -> float:
    """Experts that some of so many tokens choose, as expected if every choice is as likely (uniform routing).

    Examples
    --------
    >>> touched_experts(8, 2, 1), touched_experts(8, 2, 2), round(touched_experts(8, 2, 64), 6)
    (2.0, 3.5, 8.0)
    """
    return count * (1.0 - (1.0 - chosen / count) ** tokens)
