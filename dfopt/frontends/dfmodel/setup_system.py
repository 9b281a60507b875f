"""DFModel's ``system`` message: chip, network axes and what each axis carries.

LLM setups say for every axis whether it carries TP, PP or DP. The other workloads do not: a DLRM is copied over all
chips, an FFT is spread over all, and an HPL matrix lies on a grid of chips, which is two axes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from dfopt.documents.system import Chip, Dram, NetworkDim, Sram, System
from dfopt.frontends.dfmodel.case import LETTERS, Data, Unsupported, topology_of

Parallel = dict[str, tuple[str, ...]]
AxisWiring = Literal["ring", "switch", "fully_connected"]
_TOPOLOGY: dict[str, AxisWiring] = {"r": "ring", "sw": "switch", "fc": "fully_connected"}
_CARRIES = {"dlrm": "DP", "hpl": "TP", "fft": "TP"}


@dataclass(frozen=True)
class SetupAxis:
    """A network axis of a DFModel setup.

    Attributes
    ----------
    name : str
        Name of the network dim.
    wiring, size : str, int
        Topology and number of chips.
    bandwidth : float, B/s
        Bandwidth of a link.
    carries : str
        Parallelism on it; empty: not stated.
    """

    name: str
    wiring: AxisWiring
    size: int
    bandwidth: float
    carries: str = ""


def axes_of(data: Data, block: str) -> tuple[SetupAxis, ...]:
    """Network axes of a ``system`` message with the parallelism on each; empty for a single chip.

    Raises `Unsupported` if the workload cannot be laid on them.

    Examples
    --------
    >>> links = {"link_bw_x": 50, "link_bw_y": 50, "link_bw_z": 50}
    >>> [(a.name, a.wiring, a.size, a.carries) for a in axes_of({"r_sw": {"x": 8, "y": 16, **links}}, "fft")]
    [('x', 'ring', 8, 'TP'), ('y', 'switch', 16, 'TP')]
    """
    key = topology_of(data)
    net = data[key] if key else {}
    axes = tuple(
        SetupAxis(
            name, _TOPOLOGY[kind], int(net[name]), float(net[f"link_bw_{name}"]) * 1e9, net.get(f"par_{name}") or ""
        )
        for name, kind in (zip(LETTERS, key.split("_"), strict=False) if key else ())
    )
    if "HBD" in data:
        axes = _with_fast_domain(axes, int(data["HBD"]))
    if block == "hpl":
        axes = _folded(axes)
    return tuple(replace(axis, carries=_CARRIES.get(block, axis.carries)) for axis in axes)


def _folded(axes: tuple[SetupAxis, ...]) -> tuple[SetupAxis, ...]:
    """The grid of an HPL run: two axes, of three the first two as one side.

    The program takes the links of x for what goes along the first side and those of y for the second, also where
    the second side is z.
    """
    if len(axes) == 2:
        return axes
    if len(axes) != 3:
        raise Unsupported(f"HPL on {len(axes)} network axes: a grid of chips has two sides (the program fails too)")
    x, y, z = axes
    return SetupAxis("xy", x.wiring, x.size * y.size, x.bandwidth), SetupAxis("z", z.wiring, z.size, y.bandwidth)


def _with_fast_domain(axes: tuple[SetupAxis, ...], domain: int) -> tuple[SetupAxis, ...]:
    """Axes of a machine whose chips sit in fast domains (``HBD``) of some size, the rail-only study.

    Tensor and data parallelism use the links of x inside a domain, and beyond it those of y and z. Both may fill a
    whole domain at once, which no machine could offer: as in the program, which reads the domain for TP, PP, DP only.
    """
    if [axis.carries for axis in axes] != ["TP", "PP", "DP"]:
        raise Unsupported("HBD on axes other than TP, PP and DP")
    tensor, pipeline, data = axes
    dims = []
    for axis, beyond in ((tensor, pipeline.bandwidth), (data, data.bandwidth)):
        inside = min(domain, axis.size)
        if axis.size % inside:
            raise Unsupported(f"HBD of {domain} chips, which does not divide the {axis.size} chips of axis {axis.name}")
        dims.append(SetupAxis(axis.name + "_domain", axis.wiring, inside, tensor.bandwidth, axis.carries))
        if axis.size > inside:
            dims.append(SetupAxis(axis.name, axis.wiring, axis.size // inside, beyond, axis.carries))
        if axis is tensor:
            dims.append(pipeline)
    return tuple(dims)


def system_of(data: Data, axes: tuple[SetupAxis, ...], name: str) -> tuple[System, Parallel]:
    """System of a ``system`` message, and the names of the dims of each parallelism.

    Parameters
    ----------
    data
        The message.
    axes
        Its network axes.
    name
        Name of the system.

    Raises
    ------
    Unsupported
        If an axis carries something else than TP, PP or DP, or the axes do not make up the chips.
    """
    core, memory = data["accelerator"], data.get("memory") or data["accelerator"]
    parallel: Parallel = {}
    for axis in axes:
        if axis.carries not in ("TP", "PP", "DP", ""):
            raise Unsupported(f"network axis {axis.name} carries {axis.carries}")
        if axis.carries:
            parallel[axis.carries] = (*parallel.get(axis.carries, ()), axis.name)
    latency = float(core.get("link_latency", 0.0)) * 1e-9
    chip = Chip(
        name=f"{name} accelerator",
        tiles=int(core["core"]),
        lanes=int(core["systolic_width"]),
        stages=int(core["systolic_height"]),
        frequency=float(core["freq"]) * 1e9,
        sram=Sram(capacity=float(core["sram_cap"])),
        dram=Dram(bandwidth=float(memory["dram_bw"]) * 1e9, capacity=float(memory.get("dram_cap") or 0) or None),
    )
    network = tuple(
        NetworkDim(name=a.name, topology=a.wiring, size=a.size, link_bandwidth=a.bandwidth, latency=latency)
        for a in axes
    )
    system = System(name=name, description="imported from a DFModel setup", chip=chip, network=network)
    if "num_chip" in data and int(data["num_chip"]) != system.chips:
        raise Unsupported(f"copies: num_chip is {data['num_chip']}, but the network has {system.chips} chips")
    return system, parallel
