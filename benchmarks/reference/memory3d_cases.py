"""The DRAM case files of DRAMsim3 and Ramulator 2, read into what our formula and simulator take."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from dram_channel import BandwidthBounds, DramEnergy, Organisation, Policy, Request, Stream, Timing, why_simulate
from dram_channel.patterns import (
    interleaved_groups,
    random_visits,
    read_write,
    round_robin,
    sequential_rows,
    stride,
    take_turns,
)  # fmt: skip

CURRENTS = ("IDD0", "IDD2N", "IDD3N", "IDD4R", "IDD4W", "IDD5AB")
_OFF = 1e6  # clocks of tREFI from which on a run sees no refresh


class Unsupported(Exception):
    """A case that asks for something we do not model."""


@dataclass(frozen=True)
class Case:
    """One case, ready to run: what is simulated, and what is reported."""

    id: str
    timing: Timing
    organisation: Organisation
    policy: Policy
    stream: Stream
    requests: Callable[[], Iterator[Request]]
    reported: dict[str, str]
    bandwidth_key: str
    latency: tuple[str, str, float]  # column, unit, seconds per unit
    groups: tuple[str, ...]
    clocks: int
    energy: DramEnergy | None = None
    notes: list[str] = field(default_factory=list)
    row_run: float = 1  # bursts of one row that follow each other, if the page is closed after each

    def why_simulate(self, limits: BandwidthBounds) -> str:
        """Why the formula does not hold, or an empty text: `dram_channel.why_simulate`, and one case more."""
        known = why_simulate(self.stream, self.policy, limits)
        # the formula's stream is one burst a visit then, so it is not seen there
        if not known and self.stream.outstanding is None and self.policy.page == "closed" and self.row_run > 1:
            return "a page closed after each burst, and the next bursts want the same bank"
        return known


# --- patterns ---------------------------------------------------------------------------------------------------


def pattern_of(
    name: str, given: dict[str, Any], chip: Organisation, rows: int, order: str
) -> tuple[Stream, Callable[[], Iterator[Request]]]:
    """The stream of a pattern, for the formula, and its bursts, for the simulator."""
    full, each = chip.bursts_per_row, chip.banks_per_group
    whole = Stream(0.0, full, chip.banks, chip.bank_groups)
    if name == "seqrow":
        return whole, lambda: sequential_rows(chip, rows)
    if name == "bgil":
        return whole, lambda: interleaved_groups(chip, rows)
    if name in ("rand", "load"):
        u = int(given.get("u", 1))
        return whole.with_(bursts_per_activation=u, random=True), lambda: random_visits(chip, rows, u)
    if name == "rr":
        sel = given.get("sel")
        banks = [g * each + b for g, b in sel] if sel else take_turns(chip, int(given["banks"]))
        u = int(given.get("u", full))
        groups = len({bank // each for bank in banks})
        visits = whole.with_(bursts_per_activation=u, banks=len(set(banks)), groups=groups)
        return visits, lambda: round_robin(chip, rows, u, banks)
    if name == "rw":
        reads, writes = int(given["nr"]), int(given["nw"])
        mix = whole.with_(read_share=reads / (reads + writes), bursts_per_turnaround=reads + writes)
        return mix, lambda: read_write(chip, rows, reads, writes)
    if name == "stride":
        step = int(given["stride"])
        seen = list(itertools.islice(stride(chip, rows, step, order), 4096))
        open_rows: dict[int, int] = {}
        opened = 0
        for request in seen:
            opened += open_rows.get(request.bank) != request.row
            open_rows[request.bank] = request.row
        groups = len({bank // each for bank in open_rows})
        found = whole.with_(bursts_per_activation=len(seen) / opened, banks=len(open_rows), groups=groups)
        return found, lambda: stride(chip, rows, step, order)
    raise Unsupported(f"pattern {name!r}; known: seqrow, bgil, rand, load, rr, rw, stride")


# --- case files -------------------------------------------------------------------------------------------------


def dramsim_parts(config: dict[str, Any]) -> tuple[Timing, Organisation, Policy, DramEnergy | None]:
    """Timing, organisation, controller and energies of a DRAMsim3 configuration."""
    known = {
        "queue_structure": "PER_BANK", "refresh_policy": "RANK_LEVEL_STAGGERED", "unified_queue": "False",
        "channels": "1",
    }  # fmt: skip
    for key, value in known.items():
        if str(config.get(key, value)).lower() != value.lower():
            raise Unsupported(f"{key} = {config[key]}; known: {value}")
    clock = float(config["tCK"]) * 1e-9
    burst = int(config["BL"]) / 2
    hbm = str(config.get("protocol", "HBM")).startswith("HBM")
    doubled = 2 if hbm else 1  # as DRAMsim3 does for HBM

    def at(key: str) -> float:
        return float(config[key]) * clock

    # DRAMsim3 reads the key tRTP alone (5 when absent), not tRTP_S and tRTP_L; and with one bank group the times
    # between groups hold everywhere.
    one = int(config["bankgroups"]) == 1
    rtp = float(config.get("tRTP", 5)) * clock
    turn = (float(config["CL"]) + burst - float(config["CWL"]) + float(config.get("tRTRS", 2))) * clock
    timing = Timing(
        tCK=clock, tRCDRD=at("tRCDRD"), tRCDWR=at("tRCDWR"), tRP=at("tRP"), tRAS=at("tRAS"), tRTP=rtp,
        tWR=at("tWR"), tRRD_S=at("tRRD_S"), tRRD_L=at("tRRD_S" if one else "tRRD_L"), tFAW=at("tFAW"),
        tCCD_S=at("tCCD_S"), tCCD_L=at("tCCD_S" if one else "tCCD_L"), tWTR_S=at("tWTR_S"),
        tWTR_L=at("tWTR_S" if one else "tWTR_L"), tRTW=max(0.0, turn), CL=at("CL"), CWL=at("CWL"),
        tBL=burst * clock, tRFC=at("tRFC"), tREFI=at("tREFI"),
    )  # fmt: skip
    row = int(config["columns"]) * doubled * int(config["device_width"]) // 8
    devices = int(config["bus_width"]) // int(config["device_width"])
    chip = Organisation(
        int(config["bankgroups"]), int(config["banks_per_group"]), row * devices,
        int(config["bus_width"]) // 8 * int(config["BL"]),
    )  # fmt: skip
    pages = {"OPEN_PAGE": "open", "CLOSE_PAGE": "closed"}
    if config.get("row_buf_policy", "OPEN_PAGE") not in pages:
        raise Unsupported(f"row_buf_policy = {config['row_buf_policy']}; known: {', '.join(pages)}")
    policy = Policy(
        page="closed" if config.get("row_buf_policy") == "CLOSE_PAGE" else "open",
        cmd_queue_size=int(config.get("cmd_queue_size", 8)),
        trans_queue_size=int(config.get("trans_queue_size", 32)),
        dual_issue=hbm,  # DRAMsim3 has the second command bus for HBM alone
        refresh=float(config["tREFI"]) < _OFF,
    )
    if not all(key in config for key in ("VDD", *CURRENTS)):
        return timing, chip, policy, None
    amperes = {key.lower(): float(config[key]) / 1000 for key in CURRENTS}
    return timing, chip, policy, DramEnergy.from_currents(timing, vdd=float(config["VDD"]), devices=devices, **amperes)


def ranks(config: dict[str, Any], chip: Organisation) -> list[str]:
    """A word about ranks that a channel_size adds, as in DRAMsim3: the streams are on the first of them."""
    count = int(config.get("channel_size", 0)) * 2**20 // (chip.row_bytes * int(config["rows"]) * chip.banks)
    return [f"channel_size makes {count} ranks, modelled as one"] if count > 1 else []


def drained(stream: Stream, policy: Policy) -> Stream:
    """The stream as the bus sees it: writes wait until their buffer is full, and then all go."""
    if not stream.is_mix or stream.bursts_per_turnaround is None:
        return stream
    run = max(stream.bursts_per_turnaround, policy.trans_queue_size / (1 - stream.read_share))
    return stream.with_(bursts_per_turnaround=run)


def dramsim_case(each: dict[str, Any], base: dict[str, Any], reported: dict[str, str], cycles: int) -> Case:
    """A case of dramsim3_cases.json."""
    over = each.get("config_overrides") or {}
    unknown = set(over) - set(base) - {"tRTP", "tRTRS"}
    if unknown:
        raise Unsupported(f"config_overrides {', '.join(sorted(unknown))}")
    config = {**base, **over}
    timing, chip, policy, joules = dramsim_parts(config)
    given = each.get("pattern_parameters") or {}
    order = config.get("address_mapping", "rorabgbachco")
    stream, requests = pattern_of(each["pattern"], given, chip, int(config["rows"]), order)
    if each["pattern"] == "load":
        policy = replace(policy, interval=int(given["g"]))
    run = stream.bursts_per_activation
    if policy.page == "closed":
        stream = stream.with_(bursts_per_activation=1)
    stream = drained(stream, policy)
    cycles = int(each.get("cycles") or reported.get("cycles") or cycles)
    groups: tuple[str, ...] = ("mixes",) if stream.is_mix else ("read",)
    if not stream.is_mix and (set(over) == {"tREFI"} or (not over and each["pattern"] == "seqrow")):
        groups += ("refresh",)
    return Case(
        each["id"], timing, chip, policy, stream, requests, reported, "bw_GBs",
        ("avg_read_latency_cycles", "cycles", timing.tCK), groups, cycles, joules, ranks(config, chip), run,
    )  # fmt: skip


def closed_loop_case(line: dict[str, str], base: dict[str, Any], cycles: int) -> Case:
    """A line of dramsim3_closed_loop.csv: the queues are 128 and 32 entries, as its README says."""
    timing, chip, policy, _ = dramsim_parts({**base, "trans_queue_size": 128, "cmd_queue_size": 32})
    name = {"seq": "seqrow"}.get(line["pattern"], line["pattern"])
    u, window, extra = (
        int(line[key]) for key in ("bursts_per_row_visit", "outstanding_requests", "extra_latency_cycles")
    )
    stream, requests = pattern_of(name, {"u": u}, chip, int(base["rows"]), base.get("address_mapping", "rorabgbachco"))
    stream = stream.with_(outstanding=window, extra_latency=extra * timing.tCK)
    policy = replace(policy, outstanding=window, extra_latency=extra)
    latency = ("dram_latency_cycles", "cycles", timing.tCK)
    return Case(
        line["case"], timing, chip, policy, stream, requests, line, "bw_GBs", latency, ("closed loop",), cycles
    )  # fmt: skip


def ramulator_case(each: dict[str, Any], file: dict[str, Any], base: dict[str, Any], reported: dict[str, str]) -> Case:
    """A case of ramulator_hbm3_cases.json; one without a Ramulator value is run as its DRAMsim3 twin."""
    options = dict(each.get("options") or {})
    over, buffer = dict(options.pop("over", {})), int(options.pop("rb", file["controller"]["read_buffer"]))
    refresh = options.pop("refresh", "AllBank")
    if options or set(over) - set(file["timing_ck"]):
        raise Unsupported(f"options {', '.join(sorted([*options, *(set(over) - set(file['timing_ck']))]))}")
    if refresh not in ("AllBank", "none"):
        raise Unsupported(f"refresh = {refresh}; known: AllBank, none")
    n = {**file["timing_ck"], **over}
    # Where nothing is reported: Ramulator, but for mixes, which it does not simulate.
    twin = not reported.get("ramulator_bw_GBs") and (bool(reported.get("dramsim3_bw_GBs")) or each["pattern"] == "rw")
    if twin:
        timing, chip, policy, _ = dramsim_parts({**base, **file["twin_config"]})
        policy = replace(policy, refresh=refresh != "none")
        names = {"nREFI": "tREFI", "nFAW": "tFAW", "nRFC": "tRFC", "nRP": "tRP", "nRAS": "tRAS", "nCL": "CL"}
        if set(over) - set(names):
            raise Unsupported(f"options over {', '.join(sorted(set(over) - set(names)))} with DRAMsim3")
        timing = replace(timing, tRC=None, **{names[k]: v * timing.tCK for k, v in over.items()})  # type: ignore[arg-type]
    else:
        clock = n["tCK_ps"] * 1e-12
        n["nRC"] = max(n["nRC"], n["nRAS"] + n["nRP"])  # a bank waits for both
        keys = {
            "tRCDRD": "nRCDRD", "tRCDWR": "nRCDWR", "tRP": "nRP", "tRAS": "nRAS", "tRC": "nRC", "tRTP": "nRTP",
            "tWR": "nWR", "tRRD_S": "nRRDS", "tRRD_L": "nRRDL", "tFAW": "nFAW", "tCCD_S": "nCCDS",
            "tCCD_L": "nCCDL", "tWTR_S": "nWTRS", "tWTR_L": "nWTRL", "tRTW": "nRTW", "CL": "nCL", "CWL": "nCWL",
            "tBL": "nBL", "tRFC": "nRFC", "tREFI": "nREFI",
        }  # fmt: skip
        timing = Timing(tCK=clock, **{key: n[name] * clock for key, name in keys.items()})
        _, chip, _, _ = dramsim_parts({**base, **file["twin_config"]})
        policy = Policy("shared", trans_queue_size=buffer, refresh=refresh != "none")
    rows = int(file["twin_config"]["rows"])
    stream, requests = pattern_of(each["pattern"], each.get("pattern_parameters") or {}, chip, rows, "rorabgbachco")
    if policy.structure == "shared" and stream.is_mix:
        raise Unsupported("a mix of reads and writes with the read buffer of Ramulator")
    stream = drained(stream, policy)
    groups: tuple[str, ...] = ("mixes",) if stream.is_mix else ("read",)
    other = reported.get("dramsim3_bw_GBs") or ""
    notes = [f"DRAMsim3 reports {other} GB/s"] if other and not twin else []
    return Case(
        each["id"], timing, chip, policy, stream, requests, reported,
        "dramsim3_bw_GBs" if twin else "ramulator_bw_GBs", ("ramulator_avg_read_latency_ns", "ns", 1e-9), groups,
        0, notes=notes,
    )  # fmt: skip
