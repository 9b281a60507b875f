"""Configs of Hugging Face models: what a type of model is made of (one module for each sort), read as a recipe."""

from dfopt.frontends.hf.config import read, recipe
from dfopt.frontends.hf.families import FAMILIES
from dfopt.frontends.hf.rows import COSMETIC, FIELDS

__all__ = ["COSMETIC", "FAMILIES", "FIELDS", "read", "recipe"]
