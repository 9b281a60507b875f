"""The names of the package and where they are: read by type checkers, and by the package itself.

Names of earlier versions are among them: see `dfopt.documents.names`.
"""

from dfopt.api import collective as collective
from dfopt.api import derive as derive
from dfopt.api import heat as heat
from dfopt.api import score as score
from dfopt.commands import check as check
from dfopt.commands import compare as compare
from dfopt.commands import frame as frame
from dfopt.commands import list as list
from dfopt.commands import show as show
from dfopt.documents.assumptions import Assumptions as Assumptions
from dfopt.documents.assumptions import profile as profile
from dfopt.documents.design import Design as Design
from dfopt.documents.exploration import Exploration as Exploration
from dfopt.documents.graph import Communication as Communication
from dfopt.documents.graph import Graph as Graph
from dfopt.documents.graph import Kernel as Kernel
from dfopt.documents.graph import Tensor as Tensor
from dfopt.documents.heat import HeatReport as HeatReport
from dfopt.documents.mapping import KernelMapping as KernelMapping
from dfopt.documents.mapping import Mapping as Mapping
from dfopt.documents.plan import Plan as Plan
from dfopt.documents.question import Question as Question
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
from dfopt.documents.technology import Technology as Technology
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
from dfopt.exploring.explore import explore as explore
from dfopt.library import load_system as load_system
from dfopt.machines.compose import compose as compose
from dfopt.machines.designs import load_design as load_design
from dfopt.machines.fields import with_fields as with_fields
from dfopt.machines.stacks import load_stack as load_stack
from dfopt.machines.stacks import with_stack as with_stack
from dfopt.machines.technologies import load_technology as load_technology
from dfopt.physics.cost import system_cost as system_cost
from dfopt.search import Progress as Progress
from dfopt.search import solve as solve
from dfopt.search.budgets import Budget as Budget
from dfopt.search.dump import dump_models as dump_models
from dfopt.search.within import optimize_within as optimize_within
from dfopt.show import plots as plot  # noqa: F401
from dfopt.studies.runs import Runs as Runs
from dfopt.studies.sweep import sweep as sweep
from dfopt.workloads import load_graph as load_graph
from dfopt.workloads.backward import backward_of as backward_of

optimize = solve
evaluate = score
verify = check
zoo = list
heat_answers = heat

__version__: str
__all__ = ["list", "load_graph", "load_system", "score", "show", "solve", "sweep"]
