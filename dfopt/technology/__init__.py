"""Below the chip: what a technology yields, DRAM timing and energy, temperatures of stacked dies, power, leakage."""
