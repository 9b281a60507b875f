"""How the figures of a score follow from others, in words: carried with them, so that a file explains itself."""

from __future__ import annotations

from typing import Final

__all__ = ["FORMULAS"]

FORMULAS: Final = {
    "step_time_s": "sum of breakdown = (rounds + fill factor) x time of the slowest stage + point_to_point_s"
    " + gradient_reduction_s + optimizer_step_s + overhead; rounds = microbatches (/ 2 where two are taken at a time)",
    "pipeline_fill_s": "(stages - 1) x time of the slowest stage, / interleave where the bubble is interleaved",
    "flop_per_step": "sum over kernels of times x FLOP x samples / samples of a microbatch, without pass recompute",
    "utilization": "flop_per_step / (step_time_s x chips x peak FLOP/s of each kernel's type)",
    "model_flop_utilization": "3 (training; 1 otherwise) x FLOP of the forward pass's matrix products, those of logits"
    " among them / (step_time_s x chips x peak FLOP/s): Chowdhery et al., PaLM (arXiv:2204.02311), appendix B",
    "hardware_flop_utilization": "FLOP of all matrix products that run, those computed again among them"
    " / (step_time_s x chips x peak FLOP/s)",
    "samples_per_s": "samples of the global batch / step_time_s",
    "tokens_per_s": "samples_per_s x tokens of a sample",
    "energy_per_step_j": "power_w x step_time_s",
    "breakdown": "for the slowest stage: times x microbatches x (work of partitions without network, by the FLOP of its"
    " passes; what communication makes them longer, by seconds on links), and what a step has once",
    "link_time": "for the slowest stage: times x microbatches x seconds of every communication by itself, and those of"
    " a step",
    "link_latency_s": "the sum of link_time, of communications of no bytes",
    "memory": "bytes of a chip of each stage: sum over states of layers x microbatches in flight x bytes / chips that"
    " share them",
}
"""By the field of `dfopt.documents.score.Score`."""
