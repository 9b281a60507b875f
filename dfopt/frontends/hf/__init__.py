"""Configs of Hugging Face models: what a type of model is made of (one module for each sort), read as a recipe."""

from dfopt.frontends.hf.config import COSMETIC, FAMILIES, FIELDS, read, recipe, rows_of

__all__ = ["COSMETIC", "FAMILIES", "FIELDS", "read", "recipe", "rows_of"]
