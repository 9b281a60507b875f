"""What ``dfopt list`` prints: names with the figures that one chooses by."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

from dfopt.commands import names_of
from dfopt.documents.zoo import KINDS
from dfopt.library import load_any
from dfopt.show.grid import ColumnKind, Grid
from dfopt.show.tables import dollars
from dfopt.units import show_unit


def _parameters(graph: Any) -> str:
    """Elements of all weights."""
    from dfopt.physics.ops import weight_elements

    kernels = (kernel for kernel in graph.kernels if kernel.pass_ == "forward")
    elements = sum(weight_elements(kernel) * graph.times_of(kernel) for kernel in kernels)
    return f"{elements / 1e9:.3g} G" if elements else "-"


def _sections(technology: Any) -> str:
    """Names of the sections of a technology; links with their roles."""
    from dfopt.documents.technology import SECTIONS

    own = dict(technology)
    links = [f"links {role}" for role in own["links"] or ()]
    return ", ".join([*(name for name in SECTIONS if own[name] and name != "links"), *links])


# Of each kind the columns: title, what of a document is told there, and in which unit.
_COLUMNS: Final[dict[str, tuple[tuple[str, str | Callable[[Any], object], Any], ...]]] = {
    "graphs": (
        ("layers", "repeat", None), ("kernels", lambda graph: len(graph.kernels), None),
        ("weights", _parameters, None), ("batch", "batch", None),
        ("tokens", lambda graph: f"{graph.evaluation_tokens.processed / graph.microbatch:.10g}", None),
    ),
    "systems": (
        ("chips", "chips", None), ("peak of one", "chip.peak_flops", "flop_rate"),
        ("DRAM of one", "chip.fastest.capacity", "bytes"), ("bandwidth", "chip.fastest.bandwidth", "bandwidth"),
        ("network", lambda system: ", ".join(
            f"{dim.topology.replace('_', ' ')} of {dim.size}" for dim in system.network), None),
    ),
    "chips": (
        ("peak", "peak_flops", "flop_rate"), ("SRAM", "sram.capacity", "bytes"), ("tiles", "tiles", None),
        ("price", lambda chip: "missing" if chip.price_usd is None else dollars(chip.price_usd), None),
    ),
    "memories": (("bandwidth", "bandwidth", "bandwidth"), ("capacity", "capacity", "bytes")),
    "links": (("bandwidth", "bandwidth", "bandwidth"), ("latency", "latency", "time")),
    "stacks": (("bandwidth", "dram.peak", "bandwidth"), ("capacity", "dram.capacity", "bytes")),
    "technologies": (
        ("core", lambda node: f"{node.core.area_mm2:.4g} mm2" if node.core else None, None),
        ("SRAM", lambda node: f"{1e-6 / node.sram[-1].bit_area_mm2:.4g} Mb/mm2" if node.sram else None, None),
        ("stack", lambda node: node.dram.stack if node.dram else None, "bytes"), ("has", _sections, None),
    ),
    "designs": (
        ("technology", "technology.name", None), ("area", lambda design: f"{design.budgets.chip_area_mm2:g} mm2", None),
        ("dies", lambda design: design.budgets.dies or 1, None), ("power", "budgets.power", "power"),
    ),
    "topologies": (("description", "description", None),),
}  # fmt: skip
_TEXTS: Final = ("network", "description", "has", "technology")


def _cell(document: Any, of: str | Callable[[Any], object], unit: Any) -> str:
    value: Any = attrgetter(of)(document) if isinstance(of, str) else of(document)
    return "-" if value is None else show_unit(value, unit) if unit else str(value)


def zoo_table(kind: str, words: list[str]) -> Grid:
    """Table of the zoo's shelves with their sizes, or of one shelf's rows that contain all the words."""
    if not kind:
        shelves: tuple[str, ...] = (*KINDS, "assumptions")
        return Grid("", {"kind": "word", "names": "figure", "such as": "text"}, [
            (each, str(len(names_of(each))), ", ".join(names_of(each)[:3])) for each in shelves
        ])  # fmt: skip
    columns = _COLUMNS.get(kind, ())
    rows = []
    for name in names_of(kind):
        document = load_any(f"{kind}/{name}" if kind in KINDS else name)
        row = (name, *(_cell(document, of, unit) for _, of, unit in columns))
        if all(word.lower() in " ".join(row).lower() for word in words):
            rows.append(row)
    kinds: dict[str, ColumnKind] = {title: "text" if title in _TEXTS else "figure" for title, _, _ in columns}
    return Grid("", {"name": "word", **kinds}, rows)
