"""The mapping problem as regions of one branch and bound: plans that read alike, with the options left to kernels."""
