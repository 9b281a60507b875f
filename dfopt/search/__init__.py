"""``optimize``: over the plans of a system, chain the two problems, keep the best and its proof."""

from dfopt.search.dump import dump_models
from dfopt.search.optimization import optimize
from dfopt.search.options import Progress

__all__ = ["Progress", "dump_models", "optimize"]
