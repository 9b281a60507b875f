"""What a mapping communicates: collectives of the tensor-parallel group, hops between stages, gradients."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from dfopt.judge import grid
from dfopt.judge.case import Case, Consumer, Fan, Place, Placed, Rank
from dfopt.judge.types import made_word, optimizer_words, reduced_word, weight_word, word
from dfopt.physics import beside, communications, copies, ops, pipeline, tiled
from dfopt.physics.collectives import Collective
from dfopt.physics.communications import Price
from dfopt.physics.network import NO_BYTES, amortized_gradient_seconds, bytes_sent, communication_seconds


def price_list(case: Case) -> Price:
    """Cached function from (kind, bytes, dims) of a collective to its seconds on this system."""
    system, called = grid.walked(case.system, case.plan)

    @cache
    def price(kind: Collective, volume: float, dims: tuple[str, ...]) -> float:
        return communication_seconds(kind, volume, [called.get(dim, dim) for dim in dims], system, case.assume)

    return price


def without_bytes(price: Price) -> Price:
    """Latency part of a price function: seconds of the same communications at unlimited bandwidth."""
    return lambda kind, volume, dims: price(kind, min(volume, NO_BYTES), dims)


@dataclass(frozen=True)
class Paid:
    """One communication of the tensor-parallel group, charged to the place of a kernel.

    Attributes
    ----------
    kernel : int
        Kernel at whose place it runs.
    kind, total : Collective, and float, B
        The collective, and bytes of the whole tensor.
    src : int
        Kernel whose output is communicated.
    late : bool
        Whether it serves the backward pass, on a tensor that the forward pass saved.
    behind : tuple of int
        Kernels that may hide it.
    """

    kernel: int
    kind: Collective
    total: float
    src: int
    late: bool = False
    behind: tuple[int, ...] = ()


def tensor_parallel(case: Case) -> list[Paid]:
    """All communications of the tensor-parallel group, for one microbatch and layer.

    A scheme's own collective works on the kernel's whole output; a layout conversion on the whole
    tensor, once per required layout of a fan. With sequence parallelism one all-gather may serve all readers of a
    tensor, and every partition of the backward pass converts the saved tensors that it reads.
    """
    if case.plan.shards == 1:
        return []
    paid, price = [], price_list(case)
    for number, placed in enumerate(case.kernels):
        kind = ops.inherent(placed.kernel, placed.sharding, case.plan.shards, case.assume.sharding_rules)
        if kind is not None:
            paid.append(Paid(number, kind, case.graph.output_bytes(number), number, behind=(number,)))
    for fan in case.fans:
        paid.extend(conversions(case, fan, price, separately=gathered_late(case, fan)))
    for fan in case.between_layers:
        paid.extend(conversions(case, fan, price, separately=False))
    return [payment for payment in paid if payment.total > 0]


def gathered_late(case: Case, fan: Fan) -> bool:
    """Whether a tensor that the forward pass saved is converted separately for the backward pass."""
    way = case.assume.backward_gathers
    if not case.assume.splits_tokens or way == "kept":
        return False
    if way != "kept_calculon":
        return True
    again = {
        other.src for other in case.fans for reader in other.readers if case.kernels[reader].kernel.pass_ == "recompute"
    }
    return any(reader in again and case.kernels[reader].forward for reader in fan.readers)


def gathered_and_kept(case: Case, stage: int) -> list[float]:
    """Bytes on a chip of gathered tensors that the forward pass keeps for the backward pass, without its shards.

    Tensors whose all-gather is hidden behind products exist only one tile at a time, as in Calculon.
    """
    assume, sizes_kept = case.assume, list[float]()
    if assume.backward_gathers not in ("kept", "kept_calculon") or not assume.splits_tokens:
        return sizes_kept
    exposed = case.plan.tensor_overlap is None and not assume.by_tiles  # a search weighs none of it
    for fan in case.fans if case.trains and case.plan.shards > 1 and exposed else ():
        source = case.kernels[fan.src]
        if fan.home[0] != stage or not source.forward or gathered_late(case, fan):
            continue
        produced, sizes = ops.PRODUCED[source.sharding], [0.0]
        for reader in fan.consumers:
            target, layout = case.kernels[reader.kernel], required(case, fan, reader)
            if not target.forward and ops.conversion(produced, layout) is not None:
                share = ops.input_share(target.kernel, layout, target.sharding, case.plan.shards, assume.sharding_rules)
                sizes.append(fan.total * share)
        sizes_kept.append(max(sizes))
    return sizes_kept


def required(case: Case, fan: Fan, reader: Consumer) -> ops.Layout:
    """Layout in which a reader needs a tensor."""
    target, elements = case.kernels[reader.kernel], fan.total / made_word(case.graph, case.kernels[fan.src].kernel)
    return ops.required_layout(target.kernel, reader.operand, target.sharding, case.assume.sharding_rules, elements)


def conversions(case: Case, fan: Fan, price: Price, separately: bool) -> Iterator[Paid]:
    """Layout conversions of a tensor; with ``separately`` also those of its saved copy for the backward pass.

    The assumption ``backward_gathers`` decides whether every reading partition of the backward pass converts that copy,
    or the source once for all.
    """
    produced = ops.PRODUCED[case.kernels[fan.src].sharding]
    if produced == "RR":  # cut for free, whatever is wanted
        return
    saved, together = separately and case.kernels[fan.src].forward, case.assume.backward_gathers is not None
    # who pays, and for which layouts: the source, or a reader of every partition that gathers again
    payers: dict[tuple[bool, Place | None], tuple[int, set[ops.Layout]]] = {}
    behind: dict[bool, dict[int, None]] = {False: {}, True: {}}
    of = {reader: case.kernels[reader.kernel].kernel for reader in fan.consumers}
    for reader in sorted(of, key=lambda each: (of[each].pass_, of[each].name)):
        target = case.kernels[reader.kernel]
        late = saved and not target.forward
        by_reader = late and not together
        key = late, target.place if by_reader else None
        _, wanted = payers.setdefault(key, (reader.kernel if by_reader else fan.src, set()))
        if not by_reader:
            behind[late][reader.kernel] = None
        wanted.add(required(case, fan, reader))
    for (late, _), (payer, wanted) in payers.items():
        kinds = [kind for layout in sorted(wanted) if (kind := ops.conversion(produced, layout)) is not None]
        if kinds and case.assume.splits_tokens:
            gather = Paid(payer, Collective.ALL_GATHER, fan.total, fan.src, late, tuple(behind[late]))
            each = (between_shards_s(case, replace(gather, kind=kind), price) for kind in kinds)
            if gather.kind in kinds or between_shards_s(case, gather, price) < math.fsum(each):
                kinds = [gather.kind]
        for kind in kinds:
            yield Paid(payer, kind, fan.total, fan.src, late, tuple(behind[late]))


def counts(case: Case, paid: Sequence[Paid]) -> dict[str, int]:
    """Number of communications by kind and pass, such as ``{"all_reduce.forward": 2}``."""
    late = {True: "backward"}  # of what the source pays for it
    names = Counter[str]()
    for payment in paid:
        pass_ = case.kernels[payment.kernel].kernel.pass_
        names[f"{payment.kind.value}.{late.get(payment.late and payment.kernel == payment.src, pass_)}"] += 1
    for placed in case.kernels:
        for own in placed.kernel.communications:
            if any(case.chips_along(dim) > 1 for dim in case.plan.group(own.over)[0]):
                names[f"{own.kind}.{placed.kernel.pass_}"] += 1
    return dict(sorted(names.items()))


def between_shards_s(case: Case, payment: Paid, price: Price) -> float:
    """Seconds that a tensor-parallel communication adds to the work, on network and chip, less the hidden part.

    Parameters
    ----------
    case, payment : Case, Paid
        The mapping, and the communication.
    price : callable
        Seconds of a collective, see :func:`price_list`.
    """
    sent, source = price(payment.kind, payment.total, case.plan.shard_dims), case.kernels[payment.src].kernel
    chip, assume, on_chip = case.system.chip, case.assume, 0.0
    if sent > 0 and assume.collective_work is not None:
        chips = math.prod(map(case.chips_along, case.plan.shard_dims))
        elements, again = payment.total / made_word(case.graph, source), payment.late or source.pass_ == "recompute"
        on_chip = beside.collective_s(payment.kind, payment.total, elements, chips, chip, assume, again)
    if sent <= 0 or assume.tensor_overlap is None:
        return sent + on_chip
    products = [(case.kernels[number].kernel, case.kernels[number].peak) for number in payment.behind]
    hiding_s = tiled.spread_s(products, case.plan.shards, chip, assume)
    system, called = grid.walked(case.system, case.plan)
    usage = tiled.usage_of(system, [called.get(dim, dim) for dim in case.plan.shard_dims])
    waves, latency = 1, 0.0
    if assume.tensor_overlap == "waves":
        waves = tiled.waves_of([kernel for kernel, _ in products], case.plan.shards, chip)
        latency = without_bytes(price)(payment.kind, payment.total, case.plan.shard_dims)
    hidden_by = tiled.Products(hiding_s, case.plan.shards, usage, waves)
    return tiled.beside_s(payment.kind, tiled.CommunicationTime(sent, latency, on_chip), hidden_by, assume)


def amortized_seconds(case: Case) -> Iterator[tuple[int, float]]:
    """(kernel, seconds) of gradient all-reduces spread over microbatches, as in DFModel's program."""
    if case.assume.gradients == "dfmodel":
        system, called = grid.walked(case.system, case.plan)
        for number, placed in enumerate(case.kernels):
            for volume, dims in added_up(case, placed):
                over = [called.get(dim, dim) for dim in dims]
                step_s = amortized_gradient_seconds(volume, over, system, case.assume)
                yield number, step_s / case.plan.microbatches


