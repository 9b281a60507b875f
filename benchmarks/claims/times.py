"""Claims about single solves: values that were found before, seconds, gaps, and checks that are faster than solves."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import dfopt as df
from claims.rows import ALONE, PLAIN, Asked, Case, Row, gap_of, timed, warm
from dfopt.errors import NoSolution
from dfopt.machines.compose import compose

TRAINED = {"mode": "training"}
LAYERS = TRAINED | {"ends": False}
SUM = {"overlap": "none"}


class Known(NamedTuple):
    """A case, the seconds per step that are its optimum, and how closely."""

    case: Case
    value: float
    near: float


# found by two programs that share no code, 2026-11-22
REPRODUCED = [
    Known(Case("gpt3-175b", "sn10-8-ring", {}, PLAIN), 762.932, 1e-5),
    Known(Case("gpt3-175b", "sn10-8-ring", TRAINED, PLAIN), 2847.39, 1e-5),
    Known(Case("gpt3-1t", "sn30-1024-2dtorus", {}, PLAIN), 152.025, 1e-5),
    Known(Case("llama-3.1-70b", "tpu-v4-64", {}, ALONE), 5.46649, 1e-5),
    Known(Case("llama-3.1-70b", "h100-8", {}, ALONE), 9.77767, 1e-5),
    Known(Case("gpt3-175b", "sn10-8-ring", {}, PLAIN | SUM, {"tp": 8}), 2177.36, 1e-5),
]
SPLIT = [
    Known(Case("gpt3-175b", "sn10-8-ring", TRAINED), 2606.65, 1e-3),
    Known(Case("gpt3-175b", "sn10-8-ring", {}, SUM, {"tp": 8}), 2081.0, 1e-3),
    Known(Case("llama-3.1-70b", "tpu-v4-64", {}, {"execution": "kernel_by_kernel"}), 5.323, 1e-3),
    Known(Case("llama-3.1-70b", "h100-8", {}, {"execution": "kernel_by_kernel"}), 9.682, 1e-3),
]
MEGATRON = {f"{kind}.{way}": 2 for kind in ("all_gather", "reduce_scatter") for way in ("forward", "backward")}


def _values(claim: str, known: list[Known], asked: Asked) -> Iterator[Row]:
    for case, value, near in known:
        result, seconds = case.solved(asked.seconds)
        seen = f"{result.value:.9g}, {result.plan.label}, {gap_of(result)}, {seconds:.2f} s"
        met = abs(result.value - value) <= near * value and result.gap == 0
        yield Row(claim, str(case), seen, f"{value:g} to {near:g}, gap 0", met)


def reproduced(asked: Asked) -> Iterator[Row]:
    """Optima found before, without sequence splits and library kernels, again."""
    yield from _values("reproduced", REPRODUCED, asked)


def sequence_splits(asked: Asked) -> Iterator[Row]:
    """Optima with sequence splits, Megatron's pattern among them, and how far training with TP 8 is proven in 20 s."""
    yield from _values("sequence splits", SPLIT, asked)
    result, _ = SPLIT[0].case.solved(asked.seconds)
    counts = result.score.collectives
    seen = ", ".join(f"{counts.get(name, 0)} {name}" for name in MEGATRON)
    yield Row("Megatron's pattern", str(SPLIT[0].case), seen, "2 of each", counts | MEGATRON == counts)
    for overlap in ("none", "compute_memory"):
        yield _within(Case("gpt3-175b", "sn10-8-ring", TRAINED, {"overlap": overlap}, {"tp": 8}), 20.0, 0.01)


def _within(case: Case, limit: float, gap: float) -> Row:
    """What is proven within a limit of time."""
    try:
        result, seconds = case.solved(limit)
    except NoSolution:
        return Row("gap within a limit", str(case), f"nothing found in {limit:g} s", f"{100 * gap:g} %", False)
    seen = f"{result.value:.6g}, {gap_of(result)} after {seconds:.1f} s"
    words = "gap 0" if gap == 0 else f"gap {100 * gap:g} %"
    met = result.gap <= gap and seconds <= limit + 1.0
    return Row("gap within a limit", str(case), seen, f"{words} in {limit:g} s", met)


