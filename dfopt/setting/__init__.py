"""A graph on a system under assumptions, and the plans that it may have; answers about plans are shared."""
