"""The step rule: seconds of a step from those of its layers, and what stages hold, send and exchange under a plan."""
