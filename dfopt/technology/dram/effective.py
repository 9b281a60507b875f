"""The bandwidth of a stream: from the formula where it holds, else from the simulator; and which of them it was."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from dfopt.technology.dram.bounds import bounds
from dfopt.technology.dram.patterns import random_visits, round_robin, take_turns
from dfopt.technology.dram.simulate import Policy, Request, SimResult, simulate
from dfopt.technology.dram.types import BandwidthBounds, Organisation, Stream, Timing

__all__ = ["Effective", "effective", "why_simulate"]

# With fewer banks, whether their rows close together or in turn depends on the scheduler: up to 40 % either way.
_FEW_BANKS = 4
# Banks that are few, with about the rate of the next limit: their rows recharge together or in turn, as it happens.
# Against the simulator, 107 random streams: 41 % off inside these bounds, at most 5 % outside them.
_SOME_BANKS, _CLOSE = 8, (0.67, 2.0)
# The lookahead of the controller has to hold the visits of this many banks for the bounds to be reached.
_VISITS_IN_QUEUE = 4
# Random visits are uneven: banks that could do this many times what the next limit allows do not bind.
_SPARE = 2.0
_ROWS = 1 << 15
_REFRESHES = 10  # simulated after one of warm-up: the phase of the stream against the refreshes averages out
_LEAST_CLOCKS, _MOST_CLOCKS = 20_000, 60_000


@dataclass(frozen=True)
class Effective:
    """The bandwidth of a stream in B/s, which model gave it and why, and the bounds whatever the model."""

    bandwidth: float
    model: Literal["formula", "simulator"]
    why: str
    bounds: BandwidthBounds
    simulated: SimResult | None = None

    @property
    def binding(self) -> str:
        """The limit that binds, from the bounds."""
        return self.bounds.binding


def why_simulate(stream: Stream, policy: Policy, limits: BandwidthBounds) -> str:
    """Why the formula does not hold for a stream with these `bounds`, or an empty text where it does.

    Examples
    --------
    >>> two, all_banks = Stream(1e6, banks=2, groups=2), Stream(1e6)
    >>> why_simulate(two, Policy(), bounds(two, Timing(), Organisation()))
    '2 banks, fewer than 4'
    >>> why_simulate(all_banks, Policy(), bounds(all_banks, Timing(), Organisation()))
    ''
    """
    banks, u = stream.banks, stream.bursts_per_activation
    if banks < _FEW_BANKS:
        return f"{banks} bank{'' if banks == 1 else 's'}, fewer than {_FEW_BANKS}"
    if stream.is_mix:
        return "a mix of reads and writes, whose turns the controller chooses"
    if policy.interval > 1:
        return "requests at intervals, below the full load"
    per_bank = 0 if policy.structure == "shared" else policy.cmd_queue_size
    entries = policy.trans_queue_size + per_bank * banks
    if entries < _VISITS_IN_QUEUE * u:
        return f"queues of {entries} bursts hold fewer than {_VISITS_IN_QUEUE} visits"
    if policy.trans_queue_size + per_bank < 2 * banks:
        return "queues too short to keep the banks busy"
    share = limits.limits["activation"] / min(value for name, value in limits.limits.items() if name != "activation")
    if stream.random:
        # Visits that meet in one bank leave others idle, which only shows where the banks have little to spare.
        busy = 1 - (1 - 1 / banks) ** (entries / u)
        if share * busy < _SPARE:
            return "random visits that meet in the same banks, with little to spare"
    if stream.outstanding is not None:  # what is in flight keeps the banks apart
        return ""
    if policy.page == "closed" and u > 1:
        return "pages closed after each burst, while the next one wants the same row"
    if banks < _SOME_BANKS and _CLOSE[0] < share < _CLOSE[1]:
        return f"{banks} banks with little to spare"
    if entries < banks * u and share * entries / u < banks:
        return f"queues that see {entries / u:g} visits, too few for {banks} banks"
    return ""


def effective(
    stream: Stream,
    timing: Timing,
    organisation: Organisation,
    policy: Policy = Policy(),  # noqa: B008  # frozen
    refresh_rate: float = 1.0,
) -> Effective:
    """The bandwidth that a stream gets from one channel.

    The formula holds for reads or writes alone over four or more banks, with queues that hold four visits, and for
    random visits where the banks have twice the rate that is needed. For anything else the banks are simulated, once
    for the same arguments.

    Parameters
    ----------
    policy
        The controller; requests in flight and the extra latency come from the stream.
    refresh_rate : float
        Refreshes per tREFI: 1 in normal use, 2 or 4 when hot, 0 for none.

    Raises
    ------
    SystemSpecError
        As `bounds` and `simulate`.

    Examples
    --------
    >>> many = effective(Stream(1e6, 32), Timing(), Organisation())
    >>> few = effective(Stream(1e6, 32, banks=1, groups=1), Timing(), Organisation())
    >>> many.model, few.model, few.bandwidth < many.bandwidth
    ('formula', 'simulator', True)
    """
    # The bytes of a stream do not change its rate: with them left out, streams of many sizes share one entry.
    return _effective(stream.with_(bytes=0.0), timing, organisation, policy, refresh_rate)


@lru_cache(maxsize=1024)
def _effective(
    stream: Stream, timing: Timing, organisation: Organisation, policy: Policy, refresh_rate: float
) -> Effective:
    limits = bounds(stream, timing, organisation, refresh_rate)
    why = why_simulate(stream, policy, limits)
    if not why:
        return Effective(limits.bandwidth, "formula", "", limits)
    at_work = replace(
        policy,
        refresh=policy.refresh and refresh_rate > 0,
        outstanding=stream.outstanding,
        extra_latency=round(stream.extra_latency / timing.tCK),
    )
    hot = replace(timing, tREFI=timing.tREFI / refresh_rate) if refresh_rate > 0 else timing
    interval = hot.clocks("tREFI") if at_work.refresh else _LEAST_CLOCKS // _REFRESHES
    clocks = min(max(_REFRESHES * interval, _LEAST_CLOCKS), _MOST_CLOCKS)
    found = simulate(_requests(stream, organisation), hot, organisation, at_work, clocks + interval, interval)
    return Effective(found.bandwidth, "simulator", why, limits, found)


def _requests(stream: Stream, organisation: Organisation) -> Iterator[Request]:
    """The bursts of a stream, without end; a mix reads from one half of its banks and writes to the other."""
    u = max(1, min(round(stream.bursts_per_activation), organisation.bursts_per_row))
    order = [b for b in take_turns(organisation) if b // organisation.banks_per_group < stream.groups][: stream.banks]
    if stream.is_mix:
        return _mixed(stream, organisation, u, order)
    if stream.random and stream.banks == organisation.banks:
        source = random_visits(organisation, _ROWS, u)
    else:
        source = round_robin(organisation, _ROWS, u, order)
    return (request._replace(write=True) for request in source) if stream.write else source


def _mixed(stream: Stream, organisation: Organisation, u: int, order: list[int]) -> Iterator[Request]:
    """Runs of reads and of writes; their lengths are rounded so that the shares hold over many runs."""
    half = max(1, len(order) // 2)
    reads = round_robin(organisation, _ROWS, u, order[:half])
    writes = round_robin(organisation, _ROWS, u, order[half:] or order)
    run = max(1.0, stream.bursts_per_turnaround or 1.0)
    read = write = 0.0  # bursts due so far
    sent = [0, 0]
    while True:
        read += run * stream.read_share
        write += run * (1 - stream.read_share)
        while sent[0] + 0.5 <= read:
            sent[0] += 1
            yield next(reads)
        while sent[1] + 0.5 <= write:
            sent[1] += 1
            yield next(writes)._replace(write=True)
