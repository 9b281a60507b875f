"""Calculon's applications, systems and executions as graph, system, assumptions and pins."""

from dfopt.frontends.calculon.calculon_case import CalculonCase, load_case, write_case

__all__ = ["CalculonCase", "load_case", "write_case"]
