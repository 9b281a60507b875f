"""Attack what answers claim of plans: ask the same question again with parts of the plan pinned by chance.

    python benchmarks/plan_attack.py [--seconds S] [--seed K] [--pins N]

Questions are of small models on a few chips, often with so little memory that few plans fit. Pins are layers of the
ends of a pipeline, chunks, levels of ZeRO, recomputation, microbatches and degrees. It is a failure (exit status 1) if
a pinned answer is below the bound of the free one, below one that calls itself optimal, or there where the free
question was called infeasible, unless ``fixed`` of the free one says that it did not try such a plan. Everything goes
through the public API.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from typing import Any

import dfopt as df
from dfopt.documents.passes import way_of
from dfopt.errors import DfoptError

SAME = 1e-6
MODELS = ("gpt2-small", "llama-3.2-1b", "llama-3.1-8b", "gemma-2-9b", "qwen3-0.6b")
CHIPS = (4, 6, 8, 12)
SQUEEZED = (4.0, 1.2, 0.98, 0.9, 0.8, 0.7)
"""Memory of a chip, of what the fullest one of the fastest mapping holds."""
LIMIT_S = 20.0  # of every solve


def system_of(chips: int, capacity: float | None = None) -> df.System:
    """Chips like H100 on one switch, with some bytes of memory."""
    data = df.load_system("h100-8").to_data()
    data["network"] = [{"name": "x", "topology": "switch", "size": chips, "link_bandwidth": "100 GB/s"}]
    if capacity is not None:
        data["chip"]["dram"]["capacity"] = f"{capacity} B"
    return df.System.from_data(data)


def question(dice: random.Random) -> dict[str, Any]:
    """A phase and its sizes."""
    if dice.random() < 0.3:
        return {"phase": "decode", "batch": dice.choice([8, 32]), "context": dice.choice([1024, 16384])}
    asked = {"phase": "training", "batch": dice.choice([12, 16, 32]), "seq": dice.choice([512, 2048])}
    some = {"microbatch": 1, "recompute": dice.choice(["none", "none", "full"])}
    return asked | (some if dice.random() < 0.8 else {})


def pins_of(dice: random.Random, asked: dict[str, Any], layers: int, chips: int) -> dict[str, Any]:
    """Parts of a plan, of which some may not go together."""
    divisors = [number for number in range(1, chips + 1) if chips % number == 0]
    pp = dice.choice(divisors)
    even = layers // pp
    drawn: dict[str, Any] = {"pp": pp, "tp": dice.choice(divisors), "microbatch": dice.choice([1, 2, 3, 6])}
    if pp > 1:
        drawn["first_layers"] = dice.randint(0, even + 1)
        drawn["last_layers"] = dice.randint(0, layers if pp == 2 else even + 4)
    if asked["phase"] == "training":
        drawn["zero"] = dice.choice([0, 1, 2, 3])
        drawn["recompute"] = dice.choice(["none", "attention", "layernorm", "full"])
        drawn["interleave"] = dice.choice([1, 1, 2])
    return {name: value for name, value in drawn.items() if name not in asked and dice.random() < 0.6}


def answer(graph: str, system: df.System, asked: dict[str, Any]) -> Any:
    """The answer, the proof that there is none, or None if there is neither."""
    try:
        return df.solve(graph, system, sensitivity=False, assumptions="ideal", time_limit=LIMIT_S, **asked)
    except df.Infeasible as error:
        return error
    except (DfoptError, ValueError):  # pins that no plan has
        return None


def left_out(free: Any, pinned: Any) -> bool:
    """Whether the free answer says that it did not try what the graph of a pinned one has."""
    has = {"microbatch": str(pinned.graph.microbatch), "recompute:": way_of(pinned.graph.variant)}
    named = (words.partition(" ") for words in free.fixed)
    return any(name in has and has[name] not in tried.replace(" or ", "/").split("/") for name, _, tried in named)


def refuted(free: Any, pinned: Any) -> bool:
    """Whether a pinned answer contradicts the free one."""
    if pinned is None or isinstance(pinned, df.Infeasible) or left_out(free, pinned):
        return False
    if isinstance(free, df.Infeasible):
        return True
    best = free.value if free.status == "optimal" else free.bound
    return bool(pinned.value < best * (1 - SAME))


def main() -> int:
    """Attack questions until the time is over, and print each contradiction."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0, help="for all questions")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--pins", type=int, default=12, help="draws of pins for a question")
    given = parser.parse_args()
    dice, until = random.Random(given.seed), time.perf_counter() + given.seconds
    questions = tried = wrong = 0
    while time.perf_counter() < until:
        graph, chips, asked = dice.choice(MODELS), dice.choice(CHIPS), question(dice)
        roomy = answer(graph, system_of(chips, 1e15), asked)
        if roomy is None or isinstance(roomy, df.Infeasible):
            continue
        most = max(stage.dram_bytes for stage in roomy.score.stages)
        system = system_of(chips, most * dice.choice(SQUEEZED))
        free = answer(graph, system, asked)
        if free is None:
            continue
        questions += 1
        for _ in range(given.pins):
            pins = pins_of(dice, asked, roomy.graph.layers.count, chips)
            pinned = answer(graph, system, asked | pins)
            tried += pinned is not None and not isinstance(pinned, df.Infeasible)
            if refuted(free, pinned):
                wrong += 1
                none = isinstance(free, df.Infeasible)
                claim = "infeasible" if none else f"{free.status} {free.value:.9g} s, bound {free.bound:.9g} s"
                print(f"REFUTED {graph} {chips} chips {asked}: {claim}; {pins}: {pinned.value:.9g} s", flush=True)
    print(f"{wrong} of {questions} answers refuted, by {tried} pinned answers")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
