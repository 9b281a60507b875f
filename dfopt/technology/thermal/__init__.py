"""Temperatures of a die stack: finite volumes over slabs, under a heat transfer coefficient or a spreader and sink."""
