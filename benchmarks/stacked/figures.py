"""Answer the questions behind DeepStack's figure 16, and hold the answers against theirs.

    python benchmarks/stacked/figures.py run 16 [--only decode,4] [--time-limit 60]
    python benchmarks/stacked/figures.py claims 16

``run`` asks one question for each row of a figure that ``results/`` does not have yet, and adds its answer there: best
tokens/s, what it is at most, the design, and the plan. ``claims`` compares the answers with ``published/``.

Theirs: DeepSeek-V3 on 256 devices, prompts of 1,024 tokens, best of buffers, ports and plans for each number of layers,
all connected. Ours, where the paper is silent or our model
differs: caches of 1,536 tokens in place of the mean of four rates; axes take neighboring devices in one order
(``--rank-order tp-mp-pp-dp``); shapes and rates of the levels as ``designs/stacked-256`` says. No device of these
designs draws more than 100 W at its nominal clock, so that their power wall does not bind.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from scipy.stats import spearmanr

from dfopt.documents.design import Design
from dfopt.documents.exploration import Exploration
from dfopt.exploring.each import explore_each
from dfopt.library import as_design

HERE: Final = Path(__file__).parent
BUFFERS: Final = ["128 KiB", "256 KiB", "512 KiB"]
PORTS: Final = ["128 B", "256 B", "512 B", "1 KiB"]
GAP: Final = 0.02
ORDER: Final = "tp-mp-pp-dp"


class Row(NamedTuple):
    """A question, by what tells it from others."""

    key: tuple[str, ...]
    design: Design
    asked: dict[str, Any]
    each: str  # one answer for each value of this size


def rows_of(name: str) -> list[dict[str, str]]:
    """The rows of a published table."""
    with (HERE / "published" / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def design(*, choices: dict[str, Any], **sizes: Any) -> Design:
    """The design of the zoo with some sizes, and choices of others."""
    data = as_design("stacked-256").to_data()
    data["sizes"] = {name: size for name, size in {**data["sizes"], **sizes}.items() if size is not None}
    return Design.from_data({**data, "choices": choices}, "stacked-256")


def question(phase: str, batch: str) -> dict[str, Any]:
    """A step of serving: 1,024 tokens of a prompt, or one behind 1,536."""
    length = {"context": 1536} if phase == "decode" else {"isl": 1024}
    return {"graph": "deepseek-v3", "phase": phase, "batch": int(batch), "rank_order": ORDER, **length}


def figure_16() -> Iterator[Row]:
    """Best tokens/s over the number of layers, all connected."""
    published = rows_of("fig16_throughput_vs_dram_layers")
    layers = sorted({int(row["dram_layers_all_connected"]) for row in published})
    of = design(connected_layers=None, choices={"dram_layers": layers, "buffer": BUFFERS, "buffer_port": PORTS})
    for phase, batch in dict.fromkeys((row["phase"], row["batch"]) for row in published):
        yield Row((phase, batch), of, question(phase, batch), "dram_layers")


FIGURES: Final[dict[str, Callable[[], Iterator[Row]]]] = {"16": figure_16}


def answers(figure: str) -> dict[tuple[str, ...], dict[str, Any]]:
    """What was answered, by question."""
    path = HERE / "results" / f"figure-{figure}.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {tuple(record["key"]): record for record in map(json.loads, lines)}


def run(figure: str, only: str, time_limit: float) -> None:
    """Answer the questions of a figure that are open."""
    path, known = HERE / "results" / f"figure-{figure}.jsonl", answers(figure)
    for row in FIGURES[figure]():
        if only and not ",".join((*row.key, "")).startswith(f"{only},"):
            continue
        if all((*row.key, str(size)) in known for size in row.design.to_data()["choices"][row.each]):
            continue
        for key, made, seconds in _asked(row, time_limit):
            record = {"key": key, "seconds": round(seconds, 1), **_told(made)}
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
            print(record, flush=True)


def _asked(row: Row, time_limit: float) -> Iterator[tuple[tuple[str, ...], Exploration | None, float]]:
    began = time.perf_counter()
    asked = {"gap": GAP, "time_limit": time_limit, **row.asked}
    graph = asked.pop("graph")
    for value, made in explore_each(graph, row.design, row.each, **asked):
        yield (*row.key, f"{value:g}"), made, time.perf_counter() - began
        began = time.perf_counter()


def _told(made: Exploration | None) -> dict[str, Any]:
    if made is None:
        return {"tokens_per_s": None}
    tokens = made.result.score.tokens_per_s * made.value
    return {
        "tokens_per_s": tokens / made.value, "at_most": tokens / made.bound, "gap": round(made.gap, 4),
        "design": made.best, "plan": made.result.plan.label, "microbatch": made.result.graph.microbatch,
    }  # fmt: skip


def curves_16() -> dict[tuple[str, str], tuple[list[int], list[float], list[float]]]:
    """Layers, published tokens/s and ours, of every curve of which all rows are answered."""
    known, found = answers("16"), defaultdict[tuple[str, str], list[tuple[int, float, float]]](list)
    for row in rows_of("fig16_throughput_vs_dram_layers"):
        layers = row["dram_layers_all_connected"]
        ours = known.get((row["phase"], row["batch"], layers), {}).get("tokens_per_s", math.nan)
        found[row["phase"], row["batch"]].append((int(layers), float(row["best_scaled_tokens_per_s"]), ours or 0.0))
    whole = {key: rows for key, rows in found.items() if not any(math.isnan(ours) for *_, ours in rows)}
    return {key: tuple(map(list, zip(*rows, strict=True))) for key, rows in whole.items()}  # type: ignore[misc]


def claims_16() -> None:
    """Where each curve has its peak, and how it ranks the numbers of layers."""
    near = ranked = 0
    curves = curves_16()
    for (phase, batch), (layers, theirs, ours) in curves.items():
        peaks = layers[theirs.index(max(theirs))], layers[ours.index(max(ours))]
        rho = float(spearmanr(theirs, ours).statistic)
        near, ranked = near + (abs(peaks[0] - peaks[1]) <= 2), ranked + (rho >= 0.8)
        print(f"{phase:8} batch {batch:>5}: best layers {peaks[0]:2} published, {peaks[1]:2} here; ranks {rho:5.2f}")
    print(f"{near} of {len(curves)} curves within 2 layers, {ranked} with a rank correlation of 0.8 or more")


CLAIMS: Final = {"16": claims_16}


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "claims"))
    parser.add_argument("figure", choices=tuple(FIGURES))
    parser.add_argument("--only", default="", metavar="KEY", help="rows whose key begins so, such as decode,4")
    parser.add_argument("--time-limit", type=float, default=60.0, metavar="S", help="seconds for each answer")
    given = parser.parse_args()
    if given.what == "run":
        run(given.figure, given.only, given.time_limit)
    else:
        CLAIMS[given.figure]()


if __name__ == "__main__":
    sys.exit(main())
