"""The columns of a study's frame: one row per cell, SI units, the unit at the end of the name."""

from __future__ import annotations

from typing import Final

from dfopt.documents.axes import AXES

AXIS_COLUMNS: Final[dict[str, str]] = {
    "graph": "label of the graph",
    "system": "label of the system",
    "chip": "label of the chip, or its name where the system is given as a whole",
    "memory": "label of the memory; none where the system is given as a whole",
    "stack": "label of the stack of dies; none where the judge has no physics of the chip",
    "link": "label of the links; none where the system is given as a whole",
    "topology": "label of the topology, or of the dims of a system given as a whole, such as ring 8 x ring 128",
    "assumptions": "label of the assumptions",
}

ASKED: Final[dict[str, str]] = {
    "phase": "training, prefill, decode, verify, mixed or forward",
    "batch": "samples of a step: sequences, or mixes of them",
    "microbatch": "samples of one evaluation, as the search chose them where they were free",
}
"""What was asked of the graph; an axis of the same name takes the place of the column."""

# What a cell's solve says, and what follows from it and from the system. None where there is no mapping.
COLUMNS: Final[dict[str, str]] = {
    "status": "optimal, optimal_per_level, gap_reached or limit_with_solution; infeasible, no_solution or failed;"
    " pending: not run yet",
    **ASKED,
    "step_time_s": "seconds per step, of one global batch",
    "bound_s": "no mapping has a shorter step",
    "level_bound_s": "no mapping with the sharding of its plan has a shorter step",
    "gap": "proven relative distance of the step to bound_s, of any mapping",
    "level_gap": "the same to level_bound_s, of any mapping with the sharding of its plan",
    "utilization": "FLOP of the step over what all chips could do in that time",
    **{axis.name: f"degree of {axis.title}" for axis in AXES.values()},
    "microbatches": "microbatches per pipeline and step",
    "layers_per_stage": "repeats of the graph on the heaviest stage",
    "interleave": "chunks of layers per stage",
    "plan": "degrees with the network dims that carry them",
    "partitions": "on-chip partitions of the slowest stage",
    "bound_by": "compute, memory, network or sram: what binds for most of the slowest stage's time",
    "compute_share": "of the slowest stage's time, in partitions that compute binds",
    "memory_share": "the same, memory",
    "network_share": "the same, network",
    "layer_time_s": "seconds of the slowest stage for one layer and microbatch",
    "layer_compute_s": "of that stage, compute time of all partitions, as if nothing else took time",
    "layer_memory_s": "the same, DRAM time",
    "layer_network_s": "the same, network time",
    "pipeline_fill_s": "seconds of the step in which the pipeline fills and drains",
    "point_to_point_s": "seconds of the step for messages between stages, where they are counted per step",
    "gradient_reduction_s": "seconds of the step for the all-reduce of gradients",
    "flop_per_step": "FLOP of one step",
    "flop_per_s": "achieved rate of the whole system, FLOP/s",
    "samples_per_s": "samples of the batch per second",
    "tokens_per_s": "tokens per second that are processed",
    "produced_tokens_per_s": "tokens per second that sequences gain at least, in serving",
    "tokens_per_s_per_chip": "tokens_per_s over the chips of the system",
    "tokens_per_s_per_sequence": "of one sequence: in serving the tokens that it gains, else those that are processed",
    "dram_used_bytes": "DRAM that a chip of the fullest stage needs",
    "chips": "chips of the system",
    "tiles": "compute tiles of a chip",
    "peak_flop_per_s": "peak rate of a chip, FLOP/s",
    "sram_bytes": "SRAM of a chip",
    "dram_bandwidth_bytes_per_s": "DRAM bandwidth of a chip",
    "price_usd": "price of the system: accelerators, memory, links and switches; none if a part has none (see note)",
    "power_w": "power of the system, in the same way",
    "perf_per_dollar": "achieved rate over price, FLOP/s per USD",
    "perf_per_watt": "achieved rate over power, FLOP/s per W",
    "energy_per_step_j": "power of the system times step_time_s",
    "physical_step_time_s": "seconds per step on the stack: its memory's real rate, and clocks that keep it cool",
    "physical_flop_per_s": "achieved rate of the whole system at that step time, FLOP/s",
    "physical_tokens_per_s": "tokens per second at that step time",
    "frequency_share": "clock that keeps the stack's limits, as a share of the nominal one",
    "logic_max_c": "hottest point of the logic die, degrees Celsius",
    "dram_max_c": "hottest point of the DRAM dies, degrees Celsius; none if the memory is beside the stack",
    "stack_power_w": "heat of the hottest chip's stack",
    "stack_bandwidth_bytes_per_s": "DRAM bandwidth of a chip that the traffic of this mapping gets from the stack",
    "refresh_rate": "DRAM refresh, as a multiple of the normal rate",
    "stack_energy_per_step_j": "energy of one step, all chips, from commands, FLOP, bytes and leakage",
    "stack_energy_per_token_j": "the same per token",
    "limits_broken": "logic, dram, power, runaway, convergence or capacity, where no clock keeps the stack's limits",
    "solve_s": "seconds that the solve took",
    "calibrated_by": "profile whose shares the cell's system has, with a digest of it; none where none was assumed",
    "note": "the message of a cell without a mapping, and price and power of the other parts where a part lacks one",
    "cell": "digest of all that the cell depends on: its key in the store",
    "dfopt": "version of dfopt that solved the cell",
}

TEXT_COLUMNS: Final = frozenset(
    {*AXIS_COLUMNS, "status", "phase", "plan", "bound_by", "limits_broken", "calibrated_by", "note", "cell", "dfopt"}
)
