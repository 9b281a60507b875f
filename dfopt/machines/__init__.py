"""Machines from their parts: named network topologies, and systems composed of catalogued chips, memories and links."""
