"""What goes into an answer, in words: a graph with its kernels, a system with its chip, memories and network."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import get_args

from rich.console import Group, RenderableType

from dfopt.documents.dtypes import DataClass, Peaks
from dfopt.documents.experts import routing_of
from dfopt.documents.graph import Graph
from dfopt.documents.published import Figure
from dfopt.documents.stack import Stack
from dfopt.documents.system import Chip, System
from dfopt.physics.ops import flop
from dfopt.show.asked import batch_words
from dfopt.show.grid import ColumnKind, FactList, Grid
from dfopt.show.parts import dollars, percent
from dfopt.units import number, show_unit


def entitled(document: Graph | System | Stack) -> str:
    """Name and description of a document in one line."""
    return f"{document.name}: {document.description}" if document.description else document.name


def type_words(graph: Graph) -> str:
    """Data types by class as text, or bytes of an element if none are stated.

    Examples
    --------
    >>> from dfopt.documents.dtypes import Dtypes
    >>> from dfopt.documents.graph import Kernel
    >>> kernel = Kernel(name="a", op="gemm", m=4, k=8, n=16)
    >>> type_words(Graph(name="g", dtypes=Dtypes(weights="nvfp4", kv="fp8"), kernels=(kernel,)))
    'weights, experts and ends nvfp4 (0.5625 B), activations and logits bf16 (2 B), kv fp8 (1 B)'
    """
    if graph.dtypes is None:
        return f"{graph.word_bytes} B per element"
    by_type: dict[str, list[str]] = {}
    types = {data: graph.dtypes.of(data) for data in get_args(DataClass)}
    for data, kind in (types | ({"state": graph.dtypes.state} if graph.dtypes.state else {})).items():
        by_type.setdefault(f"{kind} ({getattr(graph.words, data):.6g} B)", []).append(data)
    converted = f", multiplied in {graph.dtypes.operands}" if graph.dtypes.operands else ""
    return ", ".join(f"{' and '.join(', '.join(d).rsplit(', ', 1))} {kind}" for kind, d in by_type.items()) + converted


def layers_words(graph: Graph) -> str:
    """The layers of a model in their order, such as ``embedding, 80 x layer, head``."""
    if graph.sections is None:
        return "drawn as a whole"
    return ", ".join(
        (f"{section.repeat} x " if section.repeat > 1 else "") + (names if len(section.layers) == 1 else f"({names})")
        for section in graph.sections
        for names in (_counted_names(section.layers),)
    )


def _counted_names(names: Sequence[str]) -> str:
    """Names of layers in a row; a run of one name is shown with its length."""
    runs = ((name, len(list(same))) for name, same in itertools.groupby(names))
    return " + ".join(name if count == 1 else f"{count} {name}" for name, count in runs)


def graph_report(graph: Graph, counted: tuple[Figure, ...] = ()) -> RenderableType:
    """Terminal report of a graph: its size, its kernels, and the figures in ``counted``."""
    rows = []
    for position, kernel in enumerate(graph.kernels):
        sizes = [str(kernel.outer), str(kernel.m), str(kernel.k), str(kernel.n)]
        figures = [number(flop(kernel) / 1e9), number(graph.output_bytes(position) / 1e6)]
        rows.append([kernel.name, kernel.op, kernel.pass_, *sizes, *figures])
    columns: dict[str, ColumnKind] = {"kernel": "text", "op": "word", "pass": "word"}
    columns |= {name: "figure" for name in ("outer", "m", "k", "n", "GFLOP", "out MB")}
    table = Grid(f"{len(graph.kernels)} kernels, {len(graph.tensors)} tensors", columns, rows)
    once = sum(flop(kernel) for kernel in graph.kernels)
    step = sum(graph.times_of(kernel) * flop(kernel) for kernel in graph.kernels) * graph.batch / graph.microbatch
    facts = [
        ("graph", entitled(graph)),
        ("layers", layers_words(graph)),
        ("types", type_words(graph)),
        ("batch", f"{batch_words(graph)}, {graph.microbatch} per evaluation"),
        ("FLOP", f"{show_unit(once, 'flop')} per evaluation, {show_unit(step, 'flop')} per step"),
    ]
    facts += [*_against_published(counted), *routing_facts(routing_of(graph)), *_ends(graph)]
    return Group(FactList(facts), "", table)


def _against_published(figures: tuple[Figure, ...]) -> list[tuple[str, str]]:
    """Counted sizes of a model, each beside the published value."""
    units = {"parameters": "parameters", "active_parameters": "active", "kv_bytes_per_token": "B kept of a token"}
    words = []
    for figure in figures:
        published = "" if figure.published is None else f" (published {figure.published:,})"
        words.append(f"{figure.computed:,} {units[figure.name]}{published}")
    return [("model", ", ".join(words))] if words else []


def routing_facts(words: str) -> list[tuple[str, str]]:
    """Label and text of the assumed expert routing; empty without experts."""
    return [("routing", f"{words}; times and bounds hold under it")] if words else []


def _ends(graph: Graph) -> list[tuple[str, str]]:
    """What comes from outside of a graph, what leaves it and what goes round."""
    names = [kernel.name for kernel in graph.kernels]
    ends = (
        ("inputs", "read from DRAM: ", [(names[k], size) for k, _, size in graph.reads()]),
        ("outputs", "written to DRAM: ", [(names[k], size) for k, size in graph.writes()]),
        ("carried", "", [(f"{tensor.src} to {tensor.dst}", graph.bytes_of(tensor)) for tensor in graph.carried]),
    )
    facts = []
    for end, how, moved in ends:
        words = [f"{name} {show_unit(size, 'bytes')}" for name, size in moved[:4]]
        more = [f"{len(moved) - 4} more"] if len(moved) > 4 else []
        facts.append((end, how + ", ".join(words + more) if moved else "none"))
    return facts


def _shares(chip: Chip, unit: str) -> str:
    """The rows of one unit in a chip's table of shares, on one line."""
    shares = []
    for row in chip.efficiency or ():
        if row.unit == unit:
            least = [show_unit(row.flop, "flop")] if row.flop is not None else []
            least += [f"extents of {row.extent}"] if row.extent is not None else []
            least += [show_unit(row.bytes, "bytes")] if row.bytes is not None else []
            of = f"{row.memory} " if row.memory is not None else ""
            of += f"{row.op} " if row.op is not None else ""
            shares.append(of + percent(row.share) + (f" from {' and '.join(least)}" if least else ""))
    return ", ".join([*shares[:-1], f"else {shares[-1]}" if len(shares) > 1 else shares[-1]])


