"""The limits that the cells of a study are solved with, which may be several."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from dfopt.documents.base import Part, problem
from dfopt.units import Seconds
from dfopt.units import format as show_unit

__all__ = ["Label", "LimitsEntry"]

Label = Annotated[str, Field(min_length=1, max_length=200)]
LIMITS = ("time_limit", "gap", "p_max")  # options that limits give too


class LimitsEntry(Part):
    """Limits of a solve and of its mapping; several of them are an axis. What one leaves out is as in the options."""

    label: Label | None = Field(default=None, description="in the frame; none = the limits in words")
    time_limit: Seconds | None = Field(default=None, ge=0.1, description="of the solve of a cell")
    gap: float | None = Field(default=None, ge=0.0, le=1.0, description="relative gap at which a solve may stop")
    p_max: int | None = Field(default=None, ge=1, description="on-chip partitions at most")
    graphs: tuple[str, ...] = Field(default=(), description="labels of the graphs that it is for; none = all")

    @property
    def given(self) -> dict[str, Any]:
        """The options that it sets, as in a file."""
        return self.model_dump(mode="json", include=set(LIMITS))

    @property
    def name(self) -> str:
        """What the frame calls it.

        Examples
        --------
        >>> LimitsEntry(time_limit=60.0, gap=1e-3, p_max=4).name
        '60 s, gap 0.1 %, p_max 4'
        """
        words = [] if self.time_limit is None else [show_unit(self.time_limit, "time")]
        words += [] if self.gap is None else [f"gap {show_unit(self.gap, 'ratio')}"]
        words += [] if self.p_max is None else [f"p_max {self.p_max}"]
        return self.label or ", ".join(words)

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.name:
            raise problem("no limit and no label", f"give {', '.join(LIMITS)} or a label")
        return self
