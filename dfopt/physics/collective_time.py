"""How long one collective takes on a system, with the bandwidths that nccl-tests prints.

Source of sizes and factors: NVIDIA/nccl-tests, ``doc/PERFORMANCE.md`` and the ``src/*.cu`` of each collective.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.dim_names import parts_of, split_part_name
from dfopt.documents.system import System
from dfopt.errors import PlanError
from dfopt.physics.collectives import Collective
from dfopt.physics.collectives_exact import algorithm
from dfopt.physics.network import affine, communication_seconds, dims_of


@dataclass(frozen=True)
class CollectiveTime:
    """Time of one collective over some chips, with its latency and algorithm.

    Attributes
    ----------
    kind : Collective
        The collective.
    bytes : float, B
        The larger buffer of one chip, as in nccl-tests; for an all-to-all all bytes that a chip sends, those to itself
        included.
    dims, chips : tuple of str, int
        Network dims that the chips span, and number of chips.
    time_s : float, s
        Time, with the overhead of the system.
    latency_s : float, s
        Part that does not grow with the bytes.
    algorithm : str
        Algorithm in each dim.
    """

    kind: Collective
    bytes: float
    dims: tuple[str, ...]
    chips: int
    time_s: float
    latency_s: float
    algorithm: str

    @property
    def algorithm_bandwidth(self) -> float:
        """Algorithm bandwidth, B/s: size of the tensor over the time."""
        return self.bytes / self.time_s

    @property
    def bus_bandwidth(self) -> float:
        """Bus bandwidth, B/s, as nccl-tests define it: comparable with the rate of links for any number of chips.

        The algorithm bandwidth times 2 (n-1)/n of an all-reduce, (n-1)/n of a gather, scatter or all-to-all, else 1.
        """
        share = (self.chips - 1) / self.chips
        factors = {Collective.ALL_REDUCE: 2 * share, Collective.BROADCAST: 1.0, Collective.POINT_TO_POINT: 1.0}
        return self.algorithm_bandwidth * factors.get(self.kind, share)


def collective_time(
    kind: Collective, size: float, system: System, names: Sequence[str] = (), assumptions: Assumptions | None = None
) -> CollectiveTime:
    """Time of one collective like `dfopt.collective`, but for documents only; see there for the parameters.

    Examples
    --------
    Two nodes of eight chips:

    >>> from dfopt.machines.compose import load_system
    >>> pair = ("node", "cluster[2]")
    >>> told = collective_time(Collective.ALL_TO_ALL, 8 * 2**30, load_system("h100-256"), pair)
    >>> told.chips, round(told.bus_bandwidth / 1e9, 1), told.algorithm
    (16, 93.7, 'node: pairwise exchange; cluster[2]: pairwise exchange; at the same time')
    """
    assumptions = assumptions or Assumptions()
    dims = tuple(names) or tuple(dim.name for dim in system.network)
    try:
        chips = math.prod(system.dim(name).size for name in dims)
    except ValueError as error:
        raise PlanError(f"dims: {error}") from None
    reach: dict[str, int] = {}
    for name, parts, stride in sorted((split_part_name(part) for part in parts_of(dims)), key=lambda part: part[2]):
        if stride < reach.get(name, 1):
            raise PlanError(f"dims: found {', '.join(dims)}, which have chips of {name} twice; name them once")
        reach[name] = stride * (parts or system.dim(name).size)
    if chips < 2:
        raise PlanError(f"dims: found {', '.join(dims) or 'none'} of {system.name}, which is one chip; name more chips")
    if not 0 < size < math.inf:
        raise PlanError(f"bytes: found {size:g}, expected more than 0, such as 1 GB")
    volume = size * chips if kind is Collective.ALL_TO_ALL else size
    seconds = communication_seconds(kind, volume, dims, system, assumptions)
    fixed = affine(kind, dims, system, assumptions).fixed + system.collective_overhead
    together, table = assumptions.all_to_all_dims == "together", assumptions.collective_model == "dfmodel"
    words = "the table of DFModel" if table else algorithm(kind, dims_of(system, dims), together=together)
    return CollectiveTime(kind, size, dims, chips, seconds, fixed, words)
