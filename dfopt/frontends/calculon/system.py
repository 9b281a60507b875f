"""Calculon's system as ours: one type of its engines, both memories, and its networks as dims.

* The peak is that of the matrix engine; shares of the vector engine are stated of it too.
* Nothing is on the chip there. SRAM is as large as memory 1 here, so that it limits nothing.
* Network ``i`` is a switch, dim ``networki``. Every collective has Calculon's formula and one latency.
* A network of ``size`` processors holds those of the networks before it. With an execution each dim has as many chips
  as the parallelisms on that network; without one, as many groups of the network before as there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dfopt.documents.graph import CollectiveKind
from dfopt.documents.system import Chip, CollectiveFactor, Dram, EfficiencyRow, Memory, NetworkDim, Sram, System
from dfopt.errors import DocumentError, Issue
from dfopt.frontends.calculon.files import Engine, MemoryFile, NetworkFile, SystemFile

_OPS: Mapping[CollectiveKind, str] = {
    "point_to_point": "p2p", "reduce_scatter": "reduce_scatter", "all_gather": "all_gather", "all_reduce": "all_reduce",
}  # fmt: skip
_UNIT_FLOP, _UNIT_BYTES = 1e9, 1e6


def dim_name(network: int) -> str:
    """Name of the network dim of Calculon's network number ``network``."""
    return f"network{network}"


def engines(file: SystemFile, datatype: str, path: str) -> tuple[Engine, Engine]:
    """Matrix and vector engine of a data type.

    Parameters
    ----------
    file, datatype
        Calculon's system, and the name of the data type.
    path : str
        Name of the file, for messages.

    Raises
    ------
    DocumentError
        If one is missing.
    """
    issues = [
        Issue(f"$.{unit}", f"computes in {', '.join(types)}, not in {datatype}", "take another datatype")
        for unit, types in (("matrix", file.matrix), ("vector", file.vector))
        if datatype not in types
    ]
    if issues:
        raise DocumentError(path, issues)
    matrix, vector = file.matrix[datatype], file.vector[datatype]
    if vector.tflops > matrix.tflops:
        message = f"found {vector.tflops:g} TFLOP/s, more than the {matrix.tflops:g} of the matrix engine"
        raise DocumentError(path, [Issue(f"$.vector.{datatype}.tflops", message, "shares of peak are at most 1")])
    return matrix, vector


def system_of(file: SystemFile, name: str, datatype: str, sizes: Sequence[int], path: str) -> System:
    """System of a Calculon file, whose chips compute in one data type.

    Parameters
    ----------
    file
        The parsed file.
    name
        Name of the system.
    datatype
        One of the types of its engines.
    sizes
        Chips along the dim of each network; a network of one chip has no dim.
    path
        Path of the file, for errors.
    """
    matrix, vector = engines(file, datatype, path)
    memories = [("memory1", file.mem1)] + ([("memory2", file.mem2)] if file.mem2.GiB else [])
    if not file.mem1.GiB:
        raise DocumentError(path, [Issue("$.mem1.GiB", "found 0", "give the capacity of memory 1")])
    if len(memories) > 1 and file.mem2.GBps > file.mem1.GBps:
        message = f"found {file.mem2.GBps:g}, more than the {file.mem1.GBps:g} of mem1"
        raise DocumentError(path, [Issue("$.mem2.GBps", message, "the first memory is the fastest")])
    alone = len(memories) == 1
    rows = [
        *_rows("matrix", matrix, 1.0),
        *_rows("vector", vector, vector.tflops / matrix.tflops),
        *(row for called, memory in memories for row in _of_memory(memory, None if alone else called)),
    ]
    off_chip = {called: {"bandwidth": m.GBps * 1e9, "capacity": m.GiB * 2.0**30} for called, m in memories}
    chip = Chip(
        name=name,
        execution="kernel_by_kernel",
        tiles=1,
        peak=matrix.tflops * 1e12,
        efficiency=tuple(rows),
        sram=Sram(capacity=file.mem1.GiB * 2.0**30),
        dram=Dram(**off_chip["memory1"]) if alone else None,
        memories=None if alone else tuple(Memory(name=called, **off_chip[called]) for called in off_chip),
    )
    dims = [_dim(number, *of) for number, of in enumerate(zip(file.networks, sizes, strict=True))]
    about = f"imported from a system of Calculon, {datatype}"
    return System(name=name, description=about, chip=chip, network=tuple(dim for dim in dims if dim.size > 1))


def _rows(unit: str, engine: Engine, of_peak: float) -> Iterator[EfficiencyRow]:
    for gflop, share in engine.gflops_efficiency:
        yield EfficiencyRow(unit=unit, flop=gflop * _UNIT_FLOP or None, share=share * of_peak)


def _of_memory(memory: MemoryFile, name: str | None) -> Iterator[EfficiencyRow]:
    for mb, share in memory.MB_efficiency:
        yield EfficiencyRow(unit="memory", memory=name, bytes=mb * _UNIT_BYTES or None, share=share)


def _dim(number: int, network: NetworkFile, size: int) -> NetworkDim:
    ops = {kind: getattr(network.ops, name) for kind, name in _OPS.items()}
    factors = {
        kind: CollectiveFactor(latency=network.latency, scale=scalar, offset=offset or 0.0)
        for kind, (scalar, offset) in ops.items()
    }
    return NetworkDim(
        name=dim_name(number),
        topology="switch",
        size=size,
        link_bandwidth=network.bandwidth * 1e9,
        efficiency=network.efficiency,
        latency=network.latency,
        factors=factors,
        processor_usage=network.processor_usage or None,
    )


def sizes_without_execution(file: SystemFile, path: str, chips: int | None = None) -> list[int]:
    """Number of chips along the dim of each network if no execution is given: nested groups.

    Parameters
    ----------
    file, path
        The parsed file, and its path for errors.
    chips
        Processors in all; as many as the largest network has if left out.

    Raises
    ------
    DocumentError
        If the networks cannot connect that many processors.
    """
    most = max(network.size for network in file.networks)
    if chips is not None and not 1 <= chips <= most:
        message = f"found {most} processors at most, expected {chips}"
        raise DocumentError(path, [Issue("$.networks", message, f"ask for 1 to {most} chips")])
    sizes, inside = list[int](), 1
    for number, network in enumerate(file.networks):
        if chips is not None and network.size >= chips:
            if chips % inside:
                message = f"found groups of {inside} processors, expected some that divide {chips}"
                raise DocumentError(
                    path, [Issue(f"$.networks[{number}]", message, f"ask for a multiple of {inside} chips")]
                )
            rest = len(file.networks) - number - 1
            return [*sizes, chips // inside, *([1] * rest)]
        if network.size % inside:
            message = f"found {network.size}, no multiple of the {inside} processors of network {number - 1}"
            raise DocumentError(path, [Issue(f"$.networks[{number}].size", message, "give an execution")])
        sizes.append(network.size // inside)
        inside = network.size
    return sizes
