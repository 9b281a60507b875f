"""Who is sent to which expert: how often tokens choose each, and how many experts an evaluation therefore touches.

========================  =============================================================================================
law                       share of the tokens that each of E experts gets, where a token chooses k distinct ones
========================  =============================================================================================
``uniform``               ``k / E``
``balanced``              as many tokens as any other expert, to a token: dealt out in turn, nothing left to chance
``power_law(alpha)``      in proportion to loads of density ``x^-alpha``, from 1 to 0.8 times the tokens of an
                          evaluation, or from 0.01 to 2 if it has no more choices than there are experts
``counts``                in proportion to counted tokens, one count for each expert; only the proportions matter
========================  =============================================================================================

No expert gets more than every token; what it would get beyond that goes to the others, in proportion. But for
``balanced`` tokens choose independently of each other. The experts that T tokens touch are then, as expected,
``sum(1 - (1 - share)^T)``, exactly: whatever links the k choices of one token, only shares enter. ``uniform`` touches
as many as any such routing at most (``1 - (1 - share)^T`` is concave), so a time that reads experts under it is no
bound on a skewed one; ``balanced`` touches at least as many as all of them.

``redundant`` copies more are held of those that are sent the most, where experts lie on several chips; each copy takes
an equal part of its expert's tokens, drawn for every token. Who is copied and what lies where is said in
:mod:`dfopt.physics.spread`. Where every chip has all experts, copies would change nothing and are not held.

The power law is the one under which aiconfigurator measures grouped products (``power_law_1.2``): ``sample_power_law``
of ``collector/helper.py`` in ai-dynamo/aiconfigurator at 006afd7, with the loads that it draws at random taken at the
middles of E equally likely parts of the law.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from dfopt.documents.base import Part, problem

_FIGURE = r"[0-9]+(?:\.[0-9]+)?"
_LAWS = rf"(?:power_law\((?P<alpha>{_FIGURE})\)|counts\((?P<counts>{_FIGURE}(?:,{_FIGURE})*)\)|(?P<law>[a-z_]+))"
_WRITTEN = re.compile(rf"{_LAWS}(?:\+(?P<redundant>[0-9]{{1,9}})(?:redundant)?)?")


class Routing(Part):
    """Distribution of tokens over experts, such as ``uniform``, ``power_law(1.2)`` or ``counts(30, 10, 10)``.

    Copies are added to it: ``power_law(1.2) + 32``.

    Attributes
    ----------
    law : e.g. power_law
        Distribution of tokens over experts. ``uniform``: every expert is equally likely. ``balanced``: every expert
        gets the same number of tokens. ``power_law``: loads follow a power law with exponent ``alpha``. ``counts``:
        loads are proportional to measured ``counts``.
    alpha : no unit, e.g. 1.2
        Exponent of the power law; larger values are more skewed. None: the law is another one.
    counts : tokens, e.g. [30, 10, 10]
        Tokens that each expert received in a measurement, in the order of the experts. Only their proportions matter.
        None: the law is another one.
    redundant : replicas, e.g. 32
        Number of additional replicas of the most loaded experts, where experts are spread over several chips. None: 0.

    Examples
    --------
    >>> uniform, skewed = Routing(), Routing.model_validate("power_law(1.2)")
    >>> f"{uniform.touched(256, 8, 64):.1f} {skewed.touched(256, 8, 64):.1f}"
    '222.4 159.3'
    >>> Routing(law="counts", counts=(30, 10, 10, 10)).shares(4, 2, 1000)
    (1.0, 0.333..., 0.333..., 0.333...)
    >>> Routing.model_validate("power_law(1.2) + 32").words
    'power_law(1.2) + 32 redundant'
    """

    law: Literal["uniform", "balanced", "power_law", "counts"] = "uniform"
    alpha: float | None = Field(default=None, ge=0, le=100)
    counts: tuple[float, ...] | None = Field(default=None, min_length=1, max_length=10**5)
    redundant: int | None = Field(default=None, ge=1, le=10**6)

    @model_validator(mode="before")
    @classmethod
    def _as_words(cls, data: Any) -> Any:
        if not isinstance(data, str):
            return data
        match = _WRITTEN.fullmatch(data.replace(" ", ""))
        if match is None:
            return {"law": data}
        more: dict[str, Any] = {"redundant": int(match["redundant"])} if match["redundant"] else {}
        if match["alpha"]:
            return {"law": "power_law", "alpha": float(match["alpha"]), **more}
        if match["counts"]:
            return {"law": "counts", "counts": tuple(map(float, match["counts"].split(","))), **more}
        return {"law": match["law"], **more}

    @model_validator(mode="after")
    def _is_one_law(self) -> Self:
        for name, law in (("alpha", "power_law"), ("counts", "counts")):
            if (getattr(self, name) is not None) != (self.law == law):
                state = "missing" if self.law == law else f"found in a routing of law {self.law}"
                written = "power_law(1.2)" if name == "alpha" else "counts(30, 10, 10)"
                raise problem(f"{state}, expected with law {law} only", f"in a word: {written}", f"$.{name}")
        if self.counts is not None and min(self.counts) < 0:
            raise problem(f"found {min(self.counts):g} tokens", "count those that were sent", "$.counts")
        return self

    @property
    def words(self) -> str:
        """The routing as short text."""
        law = f"power_law({self.alpha:g})" if self.alpha is not None else self.law
        return f"{law} + {self.redundant} redundant" if self.redundant else law

    def shares(self, experts: int, chosen: int, tokens: int) -> tuple[float, ...]:
        """Probability that a token chooses each expert: at most 1, and as many as are chosen in all.

        Parameters
        ----------
        experts, chosen, tokens : int
            Number of experts, how many of them each token chooses, and number of tokens.

        Raises
        ------
        pydantic_core.PydanticCustomError
            If there is not one count for each expert, or too few experts were sent any token.
        """
        if self.counts is not None:
            some = sum(count > 0 for count in self.counts)
            if len(self.counts) != experts or some < chosen:
                message = f"found {len(self.counts)} counts, {some} of them above 0, for {experts} experts"
                raise problem(message, f"count the tokens of each, of {chosen} or more above 0", "$.routing.counts")
            return _shares(self.counts, chosen)
        if self.alpha is not None:
            return _shares(_loads(experts, chosen, tokens, self.alpha), chosen)
        return (chosen / experts,) * experts

    def touched(self, experts: int, chosen: int, tokens: int) -> float:
        """Expected number of experts that at least one token selects.

        Parameters
        ----------
        experts, chosen, tokens : int
            Number of experts, how many of them each token chooses, and number of tokens.
        """
        if self.law == "balanced":
            return float(min(experts, chosen * tokens))
        if self.law == "uniform":
            return experts * (1.0 - (1.0 - chosen / experts) ** tokens)
        return touched(self.shares(experts, chosen, tokens), tokens)


def touched(shares: Sequence[float], tokens: int) -> float:
    """Expected number of experts that at least one of ``tokens`` independent tokens selects, from their shares.

    Examples
    --------
    >>> touched((1.0, 0.5, 0.5), 2)
    2.5
    """
    return sum(1.0 - (1.0 - share) ** tokens for share in shares)


def _loads(experts: int, chosen: int, tokens: int, alpha: float) -> tuple[float, ...]:
    """Loads at the middles of equally likely parts of the law, the lightest first."""
    least, most = (1.0, 0.8 * tokens) if tokens * chosen > experts else (0.01, 2.0)
    middles = [(place + 0.5) / experts for place in range(experts)]
    if alpha == 1.0:
        return tuple(least * (most / least) ** middle for middle in middles)
    power = 1.0 - alpha
    low, high = least**power, most**power
    return tuple((low + (high - low) * middle) ** (1.0 / power) for middle in middles)


@lru_cache(maxsize=256)
def _shares(loads: tuple[float, ...], chosen: int) -> tuple[float, ...]:
    """Probabilities in proportion to loads, those that would be more than 1 cut off."""
    always: set[int] = set()
    while True:
        rest = sum(load for place, load in enumerate(loads) if place not in always)
        scale = (chosen - len(always)) / rest if rest else 0.0
        more = {place for place, load in enumerate(loads) if place not in always and load * scale >= 1.0}
        if not more:
            return tuple(1.0 if place in always else load * scale for place, load in enumerate(loads))
        always |= more
