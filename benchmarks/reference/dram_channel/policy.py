"""A request, the controller that takes it, and what a simulated stretch of time did."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, NamedTuple, Self

from dram_channel.types import refuse

__all__ = ["Policy", "Request", "SimResult"]


class Request(NamedTuple):
    """One burst: its bank (group * banks_per_group + bank), row and column, and whether it writes."""

    bank: int
    row: int
    column: int = 0
    write: bool = False


@dataclass(frozen=True)
class Policy:
    """How the controller and its client work.

    Parameters
    ----------
    structure : {"per_bank", "shared"}
        A command queue for each bank behind one transaction queue, as in DRAMsim3; or one buffer from which the oldest
        row hit, then the oldest that can go, is served, and which an activate frees of its request, as in Ramulator 2.
    page : {"open", "closed"}
        Whether a row stays open after a burst.
    cmd_queue_size : int
        Entries of the command queue of each bank.
    trans_queue_size : int
        Entries of the transaction queue (or of the one buffer), and of the write buffer.
    dual_issue : bool
        Whether a row command and a column command can go in the same clock (HBM: JESD235, separate row and column
        command buses).
    refresh : bool
        Whether all banks are refreshed each tREFI.
    interval : int
        Clocks between two offered requests of an open loop.
    outstanding : int or None
        Closed loop: requests in flight; None is the open loop.
    extra_latency : int
        Closed loop: clocks between the end of a request and the next one in its place.

    Raises
    ------
    SystemSpecError
        A number that is not whole or out of its range, or an unknown page policy.
    """

    structure: Literal["per_bank", "shared"] = "per_bank"
    page: Literal["open", "closed"] = "open"
    cmd_queue_size: int = 8
    trans_queue_size: int = 32
    dual_issue: bool = True
    refresh: bool = True
    interval: int = 1
    outstanding: int | None = None
    extra_latency: int = 0

    def __post_init__(self) -> None:
        """Check the numbers."""
        if self.structure not in ("per_bank", "shared"):
            refuse("policy", "structure", repr(self.structure), "'per_bank' or 'shared'")
        if self.page not in ("open", "closed"):
            refuse("policy", "page", repr(self.page), "'open' or 'closed'")
        for each in fields(self):
            value, least = getattr(self, each.name), 0 if each.name == "extra_latency" else 1
            known = each.name in ("structure", "page", "dual_issue", "refresh") or (
                each.name == "outstanding" and value is None
            )
            if not known and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                refuse("policy", each.name, repr(value), f"a whole number >= {least}")


@dataclass(frozen=True)
class SimResult:
    """What a simulated stretch of time did; ``latency`` is the mean of the reads, in seconds, queues included."""

    bandwidth: float
    latency: float
    n_act: int
    n_rd: int
    n_wr: int
    n_ref: int
    row_hits: int
    seconds: float
    idle_seconds: float  # with every bank closed
    accepted: int  # bursts taken from the client; those not done yet are in flight
    in_flight: int

    @classmethod
    def of_clocks(
        cls,
        tCK: float,
        burst_bytes: int,
        *,
        clocks: int,
        finished: int,
        latency: int,
        idle: int,
        n_rd: int,
        **counts: int,
    ) -> Self:
        """From what was counted in ``clocks``: bursts that ended, the latencies of all reads together, idle clocks."""
        seconds = clocks * tCK
        return cls(
            bandwidth=finished * burst_bytes / seconds if seconds else 0.0,
            latency=latency / n_rd * tCK if n_rd else 0.0,
            seconds=seconds,
            idle_seconds=idle * tCK,
            n_rd=n_rd,
            **counts,
        )
