"""How long microbatches are on their way through a pipeline whose stages take different times.

A stage works in the order of its schedule, on each pass as soon as the stage before is through with it; the step ends
with the longest chain of passes that wait for one another. Of ``p`` stages let ``T_s`` be the seconds of stage ``s``
for both passes of a microbatch, of ``m``.

**GPipe, and without a backward pass.** ``sum_s T_s + (m - 1) max_s T_s``: the way of the first one, and for each other
one the slowest stage once. Exact, for GPipe where one stage is the slowest in both passes; else less than it takes.

**1F1B** (Narayanan et al., SC'21, section 2.2.1). The largest, over all stages ``j``, of

- ``sum_{s<j} T_s + m T_j``: the stages in front of ``j`` forward, all the work of ``j``, and back;
- ``sum_{s<j} T_s + (m - n) T_j + 2 sum_{s>j} T_s`` with ``n = p - 1 - j`` stages behind it and ``m >= n + 2``: the
  first microbatch goes to the end and back to ``j``, then ``j`` works until the last one comes, which goes to the end
  and back. In the meantime, either time, ``j`` does one pass of ``n`` microbatches, whatever that takes.

So what stages behind the slowest one save counts twice, up to what they take. If the last stage is the slowest, that
is ``sum_s T_s + (m - 1) max_s T_s`` too. Every one of these is a chain of the schedule, so a step takes no less; it
takes as much where the stages behind ``j`` take no less, on an average, than the longer pass of ``j`` does: two
thirds of ``T_j`` if a backward pass takes twice as long as a forward one. Below that only chains know it that tell the
passes apart.

**Interleaved** (the same, section 2.2.2), ``v`` chunks in a stage: ``sum_{s<j} T_s / v + m T_j``. A stage has about two
microbatches for every stage behind it to work on while it waits. Exact where the last stage is the slowest and chunks
in front of it are equal.

All are sums of stage times, with no negative one, so they are non-decreasing in each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import numpy as np
from numpy.typing import ArrayLike

from dfopt.arrays import LEAST_DIVISOR, ROUNDING, Floats
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.plan import Plan

NO_STAGE = (0.0, 0.0, -np.inf)
"""Chains of a pipeline without stages, see :func:`appended`."""


def chains(
    seconds: ArrayLike, counts: ArrayLike, rounds: ArrayLike, chunks: ArrayLike = 1, *, turns: bool = True
) -> Floats:
    """Candidate critical paths of a pipeline step, s, for one pipeline or many at once.

    Parameters
    ----------
    seconds, counts : array, of shape (..., runs)
        Runs of consecutive stages with equal times, in the order of the pipeline: seconds of one stage for one
        microbatch, and the number of stages; 0 = none.
    rounds, chunks : array, of shape (...)
        Number of times that the pipeline takes microbatches in a step, and of chunks of layers in a stage.
    turns : bool
        Whether stages do forward and backward passes in turns, as in 1F1B.

    Returns
    -------
    float array, of shape (..., chains)
        Chains, each the sum of some of the times.

    Examples
    --------
    Four stages of 1 s and 8 microbatches, then with 0.5 s more for logits in the last one, or in the first.

    >>> float(chains([1.0], [4], 8).max()), float(chains([1.0, 1.5], [3, 1], 8).max())
    (11.0, 15.0)
    >>> float(chains([1.5, 1.0], [1, 3], 8).max()), float(chains([1.5, 1.0], [1, 3], 8, turns=False).max())
    (13.5, 15.0)
    """
    count, there = np.asarray(counts, dtype=float), np.asarray(counts) > 0
    each = np.where(there, seconds, 0.0)
    often, split = (np.asarray(factor, dtype=float)[..., None] for factor in (rounds, chunks))
    work = count * each
    before, after, behind = _before(work), _before(work[..., ::-1])[..., ::-1], _before(count[..., ::-1])[..., ::-1]
    # with those of the same time in front of the last of them; what never ends may be alone
    alike = before + np.multiply(count - 1, each, where=count > 1, out=np.zeros(work.shape))
    if not turns:
        longest: Floats = often * each + (alike + after) / split
        return longest
    longer = np.where((split == 1) & (behind <= often - 2), (often - behind) * each + alike + 2 * after, 0.0)
    return np.concatenate([often * each + alike / split, longer], axis=-1)


def appended(chain_x: Floats, seconds: Floats, rounds: float, behind: int, *, turns: bool) -> Floats:
    """Critical-path candidates of a pipeline after one more stage at its end, without interleaving.

    It is non-decreasing in the chains and in the seconds, so that a pipeline with no longer chains remains the better
    one for any further stages.

    Parameters
    ----------
    chain_x : float array, s, shape (..., 3)
        Chains so far: :data:`NO_STAGE` at first. The longest of the last two is that of :func:`chains` at the end.
    seconds : float array, s, shape (...)
        Seconds of the stage for one microbatch.
    rounds : float
        Number of times that the pipeline takes microbatches in a step.
    behind : int
        Number of stages that will follow.
    turns : bool
        As in :func:`chains`.

    Returns
    -------
    float array, s, shape (..., 3)

    Examples
    --------
    >>> chain_x = np.array(NO_STAGE)
    >>> for behind, seconds in ((3, 1.0), (2, 1.0), (1, 1.0), (0, 1.5)):
    ...     chain_x = appended(chain_x, np.array(seconds), 8, behind, turns=True)
    >>> float(chain_x[1:].max())
    15.0
    """
    before, work, longer = np.moveaxis(chain_x, -1, 0)
    if not turns:
        longer = np.maximum(longer + seconds, before + rounds * seconds)
        return np.stack([before + seconds, work, longer], axis=-1)
    work = np.maximum(work, before + rounds * seconds)
    here = before + (rounds - behind) * seconds if behind <= rounds - 2 else -np.inf
    longer = np.maximum(longer + 2 * seconds, here)
    return np.stack([before + seconds, work, longer], axis=-1)


def _before(values: Floats) -> Floats:
    """Sums of all values in front of each, along the last axis."""
    totals = np.cumsum(values, axis=-1)
    return np.concatenate([np.zeros((*totals.shape[:-1], 1)), totals[..., :-1]], axis=-1)


@dataclass(frozen=True)
class Line:
    """The stages of a pipeline in order, for schedules in which each stage's own time counts.

    ``places``: for every stage, which of the distinct stages it is. ``rounds``, ``chunks``, ``turns``: as in
    :func:`chains`.
    """

    places: tuple[int, ...]
    rounds: int
    chunks: int
    turns: bool

    @cached_property
    def runs(self) -> tuple[tuple[int, int], ...]:
        """Runs of equal consecutive stages: (position among the distinct stages, length)."""
        return tuple((place, len(list(some))) for place, some in groupby(self.places))

    def chains(self, stages: Sequence[float]) -> Floats:
        """Critical-path candidates (:func:`chains`) from the seconds of every distinct stage."""
        rows, counts = zip(*self.runs, strict=True)
        return chains([stages[row] for row in rows], counts, self.rounds, self.chunks, turns=self.turns)

    def seconds(self, stages: Sequence[float]) -> float:
        """Seconds until all microbatches have passed the pipeline, from the seconds of every distinct stage.

        Examples
        --------
        >>> Line(places=(0, 1, 1, 2), rounds=8, chunks=1, turns=True).seconds([1.0, 1.0, 1.5])
        15.0
        """
        return float(self.chains(stages).max())

    def most_s(self, through_s: float, stages: Sequence[float], position: int) -> float:
        """Largest time, s, of one distinct stage, others fixed, such that all microbatches pass within ``through_s``.

        Parameters
        ----------
        through_s : float, s
            Seconds in which all microbatches have to pass.
        stages : sequence of float, s
            Times of all distinct stages for one microbatch.
        position : int
            Index of the stage in question.

        Examples
        --------
        >>> Line(places=(0, 1, 1, 2), rounds=8, chunks=1, turns=True).most_s(15.0, [1.0, 1.0, 1.2], 2)
        1.5
        """
        unit = max(*stages, LEAST_DIVISOR)
        without, with_unit = ([*stages[:position], at, *stages[position + 1 :]] for at in (0.0, unit))
        fixed = self.chains(without)
        slope = (self.chains(with_unit) - fixed) / unit
        rising = slope > 0.25 / self.chunks  # no coefficient that is not 0 is smaller than 1 / chunks
        if (fixed[~rising] > through_s * (1 + ROUNDING)).any():
            return 0.0
        return float(((through_s - fixed[rising]) / slope[rising]).min())


def line_of(plan: Plan, assumptions: Assumptions, trains: bool, places: Sequence[int]) -> Line | None:
    """The line of a plan's stages; None where the slowest stage stands for all (assumption ``bubble``).

    Parameters
    ----------
    plan, assumptions : Plan, Assumptions
        The plan, and the rule for filling the pipeline (``bubble``).
    trains : bool
        Whether there is a backward pass.
    places : sequence of int
        For every stage of the pipeline, its position among the distinct stages.
    """
    if assumptions.bubble != "stages":
        return None
    return Line(tuple(places), plan.rounds, plan.interleave, trains and assumptions.schedule == "one_f_one_b")
