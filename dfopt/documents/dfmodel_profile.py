"""What DFModel's program takes for granted behind Table VI and Figs. 10-11 of its paper, as fields of assumptions.

Source: the paper's section V and its program; ``dfopt/guide/formulation.md`` compares each with the other choices.
"""

from __future__ import annotations

from typing import Any, Final

DFMODEL: Final[dict[str, Any]] = {
    "execution": "chip",
    "overlap": "perfect",
    "compute_utilization": 0.9,
    "sharding_objective": "bytes",
    "sharding_rules": "dfmodel",
    "sequence_parallelism": "none",
    "collective_model": "dfmodel",
    "all_reduce_passes": 2,
    "weights_from_dram": False,
    "layer_boundary": "free",
    "empty_partitions": "forbid",
    "forward_backward": "halves",
    "fanout": "per_consumer",
    "weight_tiling": "free",
    "token_blocks": "none",
    "gradients": "dfmodel",
    "bubble": "interleaved",
    "point_to_point": "per_step",
    "network_dims": "whole",
    "optimizer_bytes_per_parameter": 0.0,
    "memory_reserve": 0.0,
}
