"""Heat as a limit of the intra-chip problem: rows of tiles, menus of operating points, pauses."""
