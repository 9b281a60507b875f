"""Mappings that are found before anything is proven: textbook plans and shardings, fused by a shortest path.

A start only gives the search a value to beat: what is proven does not depend on it.
"""

from dfopt.search.starts.proposing import begin

__all__ = ["begin"]
