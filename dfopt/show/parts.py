"""Parts that add up to a whole, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from dfopt.documents.breakdown import Breakdown, LinkTime, MemoryBreakdown
from dfopt.documents.score import Score
from dfopt.units import number, show_unit

RESOURCES: Final = {
    "compute": "compute", "dram_bandwidth": "DRAM bandwidth", "link_bandwidth": "link bandwidth", "sram": "SRAM",
    "sram_bandwidth": "SRAM bandwidth",
}  # fmt: skip


_WORK: Final = ("forward_s", "backward_s", "recompute_s", "optimizer_s")


def percent(value: float) -> str:
    """A share as text in percent; small gaps keep their digits."""
    return f"{100 * value:.2g} %" if value < 0.001 else f"{100 * value:.4g} %"


def dollars(value: float) -> str:
    """A price in USD as text, such as "84.8 M USD".

    Examples
    --------
    >>> dollars(84_800_000), dollars(28_000), dollars(950.5)
    ('84.8 M USD', '28 k USD', '950.5 USD')
    """
    scale, prefix = next(((s, p) for s, p in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if abs(value) >= s), (1.0, ""))
    return f"{number(value / scale)} {prefix} USD".replace("  ", " ")


def held_words(held: float, capacity: float | None, digits: int = 4) -> str:
    """Bytes in use, of a capacity, as text.

    Parameters
    ----------
    held : float, B
        Bytes in use.
    capacity : float, B, optional
        Bytes that may be in use; None without a limit.
    digits : int
        Significant digits of both.

    Examples
    --------
    >>> held_words(82.3e9, 85.9e9), held_words(512e6, 85.9e9), held_words(82.3e9, None)
    ('82.3 of 85.9 GB, 96 %', '512 MB of 85.9 GB, 0.6 %', '82.3 GB, no limit given')
    """
    size = show_unit(held, "bytes", digits)
    if capacity is None:
        return f"{size}, no limit given"
    limit = show_unit(capacity, "bytes", digits)
    number_, unit = size.split(" ")
    share = number(100 * held / capacity, 2)
    return f"{number_ if limit.endswith(f' {unit}') else size} of {limit}, {share} %"


def time_facts(score: Score) -> list[tuple[str, str]]:
    """Label and text of the time of a step: by what binds it, and by its parts, each adding up to the step."""
    rows = [("time bound by", _shares(bound_parts(score))), ("step", parts_words(score.breakdown))]
    if busy := hidden_words(score.breakdown, score.link_time):
        rows.append(("links busy", busy))
    return rows


def time_parts(score: Score) -> dict[str, float]:
    """Seconds of a step by chip resource, kind of communication and the rest; they add up to the step."""
    parts = score.breakdown
    work = math.fsum(dict(parts)[name] for name in _WORK)
    spent = {name: work * share for name, share in _work(score).items()}
    spent |= {name: part for name, part in parts.parts.items() if f"{name}_s" not in _WORK}
    return {name: seconds for name, seconds in spent.items() if seconds > 0}


def bound_parts(score: Score) -> dict[str, float]:
    """Seconds of a step by what binds them: chip resource, network latency, network bandwidth, or the rest.

    They add up to the step. The network has the exposed communication, split between latency and bandwidth in
    proportion to link time.
    """
    parts, linked = score.breakdown, score.link_time
    work, sent = (math.fsum(dict(parts)[name] for name in names) for names in (_WORK, dict(linked)))
    late = min(score.link_latency_s / (linked.total or 1.0), 1.0)
    spent = {name: work * share for name, share in _work(score).items()}
    spent |= {"network_latency": sent * late, "network_bandwidth": sent * (1 - late)}
    spent |= {name: part for name, part in parts.parts.items() if f"{name}_s" not in {*_WORK, *dict(linked)}}
    return {name: seconds for name, seconds in spent.items() if seconds > 0}


def _work(score: Score) -> dict[str, float]:
    """Shares of the resources of a chip in the work of the slowest stage; what takes turns has its share each."""
    slowest = max(score.stages, key=lambda stage: (stage.time_s, stage.layers * stage.layer_time_s + stage.once_time_s))
    spent = dict.fromkeys(("compute", "memory", "sram"), 0.0)
    for part in score.partitions:
        terms = {name: time for name, time in part.terms.items() if name != "network"}
        if part.time_s < (1 - 1e-9) * math.fsum(part.terms.values()):  # they overlap
            terms = dict([max(terms.items(), key=lambda term: term[1])])
        for name, time in terms.items():
            spent[name] += slowest.runs.get(part.stage, 0) * time
    total = math.fsum(spent.values()) or 1.0
    return {name: time / total for name, time in spent.items()}


def parts_words(breakdown: Breakdown | MemoryBreakdown) -> str:
    """Parts of a step, or of the bytes of a chip, as text with their shares.

    Examples
    --------
    >>> parts_words(Breakdown(forward_s=1.0, backward_s=3.0))
    'forward 25 %, backward 75 %'
    """
    return _shares(breakdown.parts)


def _shares(parts: Mapping[str, float]) -> str:
    total = math.fsum(parts.values())
    named = {name.replace("_", " ").replace("sram", "SRAM"): part / total for name, part in parts.items()}
    return ", ".join(f"{name} {percent(share)}" for name, share in named.items())


def hidden_words(breakdown: Breakdown, link_time: LinkTime) -> str:
    """Text on partly hidden communication: how long links are busy, and how much is exposed.

    Examples
    --------
    >>> hidden_words(Breakdown(forward_s=0.9, data_parallel_s=0.1), LinkTime(data_parallel_s=0.4))
    'data parallel 40 % (10 % shows)'
    """
    words, exposed = [], dict(breakdown)
    for name, busy in link_time.parts.items():
        shows = exposed[f"{name}_s"]
        if shows < 0.99 * busy:
            shares = percent(busy / breakdown.total), percent(shows / breakdown.total)
            words.append(f"{name.replace('_', ' ')} {shares[0]} ({shares[1]} shows)")
    return ", ".join(words)
