"""Arguments of Megatron-LM as a graph, what is fixed of its mapping, and the command that solves it."""

from dfopt.frontends.megatron.convert import Run, load_run, write_run
from dfopt.frontends.megatron.shardings import megatron_shardings

__all__ = ["Run", "load_run", "megatron_shardings", "write_run"]
