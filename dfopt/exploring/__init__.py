"""Over designs: boxes of decisions, bounds of everything in a box, and the best design with a proof."""
