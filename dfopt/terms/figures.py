"""Figures of single kernels under each of their options, from the rules that are of one kernel alone.

Suffixes: k kernel, o option (a kernel with one of its schemes). Here the axis o has the options of all kernels: those
of the first kernel, then those of the second, and so on; each kernel's in the order of its schemes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np

from dfopt.arrays import Bools, Floats, Ints
from dfopt.documents.mapping import Sharding
from dfopt.errors import PlanError
from dfopt.setting.instance import Instance
from dfopt.setting.pinned import forbidden
from dfopt.setting.reads import by_reads
from dfopt.terms.charges import Term
from dfopt.terms.conversions import overhead_of_kernels
from dfopt.terms.incidence import Has
from dfopt.terms.kernel import LayerKernel, weight_held
from dfopt.terms.layer import Layer
from dfopt.terms.rules import OF_KERNELS, SENT
from dfopt.terms.rules.network import COLLECTIVES, OWN_COMMUNICATIONS
from dfopt.terms.rules.tensors import END_BUFFERS
from dfopt.terms.rules.weights import gradient_bytes
from dfopt.terms.rules.work import accessed, at_rate
from dfopt.terms.table import Domain


@dataclass(frozen=True, eq=False)
class Figures:
    """Costs and sizes of each kernel of a layer on one chip, under each legal sharding scheme (*option*) of the kernel.

    Arrays with the suffix o have the shape (options,): an entry for each option of each kernel, in the order of kernels
    and schemes. Bytes and seconds are those of one evaluation of the graph, which is one microbatch. Members without
    arguments are attributes: read them without a call.

    Attributes
    ----------
    instance
        Setting (graph, system and assumptions) and plan. Of the plan only what decides the work of a chip is read, such
        as the number of tensor-parallel chips.

    Raises
    ------
    SystemSpecError
        If the chip states peak rates by data type, and none for a type that holds the operands of a kernel. Attributes
        and methods raise it when they work out costs or sizes. The constructor does not.
    AssertionError
        At the same places, under ``compute_model: efficiency``, if the chip has no table of efficiencies.
    """

    instance: Instance

    @cached_property
    def layer(self) -> Layer:
        """The layer that these kernels are in, with its streamed axis in a single tile.

        The streamed axis, mostly that of tokens, is the one that a chip works through tile by tile.
        """
        return Layer(self.instance, 1)

    @by_reads
    def kernel_o(self) -> Ints:
        """Index in the graph of the kernel that each option belongs to: int array, shape (options,), ascending."""
        return np.repeat(np.arange(len(self.layer.kernels)), [len(schemes) for schemes in self.layer.schemes_k])

    @by_reads
    def first_k(self) -> Ints:
        """Index of each kernel's first option among the options of all kernels: int array, shape (kernels,)."""
        return np.searchsorted(self.kernel_o, np.arange(len(self.layer.kernels))).astype(np.int64)

    def numbers(self, schemes: Mapping[str, Sharding]) -> list[int]:
        """Index, among each kernel's own options, of the sharding scheme that is given for the kernel.

        Parameters
        ----------
        schemes
            Scheme of every kernel, by the name of the kernel. Names of no kernel of the graph are not read.

        Returns
        -------
        list of int
            By kernel. 0 for a kernel that takes its first option.

        Raises
        ------
        KeyError
            If a kernel of the graph has no entry.
        PlanError
            If a kernel may not take the scheme given for it.
        """
        options = []
        for kernel, legal in zip(self.layer.kernels, self.layer.schemes_k, strict=True):
            if reason := forbidden(kernel, schemes[kernel.name], legal, self.layer.degree):
                raise PlanError(reason)
            options.append(legal.index(schemes[kernel.name]))
        return options

    def allowed(self, domain: Domain) -> Bools:
        """Mask of the options of a domain among the options of all kernels: bool array, shape (options,).

        ``domain``: by kernel the options that are left, as places among its own, at least one of every kernel.
        """
        allowed_o = np.zeros(len(self.kernel_o), dtype=bool)
        allowed_o[[first + o for first, left in zip(self.first_k.tolist(), domain, strict=True) for o in left]] = True
        return allowed_o

    @by_reads
    def _by_resource(self) -> dict[str, Floats]:
        """What options have by the rules of single kernels, by resource."""
        return self._charged(*OF_KERNELS, *SENT)

    def _charged(self, *terms: Term, tiles: int = 1) -> dict[str, Floats]:
        """What options have by rules whose charges are of single kernels, by resource, in so many tiles."""
        amounts: dict[str, Floats] = {}
        for charge in chain.from_iterable(term.of(self.layer.at(tiles)) for term in terms):
            assert isinstance(charge.incidence, Has) and charge.scope in ((), (charge.incidence.kernel,))
            k = charge.incidence.kernel
            first = self.first_k[k]
            figure_o = amounts.setdefault(charge.resource, np.zeros(len(self.kernel_o)))
            figure_o[first : first + len(self.layer.schemes_k[k])] += charge.amount
        return amounts

    def _of_kernels(self, figure: Callable[[LayerKernel], Floats]) -> Floats:
        """What a function says of every kernel, in the order of options; asked once for kernels that are alike."""
        return np.concatenate([kernel.answer(figure, figure) for kernel in LayerKernel.all_of(self.layer)])

    def by_option(self, resource: str) -> Floats:
        """Amount of one resource, such as DRAM bytes, that each option of each kernel takes for one microbatch.

        Amounts are those of one chip. They do not depend on which other kernels are in the same block (on-chip
        partition). Tensors between kernels and conversions of layouts are no part of them, as several kernels decide
        those. The rules are those of :data:`dfopt.terms.rules.OF_KERNELS` and :data:`dfopt.terms.rules.SENT`. Tensors
        are not cut into tiles: all rows of the streamed axis (tokens) count at once.

        Parameters
        ----------
        resource
            Name of a resource, such as ``dram_bytes``.

        Returns
        -------
        float array, shape (options,), in the unit of the resource
            Zeros for a resource that no such rule adds to, and for an unknown name.

        Raises
        ------
        SystemSpecError, AssertionError
            As :class:`Figures` says.
        """
        return self._by_resource.get(resource, np.zeros(len(self.kernel_o)))

    @by_reads
    def output_o(self) -> Floats:
        """Share of the kernel's output that one chip holds, for every option: float array, shape (options,).

        At most 1, which is for an output that every tensor-parallel chip holds whole.
        """
        return np.concatenate(self.layer.output_share_ko)

    @by_reads
    def weight_o(self) -> Floats:
        """Bytes of the kernel's weight on one chip, before ZeRO shares weights out: float array, shape (options,).

        There is an entry for every option: the shard of one tensor-parallel chip, in the data type of the weight. Of
        routed experts all count. A backward kernel has the weight of its forward kernel again. 0 without a weight.
        """
        return self._of_kernels(weight_held)

    @by_reads
    def gradient_o(self) -> Floats:
        """Bytes of the kernel's weight gradient on one chip, for every option: float array, shape (options,).

        This is what data-parallel copies reduce, in the type in which they add it up: the size of one gradient, not
        the bytes that a collective sends. All routed experts count. 0 for all kernels but those of op
        ``weight_update``.
        """
        return self._of_kernels(gradient_bytes)

    @by_reads
    def accessed_o(self) -> Floats:
        """Bytes that one chip reads from SRAM and writes there for one microbatch: float array, shape (options,).

        There is an entry for every option. These are weights, weight gradients, data of the kernel such as caches, and
        inputs and outputs of the graph. A gradient that is both read and written counts twice. Tensors between kernels,
        and from layer to layer, are not among them. The bytes are given even if the chip states no SRAM bandwidth.
        """
        return self._of_kernels(accessed)

    @by_reads
    def at_rate_o(self) -> Floats:
        """Seconds of each kernel's largest shard on the whole chip, for one microbatch: float array, shape (options,).

        There is an entry for every option: FLOP of the shard over (peak rate in the data type of the kernel x share).
        Under ``compute_model: fixed`` the share is ``compute_utilization``. Under ``efficiency`` it is that of the
        chip's table for shards of that size. Under ``cycle`` it is ``compute_utilization`` if that is stated, else 1.
        :class:`Figures` says which errors it raises.
        """
        return self._of_kernels(at_rate)

    @cached_property
    def sent_o(self) -> Floats:
        """Seconds of communication of the kernel for one microbatch, without gradients: float array, shape (options,).

        There is an entry for every option. Three parts add up. A scheme that leaves partial sums needs a collective. A
        kernel may list communications of its own, which count unless two-batch overlap hides them. Under ``execution:
        kernel_by_kernel`` the kernel pays ``kernel_overhead`` for its start. Conversions of layouts are not included.
        """
        return self._network_s(COLLECTIVES, OWN_COMMUNICATIONS)

    @cached_property
    def network_o(self) -> Floats:
        """Seconds of communication that a kernel pays for one microbatch: float array, shape (options,).

        There is an entry for every option. Seconds include the collective that adds up partial sums, communications
        that the kernel lists itself (0 with two-batch overlap), and ``kernel_overhead`` under ``execution:
        kernel_by_kernel``. The sum of these is :attr:`sent_o`. Under ``gradients: dfmodel`` the all-reduce of the
        kernel's weight gradient is added: its seconds per step, divided by the microbatches of a step. Under
        ``gradients: exact`` no gradient is included. There the step pays for the reduction, and no kernel does
        (:func:`dfopt.terms.step.hops.added_by_kind`). Conversions of layouts (resharding) are never included.
        """
        return self._network_s(*SENT)

    def _network_s(self, *terms: Term) -> Floats:
        """Seconds of communication by some rules, and those to start a kernel."""
        seconds_o = self._charged(*terms).get("network_s", np.zeros(len(self.kernel_o)))
        return seconds_o + overhead_of_kernels(self.layer.assumptions)

    def buffer_o(self, tiles: int) -> Floats:
        """Bytes of SRAM on one chip that buffer the inputs and outputs of the graph which a kernel reads or writes.

        There is an entry for every option: two tiles of each such tensor. A tile is a slice along the streamed axis,
        mostly that of tokens, which the chip works through tile by tile. Tensors that pass between kernels or layers
        are not among them.

        Parameters
        ----------
        tiles : int
            Tiles that the streamed axis is cut into.

        Returns
        -------
        float array, shape (options,), B
            0 for a kernel without such inputs and outputs, and under ``layer_boundary: free``.
        """
        return self._charged(END_BUFFERS, tiles=tiles).get("buffer_bytes", np.zeros(len(self.kernel_o)))

    def least(self, figure_o: Floats, allowed_o: Bools) -> Floats:
        """Minimum of a figure (a number for every option) for each kernel, over its allowed options.

        Parameters
        ----------
        figure_o : float array, shape (options,)
            A figure of every option, such as :attr:`weight_o`.
        allowed_o : bool array, shape (options,)
            True for the options that the minimum is taken over.

        Returns
        -------
        float array, shape (kernels,)
            In the unit of the figure. Infinite for a kernel without any allowed option.
        """
        return np.asarray(np.minimum.reduceat(np.where(allowed_o, figure_o, np.inf), self.first_k))