def own_seconds(case: Case, price: Price) -> Iterator[tuple[int, float]]:
    """(kernel, seconds) of the communications that kernels state themselves."""
    for number, placed in enumerate(case.kernels):
        if placed.kernel.communications:
            own = communications.kernel_seconds(placed.kernel, case.plan, price, case.chips_along)
            yield number, own


def hidden_seconds(case: Case, price: Price) -> Iterator[tuple[int, float]]:
    """(kernel, seconds) of communications that overlap with another microbatch (two-batch overlap)."""
    if case.plan.two_batch_overlap:
        yield from own_seconds(case, price)


def added_up(case: Case, placed: Placed) -> Iterator[tuple[float, tuple[str, ...]]]:
    """Bytes of a kernel's weight gradient, with the network dims of the chips that all-reduce them.

    Gradients of which chips of the second axis have partial sums are reduced over these and the data-parallel replicas;
    all others over the replicas alone.
    """
    everywhere = placed.gradient * (placed.kernel.copied or 0.0)
    own, further = case.plan.copy_dims, (*case.plan.member_dims, *case.plan.copy_dims)
    for volume, dims in ((placed.gradient - everywhere, own), (everywhere, further)):
        if volume > 0 and dims:
            yield volume, dims


class ExchangeSeconds(NamedTuple):
    """Seconds of a step in which data-parallel replicas exchange the data of one stage of the mapping.

    ``groups_s``: by group of chips that reduce the same gradients; ``gradients_s``, ``weights_s``: totals of gradients
    and of weights.
    """

    groups_s: tuple[float, ...]
    gradients_s: float
    weights_s: float


