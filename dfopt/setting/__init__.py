"""A graph on a system under assumptions: its plans, what a plan's stages hold and run, priced tables, bounds."""
