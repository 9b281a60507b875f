"""Calculon's applications, systems and executions as graph, system, assumptions and pins."""

from dfopt.frontends.calculon.convert import ImportedCase, load_case, write_case

__all__ = ["ImportedCase", "load_case", "write_case"]