def exchanges(case: Case, price: Price) -> dict[int, ExchangeSeconds]:
    """Exchange seconds of every stage of the mapping that some pipeline stage runs."""
    return {stage: exchange(case, stage, price) for stage in case.ran}


def exchange(case: Case, stage: int, price: Price) -> ExchangeSeconds:
    """Exchange seconds of one stage of the mapping; 0 where every microbatch adds up its gradients."""
    each = [] if case.assume.gradients == "dfmodel" else list(exchanged_bytes(case, stage))
    groups, gradients, weights = (
        [copies.exchanged(case.plan, dims, added * summed, brought * wide, price) for dims, summed, wide in each]
        for added, brought in ((1, 1), (1, 0), (0, 1))
    )
    return ExchangeSeconds(tuple(groups), math.fsum(gradients), math.fsum(weights))


def reduction_s(rank: Rank, exchanged: Mapping[int, ExchangeSeconds]) -> float:
    """Seconds of a step in which replicas reduce a stage's gradients and gather its weights, over all its layers."""
    return math.fsum(times * seconds for stage, times in rank.runs.items() for seconds in exchanged[stage].groups_s)


def exchanged_bytes(case: Case, stage: int) -> Iterator[tuple[tuple[str, ...], float, float]]:
    """(dims, bytes of gradients, bytes of weights) that chips exchange for one stage of the mapping."""
    volumes: dict[tuple[str, ...], list[tuple[float, float]]] = defaultdict(list)
    for placed in case.of_stage[stage]:
        wide = weight_word(case.graph, placed.kernel) / reduced_word(case.graph)
        for volume, dims in added_up(case, placed):
            volumes[dims].append((volume, volume * wide))
    for dims, each in volumes.items():
        gradients, weights = map(math.fsum, zip(*each, strict=True))
        yield dims, gradients, weights


