"""The answer of a search in at most 16 lines: question, plan, speed, time, memory, gains, proof, limits.

Every part is a line or two of 80 columns, with three significant digits. Shares are rounded so that they add up to
100 %, and bytes so that they add up to what they are parts of.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from dfopt.documents.axes import MODULES
from dfopt.documents.evaluation import phase_of
from dfopt.documents.experts import routing_of
from dfopt.documents.modules import STREAM
from dfopt.documents.passes import way_of
from dfopt.documents.plan import Plan
from dfopt.documents.result import Result
from dfopt.documents.score import Score
from dfopt.physics.ops import output_axis
from dfopt.show.accuracy import NEVER, accuracy_off, efficiency_of
from dfopt.show.asked import PHASES, batch_words, short_types
from dfopt.show.inputs import routing_facts
from dfopt.show.omissions import JudgedResult, omissions
from dfopt.show.parts import RESOURCES, held_words, time_parts
from dfopt.show.stages import order_of
from dfopt.show.tables import counted
from dfopt.units import number, show_unit

_FIRST: Final = 3  # names of a list that are shown
_LINE: Final = 68  # characters beside the name of a row in 80 columns
_TWO_LINES: Final = 2 * _LINE - 10  # that fit wherever the first one is broken
_LEAST_GAIN: Final = 5e-4  # of a step, below which a resource is not worth naming
_PARTS: Final = {  # where that is not the name of the part
    "memory": "DRAM", "sram": "SRAM", "pipeline_parallel": "pipeline sends",
    "exchange": "all-to-all and other exchange",
}  # fmt: skip
_TITLES: Final = {"context": "CP", "n": "attention DP"}
_SCHEMES: Final = {"n": "by sequence", "outer": "by head", "context": "by token", "m": "by feature"}


def apportioned(parts: Mapping[str, float], steps: int) -> dict[str, int]:
    """Integer steps for every part that add up to ``steps``, by the largest-remainder method.

    Examples
    --------
    >>> apportioned({"compute": 1.0, "DRAM": 1.0, "bubble": 1.0}, 100)
    {'compute': 34, 'DRAM': 33, 'bubble': 33}
    """
    total = math.fsum(parts.values())
    if total <= 0:
        return {}
    exact = {name: steps * part / total for name, part in parts.items()}
    rounded = {name: math.floor(share) for name, share in exact.items()}
    rest = sorted(exact, key=lambda name: rounded[name] - exact[name])[: steps - sum(rounded.values())]
    return {name: count + (name in rest) for name, count in rounded.items()}


def brief(value: float) -> str:
    """A number as text with three significant digits and thousands separators."""
    return number(value, 3)


def seconds(value: float) -> str:
    """A time as text with three significant digits and a unit; above 1000 s with all digits."""
    return f"{brief(value)} s" if value >= 1e3 else show_unit(value, "time", 3)


def headline(answer: JudgedResult) -> tuple[str, str]:
    """Two lines: the question, and the machine."""
    graph, system = answer.graph, answer.system
    phase = PHASES.get(phase_of(graph), phase_of(graph))
    dims = " x ".join(f"{dim.name} {dim.size}" for dim in system.network if dim.size > 1)
    where = f"{system.name}: {dims}" if dims else system.name
    return (
        f"{graph.name}, {phase}: {batch_words(graph)}, {short_types(graph)}",
        f"on {system.chips:,} x {system.chip.name} ({where})",
    )


def summary(answer: JudgedResult, other: Score | None = None) -> list[tuple[str, str]]:
    """Label and text of the lines below the headline.

    Parameters
    ----------
    answer : Result or Judged
        A result has a proof and gains from more resources; a judged mapping has neither.
    other : Score, optional
        The same mapping under the other efficiency: ideal beside measured, or the other way round.
    """
    rows = [
        ("plan", plan_in_words(answer)),
        ("step", _speed(answer)),
        ("time", _time(answer.score)),
        ("memory", _memory(answer)),
    ]
    if isinstance(answer, Result) and answer.sensitivity:
        rows.append(("10 % more", _gains(answer)))
    rows.append(("efficiency", _efficiency(answer, other)))
    if isinstance(answer, Result):
        rows += [("proof", proof_in_words(answer)), ("fixed", _listed(answer.fixed))]
    rows += routing_facts(routing_of(answer.graph))
    rows += [("note", note) for note in answer.score.notes or ()]
    return [*rows, ("left out", _listed([name.split(" (")[0] for name in omissions(answer)]))]


def _listed(names: Sequence[str]) -> str:
    """How many names there are, and the first of them, as many as a line has room for."""
    shown = list(names[:_FIRST])
    while len(shown) > 1 and len(f"{len(names)}: {', '.join(shown)}, ...") > _LINE:
        del shown[-1]
    return f"{len(names)}: {', '.join(shown)}{', ...' * (len(shown) < len(names))}" if names else "nothing"


def _shares(counts: Mapping[str, int], of: int, room: int, least: int = 1) -> str:
    """Shares of a whole, the largest first; the smallest, and those without room, are added up as others."""
    ordered = sorted(counts.items(), key=lambda part: -part[1])

    def words(shown: Sequence[tuple[str, int]]) -> str:
        rest = sum(counts.values()) - sum(count for _, count in shown)
        parts = [*shown, *[("other", rest)] * bool(rest)]
        return ", ".join(f"{name} {100 * count / of:g} %" for name, count in parts)

    shown = [part for part in ordered if part[1] >= least]
    while len(shown) > 1 and len(words(shown)) > room:
        del shown[-1]
    return words(shown)


# ------------------------------------------------------------------------------------------------ plan


def plan_in_words(answer: JudgedResult) -> str:
    """A plan as text of at most two lines: degrees of parallelism, schedule, microbatches and other choices."""
    plan, graph, kernels = answer.plan, answer.graph, answer.mapping.kernels
    words = []
    if plan.stages > 1:
        words.append(order_of(answer) if graph.trains else f"{plan.layers_per_stage} layers in a stage")
    if graph.trains or plan.microbatches > 1:
        words.append(f"{plan.microbatches:,} microbatch{'es' * (plan.microbatches > 1)} of {graph.microbatch:,}")
    words += [f"ZeRO-{plan.zero}"] * bool(plan.zero)
    if graph.trains:
        layers = f" in {plan.recomputed} layers of a stage" if plan.recomputed else ""
        words.append(f"recompute {way_of(graph.variant)}{layers}")
    words += ["two-batch overlap"] * bool(plan.two_batch_overlap)
    if plan.placement is not None and plan.placement.elsewhere:
        words.append(f"offload {plan.placement.label}")
    split = sum(output_axis(kernel.sharding) == "n" for kernel in kernels) if plan.shards > 1 else 0
    by_tokens = [f"sequence parallelism on {split} of {len(kernels)} kernels"] * bool(split)
    text = ""
    for dims, more in ((True, by_tokens), (True, []), (False, [])):  # the fullest one that two lines have room for
        degrees = (_axis(plan, axis.name, n, over if dims else ()) for axis, n, over in plan.axes if n > 1)
        text = ", ".join([" x ".join(degrees) or "one chip", *words, *more])
        if len(text) <= _TWO_LINES:
            break
    return text


def _axis(plan: Plan, name: str, degree: int, dims: Sequence[str]) -> str:
    """An axis with its degree and network dims; the second one by what its modules share."""
    over = f" ({'*'.join(dims)})" if dims else ""
    if plan.modules is None or name != MODULES:
        return f"{name.upper()} {degree}{over}"
    shared = {module: scheme for module, scheme in plan.modules.schemes.items() if scheme != "none"}
    title = "EP" if shared.get("experts") == "outer" else _TITLES.get(shared.get("mixer", ""), "MP")
    owner = "experts" if title == "EP" else "mixer" if title != "MP" else ""
    others = {module: scheme for module, scheme in shared.items() if module not in (owner, STREAM, "ends")}
    by = ", ".join(f"{module.replace('mixer', 'attention')} {_SCHEMES[scheme]}" for module, scheme in others.items())
    return f"{title} {degree}{over}" + (f" with {by}" if by else "")


# ------------------------------------------------------------------------------------------------ figures


def _speed(answer: JudgedResult) -> str:
    """Step time, rates by all, by a chip and by a user, and the share of peak."""
    score, graph, chips = answer.score, answer.graph, answer.system.chips
    keeps, unit = score.sustained, counted(score)
    words = [seconds(keeps.step_time_s)]
    if keeps is not score:
        words[0] += f" ({seconds(score.step_time_s)} without heat)"
    produced = keeps.produced_tokens_per_s if phase_of(graph) in ("decode", "verify") else None
    rate = produced or (keeps.samples_per_s if unit == "sample" else keeps.tokens_per_s)
    words += [f"{brief(rate)} {unit}s/s", *[f"{brief(rate / chips)} per chip"] * (chips > 1)]
    words += [] if produced is None else [f"{brief(produced / graph.batch)} per user"]
    useful = keeps.model_flop_utilization  # none without matrix products
    words.append(f"MFU {brief(100 * useful)} %" if useful else f"{brief(100 * keeps.utilization)} % of peak")
    return ", ".join(words)


def _time(score: Score) -> str:
    """The parts of a step in tenths of a percent."""
    parts = {_PARTS.get(name, name.replace("_", " ")): part for name, part in time_parts(score).items()}
    return _shares(apportioned(parts, 1000), 1000, _TWO_LINES, least=5)


def _memory(answer: JudgedResult) -> str:
    """Bytes of the fullest chip, of how many, and what fills them; of several memories a line each."""
    score, chip = answer.score, answer.system.chip
    lines = []
    for name, tier in chip.tiers.items():
        fullest = max(score.stages, key=lambda stage: stage.held_in(name))
        held, parts = fullest.held_in(name), dict(fullest.states.get(name, {}))
        if len(chip.tiers) == 1:
            parts = max(score.memory, key=lambda part: part.total).parts
        if held or name == chip.fastest_tier:
            words = f"{name} " * (len(chip.tiers) > 1) + held_words(held, tier.capacity, 3).split(", ")[0] + " a chip"
            named = {part.replace("_", " ").replace("caches", "KV cache"): size for part, size in parts.items()}
            filled = _shares(apportioned(named, 100), 100, _TWO_LINES - len(words) - 2)
            lines.append(f"{words}: {filled}" if filled else words)
    return "; ".join(lines)


def _gains(result: Result) -> str:
    """What 10 % more of each resource brings, the most useful first, as many as a line has room for."""
    rows = sorted((row for row in result.sensitivity if row.speedup - 1 >= _LEAST_GAIN), key=lambda row: -row.speedup)
    words: list[str] = []
    for row in rows:
        gain = f"{'' if row.proven else '>= '}{number(100 * (row.speedup - 1), 2)} %"
        words.append(f"{RESOURCES[row.resource]} {gain}" + " faster" * (not words))
    while len(", ".join(words)) > _LINE:
        del words[-1]
    return ", ".join(words) or f"of any resource: less than {100 * _LEAST_GAIN:g} % faster"


def _efficiency(answer: JudgedResult, other: Score | None) -> str:
    """Measured or ideal, the other figure beside it, and how far such answers usually are from measurements."""
    kind = efficiency_of(answer)
    words = f"{kind} ({answer.assumptions.profile})"
    if other is not None:
        words += f"; {seconds(other.step_time_s)} {'without losses' if kind == 'measured' else 'with measured losses'}"
    off = accuracy_off(answer)
    return f"{words}; {off if off == NEVER else f'usually {off}'}"


def proof_in_words(result: Result) -> str:
    """Status of a result and its gap to the bound, in one line."""
    space = result.space
    count = f"{space.plans:,} plan{'s' * (space.plans != 1)} ({space.total})"
    words = {
        "optimal": f"optimal: none of {count} is faster",
        "optimal_per_level": f"optimal per level; another sharding could be {brief(100 * result.gap)} % faster",
    }
    return words.get(result.status, f"within {brief(100 * result.gap)} % of the best of {count}")