def drawn(asked: Asked) -> Iterator[Row]:
    """Training with two and four layers drawn, 82 and 164 kernels."""
    warm()
    for layers, limit in ((2, 5.0), (4, 20.0)):
        yield _within(Case("gpt3-175b", "sn10-8-ring", TRAINED | {"drawn": layers}, PLAIN, {"tp": 8}), limit, 0.0)


def _fast(claim: str, case: Case, limit: float, asked: Asked) -> Row:
    """Whether a case is proven in so many seconds on the clock."""
    result, seconds = timed(case, asked.seconds)
    seen = f"{seconds:.2f} s, {gap_of(result)}, {result.plan_counts.total()} plans"
    return Row(claim, str(case), seen, f"{limit:g} s, gap 0", seconds <= limit and result.gap == 0)


def forward_times(asked: Asked) -> Iterator[Row]:
    """Forward cases side by side: the joint search against two levels, in the same process."""
    warm()
    for number in (0, 3, 4, 5):
        case = REPRODUCED[number].case
        (_, levels), (result, joint) = (
            timed(case, asked.seconds, sharding_objective=objective) for objective in ("seconds", "joint")
        )
        seen = f"{levels:.2f} s by two levels, {joint:.2f} s together, {gap_of(result)}"
        yield Row(
            "time, forward", str(case), seen, "twice the time of two levels, or 0.3 s", joint <= max(2 * levels, 0.3)
        )


def pipeline_plans(asked: Asked) -> Iterator[Row]:
    """All plans of a model on 1024 chips."""
    warm()
    yield _fast("time, all plans", REPRODUCED[2].case, 3.0, asked)


def training_times(asked: Asked) -> Iterator[Row]:
    """Training on eight chips, without and with sequence splits."""
    warm()
    yield _fast("time, training", REPRODUCED[1].case, 0.5, asked)
    yield _fast("time, training", SPLIT[0].case, 5.0, asked)
    for rules in (PLAIN, {}):
        case = Case("llama-3.1-70b", "sn10-8-ring", LAYERS, rules)
        result, seconds = case.solved(20.0)
        seen = f"{seconds:.2f} s, {gap_of(result)}"
        yield Row("time, training", str(case), seen, "gap 1 % in 20 s", result.gap <= 0.01 and seconds <= 21.0)


def scale(asked: Asked) -> Iterator[Row]:
    """Large machines: 65,536 chips behind switches, and a torus of 32,768."""
    warm()
    switches = {"topology": "dgx_2", "sizes": [8, 8192], "links": ["nvlink-4-450", "infiniband-ndr"]}
    torus = {"topology": "torus", "sizes": [32, 32, 32], "links": "ici-v4"}
    for chip, network, limit in (("h100-sxm", switches, 5.0), ("tpu-v4", torus, 20.0)):
        system = compose(chip=chip, network=network)
        for rules in (PLAIN, ALONE, {}):  # the last as a user asks today
            yield _fast("time, scale", Case("gpt3-1t", system, {}, rules), limit, asked)


CHECKED = [
    *(known.case for known in REPRODUCED),
    *(known.case for known in SPLIT),
    Case("gpt3-175b", "sn10-8-ring"),
    Case("llama-3.1-70b", "tpu-v4-64"),
    Case("llama-3.1-70b", "h100-8"),
    Case("llama-3.1-70b", "sn10-8-ring", LAYERS, PLAIN),
    Case("llama-3.1-70b", "h100-256", LAYERS),
    Case("gpt3-1t", "sn30-1024-2dtorus"),
]


def _cold_solve(case: Case, seconds: float) -> tuple[df.Result, float]:
    return case.solved(seconds)


def _cold_check(result: df.Result, limit: float) -> tuple[str, bool, float]:
    began = time.perf_counter()
    found = df.check(result, limit)
    return found.verdict, found.ok, time.perf_counter() - began


def check(asked: Asked) -> Iterator[Row]:
    """Results verified, each solve and each check in a process of its own that has done nothing before."""
    context = multiprocessing.get_context("spawn")
    for case in CHECKED[: asked.most]:
        with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as one:
            result, solve = one.submit(_cold_solve, case, asked.seconds).result()
            verdict, ok, took = one.submit(_cold_check, result, 2 * asked.seconds).result()
        seen = f"{verdict}: {took:.2f} s, solve {solve:.2f} s, {gap_of(result)}"
        yield Row("check", str(case), seen, "verified in less than the solve", ok and took <= solve)
