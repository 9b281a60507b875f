"""Questions by chance, from everything that ``dfopt solve``, ``df.solve`` and studies accept."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

DENSE, EXPERTS, OTHER = ("llama-68m", "qwen3-0.6b", "llama-3.2-1b"), ("qwen3-30b-a3b",), ("gpt2-small", "vit-b-16")
SYSTEMS = ("h100-8", "a100-8", "b200-8", "tpu-v5e-256:8", "sn40l-16-ddr", "sn40l-16-ddr", "mi300x-8")
SERVING = ("prefill", "decode", "verify", "mixed")


@dataclass
class Draw:
    """A question as the three doors want it."""

    graph: str
    system: str
    phase: str
    parameters: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    set: dict[str, Any] = field(default_factory=dict)
    assumptions: str | None = None
    chips: int | None = None
    words: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)


class Option(NamedTuple):
    """An option: where it goes, what it may be, and which draws it goes with."""

    name: str
    place: str  # parameters, options, set or assumptions
    key: str
    values: Callable[[Draw], list[Any]]
    fits: Callable[[Draw], bool] = lambda draw: True
    chance: float = 0.12


def _trains(draw: Draw) -> bool:
    return draw.phase == "training"


def _several(draw: Draw) -> bool:
    """Whether several mappings are asked for, of which shardings may be told apart."""
    return "top" in draw.options and draw.graph in DENSE and draw.set.get("sharding_objective", "joint") == "joint"


def _serves(draw: Draw) -> bool:
    return draw.phase in SERVING


def _with_ends(draw: Draw) -> bool:
    return _trains(draw) and draw.graph in DENSE


def _some_recomputed(draw: Draw) -> bool:
    return "/" in str(draw.parameters.get("recompute", ""))


def _tiers(draw: Draw) -> bool:
    return _trains(draw) and draw.system == "sn40l-16-ddr"


def _phase(*names: str) -> Callable[[Draw], bool]:
    return lambda draw: draw.phase in names


def _one_axis(draw: Draw) -> bool:
    return _serves(draw) and _free("mp", "ep", "attention_dp", "cp")(draw)


def _plain(draw: Draw) -> bool:
    return "draft" not in draw.parameters


def _free(*keys: str) -> Callable[[Draw], bool]:
    return lambda draw: not {*keys} & draw.options.keys()


OPTIONS = (
    Option("--tp", "options", "tp", lambda d: [1, 2, 4], chance=0.3),
    Option("--pp", "options", "pp", lambda d: [1, 2], chance=0.2),
    Option("--dp", "options", "dp", lambda d: [1, 2], _free("pp"), 0.15),
    Option("--mp", "options", "mp", lambda d: [1, 2], lambda d: d.graph not in OTHER),
    Option("--ep", "options", "ep", lambda d: [2, 4], lambda d: d.graph in EXPERTS and _free("mp")(d), 1.0),
    Option("--attention-dp", "options", "attention_dp", lambda d: [2], _one_axis, 0.2),
    Option("--cp", "options", "cp", lambda d: [2], _one_axis, 0.2),
    Option("--module", "options", "modules", lambda d: [{"mixer": "n"}], lambda d: _serves(d) and _free("cp")(d), 0.2),
    Option("--tp-dims", "options", "tp_dims", lambda d: [()], lambda d: d.options.get("tp") == 1, 0.7),
    Option("--microbatch", "parameters", "microbatch", lambda d: [1, 2, "1,2", "all"], chance=0.3),
    Option("--recompute", "parameters", "recompute", lambda d: ["none", "full/none"], _trains, 0.6),
    Option("--zero", "options", "zero", lambda d: [(0,), (1,), (0, 1, 2, 3)], _trains, 0.4),
    Option("--zero-replicas", "options", "zero_replicas", lambda d: [(1,), (1, 2), "all"], _trains, 0.35),
    Option("--interleave", "options", "interleave", lambda d: [1, 2], _trains, 0.35),
    Option("--param-gather-overlap", "options", "parameter_overlap", lambda d: ["none"], _trains, 0.35),
    Option("--recompute-layers", "options", "recomputed", lambda d: [2], _some_recomputed, 0.9),
    Option("--first-layers", "options", "first_layers", lambda d: [3], _with_ends, 0.5),
    Option("--last-layers", "options", "last_layers", lambda d: [1], _with_ends, 0.5),
    Option("--offload", "options", "offload", lambda d: ["any", ("optimizer",)], _tiers, 1.0),
    Option("--schedule", "options", "schedule", lambda d: ["1f1b", "gpipe"], _trains, 0.4),
    Option("--gradient-overlap", "options", "gradient_overlap", lambda d: ["none", "backward"], _trains, 0.3),
    Option("--p2p-overlap", "options", "point_to_point_overlap", lambda d: ["none", "interleaved"], _trains, 0.3),
    Option("--tp-comm-overlap", "options", "tensor_overlap", lambda d: ["none", "ring"], chance=0.12),
    Option("--two-batch-overlap", "options", "two_batch_overlap", lambda d: [False], chance=0.12),
    Option("--context", "parameters", "context", lambda d: [64, 512], _phase("decode", "verify"), 1.0),
    Option("--window", "parameters", "draft", lambda d: [3], _phase("verify"), 0.55),
    Option("--tree", "parameters", "tree", lambda d: [[0, 1, 1]], lambda d: d.phase == "verify" and _plain(d), 1.0),
    Option("--segments", "parameters", "segments", lambda d: ["1x64@0,7x1@128"], _phase("mixed"), 1.0),
    Option("--prompt", "parameters", "seq", lambda d: [128, 256], _phase("prefill", "training", "forward"), 0.5),
    Option("--hit", "parameters", "hit", lambda d: [64], lambda d: "seq" in d.parameters and d.phase == "prefill", 1.0),
    Option("--param", "parameters", "ends", lambda d: [True, False], lambda d: _trains(d) and d.graph in DENSE, 0.6),
    Option("--set", "set", "overlap", lambda d: ["perfect", "compute_memory"]),
    Option("--set", "set", "chip.dram.bandwidth", lambda d: ["1 TB/s"]),
    Option("--assume", "assumptions", "", lambda d: ["default", "auto"], chance=0.2),
    Option("--memory-reserve", "set", "memory_reserve", lambda d: [0.0, 0.05], chance=0.15),
    Option("--kernel-by-kernel", "set", "execution", lambda d: ["kernel_by_kernel"]),
    Option("--p-max", "options", "p_max", lambda d: [40], lambda d: "execution" not in d.set, 0.15),
    Option("--pin", "options", "pin_partition", lambda d: [{"Add_2": 14}], lambda d: d.options.get("p_max") == 40, 0.6),
    Option("--chips", "chips", "", lambda d: [4], lambda d: ":" not in d.system and not d.system.startswith("sn40l")),
    Option("--solver", "options", "solver", lambda d: ["highs"]),
    Option("--formulation", "options", "formulation", lambda d: ["auto", "columns"]),
    Option("--shard", "options", "pin_sharding", lambda d: [{"Q_Proj": "outer"}], lambda d: d.graph in DENSE),
    Option("--gap", "options", "gap", lambda d: [0.0, 0.01], chance=0.2),
    Option("--seed", "options", "seed", lambda d: [7]),
    Option("--set", "set", "sharding_objective", lambda d: ["seconds", "bytes"], chance=0.08),
    Option("--top", "options", "top", lambda d: [2, 3, 5]),
    Option("--distinct", "options", "distinct", lambda d: ["plan", "sharding"], _several, 0.9),
)  # fmt: skip


def drawn(rng: random.Random) -> Draw:
    """A question by chance."""
    graph = rng.choice(DENSE * 3 + EXPERTS * 2 + OTHER)
    phases = ("training", "forward") if graph in OTHER else ("training", "training", "forward", *SERVING)
    draw = Draw(graph, rng.choice(SYSTEMS), rng.choice(phases))
    draw.parameters = {"phase": draw.phase}
    if draw.phase != "mixed":
        draw.parameters["batch"] = rng.choice([4, 8, 16, "max"] if draw.phase == "decode" else [4, 8, 16])
    for option in OPTIONS:
        if not option.fits(draw) or rng.random() >= option.chance:
            continue
        value = rng.choice(option.values(draw))
        draw.names.append(option.name)
        if not option.key:
            setattr(draw, option.place, value)
        else:
            getattr(draw, option.place)[option.key] = value
        draw.words += _words(option, value)
    return draw


def _words(option: Option, value: Any) -> list[str]:
    """The option on the command line."""
    if isinstance(value, dict):
        return [word for key, what in value.items() for word in (option.name, f"{key}={what}")]
    if option.name in ("--set", "--param"):
        return [option.name, f"{option.key}={str(value).lower() if isinstance(value, bool) else value}"]
    if option.name == "--kernel-by-kernel":
        return [option.name]
    if isinstance(value, bool):
        return [option.name if value else f"--no-{option.name[2:]}"]
    return [option.name, ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)]


def keywords(draw: Draw, seconds: float) -> dict[str, Any]:
    """The same for ``df.solve``, beside graph and system."""
    given = {**draw.parameters, **draw.options, "set": draw.set, "time_limit": seconds}
    return given | {name: value for name in ("assumptions", "chips") if (value := getattr(draw, name)) is not None}


def command(draw: Draw, seconds: float) -> list[str]:
    """What to type."""
    words = ["solve", draw.graph, draw.system, "--phase", draw.phase]
    words += ["--batch", str(draw.parameters["batch"])] if "batch" in draw.parameters else []
    return [*words, *draw.words, "--time-limit", f"{seconds:g}"]
