"""How hot the designs of figure 16 get: by DeepStack's formula of one resistance, and as stacks of dies.

    python benchmarks/stacked/heat.py run [--only decode,4]
    python benchmarks/stacked/heat.py claims

``run`` takes the best design of each number of layers from ``results/figure-16.jsonl``, maps the workload onto its
stack on the package of ``hybrid-vault`` under its plan's degrees, and adds temperatures, clock and tokens/s to
``results/heat.jsonl``. The formula takes what a chip draws in full use; ``at_power`` is the formula at the power that
the judge sees. ``claims`` says where formula and stack differ, and which winners are too hot.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from typing import Any, Final

from asked import HERE, add_record, answers, degrees_of, design, question, records_of, with_sizes

import dfopt
from dfopt.physics.lumped import LIMIT_C, temperature_c

ANSWERS: Final = HERE / "results" / "heat.jsonl"
ON: Final = "hybrid-vault"
FAR_K: Final = 5.0


def run(only: str) -> None:
    """Judge what is open."""
    done = {tuple(record["key"]) for record in records_of(ANSWERS)}
    for key, won in answers("16").items():
        if key in done or not won["tokens_per_s"] or not ",".join((*key, "")).startswith(only and f"{only},"):
            continue
        add_record(ANSWERS, {"key": key, **heated(key, won)})


def heated(key: tuple[str, ...], won: dict[str, Any]) -> dict[str, Any]:
    """The design of a row on its stack."""
    phase, batch, layers = key
    chip = dfopt.derive(with_sizes(design(connected_layers=None), won["design"]), ON)
    system = chip.system.model_copy(update={"stack": chip.stack})
    asked = question(phase, batch, microbatch=won["microbatch"])
    result = dfopt.solve(asked.pop("graph"), system, time_limit=30, **asked, **degrees_of(won["plan"]))
    score, on_stack, watts = result.score, result.score.physical, system.chip.power_w
    assert on_stack is not None and watts is not None
    return {
        "lumped_c": temperature_c(watts, int(layers)), "at_power_c": temperature_c(on_stack.power_w, int(layers)),
        "logic_c": on_stack.logic_max_c, "dram_c": on_stack.dram_max_c, "clock": on_stack.frequency,
        "full_w": watts, "power_w": on_stack.power_w, "kept": not on_stack.limits_broken,
        "tokens_per_s": score.tokens_per_s, "on_stack_tokens_per_s": score.tokens_per_s / on_stack.slowdown,
    }  # fmt: skip


def claims() -> None:
    """Differences by regime, and the winners."""
    regimes = defaultdict[tuple[str, str], list[dict[str, Any]]](list)
    for one in records_of(ANSWERS):
        regimes[one["key"][0], one["key"][1]].append(one)
    print("regime          layers  formula  at power     real  clock  tokens/s kept  rows that differ by 5 K, at power")
    for regime, rows in regimes.items():
        won = max(rows, key=lambda one: one["tokens_per_s"])
        real = _real_c(won)
        far, at_power = (
            sum(abs(one[name] - _real_c(one)) > FAR_K for one in rows) for name in ("lumped_c", "at_power_c")
        )
        kept = won["on_stack_tokens_per_s"] / won["tokens_per_s"]
        print(f"{' '.join(regime):15} {won['key'][2]:>6} {won['lumped_c']:8.1f} {won['at_power_c']:9.1f} {real:8.1f}"
              f" {won['clock']:6.0%} {kept:14.1%}  {far} and {at_power} of {len(rows)}")  # fmt: skip
        if real > LIMIT_C or not won["kept"]:
            cool = [one for one in rows if _real_c(one) <= LIMIT_C and one["kept"]]
            best = max(cool, key=lambda one: one["on_stack_tokens_per_s"], default=None)
            said = (
                "no number of layers"
                if best is None
                else f"{best['key'][2]} layers, {best['on_stack_tokens_per_s']:,.0f}"
            )
            print(f"  too hot; in its place {said} of {won['on_stack_tokens_per_s']:,.0f} tokens/s")


def _real_c(one: dict[str, Any]) -> float:
    return max(one["logic_c"], one["dram_c"])


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "claims"))
    parser.add_argument("--only", default="", metavar="KEY", help="rows whose key begins so")
    given = parser.parse_args()
    if given.what == "run":
        run(given.only)
    else:
        claims()


if __name__ == "__main__":
    main()
