"""Figures of single kernels under each of their options, from the rules that are of one kernel alone.

Suffixes: k kernel, o option (a kernel with one of its schemes).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dfopt.arrays import Bools, Floats, Ints
from dfopt.documents.mapping import Sharding
from dfopt.errors import PlanError
from dfopt.physics import ops
from dfopt.setting.instance import Instance
from dfopt.setting.pinned import forbidden
from dfopt.setting.reads import by_reads, under
from dfopt.terms.charges import Charge
from dfopt.terms.conversions import overhead_of_kernels
from dfopt.terms.incidence import Has
from dfopt.terms.kernel import LayerKernel, weight_bytes
from dfopt.terms.layer import Layer
from dfopt.terms.rules import OF_KERNELS, SENT
from dfopt.terms.rules.network import COLLECTIVES, OWN_COMMUNICATIONS
from dfopt.terms.rules.tensors import END_BUFFERS
from dfopt.terms.rules.weights import accumulated, gradient_bytes
from dfopt.terms.rules.work import accessed, at_rate

__all__ = ["Figures"]


@dataclass(frozen=True, eq=False)
class Figures:
    """Figures of the kernels of a layer under each of their options, in the order of kernels and schemes.

    Attributes
    ----------
    instance
        Setting and plan; of the plan only what decides the work of a chip.
    """

    instance: Instance

    @cached_property
    def layer(self) -> Layer:
        """The layer in one tile."""
        return Layer(self.instance, 1)

    @by_reads
    def kernel_o(self) -> Ints:
        """Kernel of every option."""
        return np.repeat(np.arange(len(self.layer.kernels)), [len(schemes) for schemes in self.layer.schemes_k])

    @by_reads
    def first_k(self) -> Ints:
        """First option of every kernel."""
        return np.searchsorted(self.kernel_o, np.arange(len(self.layer.kernels))).astype(np.int64)

    @by_reads
    def scheme_o(self) -> tuple[Sharding, ...]:
        """Scheme of every option."""
        return tuple(itertools.chain(*self.layer.schemes_k))

    def options(self, schemes: Mapping[str, Sharding]) -> Bools:
        """The options that have the scheme given for the name of their kernel, as a mask.

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

        Returns
        -------
        int array, shape (kernels,)
            Places among the options of each kernel.

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
        found: dict[str, Floats] = {}
        for term in (*OF_KERNELS, *SENT):
            for resource, figure_o in self._figures(term.name, term.of, 1).items():
                found[resource] = found.get(resource, 0.0) + figure_o
        return found

    def _figures(self, name: str, charges: Callable[[Layer], Iterable[Charge]], tiles: int) -> dict[str, Floats]:
        """What options have by one rule, by resource: worked out once for all plans that look the same to it."""
        question = self.instance.setting.reads["figures", name, tiles]
        found: dict[str, Floats] = question.answer(
            self.instance.plan, lambda plan: under(self, plan)._added(charges, tiles)
        )
        return found

    def _added(self, charges: Callable[[Layer], Iterable[Charge]], tiles: int) -> dict[str, Floats]:
        found: dict[str, Floats] = {}
        for charge in charges(self.layer.at(tiles)):
            assert isinstance(charge.incidence, Has) and charge.scope in ((), (charge.incidence.kernel,))
            k = charge.incidence.kernel
            first = self.first_k[k]
            figure_o = found.setdefault(charge.resource, np.zeros(len(self.kernel_o)))
            figure_o[first : first + len(self.layer.schemes_k[k])] += charge.amount
        return found

    def by_option(self, resource: str) -> Floats:
        """What each option has of a resource by rules of single kernels, whatever block its kernel is in."""
        return self._by_resource.get(resource, np.zeros(len(self.kernel_o)))

    def _of_kernels(self, name: str, figure: Callable[[LayerKernel], Floats]) -> Floats:
        return np.concatenate([of.answer(name, figure) for of in LayerKernel.all_of(self.layer)])

    @by_reads
    def output_o(self) -> Floats:
        """Share of its output that one chip holds."""
        return np.concatenate(self.layer.output_share_ko)

    @by_reads
    def weight_o(self) -> Floats:
        """Bytes of its weight that one chip has."""
        return self._of_kernels("weight", lambda of: weight_bytes(of, ops.weight_elements))

    @by_reads
    def read_o(self) -> Floats:
        """Bytes of weight that one chip reads in an evaluation; of routed experts only of those that it uses."""
        return self._of_kernels("read", lambda of: weight_bytes(of, ops.weights_read))

    @by_reads
    def gradient_o(self) -> Floats:
        """Bytes of weight gradient as copies add it up."""
        return self._of_kernels("gradient", gradient_bytes)

    @by_reads
    def added_o(self) -> Floats:
        """Bytes of weight gradient that an evaluation adds to."""
        return self._of_kernels("accumulated", accumulated)

    @by_reads
    def accessed_o(self) -> Floats:
        """Bytes of one evaluation that a kernel reads from SRAM and writes there, but for tensors between kernels.

        Weights, gradients, data of its own, inputs and outputs of the graph.
        """
        return self._of_kernels("accessed", accessed)

    @by_reads
    def at_rate_o(self) -> Floats:
        """Seconds of compute; under the cycle model with every unit of every tile busy."""
        return self._of_kernels("at rate", at_rate)

    @by_reads
    def produced_o(self) -> Ints:
        """Layout of its output, as a place among :data:`dfopt.terms.conversions.LAYOUTS`."""
        return np.concatenate(self.layer.produced_ko)

    @cached_property
    def sent_o(self) -> Floats:
        """Seconds of communication in every evaluation, without conversions of layouts."""
        seconds_o = np.full(len(self.kernel_o), overhead_of_kernels(self.layer.assumptions))
        for term in (COLLECTIVES, OWN_COMMUNICATIONS):
            seconds_o = seconds_o + self._figures(term.name, term.of, 1).get("network_s", 0.0)
        return seconds_o

    @cached_property
    def network_o(self) -> Floats:
        """The same with gradients, where these are added up in every evaluation."""
        return self.by_option("network_s") + overhead_of_kernels(self.layer.assumptions)

    def buffer_o(self, tiles: int) -> Floats:
        """Bytes in SRAM of inputs and outputs of the graph, in so many tiles."""
        return self._figures(END_BUFFERS.name, END_BUFFERS.of, tiles).get("buffer_bytes", np.zeros(len(self.kernel_o)))

    def least(self, figure_o: Floats, allowed_o: Bools) -> Floats:
        """The least of a figure over the options that are left, by kernel."""
        return np.asarray(np.minimum.reduceat(np.where(allowed_o, figure_o, np.inf), self.first_k))
