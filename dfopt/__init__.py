"""dfopt: optimal mappings of workload graphs onto systems, with a proof and an independent judge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from dfopt.documents.assumptions import Assumptions, profile
    from dfopt.documents.graph import Communication, Graph, Kernel, Tensor
    from dfopt.documents.heat import HeatReport
    from dfopt.documents.mapping import KernelMapping, Mapping
    from dfopt.documents.plan import Plan
    from dfopt.documents.result import Result
    from dfopt.documents.score import Score
    from dfopt.documents.stack import Stack
    from dfopt.documents.study import Study
    from dfopt.documents.system import Chip, Dram, NetworkDim, Sram, System
    from dfopt.documents.zoo import zoo
    from dfopt.heat.answers import heat_answers
    from dfopt.judge import evaluate
    from dfopt.machines.compose import compose, load_system
    from dfopt.machines.fields import with_fields
    from dfopt.machines.stacks import load_stack, with_stack
    from dfopt.physics.cost import system_cost
    from dfopt.search import Progress, dump_models, optimize
    from dfopt.search.budgets import Budget, optimize_within
    from dfopt.search.verify import verify
    from dfopt.show import plots as plot
    from dfopt.studies.runs import Runs
    from dfopt.studies.sweep import sweep
    from dfopt.workloads import load_graph
    from dfopt.workloads.backward import backward_of

# Name -> module that defines it. Loaded on first use, so that `dfopt --help` does not wait for numpy and HiGHS.
_HOME = {
    "Assumptions": "documents.assumptions",
    "Budget": "search.budgets",
    "Chip": "documents.system",
    "Communication": "documents.graph",
    "Dram": "documents.system",
    "Graph": "documents.graph",
    "HeatReport": "documents.heat",
    "Kernel": "documents.graph",
    "KernelMapping": "documents.mapping",
    "Mapping": "documents.mapping",
    "NetworkDim": "documents.system",
    "Plan": "documents.plan",
    "Progress": "search",
    "Result": "documents.result",
    "Runs": "studies.runs",
    "Score": "documents.score",
    "Sram": "documents.system",
    "Stack": "documents.stack",
    "Study": "documents.study",
    "System": "documents.system",
    "Tensor": "documents.graph",
    "backward_of": "workloads.backward",
    "compose": "machines.compose",
    "dump_models": "search",
    "evaluate": "judge",
    "heat_answers": "heat.answers",
    "load_graph": "workloads",
    "load_stack": "machines.stacks",
    "load_system": "machines.compose",
    "optimize": "search",
    "optimize_within": "search.budgets",
    "plot": "show.plots",
    "profile": "documents.assumptions",
    "sweep": "studies.sweep",
    "system_cost": "physics.cost",
    "verify": "search.verify",
    "with_fields": "machines.fields",
    "with_stack": "machines.stacks",
    "zoo": "documents.zoo",
}

__all__ = [
    "Assumptions",
    "Budget",
    "Chip",
    "Communication",
    "Dram",
    "Graph",
    "HeatReport",
    "Kernel",
    "KernelMapping",
    "Mapping",
    "NetworkDim",
    "Plan",
    "Progress",
    "Result",
    "Runs",
    "Score",
    "Sram",
    "Stack",
    "Study",
    "System",
    "Tensor",
    "backward_of",
    "compose",
    "dump_models",
    "evaluate",
    "heat_answers",
    "load_graph",
    "load_stack",
    "load_system",
    "optimize",
    "optimize_within",
    "plot",
    "profile",
    "sweep",
    "system_cost",
    "verify",
    "with_fields",
    "with_stack",
    "zoo",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'dfopt' has no attribute {name!r}")
    import importlib

    module = importlib.import_module(f"dfopt.{_HOME[name]}")
    return module if name == "plot" else getattr(module, name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
