"""The questions behind figures of DeepStack, row by row, and how dfopt is asked.

Ours, where the paper is silent or our model differs: caches of 1,536 tokens in place of the mean of four rates; axes
take neighboring devices in one order; shapes and rates of the levels as ``designs/stacked-256`` says. No device of
these designs draws more than 100 W at its nominal clock, so that their power wall does not bind. Where overlap is part
of the question, collectives overlap with matrix products beside them, and no plan takes two half-batches.
"""

from __future__ import annotations

import csv
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import dfopt
from dfopt.documents.design import Design
from dfopt.documents.exploration import Exploration
from dfopt.documents.result import Result
from dfopt.errors import Infeasible, NoSolution
from dfopt.exploring.each import explore_each
from dfopt.library import as_design
from dfopt.technology.derive import derive_design
from dfopt.technology.layered import AreaLaw, Point

HERE: Final = Path(__file__).parent
BUFFERS: Final = ["128 KiB", "256 KiB", "512 KiB"]
PORTS: Final = ["128 B", "256 B", "512 B", "1 KiB"]
LAYERS: Final = list(range(2, 13))
GAP: Final = 0.02
ORDER: Final = "tp-mp-pp-dp"
MENUS: Final = ("tp_pp_dp", "expanded", "per_module")
BATCHES: Final = ("4", "16", "64", "256", "1024")
MODELS: Final = {"DeepSeek-V3": "deepseek-v3", "Qwen3-235B": "qwen3-235b-a22b"}
ROLES: Final = {"L1": "in_package", "L2": "between_packages", "L3": "between_nodes"}
NOTHING: Final[dict[str, Any]] = {"tokens_per_s": None}
NETWORKS: Final = {"torus_mesh_switch_1": "switch", "torus_mesh_mesh_3": "line"}


class Row(NamedTuple):
    """A question, by what tells it from others; ``each``: one answer for each value of this size."""

    key: tuple[str, ...]
    design: Design
    asked: dict[str, Any]
    each: str = ""

    @property
    def keys(self) -> list[tuple[str, ...]]:
        """Of all its answers."""
        if not self.each:
            return [self.key]
        return [(*self.key, f"{size:g}") for size in self.design.to_data()["choices"][self.each]]

    def only(self, keys: list[tuple[str, ...]]) -> Row:
        """The same question, about some of its answers."""
        data = self.design.to_data()
        choices = {**data["choices"], self.each: [int(key[-1]) for key in keys]}
        return self._replace(design=Design.from_data({**data, "choices": choices}, self.design.name))


