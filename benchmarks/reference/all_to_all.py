"""Measured dispatch and combine of experts: what no network could do faster, and an alpha-beta fit.

    python benchmarks/reference/all_to_all.py CSV... [--json FILE]

A table is known by its columns, those of the tables of aiconfigurator-core: ``comm_backend`` (several libraries),
``dispatch_transmit_us`` (DeepEP, normal) or ``dispatch_avg_t_us`` (DeepEP, low latency). Their benchmarks draw experts
at random, all as likely: the routing is uniform, and a rank has ``num_tokens`` of its own.

*Least*: an all-to-all at the peak rate of the links and without latency, in which a token goes once to each distinct
chip of its experts, or, over nodes, once to each distinct node. A row above what was measured is a failure (exit status
1). Normal kernels over more than four nodes draw experts on four of them (``num_topk_groups`` of the benchmark). A type
that a row does not state is the least that its library sends: 8 bits out, 16 back.

*Fit*: ``seconds = alpha + bytes / rate`` for each system, kind and number of nodes, fitted to every second number of
tokens with the least squares of relative errors, and its error on the others. Bytes are those that a rank sends: low
latency kernels send a token to each of its experts, whatever chip that is on, the others once to each distinct chip.
``--json`` keeps the fits.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

from dfopt.documents.routing import Routing
from dfopt.documents.system import System
from dfopt.machines.compose import expand_system
from dfopt.physics.collectives import Collective, affine_cost
from dfopt.physics.network import dim_of
from dfopt.physics.spread import chips_of_a_token, placed

# Chip, chips of a node, links inside and between nodes; collector/slurm of ai-dynamo/aiconfigurator for the nodes.
# Those of a GB200 NVL72 are in one NVLink domain.
SYSTEMS = {
    "h100_sxm": ("h100-sxm", 8, "nvlink-4-450", "infiniband-ndr"),
    "h200_sxm": ("h200-sxm", 8, "nvlink-4-450", "infiniband-ndr"),
    "b200_sxm": ("b200-sxm", 8, "nvlink-5", "infiniband-xdr"),
    "b300_sxm": ("b300-sxm", 8, "nvlink-5", "infiniband-xdr"),
    "gb200": ("gb200", 4, "nvlink-5", "nvlink-5"),
}
# Bytes of an element, without scales. What is not stated, by direction.
WORDS = {"bfloat16": 2.0, "fp8": 1.0, "nvfp4": 0.5, "fp4": 0.5}
UNSTATED = {"dispatch": 1.0, "combine": 2.0}
GROUPS = 4  # nodes that a token's experts are on at most, of DeepEP's normal kernels


@dataclass(frozen=True)
class Exchange:
    """One measured dispatch or combine."""

    system: str
    kind: str
    nodes: int
    chips: int
    low_latency: bool
    word: float
    hidden: int
    chosen: int
    experts: int
    tokens: int
    seconds: float

    @property
    def group(self) -> tuple[str, str, int]:
        """What one fit is for."""
        return self.system, self.kind, self.nodes

    @property
    def sent_bytes(self) -> float:
        """Bytes that a rank sends to others or to itself, as expected."""
        copies = self.chosen if self.low_latency else _reached(self.experts, self.chosen, self.chips)
        return self.tokens * copies * self.hidden * self.word

    def least_seconds(self) -> float:
        """Seconds below which links at their peak cannot bring each token to the chips, or nodes, of its experts."""
        ends = self.chips if self.nodes == 1 else self.nodes
        limited = self.nodes > GROUPS and not self.low_latency
        among, members = (self.experts * GROUPS // self.nodes, GROUPS) if limited else (self.experts, ends)
        one_way = self.tokens * _reached(among, self.chosen, members) * self.hidden * self.word
        dim = dim_of(_machine(self.system, self.nodes, self.chips).network[-1])
        return affine_cost(Collective.ALL_TO_ALL, [dim]).per_byte * one_way * ends


@cache
def _reached(experts: int, chosen: int, members: int) -> float:
    """Distinct chips, or nodes, of a token's experts under uniform routing, its own among them."""
    shares = Routing().shares(experts, chosen, 1)
    return chips_of_a_token(shares, placed(shares, members))


