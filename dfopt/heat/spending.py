"""What single kernels of a plan do, and so what they spend: FLOP, bytes of every kind, streams of DRAM.

Worked out from the optimiser's own arrays. The judge adds the same up over a mapping, by itself; the two share only
the formulas of one stream, one collective and one shape.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
    """What the kernels of a plan do on a chip in one evaluation, whatever else is in their partition.

    Attributes
    ----------
    flop_k, sram_traffic_k, noc_k, sent_k : float
        FLOP; bytes to and from SRAM; bytes across the on-chip network; bytes sent to other chips.
    own : tuple of tuple of Flow
        By kernel, what it reads from DRAM and writes there in any partition.
    in_parts, again : tuple of tuple of Flow
        By kernel, what it moves besides where its weight is in parts, and what it reads again for each further block of
        tokens, beside tensors between kernels.
    accessed_again_k : float
        Bytes that are read from SRAM for each further block of tokens.
    fans : tuple of (Flow, Flow) or None
        Of every fan-out group, how its tensor is written and read where it is cut; none of an empty one.
    whole_gk : bool, shape (groups, kernels)
        Whether every token of a kernel needs all of the tensor of a group, which is then read for every block of them.
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
    """What the kernels of a plan do under its sharding."""
    graph, plan, sharded = ready.instance.graph, ready.instance.plan, ready.sharded
    kernels, count, words = graph.kernels, len(graph.kernels), graph.words
    schemes = [ready.sharding[kernel.name] for kernel in kernels]
    parts_k = np.ones(count, dtype=np.int64)
    for stage in ready.stages.values():
        parts_k[stage.members] = stage.tables.parts_k

    def lying(held: float, share: float, features: int, tokens: int, split: bool, word: float) -> tuple[Flow, Flow]:
        """A tensor as it is written, and as it is read."""
        shards = plan.shards if split else 1
        row, rows = float(-(-features // shards) * word), -(-tokens // sharded.tile_count)
        run = contiguous_bytes(held, held * share, row, rows, shards)
        return Flow(held, run, write=True), Flow(held, run, write=False)

    figures = LayerOptions.of(ready.instance).figures
    layer, number_k = figures.layer.at(sharded.tile_count), figures.numbers(ready.sharding)
    rules, pairs = layer.rules, list(zip(kernels, schemes, strict=True))
    flop_k = np.array([ops.flop(kernel) * ops.split_share(kernel, z, plan.shards, rules) for kernel, z in pairs])

    def output(k: int, held: float) -> tuple[Flow, Flow]:
        """The output of a kernel, of which a chip has so many bytes."""
        of = kernels[k]
        return lying(held, float(layer.output_tile_k[k]), of.m, of.n, splits_features(schemes[k]), words.of_output(of))

    _, first = np.unique(sharded.group_t, return_index=True)
    src_g = sharded.src_t[first].tolist()
    fans = [output(k, held) for k, held in zip(src_g, sharded.b_t[first].tolist(), strict=True)]
    reads = sorted(set(zip(sharded.dst_t.tolist(), sharded.group_t.tolist(), strict=True)))  # once by a kernel
    ends: list[tuple[int, bool, Flow]] = []
    again: list[list[Flow]] = [[] for _ in kernels]
    for fan in layer.fan_outs:
        if fan.carried:
            store, load = output(fan.source, fan.whole * float(sharded.output_k[fan.source]))
            ends += [(fan.source, True, store), *((k, False, load) for k in fan.kernels)]
    for of, operand, whole_bytes in ((kernel, *end) for kernel in LayerKernel.all_of(layer) for end in kernel.ends):
        k = of.number
        held = float(end_bytes(of, operand, whole_bytes)[number_k[k]])
        if not operand:
            ends.append((k, True, output(k, held)[0]))
            continue
        layout = ops.required_layout(kernels[k], operand, schemes[k], rules, whole_bytes / words.activations)
        split = layout == "SR" and schemes[k] != "outer"
        shape = ops.operand_shape(kernels[k], operand)
        _, load = lying(held, end_tile(of, operand), *shape, split, words.activations)
        ends.append((k, False, load))
        if reads_whole(kernels[k], operand):
            again[k].append(load)

    noc_k = np.zeros(count)
    own: list[list[Flow]] = [[] for _ in kernels]
    in_parts: list[list[Flow]] = [[] for _ in kernels]
    writers = [(k, write) for k, (write, _) in zip(src_g, fans, strict=True)]
    readers = [*((k, fans[g][1]) for k, g in reads), *((k, flow) for k, write, flow in ends if not write)]
    for k, read in readers:
        noc_k[k] += read.bytes
        if reads_again(ready.instance.assumptions):  # for every further part of its weights
            in_parts[k].append(read._replace(bytes=read.bytes * float(parts_k[k] - 1)))
    for k, _, flow in ends:
        own[k].append(flow)
    if writes_again(ready.instance.assumptions):
        for k, flow in writers:
            in_parts[k].append(flow._replace(bytes=flow.bytes * float(parts_k[k] - 1)))
    for k, kernel in enumerate(kernels):
        own[k].append(Flow(kernel.dram_bytes_per_chip, kernel.dram_bytes_per_chip, write=False))
        own[k] += lookups(kernel.dram_bytes / plan.shards, kernel.m * words.ends, kernel.pass_ == "forward")
        read, written = cache_traffic(kernel, schemes[k], plan.shards)
        own[k] += [Flow(read, read, write=False), Flow(written, written, write=True)]
        of = LayerKernel.all_of(layer)[k]
        for write, size_o in weight_flows(of):
            size = float(size_o[number_k[k]])
            own[k].append(Flow(size, size, write))
        weight = float(weight_bytes(of, ops.weights_read)[number_k[k]])
        again[k] += [Flow(weight, weight, write=False), Flow(read, read, write=False)]
    whole_gk = _needs_whole(layer)
    accessed_again_k = np.array([math.fsum(flow.bytes for flow in flows) for flows in again])
    accessed_again_k += whole_gk.T @ sharded.b_t[first]
    return Spending(
        flop_k=flop_k,
        sram_traffic_k=sharded.sram_traffic_k,
        noc_k=noc_k,
        sent_k=_sent(ready),
        own=_moving(own),
        in_parts=_moving(in_parts),
        again=_moving(again),
        accessed_again_k=accessed_again_k,
        fans=tuple(pair if pair[0].bytes > 0 else None for pair in fans),
        whole_gk=whole_gk,
        hop_r=over_hops(ready.instance, sharded, ready.stage_k, lambda held, _: held),
    )


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
