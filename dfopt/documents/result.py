"""What ``optimize`` returns: the mapping, its score, and the record that proves it."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.base import Document, Part
from dfopt.documents.graph import Graph
from dfopt.documents.heat import HeatProof
from dfopt.documents.html import facts_html
from dfopt.documents.mapping import Mapping, Sharding
from dfopt.documents.on_axes import OnAxes
from dfopt.documents.plan import Plan
from dfopt.documents.score import Score
from dfopt.documents.system import System

Status = Literal["optimal", "gap_reached", "limit_with_solution", "interrupted_with_solution"]


class SolveRecord(Part):
    """One solve: which problem, what the solver proved, how large it was. Times in seconds."""

    problem: Literal["interchip", "intrachip"]
    stage: int = 0
    formulation: str
    termination: str
    objective: float | None = Field(description="none when the solve proved that nothing beats the best plan")
    bound: float
    gap: float | None
    seconds: float
    nodes: int = 0
    rows: int = 0
    columns: int = 0
    nonzeros: int = 0
    trace: tuple[tuple[float, float | None, float | None], ...] = Field(
        default=(), description="(seconds, incumbent, bound) as the solve went on"
    )
    note: str = ""
    kernel_prices: tuple[float, ...] = Field(
        default=(),
        description="seconds that each kernel of the stage is worth, such that no block is worth more than its time:"
        " their sum proves the bound where blocks were generated on demand",
    )
    partition_price: float = Field(default=0.0, description="seconds that a partition is worth, with the above")


class PlanRecord(Part):
    """What is known of one plan: solved with a proof, pruned by a bound, or illegal with a reason."""

    plan: Plan
    tile_count: int | None = Field(default=None, description="tiles of the streamed axis, where that is a choice")
    status: Literal["solved", "pruned_by_bound", "infeasible", "limit", "not_reached"]
    bound_s: float | None = Field(
        description="no mapping under this plan has a shorter step; none when no mapping is feasible at all"
    )
    step_time_s: float | None = None
    gap: float | None = None
    seconds: float = 0.0
    solves: tuple[SolveRecord, ...] = ()
    note: str = ""


class Matrices(Part):
    """The paper's matrices of one stage as sparse (row, column) lists of the ones.

    A kernel in partition; B tensor inside a partition; D tensor cut, at both ends; L lifetime of a
    cut tensor; H source partition of every tensor. Rows of A are kernels of the stage in graph
    order; rows of the others are ``tensors``, positions in the graph's tensor list.
    """

    stage: int
    partitions: int
    kernels: tuple[str, ...]
    tensors: tuple[int, ...]
    A: tuple[tuple[int, int], ...]
    B: tuple[tuple[int, int], ...]
    D: tuple[tuple[int, int], ...]
    L: tuple[tuple[int, int], ...]
    H: tuple[tuple[int, int], ...]


class Alternative(Part):
    """One of the next best mappings, of another plan, tile count or microbatch size than those before it."""

    microbatch: int = Field(description="of the graph, or of one of the variants, that it maps")
    step_time_s: float
    mapping: Mapping


class Sensitivity(Part):
    """Step time with 10 % more of one resource, mapping optimised anew on the winning plan."""

    resource: Literal["compute", "dram_bandwidth", "link_bandwidth", "sram"]
    step_time_s: float
    speedup: float
    proven: bool


class Space(Part):
    """How many mappings the search covered, as powers of ten; limits such as SRAM exclude some of them."""

    plans: int
    log10_shardings: float = Field(description="of one plan, at the degree of tensor parallelism with the most")
    log10_stages: float = Field(description="of one plan: kernels drawn once, over the pipeline stages")
    log10_fusions: float = Field(description="of one stage: ordered partitions of its kernels into convex blocks")
    tile_counts: int
    log10_total: float
    exact: bool = Field(description="false: at least so many, where counting them all would take too long")

    def __str__(self) -> str:
        parts = [f"{self.plans} plan{'' if self.plans == 1 else 's'}", f"10^{self.log10_shardings:.1f} shardings"]
        parts += [f"10^{self.log10_stages:.1f} stages"] if self.log10_stages else []
        parts += [f"10^{self.log10_fusions:.1f} fusions"]
        parts += [f"{self.tile_counts} tile sizes"] if self.tile_counts > 1 else []
        return f"{' x '.join(parts)}: {'' if self.exact else 'at least '}10^{self.log10_total:.1f} mappings"


class Request(OnAxes):
    """What was asked for beside graph, system and assumptions; none means free."""

    interleave: int | None = None
    p_max: int | None = None
    gap: float = 0.0
    pin_sharding: dict[str, Sharding] = Field(default_factory=dict)
    pin_partition: dict[str, int] = Field(default_factory=dict)


class Provenance(Part):
    """Where the result came from, so that it can be repeated."""

    dfopt: str
    highs: str
    solver: str = Field(default="highs", description="of the MILPs: highs, or pulp:NAME")
    python: str
    graph_digest: str
    system_digest: str
    assumptions_digest: str
    seed: int


class Result(Document):
    """A mapping with its score and its proof.

    ``status`` is ``optimal`` only when every plan is either solved within the requested gap 0 or
    pruned by a valid bound, and the judge agrees with every objective. ``gap`` is the proven
    relative distance of ``step_time_s`` to the best that any mapping could reach under the plans
    considered, with the sharding of each plan optimal for the inter-chip problem (``proof``).
    """

    SCHEMA: ClassVar[str] = "dfopt/result/1"

    status: Status
    gap: float
    step_time_s: float
    utilization: float
    plan: Plan
    bound_s: float
    seconds: float
    proof: str
    mapping: Mapping
    score: Score
    heat: HeatProof | None = Field(
        default=None, description="of a heat-aware mapping; gap and bound of the result are those without heat"
    )
    alternatives: tuple[Alternative, ...] | None = Field(default=None, description="the next best mappings asked for")
    plans: tuple[PlanRecord, ...]
    space: Space | None = None
    matrices: tuple[Matrices, ...]
    sensitivity: tuple[Sensitivity, ...] = ()
    assumptions: Assumptions
    p_max: int
    request: Request
    graph: Graph
    variants: tuple[Graph, ...] = Field(
        default=(),
        description="the same workload for the microbatch sizes that lost; their plans are among the records",
    )
    system: System
    provenance: Provenance
    seal: str = Field(default="", description="digest of all the rest: a result that was edited says so")

    def unsealed_digest(self) -> str:
        """Digest of everything but the seal."""
        return self.model_copy(update={"seal": ""}).digest()

    @property
    def step_time(self) -> float:
        """Seconds per step: the same as ``step_time_s``."""
        return self.step_time_s

    def _facts(self) -> list[tuple[str, str]]:
        """What a person wants to see first."""
        return [
            ("mapping", f"{self.mapping.graph} on {self.mapping.system}"),
            ("plan", self.plan.label),
            ("step time", f"{self.step_time_s:.6g} s"),
            ("utilization", f"{100 * self.utilization:.2f} %"),
            ("status", f"{self.status}, gap {100 * self.gap:.3g} %"),
            ("bound by", self.score.bound_by),
        ]

    def __repr__(self) -> str:
        return f"Result({', '.join(f'{name}: {value}' for name, value in self._facts())})"

    __str__ = __repr__  # of a pydantic model it would be every field of every part

    def _repr_html_(self) -> str:
        return facts_html(self._facts()) + self.score._partitions_html()

    def frame(self) -> Any:
        """One row per kernel, in graph order.

        Returns
        -------
        pandas.DataFrame, or list of dict without pandas
            ``kernel``; where it runs: ``stage``, ``partition``, ``sharding``, compute ``tiles``; and of its whole
            partition, for one layer and one microbatch on one chip: ``partition_compute_s``, ``partition_memory_s``,
            ``partition_network_s``, ``partition_time_s`` (seconds) and ``bound_by``.

        Examples
        --------
        >>> import dfopt as df
        >>> result = df.optimize(df.load_graph("gpt2-small"), df.load_system("sn10-8-ring"), tp=8)
        >>> result.frame()[["kernel", "partition", "sharding", "tiles"]].iloc[0].to_dict()
        {'kernel': 'Add_Prev_Layer', 'partition': 0, 'sharding': 'none', 'tiles': 1}
        """
        rows = list(self.rows())
        try:
            import pandas as pd
        except ImportError:
            return rows
        return pd.DataFrame(rows)

    def rows(self) -> list[dict[str, Any]]:
        """One dict per kernel, in graph order."""
        where = {(p.stage, p.partition): p for p in self.score.partitions}
        table = []
        for kernel in self.mapping.kernels:
            part = where[(kernel.stage, kernel.partition)]
            table.append(
                {
                    "kernel": kernel.name,
                    "stage": kernel.stage,
                    "partition": kernel.partition,
                    "sharding": kernel.sharding,
                    "tiles": kernel.tiles,
                    "partition_compute_s": part.compute_s,
                    "partition_memory_s": part.memory_s,
                    "partition_network_s": part.network_s,
                    "partition_time_s": part.time_s,
                    "bound_by": part.bound_by,
                }
            )
        return table
