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
    resident: float

    @property
    def fixed(self) -> float:
        """What is held whatever the on-chip partitions are."""
        return self.weights + self.gradients + self.optimizer + self.saved_activations + self.resident

    def __add__(self, other: DramUse) -> DramUse:
        """Both together."""
        return DramUse(
            weights=self.weights + other.weights,
            gradients=self.gradients + other.gradients,
            optimizer=self.optimizer + other.optimizer,
            saved_activations=self.saved_activations + other.saved_activations,
            resident=self.resident + other.resident,
        )


def dram_use(
    graph: Graph,
    plan: Plan,
    assumptions: Assumptions,
    weight_bytes: float,
    saved_bytes: float,
    layers: int,
    resident_bytes: float = 0.0,
    in_flight: float | None = None,
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
    resident_bytes : float
        Bytes of tables and matrices of one layer, over all chips of the stage.
    in_flight : float, optional
        Microbatches whose saved activations are held; those of the first stage if left out.

    Returns
    -------
    DramUse
        Bytes per chip. Under ``gradients: dfmodel`` only weights count, as in the authors' program.
    """
    weights = weight_bytes * layers
    resident = resident_bytes * layers / (plan.shards * plan.copies)
    if not graph.trains or assumptions.gradients == "dfmodel":
        return DramUse(weights, 0.0, 0.0, 0.0, resident)
    parameters = weights / graph.word_bytes
    if in_flight is None:
        in_flight = microbatches_in_flight(plan, graph.trains, assumptions.schedule)
    return DramUse(
        weights=weights,
        gradients=weights,
        optimizer=parameters * assumptions.optimizer_bytes_per_parameter,
        saved_activations=saved_bytes * layers * in_flight,
        resident=resident,
    )


def dram_shortage(use: DramUse, capacity: float, who: str) -> str:
    """What is held, what the chip has and what would help, in one sentence; bytes per chip.

    Examples
    --------
    >>> print(dram_shortage(DramUse(3e9, 1e9, 0.0, 0.0, 0.0), 2e9, "stage 0")[:96])
    stage 0 needs 4 GB of DRAM per chip (weights 3 GB, gradients 1 GB), the chip has 2 GB: short by
    """
    parts = {
        "weights": use.weights,
        "gradients": use.gradients,
        "optimizer state": use.optimizer,
        "saved activations": use.saved_activations,
        "tables and matrices": use.resident,
    }
    listed = ", ".join(f"{name} {size / 1e9:.4g} GB" for name, size in parts.items() if size > 0)
    levers = ["more tensor or pipeline parallelism", "more chips"]
    levers += ["a smaller optimizer_bytes_per_parameter"] if use.optimizer > 0 else []
    levers += ["mode forward instead of training"] if use.gradients > 0 or use.optimizer > 0 else []
    return (
        f"{who} needs {use.fixed / 1e9:.4g} GB of DRAM per chip ({listed}), the chip has {capacity / 1e9:.4g} GB:"
        f" short by {(use.fixed - capacity) / 1e9:.4g} GB; levers: {', '.join(levers)}"
    )
