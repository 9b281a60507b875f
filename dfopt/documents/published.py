"""What the makers of a model publish of its size, beside what is counted of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Self

from pydantic import Field, model_validator

from dfopt.documents.base import Part, problem
from dfopt.errors import Issue

_PARAMETERS, _ACTIVE = 0.015, 0.02  # published ones are rounded, and some leave out norms and biases


class Counts(NamedTuple):
    """Computed sizes of a model.

    Attributes
    ----------
    parameters : int
        Number of all parameters.
    active : int
        Number of parameters that one token is multiplied with: those of chosen experts only, and of no lookup tables.
    bytes_per_token : int
        Cached bytes per token over all layers, as long as no window drops it.
    looked_up : int
        Parameters of tables.
    logits : int
        Number of parameters of the matrix after the last layer, which may also be a lookup table.
    """

    parameters: int
    active: int
    bytes_per_token: int
    looked_up: int = 0
    logits: int = 0


class Published(Part):
    """Published sizes of a model; None: not published, or counted differently.

    Attributes
    ----------
    parameters : parameters, e.g. 8030000000
        Number of parameters of the whole model that its makers publish. None: they publish none.
    active_parameters : parameters, e.g. 3000000000
        Number of parameters that one token uses, as the makers publish it. None: they publish none.
    active_with_embedding : e.g. true
        Whether the published active parameters include the embedding table.
    active_without_head : e.g. true
        Whether the published active parameters leave out the matrix of the logits. None: they include it.
    kv_bytes_per_token : B, e.g. 131072
        Published size of the KV cache of one token over all layers, before any window drops tokens. None: not
        published.
    beside : e.g. [whisper-encoder]
        Graphs of the zoo that are further parts of the same model, such as its encoder. Their counts are added before
        the comparison.
    source : e.g. model card
        Publication in which the makers give these sizes.

    Examples
    --------
    >>> Published(parameters=8_030_000_000, kv_bytes_per_token=131072, source="model card").active_parameters is None
    True
    """

    parameters: int | None = Field(default=None, ge=1, le=10**15)
    active_parameters: int | None = Field(default=None, ge=1, le=10**15)
    active_with_embedding: bool = False
    active_without_head: bool | None = None
    kv_bytes_per_token: int | None = Field(default=None, ge=0, le=10**12)
    beside: tuple[str, ...] = Field(default=(), max_length=100)
    source: str = ""

    @model_validator(mode="after")
    def _count_once(self) -> Self:
        if self.active_with_embedding and self.active_without_head:
            raise problem("found both with the embedding and without the head", "one of them", "$.active_without_head")
        return self


class Figure(NamedTuple):
    """A computed size of a model next to the published one, with the allowed difference.

    Examples
    --------
    >>> Figure("parameters", 8_030_261_248, 8_030_000_000, 0.015).off < 1e-4
    True
    """

    name: str
    computed: int
    published: int | None
    tolerance: float

    @property
    def off(self) -> float:
        """Relative difference of the computed from the published value; 0 if none is published."""
        return 0.0 if self.published is None else abs(self.computed - self.published) / max(self.published, 1)


def figures(published: Published | None, counts: Counts) -> tuple[Figure, ...]:
    """Computed sizes of a model, each with its published value if any.

    Examples
    --------
    >>> counts = Counts(parameters=110, active=80, bytes_per_token=4, looked_up=20)
    >>> [one.computed for one in figures(Published(active_parameters=100, active_with_embedding=True), counts)]
    [110, 100, 4]
    """
    stated = published or Published()
    active = counts.active + counts.looked_up * stated.active_with_embedding
    active -= counts.logits * bool(stated.active_without_head)
    return (
        Figure("parameters", counts.parameters, stated.parameters, _PARAMETERS),
        Figure("active_parameters", active, stated.active_parameters, _ACTIVE),
        Figure("kv_bytes_per_token", counts.bytes_per_token, stated.kv_bytes_per_token, 0.0),
    )


def issues(figures: Iterable[Figure]) -> Iterator[Issue]:
    """Issues of figures whose computed value is further from the published one than rounding explains.

    Examples
    --------
    >>> [issue.message for issue in issues([Figure("parameters", 103, 100, 0.015)])]
    ['found 100, but the graph counts 103, which is 3 % more: at most 1.5 % is rounding']
    """
    for figure in figures:
        if figure.published is None or figure.off <= figure.tolerance:
            continue
        difference = f"{100 * figure.off:.3g} % {'more' if figure.computed > figure.published else 'less'}"
        limit = f"at most {100 * figure.tolerance:g} % is rounding" if figure.tolerance else "it has to be exact"
        message = f"found {figure.published}, but the graph counts {figure.computed}, which is {difference}: {limit}"
        yield Issue(f"$.published.{figure.name}", message, "correct the sizes under parameters, or what is published")
