"""Why no plan fits, in a few lines: the plans that lack least, how many others lack what, one remedy."""

from __future__ import annotations

import math
import re
from typing import Final

from dfopt.show.tables import first_of

_SHOWN: Final = 5
_NAMED: Final = 3
_SHORT: Final = re.compile(r"short by ([\d.]+(?:e[+-]?\d+)?) ([kMGT]?B)\b")
_PLAN: Final = re.compile(r"^((?:\[[^]]*\]|[^\[:])*): ")  # the label of a plan, whose modules have colons in brackets
_BYTES: Final = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}


def brief(report: str, shown: int = _SHOWN) -> str:
    r"""Shorten the report of an `Infeasible` error over many plans to its most helpful lines.

    ``report`` is a heading, and a line ``PLAN: REASON; levers: REMEDIES`` for each plan. Reasons with the smallest
    memory shortage are shown first, then all others in order.

    Examples
    --------
    >>> lines = [f"  TP{n}: DRAM is short by {8 // n - 1} GB; levers: more chips" for n in (1, 2, 4)]
    >>> print(brief("no plan fits:\n" + "\n".join(lines), shown=1))
    no plan fits; nearest of 3:
      TP4: DRAM is short by 1 GB
    and 2 more plans: 2 short of DRAM by 3 GB to 7 GB
    levers: more chips
    """
    heading, *lines = report.split("\n")
    if len(lines) < 2 or not all(line.startswith("  ") for line in lines):
        return report
    plans_of: dict[str, list[str]] = {}
    levers: dict[str, None] = {}
    for line in lines:
        _, plan, words = _PLAN.split(line.strip(), maxsplit=1)
        reason, _, remedies = words.partition("; levers: ")
        plans_of.setdefault(reason, []).append(plan)
        levers.update(dict.fromkeys(remedy for remedy in remedies.split(", ") if remedy))
    reasons = sorted(plans_of, key=_lacking)  # stable: those without bytes as listed
    best, rest = reasons[:shown], reasons[shown:]
    count = sum(len(plans_of[reason]) for reason in rest)
    shortened = [f"{heading.rstrip(':')}; nearest of {len(lines)}:" if rest else heading]
    shortened += [f"  {first_of(plans_of[reason], _NAMED)}: {reason}" for reason in best]
    if rest:
        shortened.append(f"and {count} more plan{'' if count == 1 else 's'}: {_counted(rest, plans_of)}")
    if levers:
        shortened.append(f"levers: {', '.join(levers)}")
    return "\n".join(shortened)


def _lacking(reason: str) -> float:
    """Bytes that a plan is short of; infinite where its reason is another one."""
    match = _SHORT.search(reason)
    return float(match[1]) * _BYTES[match[2]] if match else math.inf


def _counted(reasons: list[str], plans_of: dict[str, list[str]]) -> str:
    """How many plans lack which memory, by how much; of other reasons the first few."""
    parts = []
    for memory in ("DRAM", "SRAM"):
        short = [reason for reason in reasons if math.isfinite(_lacking(reason)) and memory in reason]
        if short:
            least, most = (" ".join(_SHORT.findall(reason)[0]) for reason in (short[0], short[-1]))
            span = least if least == most else f"{least} to {most}"
            parts.append(f"{sum(len(plans_of[reason]) for reason in short)} short of {memory} by {span}")
            reasons = [reason for reason in reasons if reason not in short]
    parts += [f"{len(plans_of[reason])}: {reason}" for reason in reasons[:_NAMED]]
    left = sum(len(plans_of[reason]) for reason in reasons[_NAMED:])
    return "; ".join([*parts, *([f"{left} for other reasons"] if left else [])])