def rows_of(name: str) -> list[dict[str, str]]:
    """The rows of a published table."""
    with (HERE / "published" / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def design(*, choices: dict[str, Any] | None = None, third: str = "switch", **sizes: Any) -> Design:
    """The design of the zoo with some sizes, choices of others, and a topology of its third level."""
    data = as_design("stacked-256").to_data()
    data["sizes"] = {name: size for name, size in {**data["sizes"], **sizes}.items() if size is not None}
    if third == "line":
        data["template"]["network"][-1:] = [
            {"name": name, "topology": "line", "size": 2, "links": "between_nodes", "link_usd_per_gb_s": 2}
            for name in ("mesh_u", "mesh_v")
        ]
    return Design.from_data({**data, **({"choices": choices} if choices else {})}, "stacked-256")


def question(phase: str, batch: str, model: str = "DeepSeek-V3", **asked: Any) -> dict[str, Any]:
    """A step of serving: 1,024 tokens of a prompt, or one behind 1,536."""
    length = {"context": 1536} if phase == "decode" else {"isl": 1024}
    return {"graph": MODELS[model], "phase": phase, "batch": int(batch), "rank_order": ORDER, **length, **asked}


def any_layers() -> Design:
    """Every number of layers, all connected, with every buffer and port."""
    return design(connected_layers=None, choices={"dram_layers": LAYERS, "buffer": BUFFERS, "buffer_port": PORTS})


def figure_16() -> Iterator[Row]:
    """Best tokens/s over the number of layers, all connected."""
    of = any_layers()
    published = rows_of("fig16_throughput_vs_dram_layers")
    for phase, batch in dict.fromkeys((row["phase"], row["batch"]) for row in published):
        yield Row((phase, batch), of, question(phase, batch), "dram_layers")


def long_prompts() -> Iterator[Row]:
    """Curves as in figure 16, for prompts of 32,768 tokens."""
    of = any_layers()
    for batch in ("4", "64", "1024"):
        yield Row(("prefill", batch), of, question("prefill", batch, isl=32768), "dram_layers")


def figure_17() -> Iterator[Row]:
    """Best tokens/s, and its tokens/J, over total and connected layers."""
    found: dict[tuple[str, str, str], list[int]] = {}
    for row in rows_of("fig17_total_vs_connected_layers"):
        key = row["phase"], row["batch"], row["total_layers"]
        found.setdefault(key, []).append(int(row["connected_layers"]))
    for (phase, batch, total), connected in found.items():
        choices = {"connected_layers": connected, "buffer": BUFFERS, "buffer_port": PORTS}
        of = design(dram_layers=int(total), connected_layers=2, choices=choices)
        yield Row((phase, batch, total), of, question(phase, batch), "connected_layers")


def figure_20() -> Iterator[Row]:
    """Tokens/s over the rate of one level of the network, on either die, with the published counts of units."""
    for phase, batch in (("decode", "1024"), ("prefill", "64"), ("decode", "64"), ("prefill", "4")):
        for network, third in NETWORKS.items():
            for level, times in [("L1", "1"), *((level, times) for times in MULTIPLES for level in ROLES)]:
                for die in ("logic", "dram") if times != "1" else ("logic",):
                    of = with_rate(level, float(times), die, third)
                    yield Row((phase, batch, network, level, times, die), of, question(phase, batch))


MULTIPLES: Final = ("4", "0.5", "1.5", "2", "3", "0.25")


def with_rate(level: str, times: float, die: str, third: str) -> Design:
    """The start with one rate multiplied, on a die of as much area as the published number of units takes.

    A network on a DRAM die takes nothing: neither of the logic die nor of the capacity.
    """
    start = design(third=third)
    assert start.sizes is not None and start.technology.layers is not None
    data, role = start.to_data(), ROLES[level]
    data["sizes"] = {**data["sizes"], "network_die": die}
    data["sizes"]["rate"] = {**data["sizes"]["rate"], role: f"{start.sizes.rate[role] * times:.6g} B/s"}  # type: ignore[index]
    if die == "dram":
        data["technology"]["layers"]["network_area"] = 1e-9
    made = Design.from_data(data, "stacked-256")
    assert made.sizes is not None
    law, at = AreaLaw.of(made.technology, made.budgets.chip_area_mm2), Point.of(made.sizes, made.technology)
    area = law.die - law.left_mm2(at) + units_of(level, times if die == "logic" else 1.0) * law.unit_mm2(at)
    data["budgets"] = {**data["budgets"], "chip_area_mm2": float(area), "package_area_mm2": float(area)}
    return Design.from_data(data, "stacked-256")


def units_of(level: str, times: float) -> int:
    """The published number of units with one rate multiplied; that of the start where none is published."""
    with (HERE / "tile_counts.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            start = (row["total_layers"], row["buffer_KiB"], row["l1_bytes_per_cycle"]) == ("4", "256", "256")
            rates = {name: float(row[f"{name.lower()}_network_x"]) for name in ROLES}
            if start and rates == {**dict.fromkeys(ROLES, 1.0), level: times}:
                return int(row["tiles"])
    return 8


def figure_21() -> Iterator[Row]:
    """Tokens/s under each of three nested spaces of schedules, on the start with overlap."""
    rows = rows_of("fig21_parallelism_space")
    for row in sorted(rows, key=lambda row: -int(row["batch"] in ("4", "64", "1024")) - int(row["batch"] == "1024")):
        for menu in MENUS:
            asked = question(row["phase"], row["batch"], row["model"], parallelism=menu, **OVERLAP)
            yield Row((row["phase"], row["model"], row["batch"], menu), design(), asked)


OVERLAP: Final = {"tensor_overlap": "any", "two_batch_overlap": False}
EXPOSED: Final = {"tensor_overlap": "none", "two_batch_overlap": False}


def table_4() -> Iterator[Row]:
    """Seven steps: what is free grows from one to the next; the fifth judges the winner of the fourth with overlap."""
    chip = {"buffer": BUFFERS, "buffer_port": PORTS}
    for batch in ("1024", "4"):

        def asked(batch: str = batch, **more: Any) -> dict[str, Any]:
            return question("decode", batch, **more)

        for number, menu in enumerate(MENUS, 1):
            yield Row((batch, str(number)), design(), asked(parallelism=menu, **EXPOSED))
        yield Row((batch, "4"), design(choices=chip), asked(**EXPOSED))
        if (won := answers("table-4").get((batch, "4"))) and won["tokens_per_s"]:
            yield Row((batch, "5"), with_sizes(design(), won["design"]), asked(**won["degrees"], **OVERLAP))
        layers = any_layers()
        yield (sixth := Row((batch, "6"), layers, asked(**OVERLAP), "dram_layers"))
        known = answers("table-4")
        if all(key in known for key in sixth.keys):
            won = max((known[key] for key in sixth.keys), key=lambda record: record["tokens_per_s"] or 0.0)
            yield Row((batch, "7"), _with_rates(with_sizes(layers, won["design"])), asked(**OVERLAP))


def _with_rates(of: Design) -> Design:
    """Half, the same, one and a half and twice the rate of each level."""
    assert of.sizes is not None
    steps = {
        role: {"least": f"{rate / 2:.6g} B/s", "most": f"{2 * rate:.6g} B/s", "step": f"{rate / 2:.6g} B/s"}
        for role, rate in of.sizes.rate.items()
    }
    return Design.from_data({**of.to_data(), "choices": {"rate": steps}}, of.name)


def findings() -> Iterator[Row]:
    """Curves over the number of layers as in figure 16, of another model and under each space of schedules."""
    for menu, model in (("tp_pp_dp", "DeepSeek-V3"), ("per_module", "Qwen3-235B"), ("tp_pp_dp", "Qwen3-235B"),
                        ("expanded", "DeepSeek-V3"), ("expanded", "Qwen3-235B")):  # fmt: skip
        of = any_layers()
        for batch in ("1024", "4", "64", "256", "16"):
            for phase in ("decode", "prefill"):
                asked = question(phase, batch, model, parallelism=menu)
                yield Row((model, phase, batch, menu), of, asked, "dram_layers")


CONTROLS: Final[dict[str, tuple[dict[str, Any], dict[str, Any]]]] = {  # of layers and of units, and sizes
    "no area lost per layer": ({"area_mm2": 0.0, "keep_out": 1e-9}, {}),
    "one bandwidth for all layers": ({"ports": 16}, {"connected_layers": 2}),
    "no port limits": ({}, {}),
}


def controls() -> Iterator[Row]:
    """Curves of figure 16 without what shapes them: they must rank the numbers of layers in another way."""
    for name, (layers, sizes) in CONTROLS.items():
        ports = ["64 KiB"] if name == "no port limits" else PORTS
        choices = {"dram_layers": LAYERS, "buffer": BUFFERS, "buffer_port": ports}
        data = design(choices=choices, **{"connected_layers": None, **sizes}).to_data()
        data["technology"]["layers"] |= layers
        if name == "no port limits":
            data["technology"]["core"]["buffer"]["port_area_mm2"] = 1e-12
        of = Design.from_data(data, "stacked-256")
        for phase, batch in (("decode", "1024"), ("prefill", "1024"), ("decode", "4")):
            yield Row((name, phase, batch), of, question(phase, batch), "dram_layers")


FIGURES: Final[dict[str, Callable[[], Iterator[Row]]]] = {
    "16": figure_16, "17": figure_17, "20": figure_20, "21": figure_21, "table-4": table_4, "findings": findings,
    "controls": controls, "long-prompts": long_prompts,
}  # fmt: skip


def answers(figure: str) -> dict[tuple[str, ...], dict[str, Any]]:
    """What was answered, by question."""
    found = dict[tuple[str, ...], dict[str, Any]]()
    for record in records_of(
        HERE / "results" / f"{file_of(figure)}.jsonl"
    ):  # what was asked again with more time comes later
        key, known = tuple(record["key"]), found.get(tuple(record["key"]), NOTHING)
        found[key] = record if (record["tokens_per_s"] or 0.0) >= (known["tokens_per_s"] or 0.0) else known
    return found


def records_of(path: Path) -> list[dict[str, Any]]:
    """The records of a file of answers, one a line; none where there is no file yet."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def add_record(path: Path, record: dict[str, Any]) -> None:
    """Add an answer to a file, and print it."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
    print(record, flush=True)


def file_of(figure: str) -> str:
    """The name of the file of its answers."""
    return f"figure-{figure}" if figure.isdigit() else figure


def answered(row: Row, time_limit: float) -> Iterator[dict[str, Any]]:
    """The open answers to a question, one by one."""
    options = {"gap": GAP, "time_limit": time_limit, **row.asked}
    graph, began = options.pop("graph"), time.perf_counter()
    for key, told in _each(row, graph, options) if row.each else [(row.key, _one(row.design, graph, options))]:
        yield {"key": key, "seconds": round(time.perf_counter() - began, 1), **told}
        began = time.perf_counter()


def _each(row: Row, graph: str, options: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    for key, (_, made) in zip(row.keys, explore_each(graph, row.design, row.each, **options), strict=True):
        yield key, _told(made, row.design)


def _told(made: Exploration | NoSolution | None, of: Design) -> dict[str, Any]:
    if isinstance(made, NoSolution):
        return {**NOTHING, "why": "time limit"}
    return NOTHING if made is None else told_of(made.result, of, made.gap, made.best)


def _one(of: Design, graph: str, options: dict[str, Any]) -> dict[str, Any]:
    """The best of some designs, or one alone; prompts are solved there: exploring takes longer to a first mapping."""
    assert of.sizes is not None
    choices = of.to_data().get("choices") or {}
    try:
        if choices or options["phase"] == "decode":  # the time limit of each leaves out what bounds of plans take
            choices = {**choices, "dram_layers": [of.sizes.dram_layers]}
            several = Design.from_data({**of.to_data(), "choices": choices}, of.name)
            ((_, made),) = explore_each(graph, several, "dram_layers", **options)
            if of.choices is not None or not isinstance(made, NoSolution):
                return _told(made, of)
        result = dfopt.solve(graph, of, **options)
        return told_of(result, of, result.gap, {})
    except Infeasible:
        return NOTHING
    except NoSolution:
        return {**NOTHING, "why": "time limit"}


def told_of(result: Result, of: Design, gap: float, best: dict[str, float]) -> dict[str, Any]:
    """What is kept of an answer."""
    tokens, plan = result.score.tokens_per_s, result.plan
    return {
        "tokens_per_s": tokens, "at_most": tokens / (1 - gap), "gap": round(gap, 4),
        "tokens_per_j": tokens_per_j(result, with_sizes(of, best)), "design": best, "plan": plan.label,
        "degrees": {"tp": plan.tp, "mp": plan.mp, "pp": plan.pp, "dp": plan.dp}, "microbatch": result.graph.microbatch,
    }  # fmt: skip


def with_sizes(of: Design, best: dict[str, float]) -> Design:
    """One of the designs that a design with choices stands for."""
    assert of.sizes is not None
    rates = {role: best.get(role, rate) for role, rate in of.sizes.rate.items()}
    whole = {name: int(size) for name, size in best.items() if name.endswith("_layers")}
    sizes = {name: size for name, size in best.items() if name.startswith("buffer")}
    made = of.sizes.model_copy(update={**whole, **sizes, "rate": rates})
    if whole and "connected_layers" not in whole and of.sizes.connected_layers is not None:
        made = made.model_copy(update={"connected_layers": min(made.dram_layers, of.sizes.connected_layers)})
    return of.model_copy(update={"sizes": made, "choices": None})


def degrees_of(plan: str) -> dict[str, int]:
    """The degrees in the label of a plan."""
    named = {axis.lower(): int(degree) for axis, degree in re.findall(r"(TP|MP|PP|DP)(\d+)", plan)}
    return {"tp": 1, "mp": 1, "pp": 1, "dp": 1, **named}


def tokens_per_j(result: Result, of: Design) -> float:
    """Tokens for a joule of all devices: what leaks all the time, and what FLOP, DRAM and links spend.

    FLOP spend the power of busy units for as long as they take at their peak. The slowest stage stands for all: its
    bytes pass through the DRAM of every device, and links are busy for its seconds, with the mean power of the levels.
    """
    score, chip, technology = result.score, derive_design(of), of.technology
    assert of.sizes is not None and technology.layers is not None
    core, layers, step_s = technology.core, technology.layers, score.step_time_s
    leaking_w = chip.core.units * (core.static_power or 0.0) + of.sizes.dram_layers * layers.static_power
    computing_j = score.utilization * step_s * chip.core.units * core.power
    times = result.graph.batch / (result.graph.microbatch * result.plan.dp)
    moved = [
        sum(part.dram_bytes * stage.runs.get(part.stage, 0) for part in score.partitions) for stage in score.stages
    ]
    links_w = [rate * technology.links[role].energy for role, rate in of.sizes.rate.items()]
    busy_s = sum(score.link_time.parts.values()) - score.link_latency_s
    sending_j = busy_s * sum(links_w) / len(links_w)
    joules = leaking_w * step_s + computing_j + times * max(moved) * layers.energy + sending_j
    return score.tokens_per_s * step_s / (result.system.chips * joules)
