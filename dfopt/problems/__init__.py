"""The optimisation problems: plans, priced tables, the inter-chip and the intra-chip MILP."""
