"""What shows of exchanges behind the backward pass, stage by stage: oracles for arrays of plans, and for the judge.

The closed forms are those of :mod:`dfopt.physics.overlap`, the lines those of :mod:`dfopt.physics.window`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import NamedTuple

from dfopt.physics.window import Window

Line = tuple[float, float]
"""Seconds at 0, and how many more for a second."""


class Reduced(NamedTuple):
    """What a pipeline stage exchanges.

    ``last_s``: seconds in which the gradients of its first layer are added up, the last in the backward pass, and in
    which its weights are brought together, if the forward pass hides that; ``ends_s``: seconds of the stage for one
    microbatch until all is added up, as far as known, with what it waits for weights; ``weights_s``: of a step in which
    weights are brought together, where nothing hides it; ``times``: how often in a step gradients are added up.
    """

    last_s: float
    ends_s: float
    weights_s: float = 0.0
    times: int = 1

    def until_s(self, stage_s: float) -> float:
        """Seconds of the last pass through a stage that takes so many for one microbatch, and of all its exchanges."""
        return self.weights_s + self.times * max(stage_s + self.last_s, self.ends_s)

    def shows_s(self, stage_s: float, slowest_s: float) -> float:
        """Of these, what the step does not have anyway."""
        return self.until_s(stage_s) - self.times * slowest_s


def reduced_after_s(layers: Iterable[tuple[float, float, int]]) -> float:
    """Seconds from the begin of a backward pass until the gradients of all layers are added up.

    Parameters
    ----------
    layers : iterable of (float, float, int)
        In the order of the backward pass: seconds of the backward pass of a layer, seconds in which its gradients are
        added up, and how many such layers follow one another.

    Examples
    --------
    Three layers of 2 s: where 1 s each is exchanged that of the last one shows, of 3 s each 1 s more of the two others.

    >>> reduced_after_s([(2.0, 1.0, 3)]), reduced_after_s([(2.0, 3.0, 3)])
    (7.0, 11.0)
    """
    passed = finished = 0.0
    for backward_s, reduce_s, times in layers:
        if times:  # the line between the first and the last of equal layers has its maximum at an end
            first = max(finished, passed + backward_s) + times * reduce_s
            passed += times * backward_s
            finished = max(first, passed + reduce_s)
    return finished


def least_lines(least: Window, forward_s: float, stages: int, chunks: int, layers: int) -> tuple[Line, ...]:
    """What shows at least of a stage's exchanges, as lines of the seconds of one of its layers.

    Parameters
    ----------
    least : Window
        The least of every figure of a layer; ``backward_s`` and ``in_the_way`` are not looked at.
    forward_s : float
        Seconds of the forward pass of a layer, at least.
    stages, chunks, layers : int
        Of the pipeline, and of the stage.

    Examples
    --------
    With 2 s for a layer there is 0.9 s to hide behind, as above.

    >>> lines = least_lines(Window(1.0, 1.0, 0.1, 0.9, 0.0, False, 0.0), 1.0, stages=1, chunks=1, layers=4)
    >>> round(max(at + slope * 2.0 for at, slope in lines), 12)
    1.4
    """
    if not layers:
        return ((0.0, 0.0),)
    each, lost_s, slowed_s = max(layers / chunks, 1.0), forward_s + least.memory_s, least.compute_s * least.usage
    found: list[Line] = [(least.exchange_s, 0.0)]
    if chunks > 1:
        open_s = stages * (least.hop_s - each * lost_s)
        over_s = each * least.exchange_s + stages * each * slowed_s - open_s
        found.append(((chunks - 1) * over_s, -(chunks - 1) * stages * each))
    last_s = (each - 1) * least.exchange_s + slowed_s
    if each > 1:
        last_s += (each - 1) * lost_s + least.memory_s + least.hop_s / 2
    found.append((last_s, 1 - each))
    first, *others = found
    sums = ((first, *some) for many in range(len(others) + 1) for some in combinations(others, many))
    return tuple((math.fsum(at for at, _ in some), math.fsum(slope for _, slope in some)) for some in sums)


class Shown(NamedTuple):
    """What shows at least of what a pipeline stage exchanges, from its seconds for one microbatch.

    ``lines``: of these seconds, the largest counts; ``rounds``: how often a step has them; ``after_s``: what is charged
    where nothing is hidden, if that is a choice.
    """

    lines: tuple[Line, ...]
    rounds: float
    after_s: float = math.inf

    @classmethod
    def of_layers(
        cls, lines: Iterable[Line], layers: int, beside_s: float, once_s: float, rounds: float, after_s: float
    ) -> Shown:
        """From lines of the seconds of a layer; a stage takes ``beside_s`` beside them, a step ``once_s``.

        Lines with which a step would fall are left out: the others are a bound, too.
        """
        of_stage = ((once_s + at - slope * beside_s / (layers or 1), slope / (layers or 1)) for at, slope in lines)
        return cls(tuple(line for line in of_stage if rounds + line[1] >= 0), rounds, after_s)

    def shows_s(self, stage_s: float, _slowest_s: float = 0.0) -> float:
        """Seconds of a step beside those of the stage, which takes at least so many.

        Examples
        --------
        >>> Shown(((6.0, -2.0), (1.0, 0.0)), rounds=4.0).shows_s(2.0)
        2.0
        """
        return min(max(at + slope * stage_s for at, slope in self.lines), self.after_s)


def exposed_s(stages: Sequence[float], reduced: Sequence[Reduced | Shown]) -> float:
    """Seconds of a step beyond the work of its slowest stage, from the seconds of every stage for one microbatch.

    Examples
    --------
    >>> exposed_s([6.0], [Reduced(last_s=1.0, ends_s=7.0)]), exposed_s([8.0], [Reduced(last_s=3.0, ends_s=13.0)])
    (1.0, 5.0)
    """
    slowest = max(stages)
    return max(0.0, *(one.shows_s(stage_s, slowest) for stage_s, one in zip(stages, reduced, strict=True)))
