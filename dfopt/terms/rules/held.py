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
from dfopt.terms.layer import Layer, counts_training
from dfopt.terms.rules.weights import gradient_bytes


def parameters(of: LayerKernel) -> Iterator[tuple[str, Floats]]:
    """Bytes of the weight that one chip holds for a kernel, and the number of its parameters.

    Bytes are the elements of the whole weight, times bytes per element, times the share of one chip. Parameters are
    these bytes over bytes per element. All routed experts count. If forward kernels of a graph that trains have
    weights, only they hold any: backward kernels read the same weights again
    (:attr:`~dfopt.terms.kernel.LayerKernel.holds_weight`).

    Each amount is in two parts. The names with ``_copied`` are of the share of the weight that every chip of the
    module-wise parallel axis (mp) holds alike (``copied`` of the kernel): more chips may share out its optimizer state.
    The other names are of the rest.

    Parameters
    ----------
    of
        The kernel. Its options are the sharding schemes that it may take.

    Yields
    ------
    (str, float array of shape (options,))
        Name of a resource, and its amount under each option: on one chip, in one
        evaluation of the layer (one microbatch). ``weights`` and ``weights_copied``, B; for routed experts ``experts``
        and ``experts_copied`` instead. ``parameters`` and ``parameters_copied``, no unit. Nothing is yielded for a
        kernel without a weight, nor for a backward kernel as above.
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

    Bytes are the elements of the whole gradient, times bytes per element, times the share of one chip. An element has
    the type in which data-parallel copies of the model add gradients up. ZeRO does not lower these bytes. All routed
    experts count.

    Parameters
    ----------
    of
        The kernel. Its options are the sharding schemes that it may take.

    Yields
    ------
    (str, float array of shape (options,))
        Name of a resource, and its amount under each option: on one chip, in one
        evaluation of the layer (one microbatch). ``gradient_bytes``, B: the part that only data-parallel copies add up.
        ``gradient_bytes_copied``, B: the part that data-parallel copies add up together with all chips of the
        module-wise parallel axis (mp), as all of these hold that part of the weight (``copied`` of the kernel). Nothing
        is yielded for a kernel of another op than ``weight_update``.
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
    """Bytes of caches, such as keys and values, that one chip holds for a kernel and the sequences of one evaluation.

    The kernel states the bytes of its caches (``states`` of the graph's kernel). They are multiplied by the share of
    the heads that lie on one chip under the sharding scheme.

    Parameters
    ----------
    of
        The kernel. Its options are the sharding schemes that it may take.

    Yields
    ------
    (str, float array of shape (options,))
        Name of a resource, and its amount under each option: on one chip, in one
        evaluation of the layer (one microbatch). ``cached_bytes``, B. Nothing is yielded for a kernel without
        ``states``.
    """
    if of.kernel.states:
        yield "cached_bytes", by_option(of, lambda kernel, scheme: cached_bytes(kernel, scheme, of.degree))


CACHES = Term.of_kernel("caches", "stated by the kernels of the graph", caches)


def kept(of: LayerKernel) -> Iterator[tuple[str, Floats]]:
    """Bytes that one chip keeps for a kernel in one evaluation in addition to tensors, such as dropout masks.

    Source: Korthikanti et al., 2022, section 4 (masks and statistics).

    Parameters
    ----------
    of
        The kernel. Its options are the sharding schemes that it may take.

    Yields
    ------
    (str, float array of shape (options,))
        Name of a resource, and its amount under each option: on one chip, in one
        evaluation of the layer (one microbatch). ``saved_bytes``, B: what is kept until the backward pass of the
        microbatch. Add it to the amount of :func:`saved`. It is negative where the tensors of the graph count more
        bytes than are kept. ``working_bytes``, B: what is in memory only while the layer runs, such as outputs that are
        computed again; under ``training_memory: calculon`` also gradients of activations and buffers of collectives.
        Nothing is yielded where no kernel of the graph keeps anything of the kind, as in a graph that does not train.
    """
    if sizes := of.kept:
        saved_o, working_o = np.array(sizes).T
        yield "saved_bytes", saved_o
        yield "working_bytes", working_o


KEPT = Term.of_kernel("activations beside tensors", "Korthikanti et al., 2022, section 4: masks and statistics", kept)


def saved(of: LayerKernel) -> Iterator[tuple[str, Floats]]:
    """Bytes on one chip of the activations that a kernel saves in one evaluation for the backward pass.

    An output of a forward kernel is saved if a kernel of another pass reads it: recomputation, backward pass or weight
    update (Korthikanti et al., 2022, section 4). It has the bytes of the whole output times the share of it on one
    chip. The kernel that makes the output counts them: once under ``fanout: shared``, however many kernels read it, and
    once for each such reader under ``fanout: per_consumer``.

    Parameters
    ----------
    of
        The kernel. Its options are the sharding schemes that it may take.

    Yields
    ------
    (str, float array of shape (options,))
        Name of a resource, and its amount under each option: on one chip, in one
        evaluation of the layer (one microbatch). ``saved_bytes``, B, once for every such output of the kernel. Nothing
        is yielded for a kernel without such an output, nor in a graph that does not train.
    """
    for tensor_bytes in of.saved:
        yield "saved_bytes", tensor_bytes * output_share(of)


SAVED = Term.of_kernel("activations", "Korthikanti et al., 2022, section 4: what the backward pass reads", saved)


def waits(setting: Setting) -> bool:
    """Whether tensors that wait in DRAM between on-chip partitions count individually in the memory of a chip.

    True unless the graph trains under ``training_memory: calculon`` and ``gradients: exact``. Then a layer counts all
    that it needs in training at once (``working_bytes`` of :func:`kept`), and no tensor is counted as waiting.

    Parameters
    ----------
    setting
        Graph, machine and resolved assumptions (no ``auto`` left).
    """
    return not (setting.graph.trains and setting.assumptions.by_layer)


def waiting(layer: Layer) -> Iterator[Charge]:
    """Bytes of tensors that wait in DRAM, each from the block that makes it to the last block that reads it.

    Three kinds of tensors do not wait here. Activations that stay for the backward pass are counted by :func:`saved`
    and :func:`kept` instead, where the graph trains under ``gradients: exact``. Tensors that are handed to the next
    layer are no tensors between blocks of this one. And no tensor waits where :func:`waits` is false.

    Parameters
    ----------
    layer
        What one chip does in one evaluation (one microbatch): kernels, tensors and plan. An *option* of a kernel is a
        sharding scheme that it may take. A *block* is a set of kernels that the chip runs together.

    Yields
    ------
    Charge
        An amount of ``waiting_bytes``, in B on one chip in one evaluation. There is one for every output that may wait:
        its size on the chip, which the option of its source decides. Every set of kernels that has the source and not
        all readers pays it once (:class:`~dfopt.terms.incidence.Open`).
    """
    if not waits(layer.instance.setting):
        return
    saves = counts_training(layer.graph, layer.assumptions)
    for fan in layer.fan_outs:
        if not fan.carried and not (saves and fan.kept):
            size = fan.bytes * layer.output_share_ko[fan.source]
            yield Charge("waiting_bytes", Open(fan.source, fan.kernels), (fan.source,), size)


WAITING = Term("waiting", "a tensor lies in DRAM as long as a block has still to read it", waiting)


def partial_sums(layer: Layer) -> Iterator[Charge]:
    """Rule out options under which a kernel leaves partial sums to another kernel that does not add them up over chips.

    A kernel may leave partial sums if the graph adds its output to that of another kernel (``accumulates_into``), it is
    a GEMM, and tensor-parallel chips share it under ``sharding_rules: exact``. It leaves them under the options that
    split its heads or its contraction. The other kernel adds them up if its own option splits its contraction, as that
    needs a reduction.

    Parameters
    ----------
    layer
        What one chip does in one evaluation (one microbatch): kernels, tensors and plan. An *option* of a kernel is a
        sharding scheme that it may take. A *block* is a set of kernels that the chip runs together.

    Yields
    ------
    Charge
        An amount of ``legal``, no unit, for every kernel that leaves partial sums under some option. Its option and
        that of the other kernel decide it: infinite if they cannot be together, as above, else 0. The block of the
        first kernel pays it once.
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
    """Rule out options under which layers of different kinds hand a tensor to the next layer in different layouts.

    A layer of any kind may come next, so all kinds have to leave the tensor in the same layout over the tensor-parallel
    chips.

    Parameters
    ----------
    layer
        What one chip does in one evaluation (one microbatch): kernels, tensors and plan. An *option* of a kernel is a
        sharding scheme that it may take. A *block* is a set of kernels that the chip runs together.

    Yields
    ------
    Charge
        An amount of ``legal``, no unit. For every tensor that layers hand to the next one there is one charge for each
        kind of layer but the first: it compares that kind with the first kind. The options of the two kernels that make
        the tensor decide it: infinite where they leave it in different layouts, else 0. The block of the one that is
        earlier in the graph pays it once. Nothing is yielded for a graph with one kind of layer, nor under
        ``layer_boundary: free``.
    """
    index = layer.graph.index()
    kinds = layer.graph.handed_on if layer.assumptions.layer_boundary == "dram" else ()
    for others in kinds[1:]:
        for tensor, other in zip(kinds[0], others, strict=True):
            pair = sorted((index[tensor.src], index[other.src]))
            first, second = (layer.produced_ko[k] for k in pair)
            yield Charge("legal", Has(pair[0]), tuple(pair), np.where(first[:, None] != second[None, :], np.inf, 0.0))


HANDED_ON = Term("layers hand on alike", "layers of several kinds follow one another", handed_on)


def tile_rows(layer: Layer) -> Iterator[Charge]:
    """Rule out options under which tensor-parallel chips share the rows of a tile, if tiles have too few rows for that.

    The streamed axis of the layer (mostly tokens, the *rows*) is cut into ``tiles`` equal parts, the *tiles*
    (:attr:`~dfopt.terms.layer.Layer.tiles`). Chips that share the rows of a tile need at least a row each. Tiles have
    enough rows if ``tiles <= ceil(rows / min(least, rows))``: as many as there are with ``least`` rows in each but the
    last, which may have fewer. ``rows`` is the length of the shortest streamed axis in the graph. ``least`` is the
    larger of the assumption ``tile_rows`` (1 if it is None) and the number of tensor-parallel chips.

    Parameters
    ----------
    layer
        What one chip does in one evaluation (one microbatch): kernels, tensors and plan. An *option* of a kernel is a
        sharding scheme that it may take. A *block* is a set of kernels that the chip runs together.

    Yields
    ------
    Charge
        An amount of ``legal``, no unit, for every kernel, decided by its option: infinite where chips share the rows of
        its tiles, else 0. The block of the kernel pays it once. Nothing is yielded if tiles have enough rows.
    """
    rows = ops.streamed_rows(layer.graph)
    least = max(layer.assumptions.tile_rows or 1, layer.degree)
    if layer.tiles <= -(-rows // min(least, rows)):
        return
    for k, shares_o in enumerate(layer.shares_rows_ko):
        yield Charge("legal", Has(k), (k,), np.where(shares_o, np.inf, 0.0))


TILE_ROWS = Term("rows of a tile", "a chip that works on a tile has a row of it", tile_rows, by_tiles=True)
