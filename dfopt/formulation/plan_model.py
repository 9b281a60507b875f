"""A plan as one MILP: options and places of all kernels, with all that follows from them.

Suffixes: k kernel, o option (a kernel with one of its schemes), b block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dfopt.arrays import LEAST_UNIT, Floats, Ints
from dfopt.bnb import UNLIMITED, Clock
from dfopt.documents.mapping import Sharding
from dfopt.formulation.block_rows import ChargeRows
from dfopt.formulation.choices import Choices
from dfopt.formulation.held import HeldBytes
from dfopt.formulation.places import BlockList, BlockStructure, Ordered, Places, listed
from dfopt.formulation.stages import StageRows
from dfopt.fusion.partitioning import SCALE, IntraChipLimits
from dfopt.milp import Model
from dfopt.physics.overlap import hides
from dfopt.setting.instance import Instance
from dfopt.setting.stages import is_cut
from dfopt.terms.chip import ChipModel, chip_of
from dfopt.terms.incidence import Has, Open
from dfopt.terms.layer import Layer
from dfopt.terms.rules.held import waits
from dfopt.terms.step.ledger import limited
from dfopt.terms.step.overlap import exchanges_behind
from dfopt.terms.table import Domain, Table
from dfopt.terms.token_blocks import token_rows

MOST_NONZEROS = 2_000_000
"""Of a model that is handed to a solver: presolve alone takes minutes beyond it."""


class Large(Exception):
    """Raised for a model with too many nonzeros to solve."""

    def __init__(self, nonzeros: int) -> None:
        super().__init__(f"the MILP has {nonzeros:,} nonzeros, more than the {MOST_NONZEROS:,} that are solved")
        self.nonzeros = nonzeros


class Unstated(Exception):
    """Raised where a plan has an effect that the rows cannot express."""


@dataclass(frozen=True)
class PlanModel:
    """The assignment-matrix MILP of a plan and number of tiles.

    Attributes
    ----------
    model : Model
        Its columns and rows.
    layer : Layer
        Options of its kernels.
    choices, places : Choices, Places
        Columns of these, and of the blocks that kernels may be in.
    unit_s : float, s
        Seconds of a step that are one unit of its objective.
    relaxed : bool
        Whether tensors that wait in DRAM between partitions are left out; they may then exceed the memory.
    bounding : bool
        Whether a mapping may take longer than it says, see :attr:`dfopt.formulation.block_rows.ChargeRows.bounding`.
    """

    model: Model
    layer: Layer
    choices: Choices
    places: Places
    unit_s: float
    relaxed: bool
    bounding: bool

    def start(self, sharding: dict[str, Sharding], stage_k: Ints, partition_k: Ints) -> Floats | None:
        """A partial MIP start from a mapping; None if its blocks have no columns.

        Parameters
        ----------
        sharding : dict
            Scheme of every kernel, by name.
        stage_k, partition_k : int arrays, shape (kernels,)
            Stage and partition of every kernel.
        """
        columns = self.places.start(stage_k, partition_k)
        if columns is None:
            return None
        taken = list[bool]()
        for kernel, schemes, left in zip(self.layer.kernels, self.layer.schemes_k, self.choices.domain, strict=True):
            taken += [schemes[o] == sharding[kernel.name] for o in left]
        return self.model.start({**columns, "s": np.array(taken, dtype=float)})

    def decode(self, x: Floats) -> tuple[dict[str, Sharding], Ints, Ints]:
        """Scheme by kernel name, and stage and partition of every kernel, in a solution."""
        taken = zip(self.layer.kernels, self.layer.schemes_k, self.choices.domain, self.choices.taken(x), strict=True)
        return {kernel.name: schemes[left[o]] for kernel, schemes, left, o in taken}, *self.places.partitions(x)


def plan_model(
    instance: Instance,
    layer: Layer,
    table: Table,
    domain: Domain,
    limits: Sequence[IntraChipLimits],
    clock: Clock = UNLIMITED,
    *,
    relaxed: bool = False,
) -> PlanModel:
    """Build the assignment-matrix MILP of a plan.

    Parameters
    ----------
    instance : Instance
        The plan.
    layer : Layer
        The instance, at some number of tiles.
    table : Table
        The charges of the layer.
    domain : Domain
        Options that each kernel may take.
    limits : sequence of IntraChipLimits
        Limits of every stage of the mapping; pins by number of the kernel in the graph.
    clock : Clock
        Limit on building the model.
    relaxed : bool
        Whether tensors that wait in DRAM may be left out: they depend on the order of partitions, and without them
        blocks can be listed on some chips.

    Raises
    ------
    OutOfTime
        When the clock is over.
    Large
        With more nonzeros than :data:`MOST_NONZEROS`.
    Unstated
        If replicas exchange behind the backward pass, and partitions are ordered or pipeline stages differ.
    """
    model, graph, chip = Model("plan"), instance.graph, chip_of(instance.system, instance.assumptions)
    # where kernels are drawn once their stages are a choice
    stage_k = None if is_cut(graph, instance.plan) else np.array([graph.kind_of(kernel) for kernel in graph.kernels])
    structure = BlockStructure(graph, chip, limits, stage_k)
    held = HeldBytes(instance, layer, table)
    waiting = _may_wait(held, table, domain, stage_k)
    member_kb = listed(structure, clock) if relaxed or not waiting else None
    relaxed = waiting and member_kb is not None
    places: Places = Ordered(model, structure, clock) if member_kb is None else BlockList(model, structure, member_kb)
    choices = Choices(model, domain, places.A_kb)
    unit_s = _unit_s(table, chip, layer.latency_l, domain)
    blocks = ChargeRows(choices, table, chip, layer.latency_l, unit_s, clock, token_rows(layer))
    rows = StageRows(instance, layer, blocks, places.stage_b, stage_k)
    time_b = blocks.times()
    rows.hold(held, waiting=waiting and not relaxed)
    forward_b = None
    if exchanges_behind(instance):
        if member_kb is None or instance.line is not None or not hides(instance.assumptions, layer.graph):
            raise Unstated("what the backward pass hides is stated for listed partitions and equal stages only")
        forward_b = np.asarray(member_kb[structure.forward_k].any(axis=0))
    unit_s = rows.minimize(time_b, forward_b)
    if (nonzeros := model.arrays().A.nnz) > MOST_NONZEROS:
        raise Large(nonzeros)
    return PlanModel(model, layer, choices, places, unit_s, relaxed, blocks.bounding)


def _unit_s(table: Table, chip: ChipModel, latency_l: Floats, domain: Domain) -> float:
    """A quarter of what kernels take of the resource that they take most of, at least: blocks take a few of these."""
    per_unit: dict[str, float | Floats] = {
        "compute_s": 1.0,
        "compute_tiles": latency_l / chip.tiles,
        "network_s": 1.0,
        "dram_bytes": 1 / chip.dram_bandwidth,
        "sram_traffic_bytes": 1 / chip.sram_bandwidth,
    }
    least_c, seconds = table.least(domain), dict.fromkeys(per_unit, 0.0)
    for charge, columns in zip(table.charges, table.columns_c, strict=True):
        if charge.resource in seconds and isinstance(charge.incidence, Has):
            seconds[charge.resource] += float(np.min(least_c[columns] * per_unit[charge.resource]))
    return max(LEAST_UNIT, *seconds.values()) / SCALE


def _may_wait(held: HeldBytes, table: Table, domain: Domain, stage_k: Ints | None) -> bool:
    """Whether what waits between partitions, at most, may be too much beside what chips hold at most."""
    instance = held.instance
    if not waits(instance.setting):
        return False
    tier = instance.system.chip.fastest_tier
    capacity = limited(instance).get(tier, np.inf)
    if np.isinf(capacity):
        return False
    stage_k = np.full(len(domain), -1) if stage_k is None else stage_k
    waiting = [charge for charge in table.charges if charge.resource == "waiting_bytes"]
    for stage in instance.pipeline:
        most, open_ = 0.0, 0.0
        for number, _ in stage.runs:
            kernels = [k for k, of in enumerate(stage_k) if of in (number, -1)]
            for of_state in held.by_option(tier, stage, number):
                most += sum(max(float(of_state[k][list(domain[k])].max()), 0.0) for k in kernels)
            here = [each for each in waiting if isinstance(each.incidence, Open) and each.incidence.source in kernels]
            open_ = max(open_, sum(float(charge.amount.max()) for charge in here))
        if open_ > 0 and most + open_ > capacity:
            return True
    return False
