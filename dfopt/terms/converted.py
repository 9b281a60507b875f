"""What conversions of layouts cost a layer under options that are left: its kernels, and the blocks that read.

A source pays for a conversion once for all readers. A *toll* is paid by every block that holds any of some kernels.

Suffixes: k kernel, o option (a kernel with one of its schemes, of all kernels), x toll, l layout, s set of layouts (bit
l for layout l).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_

import numpy as np

from dfopt.arrays import Bools, Floats
from dfopt.physics.network import bytes_sent
from dfopt.terms.conversions import overhead_of_kernels
from dfopt.terms.figures import Figures
from dfopt.terms.layer import Wanted
from dfopt.terms.rules.network import inherent

__all__ = ["Conversions"]


@dataclass(frozen=True, eq=False)
class Conversions:
    """Tensors that readers want in other layouts than their sources leave them in, and what the conversions cost.

    A conversion is a collective of the tensor-parallel chips. Who pays for it depends on the readers:

    - *Late* readers are kernels of later passes that read a tensor of the forward pass under sequence parallelism. If
      the assumption ``backward_gathers`` is None, their blocks pay a *toll*: every block (the kernels of one on-chip
      partition) that holds some of them pays once. See :meth:`tolls`.
    - For all other readers the source, which is the kernel that makes the tensor, pays once. If ``backward_gathers`` is
      given and there are late readers, the source pays once more, for all of these. See :meth:`network`.

    Seconds and bytes are those of one chip in one evaluation. They are added to other communication. No conversion
    counts as both a toll and seconds of a source. Without tensor parallelism there are no conversions.

    Attributes
    ----------
    figures
        Figures of the kernels of the layer. Their options are the axis o.
    """

    figures: Figures

    @cached_property
    def listed(self) -> tuple[tuple[Wanted, Floats], ...]:
        """Pairs of what readers want of a tensor and the seconds to convert it, for every entry of ``Layer.wanted``.

        Conversions that sources pay for and those that are tolls are both listed. Seconds are of one evaluation: a
        float array, shape (layouts, sets of layouts), which is (3, 8). The first axis is the layout that the source
        leaves. The second is the set that readers want: bit l stands for layout l of
        :data:`dfopt.terms.conversions.LAYOUTS`. Seconds are 0 where nothing has to be converted.
        """
        layer = self.figures.layer
        return tuple((one, layer.conversion_s(one)) for one in layer.wanted)

    @cached_property
    def _sent_by_readers(self) -> tuple[Floats, ...]:
        """Bytes that a chip sends in those that blocks of readers do, of the same shape as seconds."""
        return tuple(self.figures.layer.conversion_sent(one) for one, _ in self.listed if one.tolls)

    def _asked(self, one: Wanted, allowed_o: Bools) -> dict[int, list[int]]:
        """Sets of layouts that each reader may want under the options that are left."""
        first_k, found = self.figures.first_k, {}
        for k, bits_o in one.layouts_ko.items():
            found[k] = sorted({*bits_o[allowed_o[first_k[k] : first_k[k] + len(bits_o)]].tolist()})
        return found

    def network(self, allowed_o: Bools) -> Floats:
        """Least seconds of communication of each kernel, with the conversions of its output that it pays for.

        They are :attr:`dfopt.terms.figures.Figures.network_o`, plus those conversions that the kernel pays for as the
        source, once for all readers. Conversions that are tolls are not included: :meth:`tolls` has them.

        If several options are left, a conversion counts with the layouts that are wanted whatever the options. A reader
        whose options want different layouts counts with the cheapest of them. Of several such readers only the most
        expensive counts.

        Parameters
        ----------
        allowed_o : bool array, shape (options,)
            Options that are left, at least one of every kernel.

        Returns
        -------
        float array, shape (kernels,), s
            Seconds of one evaluation. Exact with one option of each kernel, else a lower bound.
        """
        seconds_o = self.figures.network_o.copy()
        for one, seconds_ls in self.listed:
            if one.tolls:
                continue
            asked = self._asked(one, allowed_o).values()
            sure = reduce(or_, (asks[0] for asks in asked if len(asks) == 1), 0)
            more = [seconds_ls[:, [sure | each for each in asks]].min(axis=1) for asks in asked if len(asks) > 1]
            least_l = np.max([seconds_ls[:, sure], *more], axis=0) if more else seconds_ls[:, sure]
            mine = self.figures.kernel_o == one.fan.source
            seconds_o[mine] += least_l[self.figures.produced_o[mine]]
        return self.figures.least(seconds_o, allowed_o)

    def sent(self, allowed_o: Bools) -> Floats:
        """Bytes that one chip sends to the other tensor-parallel chips in one evaluation, by kernel.

        These are the collectives that schemes need for partial sums, and the conversions that sources pay for. Not
        included are tolls, whose bytes :meth:`tolls` has, communications that kernels list themselves, and gradients.

        Parameters
        ----------
        allowed_o : bool array, shape (options,)
            Exactly one option of each kernel.

        Returns
        -------
        float array, shape (kernels,), B
            A conversion is counted at the kernel that makes the tensor.
        """
        layer, option_k = self.figures.layer, np.flatnonzero(allowed_o)
        made_k = self.figures.produced_o[option_k]
        sent_k = np.zeros(len(option_k))
        for k, number in enumerate((option_k - self.figures.first_k).tolist()):
            if (kind := inherent(layer, k)[number]) is not None:
                sent_k[k] += bytes_sent(kind, layer.graph.output_bytes(k), layer.degree)
        for one, _ in self.listed:
            if not one.tolls:
                wanted = reduce(or_, (asks[0] for asks in self._asked(one, allowed_o).values()))
                sent_k[one.fan.source] += layer.conversion_sent(one)[made_k[one.fan.source], wanted]
        return sent_k

    def tolls(self, allowed_o: Bools) -> tuple[Floats, Floats, Bools]:
        """Tolls of one evaluation: seconds and bytes that every block pays once if it holds any of certain kernels.

        A block that reads a saved tensor pays for the most expensive of its readers. So there is a toll for every step
        from one reader's seconds to the next higher ones, and readers pay all steps up to their own. The start of a
        block (``kernel_overhead``) is the last toll, which every block pays. There is no such toll if the overhead is
        None or 0, or under ``execution: kernel_by_kernel``, where it is in :meth:`network`.

        Parameters
        ----------
        allowed_o : bool array, shape (options,)
            Options that are left, at least one of every kernel. Seconds and bytes are the least over them.

        Returns
        -------
        (float array, float array, bool array)
            Seconds, shape (tolls,). Bytes that one chip sends, shape (tolls,). Kernels that make their block pay, shape
            (tolls, kernels). All are empty if there is no toll.
        """
        count = len(self.figures.layer.kernels)
        found: list[tuple[float, float, Bools]] = []
        by_readers = ((one, seconds_ls) for one, seconds_ls in self.listed if one.tolls)
        for (one, seconds_ls), sent_ls in zip(by_readers, self._sent_by_readers, strict=True):
            makes = np.unique(self.figures.produced_o[(self.figures.kernel_o == one.fan.source) & allowed_o])
            least_k, sent_k = np.zeros((2, count))
            for kernel, asks in self._asked(one, allowed_o).items():
                ways = np.ix_(makes, np.array(asks))
                least_k[kernel], sent_k[kernel] = seconds_ls[ways].min(), sent_ls[ways].min()
            levels = np.unique(np.append(least_k, 0.0)).tolist()
            for low, high in itertools.pairwise(levels):
                sent = sent_k[least_k == high].min() - (sent_k[least_k == low].max() if low else 0.0)
                found.append((high - low, float(sent), least_k >= high))
        chosen = self.figures.layer.assumptions
        if (start_s := chosen.kernel_overhead) and not overhead_of_kernels(chosen):
            found.append((start_s, 0.0, np.ones(count, dtype=bool)))
        payers_xk = np.array([payers for *_, payers in found], dtype=bool).reshape(len(found), count)
        return np.array([s for s, _, _ in found]), np.array([b for _, b, _ in found]), payers_xk
