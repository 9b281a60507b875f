"""Below the chip: DRAM timing and energy, temperatures of stacked dies, power, leakage, and all of them together."""
