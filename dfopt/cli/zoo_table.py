"""What ``dfopt list`` prints: names with the figures that one chooses by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dfopt.documents.assumptions import PROFILES
from dfopt.documents.zoo import KINDS, zoo
from dfopt.library import load_any
from dfopt.show.grid import Grid, Kind
from dfopt.show.tables import dollars
from dfopt.units import format as show_unit

__all__ = ["names_of", "zoo_table"]

Column = tuple[str, Kind, Callable[[Any], str]]


def names_of(kind: str) -> list[str]:
    """The names on a shelf of the zoo, or of the profiles of assumptions."""
    return sorted(PROFILES) if kind == "assumptions" else zoo(kind)  # type: ignore[arg-type]


def _parameters(graph: Any) -> str:
    """Elements of all weights."""
    whole = sum(
        kernel.outer * kernel.m * kernel.k * (1 if graph.piece_of(kernel) else graph.repeat)
        for kernel in graph.kernels
        if kernel.op == "gemm" and kernel.phase == "forward"
    )
    return f"{whole / 1e9:.3g} G" if whole else "-"


def _unit(value: float | None, unit: Any) -> str:
    return "-" if value is None else show_unit(value, unit)


_CHIP: Final[tuple[Column, ...]] = (
    ("peak", "figure", lambda chip: _unit(chip.peak_flops, "flop_rate")),
    ("SRAM", "figure", lambda chip: _unit(chip.sram.capacity, "bytes")),
    ("tiles", "figure", lambda chip: str(chip.tiles)),
    ("price", "figure", lambda chip: "-" if chip.price_usd is None else dollars(chip.price_usd)),
)
_COLUMNS: Final[dict[str, tuple[Column, ...]]] = {
    "graphs": (
        ("layers", "figure", lambda graph: str(graph.repeat)),
        ("kernels", "figure", lambda graph: str(len(graph.kernels))),
        ("weights", "figure", _parameters),
        ("batch", "figure", lambda graph: str(graph.batch)),
        ("tokens", "figure", lambda graph: str(graph.tokens_per_sample)),
    ),
    "systems": (
        ("chips", "figure", lambda system: str(system.chips)),
        ("peak of one", "figure", lambda system: _unit(system.chip.peak_flops, "flop_rate")),
        ("DRAM of one", "figure", lambda system: _unit(system.chip.dram.capacity, "bytes")),
        ("bandwidth", "figure", lambda system: _unit(system.chip.dram.bandwidth, "bandwidth")),
        ("network", "text", lambda system: ", ".join(
            f"{dim.topology.replace('_', ' ')} of {dim.size}" for dim in system.network)),
    ),
    "chips": _CHIP,
    "memories": (
        ("bandwidth", "figure", lambda part: _unit(part.bandwidth, "bandwidth")),
        ("capacity", "figure", lambda part: _unit(part.capacity, "bytes")),
    ),
    "links": (
        ("bandwidth", "figure", lambda part: _unit(part.bandwidth, "bandwidth")),
        ("latency", "figure", lambda part: _unit(part.latency, "time")),
    ),
    "stacks": (
        ("bandwidth", "figure", lambda stack: _unit(stack.dram.peak, "bandwidth")),
        ("capacity", "figure", lambda stack: _unit(stack.dram.capacity, "bytes")),
    ),
    "topologies": (("description", "text", lambda part: part.description),),
}  # fmt: skip


def zoo_table(kind: str, words: list[str]) -> Grid:
    """The shelves with how much they hold; or one shelf, only rows that have all the words."""
    if not kind:
        shelves: tuple[str, ...] = (*KINDS, "assumptions")
        return Grid("", {"kind": "word", "names": "figure", "such as": "text"}, [
            (each, str(len(names_of(each))), ", ".join(names_of(each)[:3])) for each in shelves
        ])  # fmt: skip
    columns = _COLUMNS.get(kind, ())
    rows = []
    for name in names_of(kind):
        document = load_any(f"{kind}/{name}" if kind in KINDS else name)
        row = (name, *(cell(document) for _, _, cell in columns))
        if all(word.lower() in " ".join(row).lower() for word in words):
            rows.append(row)
    return Grid("", {"name": "word", **{title: shown for title, shown, _ in columns}}, rows)