def optimizer_s(case: Case, stage: int) -> float:
    """Seconds of the optimizer step over the parameters of one stage of the mapping."""
    if case.assume.optimizer_step is None or case.assume.gradients != "exact" or not case.trains:
        return 0.0
    chip, plan, gradient = case.system.chip, case.plan, reduced_word(case.graph)
    state, often = optimizer_words(case.graph, case.assume.optimizer_bytes_per_parameter)
    once, spent = case.forward_weights, list[float]()
    for placed in case.of_stage[stage]:
        kernel = placed.kernel
        if placed.forward or not once:  # a backward GEMM reads the weight of a forward one
            parameters = placed.parameters * plan.share_held(1, kernel.copied or 0.0)
            wide = often * weight_word(case.graph, kernel)
            routed = kernel.module == "experts"
            spent.append(beside.optimizer_s(parameters, gradient, wide, chip, case.assume, plan, routed, state))
        if placed.forward and kernel.resident_bytes and kernel.resident_optimizer_bytes is None:
            wide, over = word(case.graph, "ends"), kernel.spread_over
            share = 1.0 if "copies" in over else plan.share_held(1, kernel.copied or 0.0)
            parameters = kernel.resident_bytes / wide / math.prod(getattr(plan, name) for name in over) * share
            spent.append(beside.optimizer_s(parameters, gradient, often * wide, chip, case.assume, plan, state=state))
    return math.fsum(spent)


def hops(case: Case, price: Price) -> dict[int, float]:
    """Seconds that each pipeline stage spends on sending to its neighbours, for one microbatch.

    A folded layer hands its carried tensors on. In a graph drawn once, a fan that ends some stages away
    is relayed: it crosses each boundary on the way once, and the sending side pays.
    """
    if case.plan.stages == 1 or case.graph.folded:
        return handed_on(case, [hop_s(case, fan, case.kernels[fan.src], price) for fan in case.carried])
    sent: dict[int, list[float]] = {rank.number: [] for rank in case.ranks}
    for fan in case.fans:
        here = fan.home[0]
        ends = [here, *(stage for stage, _ in fan.away)]
        for stage in (*range(here, max(ends)), *range(here, min(ends), -1)):
            sent[stage].append(hop_s(case, fan, case.kernels[fan.src], price))
    return {stage: math.fsum(times) for stage, times in sent.items()}