@cache
def _machine(system: str, nodes: int, chips: int) -> System:
    chip, _, inside, between = SYSTEMS[system]
    network: dict[str, Any] = {"topology": "switch", "sizes": [chips], "links": inside}
    if nodes > 1:
        network = {"topology": "dgx_2", "sizes": [chips // nodes, nodes], "links": [inside, between]}
    return expand_system({"schema": "dfopt/system/1", "name": system, "chip": chip, "network": network})


def exchanges(row: dict[str, str]) -> Iterator[Exchange]:
    """The measured exchanges of a row: one, or both ways."""
    nodes = int(row["node_num"])
    chips = int(row["ep_size"]) if "ep_size" in row else nodes * SYSTEMS[row["system"]][1]
    sizes: dict[str, Any] = {"system": row["system"], "nodes": nodes, "chips": chips, "hidden": int(row["hidden_size"]),
             "experts": int(row["num_experts"])}  # fmt: skip
    if "comm_backend" in row:
        dtype, way, name = row["comm_dtype"], row["phase"], row["comm_backend"]
        word = UNSTATED[way] if dtype == "default" else WORDS[dtype]
        yield Exchange(
            **sizes, kind=f"{name} {way} {dtype}", word=word, low_latency=name.endswith(("_ll", "_generation")),
            chosen=int(row["topk"]), tokens=int(row["num_tokens"]), seconds=float(row["latency"]) * 1e-6,
        )  # fmt: skip
        return
    low_latency = "dispatch_avg_t_us" in row
    for way in ("dispatch", "combine"):
        took = [f"{way}_avg_t_us"] if low_latency else [f"{way}_transmit_us", f"{way}_notify_us"]
        kind = f"low latency {way}" if low_latency else f"normal {way}, {row[f'{way}_sms']} SMs"
        yield Exchange(
            **sizes, kind=kind, word=UNSTATED[way], low_latency=low_latency, chosen=int(row["num_topk"]),
            tokens=int(row["num_token"]), seconds=sum(float(row[name]) for name in took) * 1e-6,
        )  # fmt: skip


@dataclass(frozen=True)
class Fit:
    """Seconds as ``alpha + bytes / rate``, with the mean relative errors on what was fitted and on the rest."""

    system: str
    kind: str
    nodes: int
    rows: int
    alpha_us: float
    gb_per_s: float | None
    error: float
    held_out_error: float


def fitted(group: list[Exchange]) -> Fit:
    """The fit of one group, neither term below zero."""
    sizes = sorted({one.tokens for one in group})
    mine = [one for one in group if sizes.index(one.tokens) % 2 == 0]
    rest = [one for one in group if sizes.index(one.tokens) % 2 == 1]
    took = np.array([one.seconds for one in mine])
    columns = np.stack([1.0 / took, np.array([one.sent_bytes for one in mine]) / took], axis=1)
    found = np.linalg.lstsq(columns, np.ones(len(mine)), rcond=None)[0]
    if found.min() < 0:  # then the best of those with one term only
        alone = [columns[:, one].sum() / (columns[:, one] ** 2).sum() for one in (0, 1)]
        left = [((columns[:, one] * alone[one] - 1.0) ** 2).sum() for one in (0, 1)]
        found = np.array([alone[0], 0.0] if left[0] <= left[1] else [0.0, alone[1]])

    def error(some: list[Exchange]) -> float:
        return mean(abs((found[0] + found[1] * one.sent_bytes) / one.seconds - 1.0) for one in some) if some else 0.0

    rate = float(1e-9 / found[1]) if found[1] > 0 else None
    return Fit(*group[0].group, len(group), float(found[0]) * 1e6, rate, error(mine), error(rest))


def main() -> int:
    """Compare and fit, and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", type=Path, nargs="+")
    parser.add_argument("--json", type=Path, help="keep the fits")
    asked = parser.parse_args()
    groups: dict[tuple[str, str, int], list[Exchange]] = defaultdict(list)
    left_out: Counter[str] = Counter()
    for path in asked.csv:
        with path.open() as lines:
            for row in csv.DictReader(lines):
                if row["system"] not in SYSTEMS or row.get("comm_dtype", "default") not in (*WORDS, "default"):
                    left_out[f"{row['system']} {row.get('comm_dtype', '')}"] += 1
                    continue
                for one in exchanges(row):
                    groups[one.group].append(one)
    above = 0
    print(f"{'least over measured':56} {'rows':>5} {'median':>7} {'most':>7} {'above':>6}")
    for names, group in sorted(groups.items()):
        ratios = [one.least_seconds() / one.seconds for one in group]
        above += sum(ratio > 1.0 for ratio in ratios)
        figures = f"{len(ratios):5} {median(ratios):7.3f} {max(ratios):7.3f} {sum(ratio > 1.0 for ratio in ratios):6}"
        print(f"{' '.join(map(str, names)):56} {figures}")
    fits = [fitted(group) for _, group in sorted(groups.items())]
    print(f"\n{'fit':56} {'rows':>5} {'us':>8} {'GB/s':>8} {'error':>7} {'held out':>9}")
    for fit in fits:
        rate = "-" if fit.gb_per_s is None else f"{fit.gb_per_s:.1f}"
        figures = f"{fit.rows:5} {fit.alpha_us:8.1f} {rate:>8} {fit.error:7.1%} {fit.held_out_error:9.1%}"
        print(f"{f'{fit.system} {fit.kind} {fit.nodes}':56} {figures}")
    over_groups = mean(fit.held_out_error for fit in fits)
    print(f"held out: {over_groups:.1%} on average over {len(fits)} groups; left out: {dict(left_out)}")
    if asked.json:
        asked.json.write_text(json.dumps([asdict(fit) for fit in fits], indent=1) + "\n", encoding="utf-8")
    return int(above > 0)


if __name__ == "__main__":
    sys.exit(main())
