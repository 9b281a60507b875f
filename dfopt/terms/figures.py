"""Figures of single kernels under each of their options, from the rules that are of one kernel alone.

Suffixes: k kernel, o option (a kernel with one of its schemes). Here the axis o has the options of all kernels: those
of the first kernel, then those of the second, and so on; each kernel's in the order of its schemes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from dfopt.arrays import Bools, Floats, Ints
from dfopt.documents.mapping import Sharding
from dfopt.errors import PlanError
from dfopt.physics import ops
from dfopt.setting.instance import Instance
from dfopt.setting.pinned import forbidden
from dfopt.setting.reads import by_reads
from dfopt.terms.charges import Term, amounts_of
from dfopt.terms.conversions import overhead_of_kernels
from dfopt.terms.incidence import Has
from dfopt.terms.kernel import LayerKernel, weight_bytes
from dfopt.terms.layer import Layer
from dfopt.terms.rules import OF_KERNELS, SENT
from dfopt.terms.rules.network import COLLECTIVES, OWN_COMMUNICATIONS
from dfopt.terms.rules.tensors import END_BUFFERS
from dfopt.terms.rules.weights import accumulated, gradient_bytes
from dfopt.terms.rules.work import accessed, at_rate

__all__ = ["Figures", "figures_of"]


_APART: Final = ("weight", "read", "gradient", "added", "accessed", "at rate")
"""Figures of kernels that are no resources."""


def figures_of(of: LayerKernel) -> dict[str, Floats]:
    """What a kernel has under each of its options by the rules of single kernels, by name.

    Returns
    -------
    dict of float array, shape (options of the kernel,)
        By the name of a resource (see :data:`dfopt.terms.rules.RESOURCES`) what one chip has of it in one evaluation,
        in its unit; a resource that no rule adds to is left out. And always ``weight``, ``read``, ``gradient``,
        ``added`` and ``accessed``, B, and ``at rate``, s: what :class:`Figures` has as ``weight_o`` and so on.
    """
    found = amounts_of(of, OF_KERNELS)
    compute_o = found.get("compute_s")
    return found | {
        "weight": weight_bytes(of, ops.weight_elements),
        "read": weight_bytes(of, ops.weights_read),
        "gradient": gradient_bytes(of),
        "added": accumulated(of),
        "accessed": accessed(of),
        "at rate": at_rate(of) if compute_o is None else compute_o,
    }


@dataclass(frozen=True, eq=False)
class Figures:
    """Figures of the kernels of a layer under each of their options, in the order of kernels and schemes.

    Arrays with the suffix o have the shape (options,). Bytes and seconds are those of one chip in one evaluation.
    What ``by_reads`` decorates is an attribute, read without a call.

    Attributes
    ----------
    instance
        Setting and plan. Of the plan only what decides the work of a chip is read.
    """

    instance: Instance

    @cached_property
    def layer(self) -> Layer:
        """The layer with its streamed axis in one tile."""
        return Layer(self.instance, 1)

    @by_reads
    def kernel_o(self) -> Ints:
        """Number of the kernel of every option: int array, shape (options,), ascending."""
        return np.repeat(np.arange(len(self.layer.kernels)), [len(schemes) for schemes in self.layer.schemes_k])

    @by_reads
    def first_k(self) -> Ints:
        """Place of the first option of every kernel: int array, shape (kernels,)."""
        return np.searchsorted(self.kernel_o, np.arange(len(self.layer.kernels))).astype(np.int64)

    @by_reads
    def scheme_o(self) -> tuple[Sharding, ...]:
        """Sharding scheme of every option."""
        return tuple(itertools.chain(*self.layer.schemes_k))

    def options(self, schemes: Mapping[str, Sharding]) -> Bools:
        """Mask of the options that have the scheme given for the name of their kernel: one option of each kernel.

        Parameters
        ----------
        schemes
            Scheme of every kernel, by its name.

        Returns
        -------
        bool array, shape (options,)

        Raises
        ------
        KeyError
            If a kernel has no scheme.
        PlanError
            If its scheme is none of its options.
        """
        wanted = [schemes[kernel.name] for kernel in self.layer.kernels]
        for kernel, scheme, legal in zip(self.layer.kernels, wanted, self.layer.schemes_k, strict=True):
            if reason := forbidden(kernel, scheme, legal, self.layer.degree):
                raise PlanError(reason)
        pairs = zip(self.kernel_o.tolist(), self.scheme_o, strict=True)
        return np.array([scheme == wanted[k] for k, scheme in pairs], dtype=bool)

    def numbers(self, schemes: Mapping[str, Sharding]) -> Ints:
        """The option of every kernel that has the scheme given for its name.

        Parameters
        ----------
        schemes
            Scheme of every kernel, by its name.

        Returns
        -------
        int array, shape (kernels,)
            Places among the options of each kernel: 0 is its first option.

        Raises
        ------
        KeyError
            If a kernel has no scheme.
        PlanError
            If its scheme is none of its options.
        """
        return np.flatnonzero(self.options(schemes)) - self.first_k

    @cached_property
    def _by_resource(self) -> dict[str, Floats]:
        found = {name: figure_o for name, figure_o in self._alone.items() if name not in _APART}
        for term in SENT:
            for resource, figure_o in self._charged(term).items():
                found[resource] = found.get(resource, 0.0) + figure_o
        return found

    @by_reads
    def _alone(self) -> dict[str, Floats]:
        """What rules of single kernels say, by resource, and what else follows from kernels alone."""
        return self._joined(kernel.answer("figures", figures_of) for kernel in LayerKernel.all_of(self.layer))

    def _joined(self, each: Iterable[Mapping[str, Floats]]) -> dict[str, Floats]:
        found: dict[str, Floats] = {}
        for first, of_kernel in zip(self.first_k.tolist(), each, strict=True):
            for name, figure_o in of_kernel.items():
                if name not in found:
                    found[name] = np.zeros(len(self.kernel_o))
                found[name][first : first + len(figure_o)] = figure_o
        return found

    def _charged(self, term: Term, tiles: int = 1) -> dict[str, Floats]:
        """What options have by a rule whose charges are of single kernels, by resource, in so many tiles."""
        found: dict[str, Floats] = {}
        for charge in term.of(self.layer.at(tiles)):
            assert isinstance(charge.incidence, Has) and charge.scope in ((), (charge.incidence.kernel,))
            k = charge.incidence.kernel
            first = self.first_k[k]
            figure_o = found.setdefault(charge.resource, np.zeros(len(self.kernel_o)))
            figure_o[first : first + len(self.layer.schemes_k[k])] += charge.amount
        return found

    @property
    def resources(self) -> tuple[str, ...]:
        """Resources that some option has anything of, by rules of single kernels."""
        return tuple(self._by_resource)

    def by_option(self, resource: str) -> Floats:
        """What each option has of a resource by rules of single kernels, whatever block its kernel is in.

        Rules are those of :data:`dfopt.terms.rules.OF_KERNELS` and :data:`dfopt.terms.rules.SENT`, with the streamed
        axis in one tile.

        Parameters
        ----------
        resource
            Name of a resource, such as ``dram_bytes``.

        Returns
        -------
        float array, shape (options,), in the unit of the resource
            Zeros where no such rule adds to it.
        """
        return self._by_resource.get(resource, np.zeros(len(self.kernel_o)))

    @by_reads
    def output_o(self) -> Floats:
        """Share of the kernel's output that one chip holds, for every option: float array, shape (options,)."""
        return np.concatenate(self.layer.output_share_ko)

    @property
    def weight_o(self) -> Floats:
        """Bytes of the kernel's weight that one chip has, for every option: float array, shape (options,).

        Of routed experts all count.
        """
        return self._alone["weight"]

    @property
    def read_o(self) -> Floats:
        """Bytes of weight that one chip reads in an evaluation, for every option: float array, shape (options,).

        Of routed experts only those count that some token of the evaluation chooses.
        """
        return self._alone["read"]

    @property
    def gradient_o(self) -> Floats:
        """Bytes of weight gradient of one chip in the type in which copies add it up: float array, shape (options,).

        Of routed experts all count. Only kernels of op ``weight_update`` have any.
        """
        return self._alone["gradient"]

    @property
    def added_o(self) -> Floats:
        """Bytes of weight gradient that an evaluation adds to on one chip: float array, shape (options,).

        Of routed experts only those count that some token of the evaluation chooses. 0 under ``gradients: dfmodel``.
        """
        return self._alone["added"]

    @property
    def accessed_o(self) -> Floats:
        """Bytes of one evaluation that a kernel reads from SRAM and writes there, for every option: shape (options,).

        Weights, gradients, data of its own, inputs and outputs of the graph; not the tensors between kernels.
        """
        return self._alone["accessed"]

    @property
    def at_rate_o(self) -> Floats:
        """Seconds of compute of the largest shard on the whole chip, for every option: float array, shape (options,).

        Also under the cycle model, where it is the time with every unit of every compute tile busy. See
        :func:`dfopt.terms.rules.work.at_rate`.
        """
        return self._alone["at rate"]

    @by_reads
    def produced_o(self) -> Ints:
        """Layout of the kernel's output, for every option: int array, shape (options,).

        A layout is its place among :data:`dfopt.terms.conversions.LAYOUTS`.
        """
        return np.concatenate(self.layer.produced_ko)

    @cached_property
    def sent_o(self) -> Floats:
        """Seconds of communication in every evaluation, without conversions of layouts: float array, shape (options,).

        These are collectives of the schemes, communications that kernels list themselves (unless two-batch overlap
        hides them), and the start of a kernel that has a partition of its own. Gradients are not among them.
        """
        seconds_o = np.full(len(self.kernel_o), overhead_of_kernels(self.layer.assumptions))
        for term in (COLLECTIVES, OWN_COMMUNICATIONS):
            seconds_o = seconds_o + self._charged(term).get("network_s", 0.0)
        return seconds_o

    @cached_property
    def network_o(self) -> Floats:
        """Seconds of communication in every evaluation, with gradients: float array, shape (options,).

        It is the sum of :attr:`sent_o` (seconds, too) and the reduction of weight gradients, where copies add these up
        in every evaluation (``gradients: dfmodel``). Conversions of layouts are not in it.
        """
        return self.by_option("network_s") + overhead_of_kernels(self.layer.assumptions)

    def buffer_o(self, tiles: int) -> Floats:
        """Bytes in SRAM that buffer inputs and outputs of the graph, for every option.

        Parameters
        ----------
        tiles : int
            Tiles that the streamed axis is cut into.

        Returns
        -------
        float array, shape (options,), B
        """
        return self._charged(END_BUFFERS, tiles).get("buffer_bytes", np.zeros(len(self.kernel_o)))

    def least(self, figure_o: Floats, allowed_o: Bools) -> Floats:
        """The least of a figure over the options that are left, by kernel.

        Parameters
        ----------
        figure_o : float array, shape (options,)
            Any figure.
        allowed_o : bool array, shape (options,)
            Options that are left.

        Returns
        -------
        float array, shape (kernels,)
            In the unit of the figure. Infinite for a kernel without any option left.
        """
        return np.asarray(np.minimum.reduceat(np.where(allowed_o, figure_o, np.inf), self.first_k))
