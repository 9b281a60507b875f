"""What conversions of layouts cost a layer under options that are left: its kernels, and the blocks that read.

A layout says how the tensor-parallel chips share a tensor. A conversion is a collective of these chips. Who pays for it
depends on the readers:

- *Late* readers are kernels of later passes that read a tensor of the forward pass under sequence parallelism. If the
  assumption ``backward_gathers`` is None, their blocks pay a *toll*: every block (the kernels of one on-chip partition)
  that holds some of them pays once.
- For all other readers the source, which is the kernel that makes the tensor, pays once. If ``backward_gathers`` is
  given and there are late readers, the source pays once more, for all of these.

Seconds and bytes are those of one chip in one evaluation. They are added to other communication. No conversion counts
as both a toll and seconds of a source. Without tensor parallelism there are no conversions.

Suffixes: k kernel, o option (a kernel with one of its schemes, of all kernels), x toll, l layout, s set of layouts (bit
l for layout l).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import reduce
from operator import or_

import numpy as np

from dfopt.arrays import Bools, Floats
from dfopt.physics.network import bytes_sent
from dfopt.terms.conversions import overhead_of_kernels
from dfopt.terms.figures import Figures
from dfopt.terms.layer import Layer, Wanted
from dfopt.terms.rules.network import inherent
from dfopt.terms.table import Domain


def _asked(wanted: Wanted, domain: Domain) -> dict[int, list[int]]:
    """Sets of layouts that each reader may want under the options that are left."""
    return {k: sorted({*bits_o[list(domain[k])].tolist()}) for k, bits_o in wanted.layouts_ko.items()}


def network_seconds(figures: Figures, domain: Domain) -> Floats:
    """Least seconds of communication of each kernel, with the layout conversions of its output that it pays for.

    They are :attr:`dfopt.terms.figures.Figures.network_o`, plus the seconds of those conversions that the kernel,
    which makes the tensor, pays for once for all readers. Conversions that the blocks of readers pay for are not
    included: :func:`tolls` has them.

    If several options are left, a conversion counts with the layouts that are wanted whatever the options. A reader
    whose options want different layouts counts with the cheapest of them. Of several such readers only the most
    expensive counts.

    Parameters
    ----------
    figures
        Figures of the kernels of the layer.
    domain
        By kernel the options that are left, as places among its own, at least one of every kernel.

    Returns
    -------
    float array, shape (kernels,), s
        Seconds of one evaluation (one microbatch). Exact with one option of each kernel, else a lower bound.
    """
    layer, seconds_o = figures.layer, figures.network_o.copy()
    for wanted in (each for each in layer.wanted if not each.tolls):
        seconds_ls, asked = layer.conversion(wanted)[0], _asked(wanted, domain).values()
        sure = reduce(or_, (asks[0] for asks in asked if len(asks) == 1), 0)
        more = [seconds_ls[:, [sure | each for each in asks]].min(axis=1) for asks in asked if len(asks) > 1]
        least_l = np.max([seconds_ls[:, sure], *more], axis=0) if more else seconds_ls[:, sure]
        seconds_o[figures.kernel_o == wanted.fan.source] += least_l[layer.produced_ko[wanted.fan.source]]
    return figures.least(seconds_o, figures.allowed(domain))


def network_bytes(layer: Layer, number_k: Sequence[int]) -> Floats:
    """Bytes that one chip sends to the other tensor-parallel chips in one evaluation, by kernel.

    Two parts add up: the collectives that add up partial sums, and the layout conversions that the kernel which
    makes a tensor pays for once for all readers. Not included are conversions that the blocks of readers pay for
    (:func:`tolls` has their bytes), communications that kernels list themselves, and gradients.

    Parameters
    ----------
    layer
        The layer.
    number_k : sequence of int
        The option of each kernel, as a place among its own.

    Returns
    -------
    float array, shape (kernels,), B
        Bytes of one evaluation (one microbatch). A conversion counts at the kernel that makes the tensor.
    """
    domain, sent_k = tuple((number,) for number in number_k), np.zeros(len(number_k))
    for k, number in enumerate(number_k):
        if (kind := inherent(layer, k)[number]) is not None:
            sent_k[k] += bytes_sent(kind, layer.graph.output_bytes(k), layer.degree)
    for wanted in (each for each in layer.wanted if not each.tolls):
        layouts, source = reduce(or_, (asks[0] for asks in _asked(wanted, domain).values())), wanted.fan.source
        sent_k[source] += layer.conversion(wanted)[1][layer.produced_ko[source][number_k[source]], layouts]
    return sent_k


def tolls(layer: Layer, domain: Domain) -> tuple[Floats, Floats, Bools]:
    """Seconds, bytes and payers of *tolls*: what a block pays once per evaluation if it holds any of some kernels.

    A block is a set of kernels that run together on a chip. If it reads a saved tensor in a later pass, it pays for
    the layout conversion of the most expensive of its readers. This is written as a sum: the readers of a tensor
    are sorted by their seconds, and there is a toll for every step from one value to the next higher one. Readers
    pay all steps up to their own. The start of a block (``kernel_overhead``) is the last toll, which every block
    pays. There is no such toll if the overhead is None or 0, or under ``execution: kernel_by_kernel``, where it is
    in :func:`network_seconds`.

    Parameters
    ----------
    layer
        The layer.
    domain
        By kernel the options that are left, as places among its own, at least one of every kernel. Each reader counts
        with the least seconds and the least bytes of the options that are left.

    Returns
    -------
    (float array, float array, bool array)
        Seconds of each toll, shape (tolls,). Bytes that one chip sends for it, shape (tolls,). Payers, shape
        (tolls, kernels): true if a block with this kernel pays the toll, which it does once for all its kernels.
        Without tolls all have a first axis of length 0.
    """
    count, toll_x = len(layer.kernels), list[tuple[float, float, Bools]]()
    for wanted in (each for each in layer.wanted if each.tolls):
        seconds_ls, sent_ls = layer.conversion(wanted)
        makes = np.unique(layer.produced_ko[wanted.fan.source][list(domain[wanted.fan.source])])
        least_k, sent_k = np.zeros((2, count))
        for kernel, asks in _asked(wanted, domain).items():
            ways = np.ix_(makes, np.array(asks))
            least_k[kernel], sent_k[kernel] = seconds_ls[ways].min(), sent_ls[ways].min()
        levels = np.unique(np.append(least_k, 0.0)).tolist()
        for low, high in itertools.pairwise(levels):
            sent = sent_k[least_k == high].min() - (sent_k[least_k == low].max() if low else 0.0)
            toll_x.append((high - low, float(sent), least_k >= high))
    chosen = layer.assumptions
    if (start_s := chosen.kernel_overhead) and not overhead_of_kernels(chosen):
        toll_x.append((start_s, 0.0, np.ones(count, dtype=bool)))
    payers_xk = np.array([payers for *_, payers in toll_x], dtype=bool).reshape(len(toll_x), count)
    return np.array([s for s, _, _ in toll_x]), np.array([b for _, b, _ in toll_x]), payers_xk
