"""Seconds of a training step of an LSTM language model, with data parallelism over a ring of chips."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from crossflow.chip import LAUNCH, PRECISION, Chip
from crossflow.gemm import Shape, dataflow, pointwise, products, products_at_least
from crossflow.schedule import backward, backward_at_least, forward

HOST = 12.4 * 2**30
"""Bytes/s from the host, which holds the table of embeddings (a constant of the program)."""


@dataclass(frozen=True, slots=True)
class Model:
    """The model of the paper: embedding, layers of LSTM cells, softmax over the vocabulary."""

    batch: int
    steps: int
    hidden: int
    vocabulary: int
    layers: int


@dataclass(frozen=True, slots=True)
class Ring:
    """Chips with the same weights; each sends so many bytes/s to its neighbour."""

    chips: int = 1
    rate: float = 0.0
    latency: float = 0.0


ALONE = Ring()
Timed = Callable[[Chip, Sequence[Shape], str], list[float]]
"""What times products of matrices: as the program does, or at least."""


class Parts(NamedTuple):
    """Seconds of what a step consists of: kernels forward and backward, and gradients of one layer each."""

    cell: float
    softmax: float
    embedding: float
    cell_back: float
    softmax_back: float
    embedding_back: float
    cell_gradients: float
    softmax_gradients: float
    embedding_gradients: float


def shapes(model: Model, chips: int = 1) -> list[Shape]:
    """Products of matrices: the cell, its two gradients, the softmax, its two gradients."""
    batch, hidden, words = math.ceil(model.batch / chips), model.hidden, model.vocabulary
    return [
        (batch, 2 * hidden, 4 * hidden),
        (batch, 4 * hidden, 2 * hidden),
        (2 * hidden, batch, 4 * hidden),
        (batch, hidden, words),
        (hidden, batch, words),
        (batch, words, hidden),
    ]


def parts(chip: Chip, model: Model, ring: Ring = ALONE, timed: Timed = products) -> Parts:
    """Seconds of the parts of a step. FLOP and accesses per element are constants of the program."""
    every = shapes(model, ring.chips)
    batch, hidden, words = every[0][0], model.hidden, model.vocabulary
    cell, cell_inputs, cell_weights, softmax, softmax_weights, softmax_inputs = timed(
        chip, every, dataflow(chip, every[0])
    )
    state, logits, weights = batch * hidden, batch * words, 8 * hidden * hidden
    looked_up = pointwise(chip, 0, 2 * state) + LAUNCH
    return Parts(
        cell=cell + pointwise(chip, 20 * state, 52 * state) + 5 * LAUNCH,
        softmax=softmax + pointwise(chip, batch * (3 * words - 1), 7 * logits) + 4 * LAUNCH,
        embedding=looked_up + 2 * state * chip.precision / HOST,
        # of the state, where forward it is of the four gates
        cell_back=cell_inputs
        + cell_weights
        + pointwise(chip, 5 * state + weights, 13 * state + 3 * weights)
        + 5 * LAUNCH,
        softmax_back=softmax_weights + softmax_inputs + pointwise(chip, 5 * logits, 11 * logits) + 4 * LAUNCH,
        embedding_back=looked_up,
        cell_gradients=gradients(chip, 8 * hidden * hidden, ring),
        softmax_gradients=gradients(chip, hidden * words, ring),
        embedding_gradients=gradients(chip, hidden * words, ring),
    )


def gradients(chip: Chip, weights: int, ring: Ring) -> float:
    """Seconds to sum gradients over the ring, clip them and apply them."""
    clipped, applied = pointwise(chip, 3 * weights, 4 * weights), pointwise(chip, 4 * weights, 3 * weights)
    return all_reduce(chip, weights, ring) + clipped + applied


def all_reduce(chip: Chip, elements: int, ring: Ring) -> float:
    """Seconds of a ring: twice around, each piece read and written at every stop, and summed on the first round."""
    chips = ring.chips
    if chips == 1:
        return 0.0
    if ring.rate <= 0:
        return math.inf
    piece = elements / chips
    hop = piece * chip.precision / ring.rate + pointwise(chip, 0, 2 * piece) + ring.latency
    return 2 * (chips - 1) * hop + (chips - 1) * (pointwise(chip, piece, 3 * piece) + LAUNCH)


def step_time(chip: Chip, model: Model, ring: Ring = ALONE) -> float:
    """Seconds of a training step."""
    found = parts(chip, model, ring)
    if not all(map(math.isfinite, found)):
        return math.inf
    return forward(model, found) + backward(model, found)


def step_time_at_least(chip: Chip, model: Model, ring: Ring = ALONE) -> float:
    """Seconds that no chip beats whose cores, registers, DRAM and links are no faster, whatever its caches and tilings.

    No time of a better chip would do: list schedules are not monotone in general (Graham, SIAM J. Appl. Math. 17(2),
    1969), the tiles that are drawn for a larger cache may be worse, and the latency of a memory counts only where that
    memory binds, so a kernel may take longer by it where another rate rises. Here the order of kernels does not matter
    (`backward_at_least`), each matrix passes through DRAM once, and latencies are left out: what remains falls with
    each of these rates.
    """
    quick = replace(chip, kind=replace(chip.kind, latencies=(0.0, 0.0, 0.0, 0.0)))
    found = parts(quick, model, ring, products_at_least)
    return forward(model, found) + backward_at_least(model, found)


def footprint(model: Model, chips: int = 1, precision: int = PRECISION) -> int:
    """Bytes that a chip holds, as the program counts them (github.com/nanocad-lab/DeepFlow, 566c192)."""
    batch, hidden, words = math.ceil(model.batch / chips), model.hidden, model.vocabulary
    steps, layers = model.steps, model.layers
    gates = 4 * batch * hidden * steps * layers
    cells = gates + (2 * hidden + 1) * 4 * hidden * layers + gates * 9 // 2
    softmax = batch * steps * words + (hidden + 1) * words + (2 * batch * steps * words + batch * steps)
    embedding = words * hidden + batch * steps * hidden
    return (cells + softmax + embedding) * precision
