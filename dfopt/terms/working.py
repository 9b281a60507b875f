"""What the optimiser counts that kernels keep beside tensors, and what a chip holds only while a layer runs.

"Beside tensors" is what is in memory for the backward pass though no tensor of the graph brings it there, such as
dropout masks (:mod:`dfopt.documents.saved`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.mapping import Sharding
from dfopt.documents.saved import is_kept, kept_beside, saved_word
from dfopt.physics import ops
from dfopt.physics.working import activation_gradients, collective_buffers
from dfopt.terms.by_kernel import fanout_groups, read_later


@dataclass(frozen=True)
class KeptBytes:
    """Bytes in memory for the backward pass in addition to the tensors that the graph hands to it, such as masks.

    Such data is called *beside tensors*: it is in memory for the backward pass though no tensor of the graph brings it
    there, as the mask of a dropout. Its bytes are added to those of saved tensors. They are those of one evaluation
    (one microbatch), in both dicts before any sharding. An object is false if no kernel can keep anything.

    Attributes
    ----------
    graph
        The workload.
    assumptions
        Resolved: no ``auto`` is left.
    kept : dict, B
        By the name of a kernel, bytes that it keeps until the backward pass of the microbatch. Negative where saved
        tensors count more bytes than are kept. A kernel that is left out keeps 0.
    working : dict, B
        By the name of a kernel, bytes that it keeps only while its layer runs. A kernel that is left out keeps 0. Not
        included are the gradients and buffers that :meth:`on_chip` adds under ``training_memory: calculon``.
    """

    graph: Graph
    assumptions: Assumptions
    kept: dict[str, float]
    working: dict[str, float]

    def __bool__(self) -> bool:
        """True if any kernel may keep anything: a dict has an entry, or ``training_memory: calculon`` adds more."""
        return bool(self.kept or self.working) or self.assumptions.by_layer

    def on_chip(self, kernel: Kernel, scheme: Sharding, degree: int) -> tuple[float, float]:
        """Bytes that one chip keeps for a kernel in addition to tensors of the graph, under a sharding scheme.

        The bytes of ``kept`` and ``working`` are multiplied by the share of the kernel's output that one chip holds.
        Under ``training_memory: calculon`` (with ``gradients: exact``, in a graph that trains), bytes that are kept
        while the layer runs also include gradients of activations and buffers of collectives
        (:mod:`dfopt.physics.working`).

        Parameters
        ----------
        kernel
            A kernel of the graph.
        scheme
            Its sharding scheme.
        degree : int
            Number of tensor-parallel chips.

        Returns
        -------
        (float, float), B
            Bytes that are kept until the backward pass of the microbatch, and bytes that are kept only while the layer
            runs, both in one evaluation. Both are 0 for a kernel that keeps nothing. The first is a correction of the
            bytes of saved tensors, and so may be negative.
        """
        kept, working = self.kept.get(kernel.name, 0.0), self.working.get(kernel.name, 0.0)
        rules = self.assumptions.sharding_rules
        if kept or working:
            share = ops.output_share(kernel, scheme, degree, rules)
            kept, working = kept * share, working * share
        if self.assumptions.by_layer:
            given, tiled = (self.graph, kernel, scheme, degree, rules), self.assumptions.by_tiles
            working += activation_gradients(*given, tiled=tiled) + sum(collective_buffers(*given, tiled=tiled))
        return kept, working


def kept_bytes(graph: Graph, assumptions: Assumptions) -> KeptBytes:
    """Bytes that kernels keep for the backward pass in addition to the tensors that the graph hands to it.

    Examples are dropout masks, outputs that a kernel says it keeps, and copies of saved tensors in another data type.
    Under ``training_memory: calculon`` outputs of recomputed kernels are in memory too, while the layer runs.

    Parameters
    ----------
    graph
        The workload.
    assumptions
        Resolved: no ``auto`` is left.

    Returns
    -------
    KeptBytes
        Bytes by the name of the kernel, before any sharding, in one evaluation (one microbatch). If the graph does not
        train, both dicts are empty and the object is false.
    """
    if not graph.trains:
        return KeptBytes(graph, assumptions.with_(training_memory=None), {}, {})
    kept, working = kept_beside(graph)
    if assumptions.by_layer:
        parts = [read_later(graph, assumptions, "recompute", ("backward", "update"))]
        saved = read_later(graph, assumptions, "forward", ("recompute", "backward", "update"))
        ends = {end for tensor in graph.carried for end in (tensor.src, tensor.dst)}
        stays = {name for bytes_of in (saved, kept) for name, size in bytes_of.items() if size}
        again = any(kernel.pass_ == "recompute" for kernel in graph.kernels)
        if again and stays <= ends:  # checkpoints: the layer at work has its input once more
            parts += [saved, kept]
        for name, size in (pair for part in parts for pair in part.items()):
            working[name] = working.get(name, 0.0) + size
    for name, more in _in_other_types(graph, assumptions):  # the layer at work has them as it makes them
        kept[name], working[name] = kept.get(name, 0.0) + more, working.get(name, 0.0) + max(-more, 0.0)
    return KeptBytes(graph, assumptions, kept, working)


def _in_other_types(graph: Graph, assumptions: Assumptions) -> Iterator[tuple[str, float]]:
    """By tensor its kernel, and the bytes that are kept more than it says, or less, since some readers take copies."""
    if graph.dtypes is None or graph.dtypes.saved is None:
        return
    of = {kernel.name: kernel for kernel in graph.kernels}
    later = defaultdict(list)
    for group, tensor in zip(fanout_groups(graph, assumptions).tolist(), graph.tensors, strict=True):
        if of[tensor.src].pass_ == "forward" != of[tensor.dst].pass_:
            later[group].append(tensor)
    for readers in later.values():
        first = readers[0]
        says = of[first.src].output_saved if is_kept(graph, first) else None
        words = {saved_word(graph, tensor) for tensor in readers} if says is not False else set()
        copies = sum(graph.elements_of(first) * word for word in words if word is not None)
        if copies:
            yield first.src, copies - (0.0 if says or None in words else graph.bytes_of(first))
