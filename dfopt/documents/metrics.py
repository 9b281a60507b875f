"""The figures of a score by which mappings are compared: what people read, the unit, the formula in words.

Another metric is an entry here, a field of `dfopt.documents.score.Score`, and its value in `dfopt.judge.timing`.
Records and columns of studies, comparisons, summaries and plots read this list. `dfopt.physics.merits` has the metrics
of systems with their best mappings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from dfopt.units import Dimension, number, show_unit


@dataclass(frozen=True)
class Metric:
    """A metric of a score; ``name`` is its field in `dfopt.documents.score.Score`.

    Attributes
    ----------
    words
        Name in reports, such as ``tokens per second``.
    meaning
        A sentence for the column of a study. Empty: studies have no such column.
    formula
        How the figure follows from others. Empty: it is a sum over the mapping.
    sense
        Whether less is better, or more.
    dimension
        SI unit of the figure. None: a count per second.
    rate
        Whether the figure goes with 1 / step time.
    headline
        Whether comparisons and summaries of results show it.

    Examples
    --------
    >>> METRICS["step_time_s"].shown(0.0312), METRICS["tokens_per_s"].shown(98400.0), METRICS["utilization"].shown(0.5)
    ('31.2 ms', '98,400', '50 %')
    >>> METRICS["tokens_per_s"].shown(None)
    '-'
    """

    name: str
    words: str
    meaning: str = ""
    formula: str = ""
    sense: Literal["minimize", "maximize"] = "minimize"
    dimension: Dimension | None = "time"
    rate: bool = False
    headline: bool = False

    def shown(self, value: float | None) -> str:
        """A value as text with its unit; ``-`` for None."""
        if value is None:
            return "-"
        return number(value) if self.dimension is None else show_unit(value, self.dimension)


def _rate(
    name: str, words: str, meaning: str, formula: str, dimension: Dimension | None = None, *, headline: bool = False
) -> Metric:
    """What goes with 1 / step time: a count per second, or a share of a peak rate."""
    return Metric(name, words, meaning, formula, "maximize", dimension, rate=True, headline=headline)


_METRICS: Final = (
    Metric(
        "step_time_s", "step time", "Time of one step, in seconds.",
        "sum of breakdown = (rounds + fill factor) x time of the slowest stage + point_to_point_s"
        " + gradient_reduction_s + optimizer_step_s + overhead;"
        " rounds = microbatches (/ 2 where two are taken at a time)",
        headline=True,
    ),
    Metric("layer_time_s", "layer time", "Time of the slowest stage for one layer and microbatch, in seconds."),
    Metric(
        "pipeline_fill_s", "pipeline fill", "Time of the step in which the pipeline fills and drains, in seconds.",
        "(stages - 1) x time of the slowest stage, / interleave where the bubble is interleaved",
    ),
    Metric(
        "point_to_point_s", "point to point",
        "Time of the step for transfers between stages, where they count once per step, in seconds.",
    ),
    Metric(
        "gradient_reduction_s", "gradient reduction", "Time of the step for the reduction of gradients, in seconds."
    ),
    Metric(
        "flop_per_step", "work of a step", "Work of one step, in FLOP.",
        "sum over kernels of times x FLOP x samples / samples of a microbatch, without pass recompute",
        "maximize", "flop",
    ),
    _rate(
        "utilization", "utilization", "Work of the step divided by the work that all chips could do in its time.",
        "flop_per_step / (step_time_s x chips x peak FLOP/s of each kernel's type)", "ratio", headline=True,
    ),
    _rate(
        "model_flop_utilization", "MFU", "",
        "3 (training; 1 otherwise) x FLOP of the forward pass's matrix products, those of logits among them"
        " / (step_time_s x chips x peak FLOP/s): Chowdhery et al., PaLM (arXiv:2204.02311), appendix B",
        "ratio", headline=True,
    ),
    _rate(
        "hardware_flop_utilization", "HFU", "",
        "FLOP of all matrix products that run, those computed again among them"
        " / (step_time_s x chips x peak FLOP/s)", "ratio",
    ),
    _rate(
        "samples_per_s", "samples per second", "Samples of the batch per second.",
        "samples of the global batch / step_time_s",
    ),
    _rate(
        "tokens_per_s", "tokens per second", "Tokens that the step processes, per second.",
        "samples_per_s x tokens of a sample", headline=True,
    ),
    _rate(
        "produced_tokens_per_s", "tokens produced per second", "Tokens that sequences gain in serving, per second.", ""
    ),
    Metric(
        "energy_per_step_j", "energy of a step", "", "power_w x step_time_s", dimension="energy"
    ),
)  # fmt: skip

METRICS: Final = {metric.name: metric for metric in _METRICS}
"""By the field of the score, in the order of its formulas."""

FORMULAS: Final = {
    **{name: metric.formula for name, metric in METRICS.items() if metric.formula},
    "breakdown": "for the slowest stage: times x microbatches x (work of partitions without network, by the FLOP of its"
    " passes; what communication makes them longer, by seconds on links), and what a step has once",
    "link_time": "for the slowest stage: times x microbatches x seconds of every communication by itself, and those of"
    " a step",
    "link_latency_s": "the sum of link_time, of communications of no bytes",
    "memory": "bytes of a chip of each stage: sum over states of layers x microbatches in flight x bytes / chips that"
    " share them",
}
"""How fields of a score follow from others, in words: carried with them, so that a file explains itself."""
