"""A channel with a command queue for each bank, as in DRAMsim3, in whole clocks.

It follows the queues of DRAMsim3 (Li, Yang, Reddy, Srivastava, Jacob, "DRAMsim3: A Cycle-Accurate, Thermal-Capable
DRAM Simulator", IEEE CAL 19(2), 2020; behaviour read from its public program): requests wait in a transaction queue,
one a clock moves to the command queue of its bank, the queues take turns, and within a queue the first command that
can go does (first ready, first come). Writes wait in a buffer of their own and are drained together. A refresh closes
all banks at once. Clocks in which nothing can happen are skipped. Reads of one burst are not merged, nor served from
the write buffer.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable

from dram_channel.policy import Policy, Request, SimResult
from dram_channel.types import Organisation, Timing, refuse

__all__ = ["PerBank"]

# DRAMsim3: a bank's open row is given up for an older request after this many bursts in a row.
_ROW_HIT_LIMIT = 4
# DRAMsim3: an idle channel drains its write buffer when it holds more than this.
_IDLE_DRAIN = 8
_NEVER = 1 << 60


class PerBank:
    """The state of one channel, and its clock."""

    def __init__(self, timing: Timing, organisation: Organisation, policy: Policy) -> None:
        self.timing, self.policy = timing, policy
        self.bytes = organisation.burst_bytes
        self.count = organisation.banks
        self.group = [b // organisation.banks_per_group for b in range(self.count)]
        self.groups = organisation.bank_groups

    def run(self, source: Iterable[Request | tuple[int, int, int, bool]], cycles: int, warmup: int) -> SimResult:
        """The loop over clocks; one long function, because calls would take most of its time."""
        t, policy = self.timing, self.policy
        take = iter(source).__next__
        count, group_of = self.count, self.group
        closes = policy.page == "closed"
        t_cl, t_bl, t_cwl = t.clocks("CL"), t.clocks("tBL"), t.clocks("CWL")
        ccd_s, ccd_l = max(t_bl, t.clocks("tCCD_S")), max(t_bl, t.clocks("tCCD_L"))
        rcd_rd, rcd_wr, rp = t.clocks("tRCDRD"), t.clocks("tRCDWR"), t.clocks("tRP")
        ras, rc, rtp = t.clocks("tRAS"), t.clocks("tRC"), t.clocks("tRTP")
        rrd_s, rrd_l, faw = t.clocks("tRRD_S"), t.clocks("tRRD_L"), t.clocks("tFAW")
        rtw, wtr_s, wtr_l = t.clocks("tRTW"), t_cwl + t_bl + t.clocks("tWTR_S"), t_cwl + t_bl + t.clocks("tWTR_L")
        wr_pre, rfc, refi = t_cwl + t_bl + t.clocks("tWR"), t.clocks("tRFC"), max(1, t.clocks("tREFI"))
        depth, room, dual = policy.cmd_queue_size, policy.trans_queue_size, policy.dual_issue

        # Of each bank: its open row (-1: closed), bursts since it was opened, and the first clock of each command.
        open_row, hits = [-1] * count, [0] * count
        act_at, pre_at, rd_at, wr_at, ref_at = ([0] * count for _ in range(5))
        queue: list[list[tuple[int, bool, int]]] = [[] for _ in range(count)]  # (row, write, clock of acceptance)
        # What a bank can do next: ACT 1, or PRE allowed 2 with the places of its first read and first write hit.
        may_pre, first_rd, first_wr = [False] * count, [-1] * count, [-1] * count
        act_g, rd_g, wr_g = [0] * self.groups, [0] * self.groups, [0] * self.groups
        act_all = rd_all = wr_all = 0
        window: deque[int] = deque()  # the ends of the tFAW windows of the last activates

        reads: list[tuple[int, int, bool, int]] = []
        writes: list[tuple[int, int, bool, int]] = []
        draining = pointer = queued = opened = 0
        refreshing, next_refresh = False, refi if policy.refresh else _NEVER
        blocked = False  # no waiting transaction fits its command queue
        line, looked = reads, 0  # the transactions that may move, and how many of the first ones meet full queues
        done: list[int] = []  # completion clocks of reads, a heap
        waiting = [1] * (policy.outstanding or 0)
        open_loop = policy.outstanding is None
        offered: tuple[int, int, int, bool] | None = None
        next_offer, ended, mixed = 1, False, False

        n_act = n_rd = n_wr = n_ref = n_hit = accepted = finished = idle = latency = 0
        mark: tuple[int, ...] = (0,) * 9
        clk, last, ready_at = 0, 0, 0
        marked = warmup == 0
        while clk < cycles:
            if opened == 0:
                idle += clk - last - 1 if clk > last else 0
            last = clk
            if not marked and clk >= warmup:
                marked = True
                mark = (n_act, n_rd, n_wr, n_ref, n_hit, finished, idle, latency, clk)
            # 1. Requests that end; in a closed loop each frees a place.
            while done and done[0] <= clk:
                heapq.heappop(done)
                finished += 1
                if not open_loop:
                    heapq.heappush(waiting, clk + 1 + policy.extra_latency)
            # 2. The client offers one request.
            if (
                not ended
                and offered is None
                and ((clk >= next_offer) if open_loop else (waiting and waiting[0] <= clk))
            ):
                try:
                    offered = take()
                except StopIteration:
                    ended = True
                else:
                    if not 0 <= offered[0] < count:
                        refuse("request", "bank", offered[0], f"a bank from 0 to {count - 1}")
            if offered is not None:
                target = writes if offered[3] else reads
                if len(target) < room:
                    target.append((offered[0], offered[1], offered[3], clk))
                    mixed = mixed or offered[3]
                    blocked = False
                    accepted += 1
                    next_offer += policy.interval  # a client that had to wait catches up
                    if not open_loop:
                        heapq.heappop(waiting)
                    if offered[3]:
                        heapq.heappush(done, clk + 1)  # a buffered write is done for its client
                    offered = None
            # 3. Refresh, then commands.
            if clk >= next_refresh:
                refreshing = True
            issued = 0  # 1 a row command, 2 a column command
            if refreshing:
                ready_at = clk + 1
                closed = True
                for b in range(count):
                    if open_row[b] >= 0:
                        closed = False
                        if pre_at[b] <= clk:
                            open_row[b], hits[b] = -1, 0
                            opened -= 1
                            act_at[b] = max(act_at[b], clk + rp)
                            ref_at[b] = max(ref_at[b], clk + rp)
                            break
                if closed and max(ref_at) <= clk:
                    n_ref += 1
                    refreshing = False
                    next_refresh = (clk // refi + 1) * refi if clk >= next_refresh + refi else next_refresh + refi
                    for b in range(count):
                        act_at[b] = max(act_at[b], clk + rfc)
                        ref_at[b] = clk + rfc
            elif clk >= ready_at:
                ready_at = _NEVER
                for turn in range(2 if dual else 1):
                    found, chosen = 0, -1
                    least = _NEVER
                    window_at = window[0] if len(window) >= 4 else 0
                    b = pointer
                    for _ in range(count):
                        b = b + 1 if b + 1 < count else 0
                        if not queue[b]:
                            continue
                        g = group_of[b]
                        if open_row[b] < 0:
                            at = act_at[b]
                            at = max(at, act_all, act_g[g], window_at)
                            if at <= clk:
                                found, chosen = 1, 0
                                break
                            if at < least:
                                least = at
                            continue
                        if may_pre[b]:
                            at = pre_at[b]
                            if at <= clk:
                                found, chosen = 2, 0
                                break
                            if at < least:
                                least = at
                        i, j = first_rd[b], first_wr[b]
                        if i >= 0:
                            at = max(rd_at[b], rd_all, rd_g[g])
                            if at <= clk and (j < 0 or i < j or max(wr_at[b], wr_all, wr_g[g]) > clk):
                                found, chosen = 3, i
                                break
                            if at < least:
                                least = at
                        if j >= 0:
                            at = max(wr_at[b], wr_all, wr_g[g])
                            if at <= clk:
                                found, chosen = 4, j
                                break
                            if at < least:
                                least = at
                    if not found:
                        ready_at = least
                        break
                    pointer = b
                    if turn and (found > 2) == (issued == 2):
                        ready_at = clk + 1  # two of a kind do not go together
                        break
                    issued = 2 if found > 2 else 1
                    ready_at = clk + 1
                    if found == 1:
                        n_act += 1
                        opened += 1
                        open_row[b], hits[b] = queue[b][0][0], 0
                        act_at[b], pre_at[b] = clk + rc, max(pre_at[b], clk + ras)
                        rd_at[b], wr_at[b] = clk + rcd_rd, clk + rcd_wr
                        act_all = clk + rrd_s
                        act_g[g] = clk + rrd_l
                        if window and clk >= window[0]:
                            window.popleft()
                        window.append(clk + faw)
                    elif found == 2:
                        opened -= 1
                        open_row[b], hits[b] = -1, 0
                        act_at[b] = max(act_at[b], clk + rp)
                        ref_at[b] = max(ref_at[b], clk + rp)
                    else:
                        n_hit += hits[b] != 0
                        hits[b] += 1
                        _, _, since = queue[b].pop(chosen)
                        queued -= 1
                        blocked, looked = False, 0
                        if found == 3:
                            n_rd += 1
                            heapq.heappush(done, clk + t_cl + t_bl)
                            latency += clk + t_cl + t_bl - since
                            rd_all, wr_all = max(rd_all, clk + ccd_s), max(wr_all, clk + rtw)
                            rd_g[g] = max(rd_g[g], clk + ccd_l)
                            pre_at[b] = max(pre_at[b], clk + rtp)
                            to_act, to_ref = clk + t_bl + rtp + rp, clk + rtp + rp
                        else:
                            n_wr += 1
                            wr_all, rd_all = max(wr_all, clk + ccd_s), max(rd_all, clk + wtr_s)
                            wr_g[g] = max(wr_g[g], clk + ccd_l)
                            rd_g[g] = max(rd_g[g], clk + wtr_l)
                            pre_at[b] = max(pre_at[b], clk + wr_pre)
                            to_act = to_ref = clk + wr_pre + rp
                        if closes:
                            open_row[b], hits[b] = -1, 0
                            opened -= 1
                            act_at[b], ref_at[b] = max(act_at[b], to_act), max(ref_at[b], to_ref)
                    # What the bank can do next.
                    row, held = open_row[b], queue[b]
                    i = j = -1
                    if row >= 0 and held:
                        for place, entry in enumerate(held):
                            if entry[0] == row:
                                if entry[1]:
                                    if j < 0:
                                        j = place
                                elif i < 0:
                                    i = place
                                if i >= 0 and (j >= 0 or not mixed):
                                    break
                        may_pre[b] = held[0][0] != row and ((i < 0 and j < 0) or hits[b] >= _ROW_HIT_LIMIT)
                    first_rd[b], first_wr[b] = i, j
            if opened == 0:
                idle += 1
            # 4. One waiting transaction moves to the command queue of its bank.
            moved = False
            if not blocked:
                if draining == 0 and (len(writes) >= room or (len(writes) > _IDLE_DRAIN and queued == 0)):
                    draining = len(writes)
                if line is not (writes if draining > 0 else reads):
                    line, looked = (writes if draining > 0 else reads), 0
                for place in range(looked, len(line)):
                    bank, row, write, since = line[place]
                    held = queue[bank]
                    if len(held) < depth:
                        del line[place]
                        draining -= write
                        held.append((row, write, since))
                        queued += 1
                        moved = True
                        if open_row[bank] == row:
                            if write:
                                if first_wr[bank] < 0:
                                    first_wr[bank] = len(held) - 1
                            elif first_rd[bank] < 0:
                                first_rd[bank] = len(held) - 1
                            may_pre[bank] = held[0][0] != row and hits[bank] >= _ROW_HIT_LIMIT
                        elif len(held) == 1:
                            may_pre[bank] = True
                        ready_at, looked = min(ready_at, clk + 1), place
                        break
                else:
                    blocked, looked = True, len(line)
            # 5. The next clock in which anything can happen.
            if moved or issued:
                clk += 1
                continue
            soon = min(ready_at, next_refresh) if not refreshing else clk + 1
            if done:
                soon = min(soon, done[0])
            if not ended and offered is None:
                soon = min(soon, next_offer if open_loop else waiting[0] if waiting else _NEVER)
            if soon >= _NEVER:
                clk += 1  # this clock was the last
                break
            clk = max(soon, clk + 1)
        end = min(clk, cycles)
        if opened == 0 and end > last:
            idle += end - last - 1
        while done and done[0] < end:
            heapq.heappop(done)
            finished += 1
        now = (n_act, n_rd, n_wr, n_ref, n_hit, finished, idle, latency, end)
        act, rd, wr, ref, hit, fin, still, lat, clocks = (a - b for a, b in zip(now, mark, strict=True))
        return SimResult.of_clocks(
            t.tCK, self.bytes, clocks=clocks, finished=fin, latency=lat, idle=still, n_act=act, n_rd=rd, n_wr=wr,
            n_ref=ref, row_hits=hit, accepted=accepted, in_flight=accepted - finished,
        )  # fmt: skip
