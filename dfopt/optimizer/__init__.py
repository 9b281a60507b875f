"""``optimize``: over the plans of a system, chain the two problems, keep the best and its proof."""

from dfopt.optimizer.one_plan import Progress
from dfopt.optimizer.search import optimize

__all__ = ["Progress", "optimize"]
