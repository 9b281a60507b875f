"""Executions of a training step, every decision with a proof: how fast, how near, and against Calculon's own search.

    python benchmarks/executions.py [NAME ...] [--gap 1%] [--check]

Spaces ``calculon-...`` are those of Calculon's exhaustive search without offload and without overlaps, under its block,
its efficiency tables and its networks: tensor, pipeline and data parallelism, interleaving, the microbatch, what is
computed again, sequence parallelism, and whether copies share out the optimizer's state; ``-overlap`` with both
overlaps, ``-offload`` with these and what lies in its second memory. Its best sample rate is what
Calculon (commit caa4b11, `llm-optimal-execution -m --no-tp-overlap --no-dp-overlap`) printed for them. The others
are searches without losses (`ideal`), and under the calibrations of the chips what `dfopt solve` leaves free. Seconds
are those of the processor, of the search and of the check alone.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dfopt as df
from dfopt.arguments import ratio
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.documents.request import FREE_ZERO
from dfopt.documents.system import System
from dfopt.errors import DfoptError
from dfopt.frontends.calculon import load_case
from dfopt.search.verify import verify
from dfopt.workloads import expand, load_graph, parameters_of
from dfopt.workloads.executions import load_executions

FILES = Path(__file__).parents[1] / "tests" / "golden" / "calculon"
WAYS = ("none", "attention", "full")


def layers_of(model: str) -> dict[str, Any]:
    """Parameters of a training step of the layers alone, without embedding, logits and loss."""
    return {"mode": "training"} | ({"ends": False} if "ends" in parameters_of(model)[0] else {})


@dataclass(frozen=True)
class Space:
    """A model on chips: samples of a step, and of one evaluation; of Calculon its best rate, in samples a second."""

    model: str
    system: str
    batch: int
    chips: int | None = None
    microbatches: tuple[int, ...] = (1,)
    best: float | None = None
    overlaps: bool = False
    offload: bool = False
    calibrated: bool = False

    def drawn(self) -> tuple[list[Graph], System, Assumptions | str]:
        """The workload in every microbatch and way to compute, the machine, and what is taken for granted."""
        if self.chips is None and self.calibrated:
            graphs = [*load_executions(self.model, **layers_of(self.model), batch=self.batch)]
            return graphs, df.load_system(self.system, {"chip.memory_reserve": None}), "calibrated"
        if self.chips is None:
            sizes = layers_of(self.model) | {"batch": self.batch}
            graphs = [load_graph(self.model, **sizes, recompute=how) for how in WAYS]
            return graphs, df.load_system(self.system, {"chip.memory_reserve": None}), "ideal"
        case = load_case(
            FILES / f"{self.model}.json", FILES / f"{self.system}.json", chips=self.chips, overlaps=self.overlaps
        )
        graphs = []
        for each in self.microbatches:
            for how in WAYS:
                sizes = case.recipe["parameters"] | {"batch": self.batch, "microbatch": each, "fused_activation": True}
                sizes |= {} if how == "none" else {"recompute": how}
                graphs.append(expand(case.recipe | {"parameters": sizes}, self.model))
        return graphs, case.system, case.assumptions


A100, H100 = "a100_80g", "h100_80g_nvl8"
SMALL = (1, 2, 4, 8)
EVERY = tuple(2**power for power in range(13))
SPACES = {
    "calculon-gpt3-175B-64-a100": Space("gpt3-175B", A100, 64, 64, SMALL, 64 / 11.411193),
    "calculon-gpt3-175B-512-a100": Space("gpt3-175B", A100, 512, 512, SMALL, 512 / 11.826533),
    "calculon-gpt3-175B-512-h100": Space("gpt3-175B", H100, 512, 512, SMALL, 512 / 4.93279),
    "calculon-1T-512-a100": Space("megatron-1T", A100, 512, 512, SMALL, 512 / 61.166131),
    "calculon-1T-1024-h100": Space("megatron-1T", H100, 1024, 1024, SMALL, 1024 / 23.397641),
    "calculon-1T-4096-a100": Space("megatron-1T", A100, 4096, 4096, SMALL, 4096 / 58.676601),
    **{
        f"calculon-{name}-overlap": Space(model, system, chips, chips, SMALL, chips / seconds, overlaps=True)
        for name, model, system, chips, seconds in (
            ("gpt3-175B-64-a100", "gpt3-175B", A100, 64, 9.827406),
            ("gpt3-175B-512-a100", "gpt3-175B", A100, 512, 9.55984),
            ("gpt3-175B-512-h100", "gpt3-175B", H100, 512, 3.721449),
            ("1T-512-a100", "megatron-1T", A100, 512, 51.973682),
            ("1T-4096-a100", "megatron-1T", A100, 4096, 50.921689),
            ("1T-4096-h100", "megatron-1T", H100, 4096, 18.088972),
        )
    },
    # of which that program only printed how many executions there are: 7,276,848
    "calculon-1T-4096-a100-offload": Space("megatron-1T", A100, 4096, 4096, EVERY, overlaps=True, offload=True),
    "gpt3-175b": Space("gpt3-175b", "a100-512", 2304),
    "llama-3.1-405b": Space("llama-3.1-405b", "h100-4096", 2048),
    "gpt3-175b-calibrated": Space("gpt3-175b", "a100-512", 2304, calibrated=True),
    "llama-3.1-405b-calibrated": Space("llama-3.1-405b", "h100-4096", 2048, calibrated=True),
}


def rows(names: Sequence[str], gap: float, limit: float, check: bool) -> Iterator[str]:
    """A line for each space."""
    yield "| space | plans | step, s | gap | CPU s | CPU s of the check | best of Calculon |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for name in names:
        space = SPACES[name]
        (first, *others), system, assumptions = space.drawn()
        began = time.process_time()
        try:
            result = df.solve(
                first, system, variants=others, assumptions=assumptions, gap=gap, time_limit=limit,
                zero=FREE_ZERO if space.calibrated else (0, 1),
                offload="any" if space.offload else None, tensor_overlap="any" if space.overlaps else None,
                sensitivity=False,
            )  # fmt: skip
        except DfoptError as error:
            yield f"| {name} | | {error} | | | | |"
            continue
        spent, checked = time.process_time() - began, ""
        if check:
            began = time.process_time()
            found = verify(result, limit)
            checked = f"{time.process_time() - began:.0f}" if found.ok else "; ".join(found.problems)[:80]
        told = "" if space.best is None else f"{space.batch / result.value / space.best:.3f}"
        yield (
            f"| {name} | {result.plan_counts.total():,} | {result.value:.2f} | {100 * result.gap:.2g} % | {spent:.0f}"
            f" | {checked} | {told} |"
        )


def main() -> None:
    """Print a table, a line as soon as it is known."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SPACES)}")
    parser.add_argument("--gap", default="1%", help="at which a search stops")
    parser.add_argument("--time-limit", type=float, default=300.0, help="seconds of the clock for each")
    parser.add_argument("--check", action="store_true", help="check each result, too")
    given = parser.parse_args()
    if unknown := set(given.names) - set(SPACES):
        parser.error(f"no space {', '.join(sorted(unknown))}; there are {', '.join(SPACES)}")
    for line in rows(given.names or list(SPACES), ratio("--gap", given.gap), given.time_limit, given.check):
        print(line, flush=True)


if __name__ == "__main__":
    main()
