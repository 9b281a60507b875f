"""What heat costs a mapping: three answers side by side, and what a kelvin is worth."""

from __future__ import annotations

from typing import ClassVar, Literal

from dfopt.documents.base import Document, Part
from dfopt.documents.mapping import Mapping

HeatName = Literal["ignore", "throttle", "aware"]


class HeatAnswer(Part):
    """One of the three answers on heat, with the judge's figures on the stack; degC and seconds.

    Attributes
    ----------
    name : e.g. throttle
        Way to deal with heat. ``ignore``: the fastest mapping, whatever its temperature. ``throttle``: the same mapping
        at a lower clock. ``aware``: partitions, clocks and pauses chosen for the limits.
    mapping
        Mapping to which the figures of this answer belong.
    step_time_s : s, e.g. 820.4
        Step time at the clocks of the mapping, with the effective bandwidth of the DRAM.
    interval_s : s, e.g. 0.05
        Time between two microbatches, pauses included.
    pause_s : s, e.g. 0.002
        Idle time in each interval that keeps the chip within its limits.
    lowest_frequency : share, e.g. 0.86
        Lowest frequency of a partition, as a share of the nominal one.
    partitions : partitions, e.g. 4
        Number of on-chip partitions of the mapping.
    logic_max_c : degC, e.g. 85.0
        Temperature of the hottest point of the logic die.
    dram_max_c : degC, e.g. 84.0
        Temperature of the hottest point of the DRAM dies. None: the memory is outside of the stack.
    refresh_rate : no unit, e.g. 1.0
        Refresh rate of the DRAM, as a multiple of the normal rate.
    power_w : W, e.g. 252.2
        Heat of the stack of the hottest chip.
    energy_per_step_j : J, e.g. 21580.0
        Energy of all chips for one step.
    keeps_limits : e.g. true
        Whether the answer keeps all limits of the stack.
    violations : e.g. [the logic die reaches 105 degC]
        Sentences that describe each broken limit.
    """

    name: HeatName
    mapping: Mapping
    step_time_s: float
    interval_s: float
    pause_s: float
    lowest_frequency: float
    partitions: int
    logic_max_c: float
    dram_max_c: float | None = None
    refresh_rate: float
    power_w: float
    energy_per_step_j: float
    keeps_limits: bool
    violations: tuple[str, ...] = ()


class SlowedPartition(Part):
    """A partition of the heat-aware mapping below the nominal frequency.

    Attributes
    ----------
    stage : no unit, e.g. 0
        Number of the pipeline stage of the partition.
    partition : no unit, e.g. 2
        Number of the on-chip partition within its stage.
    frequency : share, e.g. 0.86
        Frequency of the partition, as a share of the nominal one.
    kernels : e.g. [FFN0, FFN1]
        Names of the kernels of the partition.
    """

    stage: int
    partition: int
    frequency: float
    kernels: tuple[str, ...]


HEAT_WORDS = {
    "optimal_per_level": "optimal for this plan, its sharding and the stack's limits",
    "gap_reached": "stopped at the gap that was asked for",
    "limit_with_solution": "stopped by a limit on time or on rounds",
}


STATUS_WORDS: dict[str, str] = HEAT_WORDS | {
    "optimal": "optimal: no mapping in the space is better",
    "optimal_per_level": "optimal per level",
    "limit_with_solution": "stopped by the time limit",
    "interrupted_with_solution": "stopped by Ctrl-C",
}


def status_name(status: str) -> str:
    """Status of a solve or cell in words.

    Examples
    --------
    >>> status_name("optimal"), status_name("limit_with_solution"), status_name("no_solution")
    ('optimal', 'stopped by the time limit', 'no solution')
    """
    return STATUS_WORDS.get(status, status.replace("_", " ")).partition(":")[0]


