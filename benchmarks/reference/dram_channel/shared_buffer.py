"""A channel with one buffer of requests, as in Ramulator 2, in whole clocks.

It follows Ramulator 2 (Luo, Tugrul, Bostanci, Olgun, Yaglikci, Mutlu, "Ramulator 2.0: A Modern, Modular, and Extensible
DRAM Simulator", IEEE CAL 23(1), 2024) as far as its figures show it: its program was not read, so the rules here are
unconfirmed but for their agreement with its results. Of the requests in the buffer that can issue their next command,
the oldest row hit goes first, then the oldest; nothing closes a row that an older request still wants (with closing
allowed, random visits of eight bursts come out 5 % low). An activate moves its request to a list of active ones, which
go before all others and whose rows nobody closes; so an entry of the buffer is free from then on. One command goes
each clock (two of a kind apart would come out 4 % high with a buffer of one). Its client is an open loop of reads.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable

from dram_channel.policy import Policy, Request, SimResult
from dram_channel.types import Organisation, Timing, refuse

__all__ = ["SharedBuffer"]

_PER_CLOCK = 4  # requests that the client can hand over each clock: its clock is four times as fast
_NEVER = 1 << 60


class SharedBuffer:
    """The state of one channel, and its clock."""

    def __init__(self, timing: Timing, organisation: Organisation, policy: Policy) -> None:
        if policy.outstanding is not None or policy.page != "open" or policy.interval != 1:
            found = f"{policy.page} page, interval {policy.interval}, outstanding {policy.outstanding}"
            refuse("policy", "structure", f"'shared' with {found}", "open page, interval 1, an open loop")
        self.timing, self.policy = timing, policy
        self.bytes = organisation.burst_bytes
        self.each, self.groups = organisation.banks_per_group, organisation.bank_groups

    def run(self, source: Iterable[Request | tuple[int, int, int, bool]], cycles: int, warmup: int) -> SimResult:
        """The loop over clocks; one function, because calls would take most of its time."""
        t, room = self.timing, self.policy.trans_queue_size
        take, count, each = iter(source), self.each * self.groups, self.each
        t_cl, t_bl = t.clocks("CL"), t.clocks("tBL")
        ccd_s, ccd_l = max(t_bl, t.clocks("tCCD_S")), max(t_bl, t.clocks("tCCD_L"))
        rcd, rp, ras, rc = t.clocks("tRCDRD"), t.clocks("tRP"), t.clocks("tRAS"), t.clocks("tRC")
        rtp, rrd_s, rrd_l, faw = t.clocks("tRTP"), t.clocks("tRRD_S"), t.clocks("tRRD_L"), t.clocks("tFAW")
        rfc, refi = t.clocks("tRFC"), max(1, t.clocks("tREFI"))
        open_row = [-1] * count
        act_at, pre_at, rd_at, claims = ([0] * count for _ in range(4))
        rd_g, act_g = [0] * self.groups, [0] * self.groups
        rd_all = act_all = 0
        window: deque[int] = deque([-faw] * 4, maxlen=4)
        buffer: list[tuple[int, int, int]] = []  # (bank, row, clock of acceptance), the oldest first
        active: list[tuple[int, int, int]] = []
        done: list[int] = []
        next_refresh = refi if self.policy.refresh else _NEVER
        n_act = n_rd = n_ref = n_hit = accepted = finished = latency = idle = opened = 0
        ended, marked, mark = False, warmup == 0, (0,) * 8
        clk = last = 0
        while clk < cycles:
            if opened == 0:
                idle += clk - last
            last = clk
            while done and done[0] <= clk:
                heapq.heappop(done)
                finished += 1
            if not marked and clk >= warmup:
                marked, mark = True, (n_act, n_rd, n_ref, n_hit, finished, latency, idle, clk)
            for _ in range(_PER_CLOCK):
                if ended or len(buffer) >= room:
                    break
                request = next(take, None)
                if request is None:
                    ended = True
                    break
                if not 0 <= request[0] < count or request[3]:
                    refuse("request", "bank", tuple(request), f"a read of a bank from 0 to {count - 1}")
                buffer.append((request[0], request[1], clk))
                accepted += 1
            chosen, soon = 0, _NEVER  # 1 a read, 2 an activate, 3 a precharge
            place, line = -1, active
            for i, (bank, _, _) in enumerate(active):
                at = max(rd_at[bank], rd_all, rd_g[bank // each])
                if at <= clk:
                    chosen, place = 1, i
                    break
                soon = min(soon, at)
            if not chosen and clk >= next_refresh:
                # A refresh goes before the buffer: once the active requests are served, all banks close together.
                at = clk if active else max(pre_at) if opened else max(act_at)
                if active:
                    pass
                elif at <= clk and opened:
                    for bank in range(count):
                        if open_row[bank] >= 0:
                            open_row[bank], act_at[bank] = -1, max(act_at[bank], clk + rp)
                    opened = 0
                    soon = max(act_at)
                elif at <= clk:
                    n_ref += 1
                    next_refresh += refi
                    act_at = [clk + rfc] * count
                    soon = clk + 1
                else:
                    soon = min(soon, at)
            elif not chosen:
                line, seen, wanted = buffer, set(), set()
                act_any = max(act_all, window[0] + faw)  # no bank can be activated before
                for i, (bank, row, _) in enumerate(buffer):
                    # Requests of one bank and row are alike, and only the oldest of them can be the choice.
                    key = (bank, row)
                    if key in seen:
                        continue
                    seen.add(key)
                    g = bank // each
                    if open_row[bank] == row:
                        wanted.add(bank)
                        at = max(rd_at[bank], rd_all, rd_g[g])
                        if at <= clk:
                            chosen, place = 1, i
                            break
                    elif open_row[bank] < 0:
                        at = act_at[bank] if act_at[bank] > act_g[g] else act_g[g]
                        at = at if at > act_any else act_any
                        if at <= clk and not chosen:
                            chosen, place = 2, i
                    elif claims[bank] or bank in wanted:
                        continue
                    else:
                        at = pre_at[bank]
                        if at <= clk and not chosen:
                            chosen, place = 3, i
                    if at < soon:  # `min` would be a call for each request of the buffer
                        soon = at
            if chosen:
                bank, row, since = line[place]
                g = bank // each
                if chosen == 1:
                    del line[place]
                    n_rd += 1
                    if line is active:
                        claims[bank] -= 1
                    else:
                        n_hit += 1
                    rd_all, rd_g[g] = clk + ccd_s, clk + ccd_l
                    pre_at[bank] = max(pre_at[bank], clk + rtp)
                    heapq.heappush(done, clk + t_cl + t_bl)
                    latency += clk + t_cl + t_bl - since
                elif chosen == 2:
                    del buffer[place]
                    active.append((bank, row, since))
                    claims[bank] += 1
                    n_act += 1
                    opened += 1
                    open_row[bank], act_at[bank], pre_at[bank] = row, clk + rc, max(pre_at[bank], clk + ras)
                    rd_at[bank], act_all, act_g[g] = clk + rcd, clk + rrd_s, clk + rrd_l
                    window.append(clk)
                else:
                    open_row[bank], act_at[bank] = -1, max(act_at[bank], clk + rp)
                    opened -= 1
                clk += 1
                continue
            if not ended and len(buffer) < room:
                soon = clk + 1
            soon = min(soon, next_refresh) if next_refresh > clk else soon
            soon = min(soon, done[0]) if done else soon
            if soon >= _NEVER:
                clk += 1  # this clock was the last
                break
            clk = max(soon, clk + 1)
        end = min(clk, cycles)
        now = (n_act, n_rd, n_ref, n_hit, finished, latency, idle, end)
        act, rd, ref, hit, fin, lat, still, clocks = (a - b for a, b in zip(now, mark, strict=True))
        return SimResult.of_clocks(
            t.tCK, self.bytes, clocks=clocks, finished=fin, latency=lat, idle=still, n_act=act, n_rd=rd, n_wr=0,
            n_ref=ref, row_hits=hit, accepted=accepted, in_flight=accepted - finished,
        )  # fmt: skip
