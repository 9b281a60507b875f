"""Run a stream of bursts through the banks and the bus of one channel, clock by clock; and when that is needed."""

from __future__ import annotations

from collections.abc import Iterable

from dfopt.technology.dram import LIMITS, out_of_range
from dram_channel.per_bank import PerBank
from dram_channel.policy import Policy, Request, SimResult
from dram_channel.shared_buffer import SharedBuffer
from dram_channel.types import BandwidthBounds, Organisation, Stream, Timing, refuse

__all__ = ["Policy", "Request", "SimResult", "simulate", "why_simulate"]

# Banks that are few, with about the rate of the next limit: their rows recharge together or in turn, as it happens.
# Against the simulator, 107 random streams: 41 % off inside these bounds, at most 5 % outside them.
_SOME_BANKS, _CLOSE = 8, (0.67, 2.0)


def simulate(
    requests: Iterable[Request | tuple[int, int, int, bool]],
    timing: Timing,
    organisation: Organisation,
    policy: Policy = Policy(),  # noqa: B008  # frozen
    cycles: int = 40_000,
    warmup: int = 0,
) -> SimResult:
    """Run a stream through one channel for a number of clocks.

    Parameters
    ----------
    requests
        The bursts in the order in which the client offers them; when they end, the channel runs dry.
    cycles : int
        Clocks to simulate; stops before when every request is done.
    warmup : int
        Clocks at the start that do not count.

    Raises
    ------
    SystemSpecError
        A bank that the channel does not have, or no clock to count.

    Examples
    --------
    One bank, a new row for each burst: one burst a tRC, whatever the bus could do.

    >>> rows = [Request(bank=0, row=r) for r in range(1000)]
    >>> done = simulate(rows, Timing(), Organisation(), Policy(refresh=False), cycles=48_000)
    >>> done.n_act, round(done.bandwidth / (64 / 48e-9), 2)
    (1000, 1.0)
    """
    if cycles <= warmup:
        refuse("simulate", "cycles", cycles, f"more than the warm-up of {warmup} clocks")
    channel = SharedBuffer if policy.structure == "shared" else PerBank
    return channel(timing, organisation, policy).run(iter(requests), cycles, warmup)


def why_simulate(stream: Stream, policy: Policy, limits: BandwidthBounds) -> str:
    """Why the formula does not hold for a stream with these `bounds`, or an empty text where it does.

    Examples
    --------
    >>> from dram_channel.bounds import bounds
    >>> two, all_banks = Stream(1e6, banks=2, groups=2), Stream(1e6)
    >>> why_simulate(two, Policy(), bounds(two, Timing(), Organisation()))
    '2 banks, fewer than 4'
    >>> why_simulate(all_banks, Policy(), bounds(all_banks, Timing(), Organisation()))
    ''
    """
    banks, u = stream.banks, stream.bursts_per_activation
    per_bank = 0 if policy.structure == "shared" else policy.cmd_queue_size
    entries = policy.trans_queue_size + per_bank * banks
    if known := out_of_range(u, banks, stream.random, stream.read_share, entries, [limits.limits[n] for n in LIMITS]):
        return known
    if policy.interval > 1:
        return "requests at intervals, below the full load"
    if policy.trans_queue_size + per_bank < 2 * banks:
        return "queues too short to keep the banks busy"
    share = limits.limits["activation"] / min(value for name, value in limits.limits.items() if name != "activation")
    if stream.outstanding is not None:  # what is in flight keeps the banks apart
        return ""
    if policy.page == "closed" and u > 1:
        return "pages closed after each burst, while the next one wants the same row"
    if banks < _SOME_BANKS and _CLOSE[0] < share < _CLOSE[1]:
        return f"{banks} banks with little to spare"
    if entries < banks * u and share * entries / u < banks:
        return f"queues that see {entries / u:g} visits, too few for {banks} banks"
    return ""
