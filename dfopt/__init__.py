"""dfopt: optimal mappings of workload graphs onto systems of chips, with a proof and an independent judge.

>>> import dfopt as df
>>> df.zoo("systems")[:2]                             # what comes with it: graphs, systems, chips, stacks, ...
['a100-8', 'b200-8']
>>> result = df.optimize("gpt2-small", "sn10-8-ring")  # zoo names, paths of files, or documents
>>> result.status, round(result.utilization, 3)
('optimal_per_level', 0.668)

Six functions do nearly everything; ``help(dfopt.optimize)`` and so on tell the rest:

========================================== ===============================================================
``zoo(kind)``                              names of graphs, systems and parts
``load_graph(name, **parameters)``         a graph of the zoo or a file, such as ``mode="training"``
``load_system(name)``                      a system of the zoo or a file
``optimize(graph, system)``                the fastest mapping, its figures and its proof: a ``Result``
``evaluate(mapping, graph, system)``       every figure of anyone's mapping: a ``Score``
``sweep(study)``                           many of them, in parallel and resumable: ``Runs``, with ``.frame()``
========================================== ===============================================================

A result has ``.step_time_s``, ``.utilization``, ``.gap``, ``.mapping``, ``.score`` and ``.dump("result.json")``;
``verify`` checks its proof, ``dfopt.plot`` draws it. Documents (``Graph``, ``System``, ``Mapping``, ``Plan``,
``Assumptions``, ``Stack``, ``Study``, ``Result``, ``Score``) are read with ``.load(path)``. Errors are under
``DfoptError``: see ``help(dfopt.errors)``. ``dir(dfopt)`` lists every name, the README explains them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from dfopt.api import evaluate as evaluate
    from dfopt.documents.assumptions import Assumptions as Assumptions
    from dfopt.documents.assumptions import profile as profile
    from dfopt.documents.graph import Communication as Communication
    from dfopt.documents.graph import Graph as Graph
    from dfopt.documents.graph import Kernel as Kernel
    from dfopt.documents.graph import Tensor as Tensor
    from dfopt.documents.heat import HeatReport as HeatReport
    from dfopt.documents.mapping import KernelMapping as KernelMapping
    from dfopt.documents.mapping import Mapping as Mapping
    from dfopt.documents.plan import Plan as Plan
    from dfopt.documents.request import Objective as Objective
    from dfopt.documents.request import Request as Request
    from dfopt.documents.result import Result as Result
    from dfopt.documents.score import Score as Score
    from dfopt.documents.stack import Stack as Stack
    from dfopt.documents.study import Study as Study
    from dfopt.documents.system import Chip as Chip
    from dfopt.documents.system import Dram as Dram
    from dfopt.documents.system import NetworkDim as NetworkDim
    from dfopt.documents.system import Sram as Sram
    from dfopt.documents.system import System as System
    from dfopt.documents.zoo import zoo as zoo
    from dfopt.errors import DfoptError as DfoptError
    from dfopt.errors import DocumentError as DocumentError
    from dfopt.errors import GraphError as GraphError
    from dfopt.errors import Infeasible as Infeasible
    from dfopt.errors import Issue as Issue
    from dfopt.errors import NoSolution as NoSolution
    from dfopt.errors import NotInZoo as NotInZoo
    from dfopt.errors import PlanError as PlanError
    from dfopt.errors import SchemaVersionError as SchemaVersionError
    from dfopt.errors import ScoreMismatch as ScoreMismatch
    from dfopt.errors import SolveError as SolveError
    from dfopt.errors import SolverFailure as SolverFailure
    from dfopt.errors import SystemSpecError as SystemSpecError
    from dfopt.errors import UnitError as UnitError
    from dfopt.machines.compose import compose as compose
    from dfopt.machines.compose import load_system as load_system
    from dfopt.machines.fields import with_fields as with_fields
    from dfopt.machines.stacks import load_stack as load_stack
    from dfopt.machines.stacks import with_stack as with_stack
    from dfopt.physics.cost import system_cost as system_cost
    from dfopt.search import Progress as Progress
    from dfopt.search import dump_models as dump_models
    from dfopt.search import optimize as optimize
    from dfopt.search.budgets import Budget as Budget
    from dfopt.search.budgets import optimize_within as optimize_within
    from dfopt.search.heat_aware import heat_answers as heat_answers
    from dfopt.search.verify import verify as verify
    from dfopt.show import plots
    from dfopt.studies.runs import Runs as Runs
    from dfopt.studies.sweep import sweep as sweep
    from dfopt.workloads import load_graph as load_graph
    from dfopt.workloads.backward import backward_of as backward_of

    plot = plots

# Module -> names that it defines. Loaded on first use, so that `dfopt --help` does not wait for numpy and HiGHS.
_HOMES = {
    "api": "evaluate",
    "documents.assumptions": "Assumptions profile",
    "documents.graph": "Communication Graph Kernel Tensor",
    "documents.heat": "HeatReport",
    "documents.mapping": "KernelMapping Mapping",
    "documents.plan": "Plan",
    "documents.request": "Objective Request",
    "documents.result": "Result",
    "documents.score": "Score",
    "documents.stack": "Stack",
    "documents.study": "Study",
    "documents.system": "Chip Dram NetworkDim Sram System",
    "documents.zoo": "zoo",
    "errors": "DfoptError DocumentError GraphError Infeasible Issue NoSolution NotInZoo PlanError SchemaVersionError"
    " ScoreMismatch SolveError SolverFailure SystemSpecError UnitError",
    "machines.compose": "compose load_system",
    "machines.fields": "with_fields",
    "machines.stacks": "load_stack with_stack",
    "physics.cost": "system_cost",
    "search": "Progress dump_models optimize",
    "search.budgets": "Budget optimize_within",
    "search.heat_aware": "heat_answers",
    "search.verify": "verify",
    "studies.runs": "Runs",
    "studies.sweep": "sweep",
    "workloads": "load_graph",
    "workloads.backward": "backward_of",
    "show.plots": "plot",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}

# What `help(dfopt)` prints in full and `import *` brings: dir(dfopt) has all names.
__all__ = ["evaluate", "load_graph", "load_system", "optimize", "sweep", "zoo"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'dfopt' has no attribute {name!r}")
    import importlib

    module = importlib.import_module(f"dfopt.{_HOME[name]}")
    return module if name == "plot" else getattr(module, name)


def __dir__() -> list[str]:
    return [*_HOME, "__version__"]
