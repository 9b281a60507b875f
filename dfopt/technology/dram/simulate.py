"""Run a stream of bursts through the banks and the bus of one channel, clock by clock."""

from __future__ import annotations

from collections.abc import Iterable

from dfopt.technology.dram.per_bank import PerBank
from dfopt.technology.dram.policy import Policy, Request, SimResult
from dfopt.technology.dram.shared_buffer import SharedBuffer
from dfopt.technology.dram.types import Organisation, Timing, refuse

__all__ = ["Policy", "Request", "SimResult", "simulate"]


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
