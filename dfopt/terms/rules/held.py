"""What a layer holds in memory for as long as it is asked to, of one evaluation; and which options are no layer.

A rule of single kernels yields pairs of the name of a resource and a float array, shape (options,): what one chip has
of the kernel under each of its options. Its resources are counted once for a layer, whatever the blocks are. All other
rules yield charges. The resource ``legal`` is infinite where options cannot be together, else 0.

Suffixes: k kernel, o option of a kernel (a sharding scheme).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dfopt.arrays import Floats
from dfopt.documents.placement import item_of_weight
from dfopt.physics import ops
from dfopt.physics.states import cached_bytes
from dfopt.setting.instance import Setting
from dfopt.terms.charges import Charge, Term
from dfopt.terms.incidence import Has, Open
from dfopt.terms.kernel import LayerKernel, by_option, output_share, weight_bytes
from dfopt.terms.layer import Layer
from dfopt.terms.rules.weights import gradient_bytes

__all__ = [
    "CACHES", "HANDED_ON", "KEPT", "PARAMETERS", "PARTIAL_SUMS", "REDUCED", "SAVED", "TILE_ROWS", "WAITING", "waits",
]  # fmt: skip


def parameters(of: LayerKernel) -> Iterator[tuple[str, Floats]]:
    """Weights that a kernel has one chip hold, and the number of its parameters.

    In a graph that trains only forward kernels hold weights, as the backward pass reads the same ones again: others
    yield nothing (:attr:`~dfopt.terms.kernel.LayerKernel.holds_weight`). Each amount is in two parts. The part that all
    chips of the second axis have alike goes by the same name with ``_copied``: more chips may share out its optimizer
    state.

    Yields
    ------
    (str, float array of shape (options,))
        ``weights`` and ``weights_copied``, B; for routed experts ``experts`` and ``experts_copied`` instead.
        ``parameters`` and ``parameters_copied``, no unit. Nothing for a kernel without a weight.
    """
    if not (ops.weight_elements(of.kernel) and of.holds_weight):
        return
    size, copied = weight_bytes(of, ops.weight_elements), of.kernel.copied or 0.0
    of_weight = "experts" if item_of_weight(of.kernel) == "experts" else "weights"
    for name, amount in ((of_weight, size), ("parameters", size / of.words.of_weight(of.kernel))):
        yield name, (1.0 - copied) * amount
        yield f"{name}_copied", copied * amount


PARAMETERS = Term.of_kernel("parameters", "every chip holds its shard of a weight", parameters)


def reduced(of: LayerKernel) -> Iterator[tuple[str, Floats]]:
    """Bytes of a kernel's weight gradient that its chip adds up with other chips, in two parts.

    Yields
    ------
    (str, float array of shape (options,))
        ``gradient_bytes``, B: what copies of the batch add up. ``gradient_bytes_copied``, B: what these and all chips
        of the second axis add up, which have that part of the weight alike. Only of kernels of op
        ``weight_update``.
    """
    if not ops.gradient_elements(of.kernel):
        return
    size, copied = gradient_bytes(of), of.kernel.copied or 0.0
    yield "gradient_bytes", (1.0 - copied) * size
    yield "gradient_bytes_copied", copied * size


REDUCED = Term.of_kernel(
    "gradients added up", "data parallelism: all copies add up the gradients of their shards", reduced
)


def caches(of: LayerKernel) -> Iterator[tuple[str, Floats]]:
    """Bytes that a kernel keeps for the sequences of one evaluation, such as keys and values.

    Yields
    ------
    (str, float array of shape (options,))
        ``cached_bytes``, B, on one chip. Nothing is yielded for a kernel without such data.
    """
    if of.kernel.states:
        yield "cached_bytes", by_option(of, lambda kernel, scheme: cached_bytes(kernel, scheme, of.degree))


CACHES = Term.of_kernel("caches", "stated by the kernels of the graph", caches)


def kept(of: LayerKernel) -> Iterator[tuple[str, Floats]]:
    """Bytes that a kernel keeps beside tensors, such as dropout masks.

    Yields
    ------
    (str, float array of shape (options,))
        ``saved_bytes``, B: what is kept until the backward pass; negative where tensors say more than is kept.
        ``working_bytes``, B: what is there only while the layer runs, such as outputs that are computed again. Nothing
        is yielded where no kernel of the graph keeps anything.
    """
    if sizes := of.kept:
        saved_o, working_o = np.array(sizes).T
        yield "saved_bytes", saved_o
        yield "working_bytes", working_o


KEPT = Term.of_kernel("activations beside tensors", "Korthikanti et al., 2022, section 4: masks and statistics", kept)


def saved(of: LayerKernel) -> Iterator[tuple[str, Floats]]:
    """Bytes of every tensor that the forward pass leaves for the backward pass, counted once: at its source.

    Yields
    ------
    (str, float array of shape (options,))
        ``saved_bytes``, B, once for every such output of the kernel.
    """
    for whole in of.saved:
        yield "saved_bytes", whole * output_share(of)


SAVED = Term.of_kernel("activations", "Korthikanti et al., 2022, section 4: what the backward pass reads", saved)


def waits(setting: Setting) -> bool:
    """Whether what waits between partitions is counted by itself; else all of a layer is counted at once.

    It is false for a graph that trains with ``training_memory: calculon``.
    """
    return not (setting.graph.trains and setting.assumptions.by_layer)


def waiting(layer: Layer) -> Iterator[Charge]:
    """A tensor between blocks waits in DRAM from the block that makes it to the last one that reads it.

    What stays for the backward pass anyhow is counted there, where gradients are kept at all. Tensors that are handed
    to the next layer do not wait here.

    Yields
    ------
    Charge
        Of ``waiting_bytes``, B, for every output that may wait. It is paid by every set of kernels with the source and
        not all readers (:class:`~dfopt.terms.incidence.Open`), and decided by the option of the source. Nothing is
        yielded where all of a layer is counted at once (:func:`waits`).
    """
    if not waits(layer.instance.setting):
        return
    for fan in layer.fan_outs:
        if not fan.carried and not (layer.keeps_saved and fan.kept):
            size = fan.whole * layer.output_share_ko[fan.source]
            yield Charge("waiting_bytes", Open(fan.source, fan.kernels), (fan.source,), size)


WAITING = Term("waiting", "a tensor lies in DRAM as long as a block has still to read it", waiting)


def partial_sums(layer: Layer) -> Iterator[Charge]:
    """A product that leaves partial sums to another kernel needs one that adds them up.

    Yields
    ------
    Charge
        Of ``legal``, for every kernel that may leave partial sums, decided by its option and that of the other kernel.
        Infinite where the first leaves partial sums and the other does not split its contraction, so that it has no
        reduction. It is paid once, by the block of the first.
    """
    index = layer.graph.index()
    for k, kernel in enumerate(layer.kernels):
        leaves = [ops.leaves_partial_sums(kernel, scheme, layer.degree, layer.rules) for scheme in layer.schemes_k[k]]
        if any(leaves) and kernel.accumulates_into is not None:
            host = index[kernel.accumulates_into]
            adds = [ops.split_axis(scheme) == "k" for scheme in layer.schemes_k[host]]
            wrong = np.array(leaves)[:, None] & ~np.array(adds)[None, :]
            scope = (k, host) if k < host else (host, k)
            amount = np.where(wrong if k < host else wrong.T, np.inf, 0.0)
            yield Charge("legal", Has(k), scope, amount)


PARTIAL_SUMS = Term("partial sums", "a sum of partial sums needs a reduction", partial_sums)


def handed_on(layer: Layer) -> Iterator[Charge]:
    """Layers of all kinds leave what they hand on in one layout, as any of them may come next.

    Yields
    ------
    Charge
        Of ``legal``, for every output that layers hand on: one for the first kind of layer and each other kind, decided
        by the options of the two kernels that make the output there. Infinite where its layouts differ. It is paid
        once, by the block of the kernel that is first in the graph. Nothing is yielded if layers hand on for nothing
        (``layer_boundary: free``).
    """
    index = layer.graph.index()
    kinds = layer.graph.handed_on if layer.assumptions.layer_boundary == "dram" else ()
    for others in kinds[1:]:
        for one, other in zip(kinds[0], others, strict=True):
            pair = sorted((index[one.src], index[other.src]))
            first, second = (layer.produced_ko[k] for k in pair)
            yield Charge("legal", Has(pair[0]), tuple(pair), np.where(first[:, None] != second[None, :], np.inf, 0.0))


HANDED_ON = Term("layers hand on alike", "layers of several kinds follow one another", handed_on)


def tile_rows(layer: Layer) -> Iterator[Charge]:
    """Chips that share the rows of every tile need a row each.

    Yields
    ------
    Charge
        Of ``legal``, for every kernel, decided by its option. Infinite where chips share the rows of its tiles. It is
        paid once, by the block of the kernel. Nothing is yielded as long as tiles have enough rows.
    """
    rows = ops.streamed_rows(layer.graph)
    least = max(layer.assumptions.tile_rows or 1, layer.degree)
    if layer.tiles <= -(-rows // min(least, rows)):
        return
    for k, kernel in enumerate(layer.kernels):
        shares = [ops.splits_tiles(kernel, scheme) for scheme in layer.schemes_k[k]]
        yield Charge("legal", Has(k), (k,), np.where(shares, np.inf, 0.0))


TILE_ROWS = Term("rows of a tile", "a chip that works on a tile has a row of it", tile_rows)
