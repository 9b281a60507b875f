"""``optimize``: over the plans of a system, chain the two problems, keep the best and its proof."""

from dfopt.optimizer.entry import optimize
from dfopt.optimizer.options import Progress

__all__ = ["Progress", "optimize"]
