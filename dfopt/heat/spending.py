"""What single kernels of a plan do, and so what they spend: FLOP, bytes of every kind, streams of DRAM.

Worked out from the optimiser's own arrays. The judge adds the same up over a mapping, by itself; the two share only
the formulas of one stream, one collective and one shape.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dfopt.arrays import Bools, Floats
from dfopt.fusion.priced import PricedPlan
from dfopt.physics import ops
from dfopt.physics.collectives import Collective
from dfopt.physics.communications import kernel_bytes
from dfopt.physics.network import adds_up_at_once, bytes_sent
from dfopt.physics.operands import splits_features
from dfopt.physics.states import cache_traffic
from dfopt.physics.token_blocks import reads_whole
from dfopt.technology.streams import Flow, contiguous_bytes, lookups
from dfopt.terms.chip import reads_again, writes_again
from dfopt.terms.converted import network_bytes
from dfopt.terms.kernel import LayerKernel, end_bytes, weight_bytes
from dfopt.terms.layer import Layer
from dfopt.terms.rules.tensors import end_tile
from dfopt.terms.rules.weights import weight_flows
from dfopt.terms.sharded import LayerOptions
from dfopt.terms.step.hops import over_hops


@dataclass(frozen=True)
class Spending:
    """Operations and bytes of a plan's kernels on one chip in one evaluation, for any partitions.

    Attributes
    ----------
    flop_k, sram_traffic_k, noc_k, sent_k : float
        FLOP; bytes to and from SRAM; bytes across the on-chip network; bytes sent to other chips.
    own : tuple of tuple of Flow
        By kernel, the DRAM bytes that it reads and writes in any partition.
    in_parts, again : tuple of tuple of Flow
        By kernel, the additional bytes if its weight is in parts, and the bytes that it reads again for each further
        block of tokens, without tensors between kernels.
    accessed_again_k : float
        Bytes that are read from SRAM for each further block of tokens.
    fans : tuple of (Flow, Flow) or None
        For every fan-out group, the flows that write and read its tensor where it is cut; None for an empty group.
    whole_gk : bool, shape (groups, kernels)
        Whether every token of a kernel needs the whole tensor of a group, which is then read for every block of tokens.
    hop_r : float
        Bytes that a pipeline stage sends to its neighbours for one microbatch.
    """

    flop_k: Floats
    sram_traffic_k: Floats
    noc_k: Floats
    sent_k: Floats
    own: tuple[tuple[Flow, ...], ...]
    in_parts: tuple[tuple[Flow, ...], ...]
    again: tuple[tuple[Flow, ...], ...]
    accessed_again_k: Floats
    fans: tuple[tuple[Flow, Flow] | None, ...]
    whole_gk: Bools
    hop_r: Floats


def spending(ready: PricedPlan) -> Spending:
    """Operations and bytes of a plan's kernels under its sharding."""
    plan, sharded, kernels = ready.instance.plan, ready.sharded, ready.instance.graph.kernels
    layer = LayerOptions.of(ready.instance).figures.layer.at(sharded.tile_count)
    shares = [ops.split_share(kernel, ready.sharding[kernel.name], plan.shards, layer.rules) for kernel in kernels]
    _, first = np.unique(sharded.group_t, return_index=True)
    src_g = sharded.src_t[first].tolist()
    fans = [_output(ready, layer, k, held) for k, held in zip(src_g, sharded.b_t[first].tolist(), strict=True)]
    reads = sorted(set(zip(sharded.dst_t.tolist(), sharded.group_t.tolist(), strict=True)))  # once by a kernel
    ends = list(_ends(ready, layer))
    readers = [*((k, fans[g][1]) for k, g in reads), *((k, flow) for k, flow, _ in ends if not flow.write)]
    noc_k = np.zeros(len(kernels))
    for k, read in readers:
        noc_k[k] += read.bytes
    own, again = _by_kernel(ready, layer, ends)
    whole_gk = _needs_whole(layer)
    accessed_again_k = np.array([math.fsum(flow.bytes for flow in flows) for flows in again])
    accessed_again_k += whole_gk.T @ sharded.b_t[first]
    return Spending(
        flop_k=np.array([ops.flop(kernel) * share for kernel, share in zip(kernels, shares, strict=True)]),
        sram_traffic_k=sharded.sram_traffic_k,
        noc_k=noc_k,
        sent_k=_sent(ready),
        own=_moving(own),
        in_parts=_moving(_in_parts(ready, readers, [(k, write) for k, (write, _) in zip(src_g, fans, strict=True)])),
        again=_moving(again),
        accessed_again_k=accessed_again_k,
        fans=tuple(pair if pair[0].bytes > 0 else None for pair in fans),
        whole_gk=whole_gk,
        hop_r=over_hops(ready.instance, sharded, ready.stage_k, lambda held, _: held),
    )


