"""``optimize``: over the plans of a system, chain the two problems, keep the best and its proof."""

from dfopt.optimizer.dump import dump_models
from dfopt.optimizer.entry import optimize
from dfopt.optimizer.options import Progress

__all__ = ["Progress", "dump_models", "optimize"]
