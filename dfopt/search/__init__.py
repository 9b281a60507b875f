"""``solve``: over the plans of a system, chain the two problems, keep the best and its proof."""

from dfopt.search.answering import Answer, answer, solve
from dfopt.solving.options import Progress

__all__ = ["Answer", "Progress", "answer", "solve"]