def peak_words(chip: Chip) -> str:
    """Peak rate of a chip as text, or the rates of all its data types."""
    if not isinstance(chip.peak, Peaks):
        return show_unit(chip.peak_flops, "flop_rate")
    return ", ".join(f"{kind} {show_unit(rate, 'flop_rate')}" for kind, rate in chip.peak if rate is not None)


def system_facts(system: System) -> list[tuple[str, str]]:
    """Label and text of the chip, memories and network of a system."""
    chip = system.chip
    compute = f"{peak_words(chip)} peak per chip, {chip.tiles} tiles"
    units = {row.unit for row in chip.efficiency or ()}
    facts = [
        ("chips", f"{system.chips} x {chip.name} ({chip.execution.replace('_', ' ')})"),
        ("compute", f"{compute}, sustained {percent(chip.compute_utilization)}"),
        *((f"{unit} shares", _shares(chip, unit)) for unit in ("matrix", "vector", "memory") if unit in units),
        ("SRAM", chip.sram.words),
        *((word, memory.words) for word, memory in chip.named_tiers.items()),
    ]
    price = "no price" if chip.price_usd is None else dollars(chip.price_usd)
    power = "no power" if chip.power_w is None else show_unit(chip.power_w, "power")
    facts.append(("price, power", f"{price}, {power} per chip"))
    for dim in system.network:
        link = f"{show_unit(dim.link_bandwidth, 'bandwidth')} per link and direction"
        link += f", {show_unit(dim.latency, 'time')} per hop"
        link += "" if dim.efficiency in (None, 1) else f", sustained {percent(dim.efficiency)}"
        facts.append((f"network {dim.name}", f"{dim.topology.replace('_', ' ')} of {dim.size}, {link}"))
    return facts


def system_report(system: System) -> RenderableType:
    """Terminal report of a system: chip, memories and network."""
    return FactList([("system", entitled(system)), *system_facts(system)])
