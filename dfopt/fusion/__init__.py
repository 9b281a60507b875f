"""The intra-chip problem: which kernels share a partition of the chip. Blocks priced one way, solved several ways."""
