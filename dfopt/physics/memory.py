"""What one chip keeps in DRAM: weights, gradients, optimizer state and activations."""

from __future__ import annotations

from dataclasses import dataclass

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.documents.plan import Plan
from dfopt.physics.pipeline import microbatches_in_flight


@dataclass(frozen=True)
class DramUse:
    """Bytes per chip of one stage."""

    weights: float
    gradients: float
    optimizer: float
    saved_activations: float

    @property
    def fixed(self) -> float:
        """What is held whatever the on-chip partitions are."""
        return self.weights + self.gradients + self.optimizer + self.saved_activations


def dram_use(
    graph: Graph, plan: Plan, assumptions: Assumptions, weight_bytes: float, saved_bytes: float, layers: int
) -> DramUse:
    """DRAM held by a chip for the whole step.

    Parameters
    ----------
    graph, plan, assumptions
        ``graph.trains`` decides whether gradients, optimizer state and saved activations exist.
    weight_bytes : float
        Bytes per chip of the forward weights of one layer.
    saved_bytes : float
        Bytes per chip that the forward pass of one layer keeps for its backward pass.
    layers : int
        Layers of the stage.

    Returns
    -------
    DramUse
        Bytes per chip. Under ``gradients: dfmodel`` only weights count, as in the authors' program.
    """
    weights = weight_bytes * layers
    if not graph.trains or assumptions.gradients == "dfmodel":
        return DramUse(weights, 0.0, 0.0, 0.0)
    parameters = weights / graph.word_bytes
    in_flight = microbatches_in_flight(plan, graph.trains)
    return DramUse(
        weights=weights,
        gradients=weights,
        optimizer=parameters * assumptions.optimizer_bytes_per_parameter,
        saved_activations=saved_bytes * layers * in_flight,
    )