def handed_on(case: Case, hop_f: Sequence[float]) -> dict[int, float]:
    """Seconds that each pipeline stage of a folded graph spends on sending, from the seconds of each carried tensor."""
    sent: dict[int, list[float]] = {rank.number: [] for rank in case.ranks}
    counted, each = range(case.graph.layers.counted), list(zip(case.carried, hop_f, strict=True))
    if case.plan.stages == 1:
        return dict.fromkeys(sent, 0.0)
    # every chunk of layers hands its tensors on, whatever the kind of its last layer
    if case.assume.point_to_point == "per_microbatch":
        kinds: dict[int, list[float]] = {stage: [] for stage in counted}
        for fan, seconds in each:
            kinds[fan.home[0]].append(seconds)
        sent = dict.fromkeys(sent, max(kinds.values(), key=math.fsum) * case.plan.interleave)
    elif case.assume.point_to_point == "per_neighbour":
        ways = {way: dict.fromkeys(counted, 0.0) for way in (True, False)}
        for fan, seconds in each:
            ways[case.kernels[fan.src].forward][fan.home[0]] += seconds
        on, back = (max(ways[way].values()) for way in (True, False))
        for rank in case.ranks:
            often = pipeline.messages(case.plan, case.assume, rank.number, all_alike=len(case.ranks) == 1)
            sent[rank.number] = [often[0] * on, often[1] * back]
    return {stage: math.fsum(times) for stage, times in sent.items()}


def hop_s(case: Case, fan: Fan, source: Placed, price: Price) -> float:
    """Seconds in which a chip sends its share of a tensor to the next stage, or scatters a replicated one.

    Parameters
    ----------
    case, fan, source : Case, Fan, Placed
        The mapping, the tensor, and the kernel that makes it.
    price : callable
        Seconds of a collective, see :func:`price_list`.
    """
    ungathered = price(Collective.POINT_TO_POINT, fan.total * source.share, case.plan.stage_dims)
    chips, held = case.plan.shards, ops.PRODUCED[source.sharding]
    if case.assume.point_to_point_parts is None or chips == 1 or held != "RR":
        return ungathered
    part = price(Collective.POINT_TO_POINT, fan.total / chips, case.plan.stage_dims)
    gathered = price(Collective.ALL_GATHER, fan.total, case.plan.shard_dims)
    if case.assume.point_to_point_parts == "calculon":
        scattered = price(Collective.REDUCE_SCATTER, fan.total, case.plan.shard_dims)
        again = any(placed.kernel.pass_ == "recompute" for placed in case.kernels)
        often = 2 + again / 2  # one for each pass, and one for both where kernels run again
        reduced = price(Collective.ALL_REDUCE, fan.total, case.plan.shard_dims)
        return max(part + 2 * (scattered - reduced) + often * gathered, 0.0)  # no message takes back time
    return min(ungathered, part + gathered)


def point_to_point_per_step_s(case: Case, price: Price) -> float:
    """Seconds that DFModel's program charges once per step for messages: one hop of whole tensors per layer."""
    once = case.graph.folded and case.assume.point_to_point == "per_step" and case.trains
    if case.plan.stages == 1 or not once:
        return 0.0
    volume = case.graph.repeat * math.fsum(fan.total for fan in case.carried if fan.home[0] == 0)
    return price(Collective.POINT_TO_POINT, volume, case.plan.stage_dims)


def sent_bytes(case: Case) -> Price:
    """Function from (kind, bytes of the whole tensor, dims) to the bytes that each chip of the group sends."""
    return lambda kind, volume, dims: bytes_sent(kind, volume, math.prod(map(case.chips_along, dims)))


def bytes_by_kernel(case: Case, paid: Sequence[Paid], sent: Price) -> Iterator[tuple[int, float]]:
    """(kernel, bytes that one chip sends) of all communication in the network time of partitions."""
    for payment in paid:
        yield payment.kernel, sent(payment.kind, payment.total, case.plan.shard_dims)
    for number, placed in enumerate(case.kernels):
        yield number, communications.kernel_bytes(placed.kernel, case.plan, case.chips_along)
        for volume, dims in added_up(case, placed) if case.assume.gradients == "dfmodel" else ():
            yield number, sent(Collective.ALL_REDUCE, volume, dims) / case.plan.microbatches