def _lying(
    ready: PricedPlan, held: float, share: float, features: int, tokens: int, split: bool, word: float
) -> tuple[Flow, Flow]:
    """A tensor as it is written, and as it is read."""
    shards = ready.instance.plan.shards if split else 1
    row, rows = float(-(-features // shards) * word), -(-tokens // ready.sharded.tile_count)
    run = contiguous_bytes(held, held * share, row, rows, shards)
    return Flow(held, run, write=True), Flow(held, run, write=False)


def _output(ready: PricedPlan, layer: Layer, k: int, held: float) -> tuple[Flow, Flow]:
    """The output of a kernel, of which a chip has so many bytes."""
    graph = ready.instance.graph
    of = graph.kernels[k]
    split, word = splits_features(ready.sharding[of.name]), graph.words.of_output(of)
    return _lying(ready, held, float(layer.output_tile_k[k]), of.m, of.n, split, word)


def _ends(ready: PricedPlan, layer: Layer) -> Iterator[tuple[int, Flow, bool]]:
    """What kernels read and write beside tensors of the layer, and whether again for each further block of tokens."""
    graph, number_k = ready.instance.graph, LayerOptions.of(ready.instance).figures.numbers(ready.sharding)
    for fan in layer.fan_outs:
        if fan.carried:
            store, load = _output(ready, layer, fan.source, fan.bytes * float(ready.sharded.output_k[fan.source]))
            yield fan.source, store, False
            yield from ((k, load, False) for k in fan.kernels)
    for of, operand, whole_bytes in ((kernel, *end) for kernel in LayerKernel.all_of(layer) for end in kernel.ends):
        k, kernel = of.number, graph.kernels[of.number]
        held = float(end_bytes(of, operand, whole_bytes)[number_k[k]])
        if not operand:
            yield k, _output(ready, layer, k, held)[0], False
            continue
        scheme, words = ready.sharding[kernel.name], graph.words.activations
        layout = ops.required_layout(kernel, operand, scheme, layer.rules, whole_bytes / words)
        shape, split = ops.operand_shape(kernel, operand), layout == "SR" and scheme != "outer"
        _, load = _lying(ready, held, end_tile(of, operand), *shape, split, words)
        yield k, load, reads_whole(kernel, operand)


def _in_parts(
    ready: PricedPlan, readers: Iterable[tuple[int, Flow]], writers: Iterable[tuple[int, Flow]]
) -> list[list[Flow]]:
    """By kernel, what it moves for every further part of its weight."""
    count = len(ready.instance.graph.kernels)
    parts_k = np.ones(count, dtype=np.int64)
    for stage in ready.stages.values():
        parts_k[stage.members] = stage.tables.parts_k
    in_parts: list[list[Flow]] = [[] for _ in range(count)]
    read_again, written_again = reads_again(ready.instance.assumptions), writes_again(ready.instance.assumptions)
    for k, flow in (*(readers if read_again else ()), *(writers if written_again else ())):
        in_parts[k].append(flow._replace(bytes=flow.bytes * float(parts_k[k] - 1)))
    return in_parts


def _by_kernel(
    ready: PricedPlan, layer: Layer, ends: Sequence[tuple[int, Flow, bool]]
) -> tuple[list[list[Flow]], list[list[Flow]]]:
    """By kernel, what it moves in any partition, and what of that again for each further block of tokens."""
    graph, shards = ready.instance.graph, ready.instance.plan.shards
    number_k = LayerOptions.of(ready.instance).figures.numbers(ready.sharding)
    own: list[list[Flow]] = [[] for _ in graph.kernels]
    again: list[list[Flow]] = [[] for _ in graph.kernels]
    for k, flow, is_read_again in ends:
        own[k].append(flow)
        again[k] += [flow] * is_read_again
    for k, (kernel, of) in enumerate(zip(graph.kernels, LayerKernel.all_of(layer), strict=True)):
        own[k].append(Flow(kernel.dram_bytes_per_chip, kernel.dram_bytes_per_chip, write=False))
        own[k] += lookups(kernel.dram_bytes / shards, kernel.m * graph.words.ends, kernel.pass_ == "forward")
        read, written = cache_traffic(kernel, ready.sharding[kernel.name], shards)
        own[k] += [Flow(read, read, write=False), Flow(written, written, write=True)]
        for write, size_o in weight_flows(of):
            size = float(size_o[number_k[k]])
            own[k].append(Flow(size, size, write))
        weight = float(weight_bytes(of, ops.weights_read)[number_k[k]])
        again[k] += [Flow(weight, weight, write=False), Flow(read, read, write=False)]
    return own, again


def _moving(flows_k: Sequence[Sequence[Flow]]) -> tuple[tuple[Flow, ...], ...]:
    """By kernel, the flows that move anything."""
    return tuple(tuple(flow for flow in flows if flow.bytes > 0) for flows in flows_k)


def _needs_whole(layer: Layer) -> Bools:
    """Which kernels need all of a tensor for every token, shape (fan-out groups, kernels)."""
    fans = [fan for fan in layer.fan_outs if not fan.carried]
    needs_whole = np.zeros((len(fans), len(layer.kernels)), dtype=bool)
    for g, fan in enumerate(fans):
        for reader in fan.readers if layer.kernels[fan.source].streamed == "n" else ():
            needs_whole[g, reader.kernel] |= reads_whole(layer.kernels[reader.kernel], reader.operand)
    return needs_whole


def _sent(ready: PricedPlan) -> Floats:
    """Bytes that a chip sends to others for every kernel."""
    graph, plan, system = ready.instance.graph, ready.instance.plan, ready.instance.system

    def chips(dim: str) -> int:
        return system.dim(dim).size

    sent_k = np.array([kernel_bytes(kernel, plan, chips) for kernel in graph.kernels])
    figures = LayerOptions.of(ready.instance).figures
    sent_k += network_bytes(figures.layer, figures.numbers(ready.sharding))
    for dims, share_k in ready.instance.adding if adds_up_at_once(ready.instance.assumptions) else ():
        group = math.prod(chips(dim) for dim in dims)
        for k, volume in enumerate((share_k * ready.sharded.gradient_k).tolist()):
            sent_k[k] += bytes_sent(Collective.ALL_REDUCE, volume, group) / plan.microbatches
    return sent_k
