"""Arguments of Megatron-LM as a graph, what is fixed of its mapping, and the command that solves it."""
