"""dfopt: optimal mappings of workload graphs onto systems, with a proof and an independent judge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from dfopt.documents.assumptions import Assumptions, profile
    from dfopt.documents.graph import Graph, Kernel, Tensor
    from dfopt.documents.mapping import KernelMapping, Mapping
    from dfopt.documents.plan import Plan
    from dfopt.documents.result import Result
    from dfopt.documents.score import Score
    from dfopt.documents.system import Chip, Dram, NetworkDim, Sram, System, load_system
    from dfopt.documents.zoo import zoo
    from dfopt.judge import evaluate
    from dfopt.optimizer import Progress, dump_models, optimize
    from dfopt.workloads import load_graph

# Name -> module that defines it. Loaded on first use, so that `dfopt --help` does not wait for numpy and HiGHS.
_HOME = {
    "Assumptions": "documents.assumptions",
    "Chip": "documents.system",
    "Dram": "documents.system",
    "Graph": "documents.graph",
    "Kernel": "documents.graph",
    "KernelMapping": "documents.mapping",
    "Mapping": "documents.mapping",
    "NetworkDim": "documents.system",
    "Plan": "documents.plan",
    "Progress": "optimizer",
    "Result": "documents.result",
    "Score": "documents.score",
    "Sram": "documents.system",
    "System": "documents.system",
    "Tensor": "documents.graph",
    "dump_models": "optimizer",
    "evaluate": "judge",
    "load_graph": "workloads",
    "load_system": "documents.system",
    "optimize": "optimizer",
    "profile": "documents.assumptions",
    "zoo": "documents.zoo",
}

__all__ = [
    "Assumptions",
    "Chip",
    "Dram",
    "Graph",
    "Kernel",
    "KernelMapping",
    "Mapping",
    "NetworkDim",
    "Plan",
    "Progress",
    "Result",
    "Score",
    "Sram",
    "System",
    "Tensor",
    "dump_models",
    "evaluate",
    "load_graph",
    "load_system",
    "optimize",
    "profile",
    "zoo",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'dfopt' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"dfopt.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
