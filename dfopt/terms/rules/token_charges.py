"""What a block of kernels needs and moves if it takes its tokens in blocks and reads its weights again for each.

The mode is described in :mod:`dfopt.physics.token_blocks`. A rule of single kernels yields pairs of the name of a
resource and a float array, shape (options,): what the block of the kernel pays once, under each option of the kernel.
The other rule yields charges. Bytes are those of one chip in one evaluation.

Suffix: o option of a kernel (a sharding scheme).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dfopt.arrays import Floats
from dfopt.physics import ops
from dfopt.physics.states import cache_traffic
from dfopt.physics.token_blocks import (
    AT_ONCE,
    reads_whole,
    row_share,
    slice_elements,
    slice_share,
    takes_blocks,
    tokens,
    unmasked,
)
from dfopt.terms.charges import Charge, Term
from dfopt.terms.incidence import AnyOf, Has, Incidence, Inside
from dfopt.terms.kernel import LayerKernel, by_option, end_bytes, output_share, schemes, weight_bytes
from dfopt.terms.layer import FanOut, Layer


def of_kernel(of: LayerKernel) -> Iterator[tuple[str, Floats]]:
    """Amounts that a kernel adds to a block that takes its tokens in blocks, without tensors between kernels.

    Parameters
    ----------
    of
        The kernel. Its options are the sharding schemes that it may take.

    Yields
    ------
    (str, float array of shape (options,))
        Name of a resource, and its amount under each option: on one chip, in one
        evaluation of the layer (one microbatch).

        - ``all_tokens``, no unit: 1 for a kernel that cannot take blocks of tokens.
        - ``beside_token_bytes``, B: two slices of a weight, the accumulator of a weight gradient, and two slices of an
          input of the graph that every token needs whole.
        - ``token_bytes``, B: two blocks of every other input and output of the graph, if one block had all tokens. An
          output without tokens counts twice in ``beside_token_bytes`` instead.
        - ``block_reread_bytes``, B: the weight, caches that are read, and inputs of the graph that every token needs
          whole. A byte in a slower memory counts as several.
        - ``block_access_bytes``, B: the same bytes, each as one. Only if the SRAM of the chip has a bandwidth.

        Nothing is yielded where blocks of tokens are not allowed.
    """
    if not of.assumptions.blocks_tokens:
        return
    kernel, counted = of.kernel, of.counted
    if not takes_blocks(kernel):
        yield "all_tokens", np.ones(len(schemes(of)))
    if ops.weight_elements(kernel):
        degree, rules = of.degree, of.assumptions.sharding_rules
        slice_o = by_option(of, lambda kernel, z: slice_elements(kernel, z, degree, rules))
        yield "beside_token_bytes", AT_ONCE * of.words.of_weight(kernel) * slice_o
        yield from _again(of, weight_bytes(of, ops.weights_read), counted.of_weight(kernel))
    if of.assumptions.gradients == "exact" and ops.gradient_elements(kernel):
        yield "beside_token_bytes", ops.gradients_at_once(kernel) * of.words.activations * output_share(of)
    if kernel.states:
        yield from _again(of, by_option(of, lambda kernel, z: cache_traffic(kernel, z, of.degree)[0]), counted.caches)
    for operand, tensor_bytes in of.ends:
        size_o = end_bytes(of, operand, tensor_bytes)
        if reads_whole(kernel, operand):
            yield "beside_token_bytes", AT_ONCE * size_o * slice_share(kernel)
            yield from _again(of, size_o)
        elif operand or kernel.streamed == "n":
            yield "token_bytes", AT_ONCE * size_o * unmasked(kernel, operand)
        else:
            yield "beside_token_bytes", AT_ONCE * size_o


def _again(of: LayerKernel, size_o: Floats, counted: float = 1.0) -> Iterator[tuple[str, Floats]]:
    """Bytes that every further block reads again; ``counted``: bytes of the fastest memory that each counts as."""
    yield "block_reread_bytes", size_o * counted
    if of.limits_sram:
        yield "block_access_bytes", size_o


TOKEN_BLOCK_KERNELS = Term.of_kernel(
    "kernels in blocks of tokens", "weights larger than the SRAM pass by for every block of tokens", of_kernel
)


def of_tensors(layer: Layer) -> Iterator[Charge]:
    """Charges of tensors between kernels in a block that takes its tokens in blocks.

    Parameters
    ----------
    layer
        What one chip does in one evaluation (one microbatch): kernels, tensors and plan. An *option* of a kernel is a
        sharding scheme that it may take.

    Yields
    ------
    Charge
        For every fan-out, which is one output with its readers. The option of its source decides each amount, on one
        chip in one evaluation.

        - ``token_bytes``, B: two blocks of the tensor, if one block had all tokens. A block of kernels pays them once
          if it makes the tensor, or reads it by tokens. For a carried tensor each end pays them.
        - ``beside_token_bytes``, B: twice the tensor, paid likewise, if the tensor has no tokens. Two of its rows,
          paid once for all kernels of which every token needs all of the tensor.
        - ``block_reread_bytes``, B: the tensor, paid once for these kernels.
        - ``block_access_bytes``, B: the tensor, paid for each of them, if the SRAM of the chip has a bandwidth.
        - ``all_tokens``, no unit: 1, paid by a block of kernels that makes the tensor and has one of these kernels, or
          another reader that has not as many tokens as the source.

        Nothing is yielded where blocks of tokens are not allowed.
    """
    if not layer.assumptions.blocks_tokens:
        return
    for fan in layer.fan_outs:
        size = fan.bytes * layer.output_share_ko[fan.source]
        for resource, incidence, times in per_byte(layer, fan):
            yield Charge(resource, incidence, (fan.source,), times * size)
        if not fan.carried and (kernels := _need_all_tokens(layer, fan)):
            incidence = Inside(fan.source, kernels, (1.0,) * len(kernels))
            yield Charge("all_tokens", incidence, (), np.array(1.0))


def per_byte(layer: Layer, fan: FanOut) -> Iterator[tuple[str, Incidence, float]]:
    """Charges of a tensor for each byte of it on a chip, in blocks that take their tokens in blocks.

    Parameters
    ----------
    layer
        The layer.
    fan
        The tensor: one output of a kernel with all its readers.

    Yields
    ------
    (str, Incidence, float)
        The resource, who pays, and the amount for each byte, without a unit. See :func:`of_tensors`.
    """
    source = layer.kernels[fan.source]
    streams = source.streamed == "n"
    resource, held = "token_bytes" if streams else "beside_token_bytes", AT_ONCE
    held *= unmasked(source, 0) if streams else 1.0
    if fan.carried:
        for k in (fan.source, *(reader.kernel for reader in fan.readers)):
            yield resource, Has(k), held
        return
    readers = _whole_readers(layer, fan) if streams else ()
    by_tokens = {r.kernel for r in fan.readers if not (streams and reads_whole(layer.kernels[r.kernel], r.operand))}
    yield resource, AnyOf((fan.source, *sorted(by_tokens))), held
    if readers:
        yield "beside_token_bytes", AnyOf(readers), AT_ONCE * row_share(source)
        yield "block_reread_bytes", AnyOf(readers), 1.0
    if layer.instance.system.chip.sram.bandwidth is not None:
        for k in readers:
            yield "block_access_bytes", Has(k), 1.0


def _need_all_tokens(layer: Layer, fan: FanOut) -> tuple[int, ...]:
    """Kernels that cannot read a tensor by blocks of tokens in the partition that makes it."""
    source = layer.kernels[fan.source]
    streams = source.streamed == "n"
    count, kernels = tokens(source) if streams else 0, set(_whole_readers(layer, fan) if streams else ())
    kernels |= {reader.kernel for reader in fan.readers if tokens(layer.kernels[reader.kernel]) != count}
    return tuple(sorted(kernels))


def _whole_readers(layer: Layer, fan: FanOut) -> tuple[int, ...]:
    """Kernels of which every token needs all of a tensor."""
    readers = (r.kernel for r in fan.readers if reads_whole(layer.kernels[r.kernel], r.operand))
    return tuple(dict.fromkeys(readers))


TOKEN_BLOCK_TENSORS = Term(
    "tensors in blocks of tokens", "weights larger than the SRAM pass by for every block of tokens", of_tensors
)
