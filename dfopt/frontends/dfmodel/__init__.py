"""Cases of DFModel: its setup files as graph, system and assumptions."""

from dfopt.frontends.dfmodel.case import DFModelCase
from dfopt.frontends.dfmodel.convert import convert, load_case, write_case

__all__ = ["DFModelCase", "convert", "load_case", "write_case"]
