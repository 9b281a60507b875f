"""What a result records of the search: plans, graphs given up together, next best mappings, sensitivities, versions."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any, Literal, Self

from pydantic import model_validator

from dfopt.documents.base import Part, problem
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Mapping
from dfopt.documents.packed import packed, unpacked
from dfopt.documents.plan import Plan
from dfopt.errors import shown

OPEN = "limit", "not_reached"
"""The statuses of plans that may still be better."""
PlanStatus = Literal[
    "solved", "pruned_by_bound", "pruned_per_level", "infeasible", "infeasible_per_level", "limit", "not_reached"
]
"""What ``_per_level`` ends holds for the sharding that was chosen for a plan; another one is not excluded."""


class SolveRecord(Part):
    """Record of one solve: problem, proof and size; times in seconds.

    Attributes
    ----------
    problem : e.g. joint
        Problem that this solve was about. ``interchip``: sharding and pipeline stages. ``intrachip``: fusion on one
        chip. ``joint``: both together.
    stage : no unit, e.g. 0
        Number of the pipeline stage that the problem is about.
    formulation : e.g. columns
        Formulation of the problem: columns, assignment, joint, or given if it was not solved again.
    termination : e.g. optimal
        Reason why the solve ended, such as optimal, gap_reached or limit_with_solution.
    objective : s, e.g. 0.0041
        Value of the best solution of this problem. None: the solve proved that nothing beats the best plan.
    bound : s, e.g. 0.0041
        Proven bound: no solution of this problem has a lower value.
    gap : share, e.g. 0.0
        Relative distance of ``objective`` to ``bound``. None: there is no solution.
    seconds : s, e.g. 0.3
        Time that the solve took.
    nodes : nodes, e.g. 12
        Number of nodes of the branch-and-bound tree.
    rows : rows, e.g. 320
        Number of constraints of the MILP.
    columns : columns, e.g. 210
        Number of variables of the MILP.
    nonzeros : entries, e.g. 1400
        Number of nonzero coefficients of the MILP.
    trace : s, e.g. [[0.1, 0.005, 0.003], [0.3, 0.0041, 0.0041]]
        Progress of the solve, as triples of elapsed time, best value and bound.
    note : e.g. as near to the best as was asked for
        Remark on how the solve ended.
    """

    problem: Literal["interchip", "intrachip", "joint"]
    stage: int = 0
    formulation: str
    termination: str
    objective: float | None
    bound: float
    gap: float | None
    seconds: float
    nodes: int = 0
    rows: int = 0
    columns: int = 0
    nonzeros: int = 0
    trace: tuple[tuple[float, float | None, float | None], ...] = ()
    note: str = ""


class PlanRecord(Part):
    """Record of one plan: solved with a proof, pruned by a bound, or infeasible with a reason.

    ``pruned_by_bound``: no mapping under the plan is better than the best; ``infeasible``: none fits.
    ``pruned_per_level`` and ``infeasible_per_level``: the same of the sharding that is optimal for the inter-chip
    problem; under another one a better mapping may exist. Values are in the unit of the objective.

    Attributes
    ----------
    plan : e.g. {microbatches: 16}
        Plan that the record is about.
    tile_count : tiles, e.g. 64
        Number of tiles of the streamed axis, where the search chooses it. None: it does not.
    status : e.g. pruned_by_bound
        Result of the search for this plan. ``solved``: a mapping was found and bounded. ``pruned_by_bound``: no mapping
        of it can be better than the best. ``pruned_per_level``: no mapping with its chosen sharding can be better than
        the best. ``infeasible``: no mapping fits. ``infeasible_per_level``: no mapping fits with its chosen sharding.
        ``limit``: a limit ended its search. ``not_reached``: the search ended before it.
    bound : s, e.g. 4.9
        Proven bound: no mapping of this plan has a lower step time. None: no mapping of it fits.
    level_bound : s, e.g. 5.0
        Proven bound for the sharding that was chosen for this plan. None: unknown.
    value : s, e.g. 5.033
        Step time of the best mapping of this plan. None: there is none.
    gap : share, e.g. 0.0
        Relative distance of ``value`` to ``level_bound``. None: there is no mapping.
    solves
        Records of the problems that were solved for this plan.
    note : e.g. weights do not fit into DRAM
        Reason for the status, or a remark on it.
    variant : e.g. "recompute: full"
        Variant of the graph to which the plan belongs. None: the graph has no variants.
    """

    plan: Plan
    tile_count: int | None = None
    status: PlanStatus
    bound: float | None
    level_bound: float | None = None
    value: float | None = None
    gap: float | None = None
    solves: tuple[SolveRecord, ...] = ()
    note: str = ""
    variant: str | None = None

    def model_post_init(self, context: Any, /) -> None:  # there may be a hundred thousand
        """Share equal sets of field names with other records, to save memory (pydantic hook)."""
        self._intern()

    @property
    def order(self) -> tuple[float, str, str, int, str]:
        """Sort key of plan records: by bound, infeasible plans last."""
        bound = math.inf if self.bound is None else self.bound
        return bound, self.plan.model_dump_json(), self.variant or "", self.tile_count or 0, self.note


class GraphRecord(Part):
    """Record of a graph whose plans were all excluded together, before they were listed.

    All chips together have too much to do: its work, spread evenly over them, takes at least ``bound`` under any plan.

    Attributes
    ----------
    microbatch : samples, e.g. 2
        Microbatch size of the graph whose plans were all excluded together.
    variant : e.g. "recompute: full"
        Variant of the excluded graph. None: the graph has no variants.
    status : e.g. pruned_by_bound
        Reason why its plans are not listed. ``pruned_by_bound``: none of its mappings can be better than the best.
        ``limit``: a limit ended the search before.
    bound : s, e.g. 6.1
        Proven bound: no mapping of the graph has a lower step time.
    note : e.g. too many plans to list
        Remark on why its plans are not listed.
    """

    microbatch: int
    variant: str | None = None
    status: Literal["pruned_by_bound", "limit"]
    bound: float
    note: str = ""

    @property
    def order(self) -> tuple[float, int, str]:
        """Sort key of graph records: by bound."""
        return self.bound, self.microbatch, self.variant or ""


class GroupRecord(Part):
    """Common record of several plans of one graph.

    Attributes
    ----------
    status : e.g. pruned_by_bound
        Result of the search for each of these plans. ``pruned_by_bound``: no mapping of it can beat the last one that
        the result keeps. ``infeasible``: no mapping fits. ``limit``: a limit ended its search; no mapping of it can
        beat the bound of the result. ``not_reached``: the search ended before it; the same holds.
    note : e.g. time limit
        Reason for which these plans are open.
    """

    status: Literal["pruned_by_bound", "infeasible", "limit", "not_reached"]
    note: str = ""


class UnlistedPlans(Part):
    """Plans of one graph without individual records, in compressed form.

    Attributes
    ----------
    microbatch : samples, e.g. 2
        Microbatch size of the graph that the plans are for.
    variant : e.g. "recompute: full"
        Variant of the graph that the plans are for. None: the graph has no variants.
    groups : e.g. [{status: pruned_by_bound}]
        Results of the search for these plans, each one once.
    members : e.g. c$`y8Oia{M0ssZv0hR
        Number of the group of every plan as a letter, a for the first, in the order of the plans written as JSON. A
        dot marks a plan that has a record of its own. The letters are compressed (zlib) and written in base 85.
    """

    microbatch: int
    variant: str | None = None
    groups: tuple[GroupRecord, ...]
    members: str

    @property
    def order(self) -> tuple[int, str]:
        """Sort key of these records."""
        return self.microbatch, self.variant or ""

    @model_validator(mode="after")
    def _has_members(self) -> Self:
        try:
            letters = unpacked(self.members)
        except ValueError:
            letters = None
        if not isinstance(letters, str) or not set(letters) <= {".", *map(chr, range(97, 97 + len(self.groups)))}:
            raise problem(f"found {shown(self.members)}, expected packed letters of groups", "keep what dfopt wrote")
        return self

    @classmethod
    def of(cls, graph: Graph, groups: Sequence[GroupRecord | None]) -> Self:
        """Build from the group of every plan in order; None: the plan has its own record."""
        different = tuple(dict.fromkeys(group for group in groups if group is not None))
        letter_of = dict[GroupRecord | None, str](zip(different, map(chr, itertools.count(97)), strict=False))
        letter_of[None] = "."
        members = packed("".join(map(letter_of.__getitem__, groups)))
        return cls(microbatch=graph.microbatch, variant=graph.variant, groups=different, members=members)

    @property
    def group_of_each(self) -> tuple[GroupRecord | None, ...]:
        """Group of every plan in order; None: the plan has its own record."""
        return tuple(None if letter == "." else self.groups[ord(letter) - 97] for letter in unpacked(self.members))

    @property
    def counts(self) -> Counter[GroupRecord]:
        """Number of plans in each group."""
        return Counter(group for group in self.group_of_each if group is not None)


DIFFERENT = {
    "plan": "the best mappings are of different plans, microbatches or ways to compute again",
    "sharding": "the best mappings are of different plans, microbatches, ways to compute again or shardings",
}
"""What `top` counts, by what is asked to be distinct, in the words of the proof."""


def different(mapping: Mapping, variant: str | None, distinct: str) -> Hashable:
    """Key of a mapping: mappings with equal keys do not count as distinct.

    It has the plan (with its microbatches), the graph's ``variant``, and perhaps the scheme of every kernel.

    Parameters
    ----------
    mapping, variant
        The mapping, and the variant of its graph.
    distinct : {"plan", "sharding"}
        Under ``sharding`` the key also has the scheme of every kernel.
    """
    schemes = tuple(kernel.sharding for kernel in mapping.kernels) if distinct == "sharding" else ()
    return (mapping.plan, variant, *schemes)


class Alternative(Part):
    """One of the next best distinct mappings.

    Attributes
    ----------
    microbatch : samples, e.g. 2
        Microbatch size of the graph that the alternative maps.
    variant : e.g. "recompute: full"
        Variant of the graph that the alternative maps. None: the graph has no variants.
    value : s, e.g. 5.2
        Step time of the alternative.
    mapping
        Mapping to which this alternative belongs, with a place for every kernel.
    """

    microbatch: int
    variant: str | None = None
    value: float
    mapping: Mapping

    @property
    def order(self) -> tuple[float, str]:
        """Sort key of alternatives: by value."""
        return self.value, self.mapping.model_dump_json()


class Sensitivity(Part):
    """Objective with 10 % more of one resource, under the best plan with partitions optimized anew.

    ``proven``: optimal for the plan and its sharding.

    Attributes
    ----------
    resource : e.g. compute
        Resource of which the system gets 10 % more. ``compute``: the peak rate. ``dram_bandwidth``: the off-chip
        bandwidth. ``link_bandwidth``: the bandwidth of all links. ``sram``: the on-chip capacity. ``sram_bandwidth``:
        the on-chip bandwidth.
    value : s, e.g. 4.7
        Step time with 10 % more of the resource, after a new search for partitions under the same plan.
    speedup : no unit, e.g. 1.07
        Step time of the result divided by the step time with 10 % more of the resource.
    proven : e.g. true
        Whether the new partitions are proven optimal for the plan and its sharding.
    """

    resource: Literal["compute", "dram_bandwidth", "link_bandwidth", "sram", "sram_bandwidth"]
    value: float
    speedup: float
    proven: bool


class Provenance(Part):
    """Origin of a result: versions, digests and settings needed to repeat it.

    Attributes
    ----------
    dfopt : e.g. 1.0.0
        Version of dfopt that wrote the result.
    highs : e.g. 1.10.0
        Version of the HiGHS solver.
    solver : e.g. highs
        Solver of the MILPs: highs, or another one through PuLP as pulp:NAME.
    python : e.g. 3.11.9
        Version of Python that ran the search.
    graph_digest : e.g. 0123456789abcdef
        Digest of the graph, by which a later check recognizes it.
    system_digest : e.g. 0123456789abcdef
        Digest of the system, by which a later check recognizes it.
    assumptions_digest : e.g. 0123456789abcdef
        Digest of the assumptions, by which a later check recognizes them.
    variant_digests : e.g. [0123456789abcdef]
        Digests of the variants of the graph.
    seed : no unit, e.g. 0
        Seed of the random numbers of the solver.
    """

    dfopt: str
    highs: str
    solver: str = "highs"
    python: str
    graph_digest: str
    system_digest: str
    assumptions_digest: str
    variant_digests: tuple[str, ...]
    seed: int
