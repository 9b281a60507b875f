"""What a chip holds when it trains, against Figs. 1 and 7 of Korthikanti et al. (arXiv:2205.05198).

``python benchmarks/reference/training_memory.py CSV [--figure fig1] [--workload NAME] [--assume PROFILE]
[--memory-limit] [--json]``. A row of the CSV has ``figure``, ``model`` (a key of :data:`MODELS`), ``mode``,
``quantity`` (parameters, gradients and optimizer state, or activations), ``measured`` in GiB, and of the run ``n, tp,
pp, dp, batch, microbatch, interleave, recompute`` and ``tp_comm`` (ar, or rs_ag with sequence parallelism).

The degrees are as in the row, the sharding is Megatron-LM's: it is asked for the least time without a limit of memory.
Compared are weights, gradients and optimizer, and all activations of the fullest stage, those of the layer at work and
their gradients among them.

``--memory-limit``: a chip has its 80 GiB. What the figure shows above that line did not run, and has to be refused.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from line import Line, told

import dfopt as df
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.score import Score
from dfopt.errors import Infeasible
from dfopt.frontends.megatron.shardings import megatron_shardings
from dfopt.workloads import expand

MODELS: dict[str, tuple[int, int, int]] = {
    "megatron-22B": (6144, 64, 48),
    "gpt3-175B": (12288, 96, 96),
    "turing-530B": (20480, 128, 105),
    "megatron-1T": (25600, 160, 128),
}
"""Hidden features, heads, layers: Korthikanti et al., table 3; sequences of 2048 tokens."""
GIB = 2.0**30
STATES = ("weights", "tables", "gradients", "optimizer")
_RECOMPUTE = {"none": "none", "attn_only": "attention", "full": "full"}
_SMALL: dict[str, dict[str, Any]] = {
    "transformer": {},
    "decoder": {
        "vocab": 51200,
        "ends": False,
        "rotary": False,
        "gated_mlp": False,
        "norm": "layernorm",
        "scores_dropout": True,
    },
}
Row = dict[str, str]


def graph_of(row: Row, workload: str) -> df.Graph:
    """The training step of a row."""
    hidden, heads, layers = MODELS[row["model"]]
    parameters: dict[str, Any] = {
        "hidden": hidden, "heads": heads, "head_dim": hidden // heads, "ffn": 4 * hidden, "layers": layers, "seq": 2048,
        "batch": int(row["batch"]), "microbatch": int(row["microbatch"]), "mode": "training",
        "recompute": _RECOMPUTE[row["recompute"]], **_SMALL[workload],
    }  # fmt: skip
    return expand({"schema": df.Graph.SCHEMA, "name": row["model"], "workload": workload, "parameters": parameters}, "")


@cache
def score_of(key: tuple[tuple[str, str], ...], workload: str, assumptions: Assumptions, limited: bool) -> Score | None:
    """The score of a run as its row has it; none if it does not fit."""
    row = dict(key)
    data = df.load_system("a100-512").to_data()
    inside, between = data["network"]
    count = int(row["n"]) // 8
    data["network"] = [inside, {**between, "size": count}] if count > 1 else [inside]
    if not limited:
        data["chip"]["dram"].pop("capacity", None)
    sequence = "allow" if row["tp_comm"] == "rs_ag" else "none"
    graph = graph_of(row, workload)
    try:
        return df.solve(
            graph, df.System.from_data(data, "a100"),
            assumptions=assumptions.with_(
                sequence_parallelism=sequence, sharding_objective="seconds", memory_reserve=0.0
            ),
            tp=int(row["tp"]), pp=int(row["pp"]), dp=int(row["dp"]), zero=0, interleave=int(row["interleave"]),
            time_limit=20.0,
            pin_sharding=megatron_shardings(graph, int(row["tp"]), sequence == "allow"),
        ).score  # fmt: skip
    except Infeasible:
        return None


RUN = ("model", "n", "tp", "pp", "dp", "batch", "microbatch", "interleave", "recompute", "tp_comm")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("csv", type=Path)
    parser.add_argument("--figure", default="fig1")
    parser.add_argument("--workload", choices=[*_SMALL], action="append")
    parser.add_argument("--assume", default="default")
    parser.add_argument("--memory-limit", action="store_true")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with asked.csv.open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["figure"] == asked.figure and row["unit"] == "GiB"]
    found = lines(rows, asked.workload or [*_SMALL], df.profile(asked.assume), asked.memory_limit)
    return told(list(found), asked.json)


def lines(rows: list[Row], workloads: list[str], assumptions: Assumptions, limited: bool) -> Iterator[Line]:
    """What is printed: every row, then the errors of each quantity."""
    for workload in workloads:
        seen: dict[str, list[float]] = {}
        for row in rows:
            score = score_of(tuple((name, row[name]) for name in RUN), workload, assumptions, limited)
            if score is None:
                said = f"refused; measured {float(row['measured']):.4g} GiB"
                yield Line(f"{workload} {row['model']} {row['mode']} {row['quantity']}", said, "", None)
                continue
            held = max((sum_of(one.states) for one in score.stages), key=lambda of: sum(of.values()))
            quantity = "activations" if row["quantity"].startswith("activation") else "states"
            ours = held["activations"] if quantity == "activations" else sum(held.get(name, 0.0) for name in STATES)
            error = ours / GIB / float(row["measured"]) - 1
            seen.setdefault(quantity, []).append(error)
            said = f"{ours / GIB:.4g} GiB, measured {float(row['measured']):.4g}: {error:+.2%}"
            yield Line(f"{workload} {row['model']} {row['mode']} {quantity}", said, "", None)
        for quantity, errors in seen.items():
            yield Line(
                f"{workload} {quantity}",
                f"mean {fmean(map(abs, errors)):.2%}, max {max(map(abs, errors)):.2%}",
                "",
                None,
            )


def sum_of(states: dict[str, dict[str, float]]) -> dict[str, float]:
    """Bytes of every state, in all memories."""
    found: dict[str, float] = {}
    for tier in states.values():
        for name, size in tier.items():
            found[name] = found.get(name, 0.0) + size
    return found


if __name__ == "__main__":
    sys.exit(main())
