"""Broken limits, as sentences with figures: capacities, tiles, order, passes, accumulation."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

from dfopt.judge import token_blocks
from dfopt.judge.case import Case, Place, Placed
from dfopt.judge.ledger import reserved
from dfopt.judge.traffic import WeightParts
from dfopt.physics import ops
from dfopt.physics.library import sets_of
from dfopt.physics.states import Held, capacities

# A solver keeps a row to about 1e-6; closer than that, two figures are the same (architecture, law 5).
SLACK = 1e-6


def violations(case: Case, tiling: WeightParts, sram: dict[Place, float], held: dict[int, Held]) -> tuple[str, ...]:
    """Sentences on every limit that a mapping breaks; empty if it can run.

    Parameters
    ----------
    case, tiling : Case, WeightParts
        The mapping, and how its weights are cut.
    sram : dict, B
        SRAM need by place (stage and partition).
    held : dict
        Bytes by memory and state, for each pipeline stage.
    """
    return (
        *_capacities(case, tiling, sram, held),
        *_tiles(case),
        *token_blocks.refused(case),
        *_order(case),
        *_passes(case),
        *_together(case),
        *_handed_on(case),
    )


def _exceeds(need: float, capacity: float) -> bool:
    return need > capacity * (1 + SLACK)


def _name(place: Place) -> str:
    return f"partition {place[1]} of stage {place[0]}"


def _size(count: float) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count:.0f} B"


def _sizes(need: float, capacity: float) -> tuple[str, str]:
    """Both sizes; in bytes when the short forms would look equal."""
    short = _size(need), _size(capacity)
    return short if short[0] != short[1] else (f"{need:.0f} B", f"{capacity:.0f} B")


def _capacities(case: Case, tiling: WeightParts, sram: dict[Place, float], held: dict[int, Held]) -> Iterator[str]:
    chip, reserve = case.system.chip, reserved(case)
    for place in case.members:
        need = sram.get(place, 0.0)
        if _exceeds(need, chip.sram.capacity):
            wants, has = _sizes(need, chip.sram.capacity)
            yield f"{_name(place)} needs {wants} of SRAM, the chip has {has}"
    for number, io in tiling.stuck.items():
        yield (
            f"kernel {case.kernels[number].kernel.name!r} needs {_size(io)} of SRAM for its buffers alone,"
            f" which leaves no room for its weights: the chip has {_size(chip.sram.capacity)}"
        )
    for number, count in tiling.parts.items():
        placed = case.kernels[number]
        if len(case.members[placed.place]) > 1:
            yield (
                f"kernel {placed.kernel.name!r} needs {_size(tiling.alone[number])} of SRAM by itself,"
                f" the chip has {_size(chip.sram.capacity)}: it runs in {count} weight parts and must be"
                f" alone in {_name(placed.place)}"
            )
    for rank in case.ranks:
        for tier, need, room in overfull(case, held[rank.number]):
            wants, has = _sizes(need, room)
            of = f" of {_size(chip.tiers[tier].capacity or 0.0)}, {100 * reserve:.3g} % is reserved" if reserve else ""
            yield f"{rank.name} needs {wants} of {tier.upper()} per chip, the chip has {has}{of}"


def overfull(case: Case, books: Held) -> Iterator[tuple[str, float, float]]:
    """Memories of a chip that are too small: name, bytes needed and bytes available of each."""
    for tier, capacity in capacities(case.system.chip).items():
        need, room = math.fsum(books.get(tier, {}).values()), capacity * (1 - reserved(case))
        if _exceeds(need, room):
            yield tier, need, room


def _tiles(case: Case) -> Iterator[str]:
    rows, least = ops.streamed_rows(case.graph), max(tile_rows(case, placed) for placed in case.kernels)
    if case.tile_count > -(-rows // least):
        yield (
            f"the streamed axis is cut into {case.tile_count} tiles, the shortest one has {rows} rows"
            f" and a tile at least {least}"
        )
    for place, members in case.members.items():
        for reason in refused(case, members):
            yield f"{_name(place)} {reason}"


def tile_rows(case: Case, placed: Placed) -> int:
    """Fewest rows that a tile must have for a kernel: one for each chip that shares the rows of a tile."""
    least = case.assume.tile_rows or 1
    return max(least, case.plan.shards) if ops.splits_tiles(placed.kernel, placed.sharding) else least


def refused(case: Case, members: Sequence[int]) -> Iterator[str]:
    """Reasons why kernels cannot share a partition, apart from SRAM and passes."""
    used = sum(case.kernels[number].tiles for number in members)
    if used > case.system.chip.tiles:
        yield f"uses {used} tiles, the chip has {case.system.chip.tiles}"
    if case.assume.execution == "kernel_by_kernel" and len(members) > 1:
        yield f"holds {len(members)} kernels, execution kernel by kernel allows 1"
    if case.assume.execution == "library" and len(members) > 1 and not _done_at_once(case, members):
        yield f"holds {len(members)} kernels that no kernel of a library does at once"


def _done_at_once(case: Case, members: Sequence[int]) -> bool:
    """Whether a kernel of a library does these: they share one of its sets, and what one makes another reads."""
    common = [all(inside) for inside in zip(*(sets_of(case.kernels[k].kernel) for k in members), strict=True)]
    if not any(common):
        return False
    inside = [{fan.src, *fan.readers}.intersection(members) for fan in case.fans if fan.src in members]
    left, reached = set(members), {members[0]}
    while reached:
        left -= reached
        reached = {k for joined in inside if not joined <= left for k in joined} & left
    return not left


def _order(case: Case) -> Iterator[str]:
    for fan in case.fans:
        if not fan.away:
            continue
        src = case.kernels[fan.src]
        for dst in (case.kernels[reader.kernel] for reader in fan.consumers):
            (from_stage, from_partition), (to_stage, to_partition) = src.place, dst.place
            if from_stage == to_stage and from_partition <= to_partition:
                continue
            tensor = f"tensor {src.kernel.name} -> {dst.kernel.name}"
            if from_stage == to_stage:
                yield (
                    f"{tensor} goes back from partition {from_partition} to partition {to_partition}"
                    f" of stage {from_stage}"
                )
            elif src.forward or dst.forward:
                if from_stage > to_stage:
                    yield f"{tensor} goes back from stage {from_stage} to stage {to_stage}"
            elif from_stage < to_stage:
                yield (
                    f"{tensor} goes from stage {from_stage} to stage {to_stage},"
                    " but the backward pass visits the stages in reverse"
                )


def _passes(case: Case) -> Iterator[str]:
    """Judge empty partitions, and how the forward and the other passes share the partitions of a stage."""
    rule, forbid = case.assume.forward_backward, case.assume.empty_partitions == "forbid"
    forward: dict[int, set[int]] = defaultdict(set)
    other: dict[int, set[int]] = defaultdict(set)
    for placed in case.kernels:
        (forward if placed.forward else other)[placed.place[0]].add(placed.place[1])
    for stage in sorted({*forward, *other}):
        used = forward[stage] | other[stage]
        count = max(used) + 1
        if forbid and len(used) < count:
            empty = count - len(used)
            yield f"stage {stage} has {empty} empty partitions of {count}, the assumptions forbid any"
        if rule == "separate" and forward[stage] and other[stage]:
            yield from separate(stage, forward[stage], other[stage])
        # The rule is about two passes, and kernel by kernel the authors' program does not apply it.
        if rule == "halves" and forward[stage] and other[stage] and case.assume.execution != "kernel_by_kernel":
            yield from _halves(stage, forward[stage], other[stage], count, forbid)


def separate(stage: int, forward: set[int], other: set[int]) -> Iterator[str]:
    """Reasons why the partitions of a stage do not keep the forward pass separate from the others.

    Parameters
    ----------
    stage : int
        Number of the pipeline stage.
    forward, other : set of int
        Partitions that run kernels of the forward pass, and of all other passes. Neither is empty.
    """
    for partition in sorted(forward & other):
        yield f"{_name((stage, partition))} mixes forward kernels with backward or update kernels"
    if max(forward) > min(other):
        yield (
            f"stage {stage} runs forward kernels up to partition {max(forward)}, but backward or"
            f" update kernels already from partition {min(other)}"
        )


def _halves(stage: int, forward: set[int], other: set[int], count: int, forbid: bool) -> Iterator[str]:
    late, early = max(forward, default=-1), min(other, default=count)
    # Trailing empty partitions do not show in a mapping. Where they are allowed, so is any larger count that
    # keeps the rule: large enough for the last forward kernel, small enough for the first other one.
    if not forbid and (not other or max(2 * late + 1, count) <= 2 * early + 1):
        return
    up, down = -(-count // 2), count // 2
    if late >= up:
        yield (
            f"{_name((stage, late))} holds a forward kernel, but of {count} partitions only the first {up} are for them"
        )
    if early < down:
        yield (
            f"{_name((stage, early))} holds a backward or update kernel, but of {count} partitions only those"
            f" from {down} are for them"
        )


def _handed_on(case: Case) -> Iterator[str]:
    """Layers of one kind that leave a tensor in another layout than layers of another kind."""
    for first, second in handed_on(case):
        layout, theirs = ops.PRODUCED[first.sharding], ops.PRODUCED[second.sharding]
        if hand_on_otherwise(case, first, second):
            yield (
                f"kernel {first.kernel.name!r} hands on its output as {layout}, but {second.kernel.name!r} as {theirs}:"
                " all layers do alike"
            )


def hand_on_otherwise(_: Case, first: Placed, second: Placed) -> bool:
    """Whether two kernels leave their outputs in different layouts.

    Parameters
    ----------
    first, second
        The two kernels.
    """
    return ops.PRODUCED[first.sharding] != ops.PRODUCED[second.sharding]


def handed_on(case: Case) -> Iterator[tuple[Placed, Placed]]:
    """Pairs of kernels, in layers of two kinds, that pass on the same tensor to the next layer."""
    left: dict[int, list[Placed]] = {}
    for fan in case.between_layers if case.graph.folded else ():
        left.setdefault(fan.home[0], []).append(case.kernels[fan.src])
    first, *rest = left.values() or [[]]
    for others in rest:
        yield from zip(first, others, strict=False)


def _together(case: Case) -> Iterator[str]:
    by_name = {placed.kernel.name: placed for placed in case.kernels}
    for placed in case.kernels:
        kernel = placed.kernel
        if kernel.stage_with is not None:
            stage = by_name[kernel.stage_with].place[0]
            if stage != placed.place[0]:
                yield (
                    f"kernel {kernel.name!r} is in stage {placed.place[0]}, but must be with"
                    f" {kernel.stage_with!r} in stage {stage}"
                )
        target = by_name.get(str(kernel.accumulates_into))
        if target is not None and lack_reduction(case, placed, target):
            yield (
                f"kernel {kernel.name!r} is split by {placed.sharding!r} and leaves partial sums, but"
                f" {kernel.accumulates_into!r}, which should reduce them, is split by {target.sharding!r}"
                " and not by 'k'"
            )


def lack_reduction(case: Case, placed: Placed, target: Placed) -> bool:
    """Whether a kernel leaves partial sums to a kernel that does not reduce them.

    Parameters
    ----------
    case
        Tables of the mapping.
    placed, target
        The kernel, and the one that accumulates its output.
    """
    leaves = ops.leaves_partial_sums(placed.kernel, placed.sharding, case.plan.shards, case.assume.sharding_rules)
    return leaves and ops.split_axis(target.sharding) != "k"
