"""Pure functions for the physics of a mapping: no state, SI units (bytes, bytes/s, seconds)."""
