"""The columns of a study's frame: one row per cell, SI units, the unit at the end of the name."""

from __future__ import annotations

from typing import Final

from dfopt.documents.axes import AXES
from dfopt.documents.metrics import METRICS

AXIS_COLUMNS: Final[dict[str, str]] = {
    "graph": "Label of the graph of the cell.",
    "system": "Label of the system of the cell.",
    "chip": "Label of the chip, or its name where the system is given as a whole.",
    "memory": "Label of the memory. None where the system is given as a whole.",
    "stack": "Label of the stack of dies. None where the chip has no stack.",
    "link": "Label of the links. None where the system is given as a whole.",
    "topology": "Label of the topology, or of the dims of a system given as a whole, such as ring 8 x ring 128.",
    "assumptions": "Label of the assumptions of the cell.",
}

ASKED: Final[dict[str, str]] = {
    "phase": "Phase of the graph: training, prefill, decode, verify, mixed or forward.",
    "batch": "Samples of a step: sequences, or mixes of several.",
    "microbatch": "Samples of one evaluation of the graph, as the search chose them where they were free.",
}
"""What was asked of the graph; an axis of the same name takes the place of the column."""

# What a cell's solve says, and what follows from it and from the system. None where there is no mapping.
COLUMNS: Final[dict[str, str]] = {
    "status": "Result of a cell: optimal, optimal_per_level, gap_reached or limit_with_solution; infeasible;"
    " no_solution if a limit came first; failed; pending if it has not run.",
    **ASKED,
    "step_time_s": METRICS["step_time_s"].meaning,
    "bound_s": "Proven bound in seconds: no mapping has a shorter step.",
    "level_bound_s": "Proven bound in seconds: no mapping with the sharding of its plan has a shorter step.",
    "gap": "Relative distance of the step time to ``bound_s``.",
    "level_gap": "Relative distance of the step time to ``level_bound_s``.",
    "utilization": METRICS["utilization"].meaning,
    **{axis.name: axis.text for axis in AXES.values()},
    "microbatches": "Number of microbatches per pipeline and step.",
    "layers_per_stage": "Number of layers in the heaviest pipeline stage.",
    "interleave": "Number of chunks of layers of each pipeline stage.",
    "plan": "Label of the plan: degrees with the network dims that carry them.",
    "partitions": "Number of on-chip partitions of the slowest stage.",
    "bound_by": "Resource that bounds most of the slowest stage's time: compute, memory, network or sram.",
    "compute_share": "Share of the slowest stage's time in partitions that compute bounds.",
    "memory_share": "Share of the slowest stage's time in partitions that the off-chip memory bounds.",
    "network_share": "Share of the slowest stage's time in partitions that communication bounds.",
    "layer_time_s": METRICS["layer_time_s"].meaning,
    "layer_compute_s": "Compute time of all partitions of the slowest stage for one layer and microbatch, in seconds.",
    "layer_memory_s": "DRAM time of all partitions of the slowest stage for one layer and microbatch, in seconds.",
    "layer_network_s": "Network time of all partitions of the slowest stage for one layer and microbatch, in seconds.",
    "pipeline_fill_s": METRICS["pipeline_fill_s"].meaning,
    "point_to_point_s": METRICS["point_to_point_s"].meaning,
    "gradient_reduction_s": METRICS["gradient_reduction_s"].meaning,
    "flop_per_step": METRICS["flop_per_step"].meaning,
    "flop_per_s": "Achieved rate of the whole system, in FLOP/s.",
    **{name: metric.meaning for name, metric in METRICS.items() if metric.meaning},  # those above keep their place
    "tokens_per_s_per_chip": "Tokens that the step processes, per second and chip.",
    "tokens_per_s_per_sequence": "Tokens per second of one sequence: those gained in serving, else those processed.",
    "dram_used_bytes": "DRAM that a chip of the fullest stage needs, in bytes.",
    "chips": "Number of chips of the system.",
    "tiles": "Number of compute tiles of a chip.",
    "peak_flop_per_s": "Peak rate of a chip, in FLOP/s.",
    "sram_bytes": "SRAM capacity of a chip, in bytes.",
    "dram_bandwidth_bytes_per_s": "DRAM bandwidth of a chip, in bytes per second.",
    "price_usd": "Price of the system with memory, links and switches, in USD. None if a part has no price.",
    "power_w": "Power of the system with memory, links and switches, in W. None if a part has no power (see ``note``).",
    "perf_per_dollar": "Achieved rate divided by the price, in FLOP/s per USD.",
    "perf_per_watt": "Achieved rate divided by the power, in FLOP/s per W.",
    "energy_per_step_j": "Power of the system times the step time, in joules.",
    "physical_step_time_s": "Step time that the stack of dies sustains, in seconds.",
    "physical_flop_per_s": "Achieved rate of the whole system at that sustained step time, in FLOP/s.",
    "physical_tokens_per_s": "Tokens per second at the step time that the stack of dies sustains.",
    "frequency_share": "Share of the nominal clock at which the stack keeps its limits.",
    "logic_max_c": "Temperature of the hottest point of the logic die, in degrees Celsius.",
    "dram_max_c": "Temperature of the hottest point of the DRAM dies, in degrees Celsius. None without such dies.",
    "stack_power_w": "Heat of the stack of the hottest chip, in W.",
    "stack_bandwidth_bytes_per_s": "Effective DRAM bandwidth of a chip under the mapping, in bytes per second.",
    "refresh_rate": "Refresh rate of the DRAM, as a multiple of the normal rate.",
    "stack_energy_per_step_j": "Energy of all chips for one step, from commands, FLOP, bytes and leakage, in joules.",
    "stack_energy_per_token_j": "Energy of all chips for one token, from commands, FLOP, bytes and leakage, in joules.",
    "limits_broken": "Limits of the stack that no clock keeps: logic, dram, power, runaway, convergence or capacity.",
    "solve_s": "Time that the search took, in seconds.",
    "calibrated_by": "Profile whose efficiencies the cell's system has, with its digest. None where there is none.",
    "note": "Message of a cell without a mapping; or the known part of price and power where a part lacks one.",
    "cell": "Digest of all that the cell depends on, which is its key in the store.",
    "dfopt": "Version of dfopt that solved the cell.",
}

TEXT_COLUMNS: Final = frozenset(
    {*AXIS_COLUMNS, "status", "phase", "plan", "bound_by", "limits_broken", "calibrated_by", "note", "cell", "dfopt"}
)
