"""The inter-chip problem: a sharding scheme and a pipeline stage for every kernel, as one MILP."""