class HeatProof(Part):
    """Proof of the heat-aware mapping, at its last leakage and refresh rate.

    Attributes
    ----------
    status : e.g. optimal_per_level
        Proof for the heat-aware mapping. ``optimal_per_level``: no choice of partitions, clocks and pauses is faster
        under this plan and sharding. ``gap_reached``: the search stopped at the requested gap. ``limit_with_solution``:
        a limit on time or rounds ended it.
    bound_s : s, e.g. 0.049
        Proven bound: no choice of partitions and clocks has a shorter interval between microbatches.
    interval_s : s, e.g. 0.05
        Interval between microbatches that the optimizer computed.
    gap : share, e.g. 0.02
        Relative distance of ``interval_s`` to ``bound_s``.
    blocks : blocks, e.g. 480
        Number of blocks of kernels that the optimizer considered.
    levels : levels, e.g. 5
        Number of operating points of the stack.
    columns : columns, e.g. 900
        Number of pairs of block and operating point that the bound left for the MILP.
    rounds : rounds, e.g. 4
        Number of solves until leakage and temperatures agreed.
    seconds : s, e.g. 3.5
        Time that the optimizer took.
    note : e.g. the temperatures settled after 4 rounds
        Remark on how the optimizer ended.
    """

    status: Literal["optimal_per_level", "gap_reached", "limit_with_solution"]
    bound_s: float
    interval_s: float
    gap: float
    blocks: int
    levels: int
    columns: int
    rounds: int
    seconds: float
    note: str = ""


class ShadowPrice(Part):
    """Shadow price of a temperature limit: seconds of a step per kelvin.

    Attributes
    ----------
    lp_logic_s_per_k : s/K, e.g. 6.9
        Step time that a limit on the logic die one kelvin higher saves, by the duals of the LP relaxation.
    lp_dram_s_per_k : s/K, e.g. 0.4
        Step time that one kelvin more on the DRAM dies saves, by the duals of the LP relaxation. It applies to their
        limit or to the threshold of their refresh.
    lp_power_s_per_w : s/W, e.g. 0.1
        Step time that one watt more of stack power saves, by the duals of the LP relaxation.
    one_kelvin_more_s : s, e.g. 6.5
        Step time saved by one kelvin more on both temperature limits, by a new search. None: not requested, or out of
        time.
    binding : e.g. [logic]
        Limits that bind, the most expensive one first.
    """

    lp_logic_s_per_k: float
    lp_dram_s_per_k: float
    lp_power_s_per_w: float = 0.0
    one_kelvin_more_s: float | None = None
    binding: tuple[str, ...] = ()


class HeatReport(Document):
    """Three answers for one plan and sharding: ignore heat, throttle after the fact, heat-aware.

    ``ignore`` and ``throttle`` have one mapping, the fastest without heat at the memory's effective bandwidth.
    ``throttle`` runs it at the highest uniform level that keeps the limits, with pauses if even the lowest is too hot.
    ``aware`` chooses partitions, a level for each of them and pauses together.

    Attributes
    ----------
    graph : e.g. gpt3-175b
        Name of the graph that is mapped.
    system : e.g. sn10-8-ring
        Name of the system on which the graph runs.
    stack : e.g. microbump-8
        Name of the stack of dies that each chip is.
    plan : e.g. TP8(ring) PP1 DP1
        Label of the plan that all answers share.
    limit_logic_c : degC, e.g. 85.0
        Highest temperature that the logic die may reach. None: no limit.
    limit_dram_c : degC, e.g. 85.0
        Highest temperature that the DRAM dies may reach. None: no limit.
    limit_power_w : W, e.g. 300.0
        Highest power that the stack may dissipate. None: no limit.
    answers
        Answers to compare: ignoring heat, throttling, and heat-aware.
    proof
        Proof of the heat-aware answer. None: there is no heat-aware mapping.
    price
        Step time that higher limits would save. None: it was not computed.
    slowed
        Partitions of the heat-aware mapping that run below the nominal frequency.
    note : e.g. no level keeps the limits
        Remark on answers that are missing.
    """

    SCHEMA: ClassVar[str] = "dfopt/heat/1"

    graph: str
    system: str
    stack: str
    plan: str
    limit_logic_c: float | None = None
    limit_dram_c: float | None = None
    limit_power_w: float | None = None
    answers: tuple[HeatAnswer, ...]
    proof: HeatProof | None = None
    price: ShadowPrice | None = None
    slowed: tuple[SlowedPartition, ...] = ()
    note: str = ""

    def answer(self, name: HeatName) -> HeatAnswer | None:
        """The answer of this name, or None if it was not found."""
        return next((answer for answer in self.answers if answer.name == name), None)

    @property
    def speedup(self) -> float | None:
        """Step of the throttled mapping divided by that of the heat-aware one; None if one is missing."""
        throttle, aware = self.answer("throttle"), self.answer("aware")
        if throttle is None or aware is None:
            return None
        return throttle.step_time_s / aware.step_time_s
