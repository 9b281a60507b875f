"""What no mapping beats under a plan, for thousands of plans at a time: least work of kernels, memory, seconds."""

from dfopt.terms.bounds.plan_bounds import PlanBounds
from dfopt.terms.bounds.plan_table import PlanTable

__all__ = ["PlanBounds", "PlanTable"]
