"""One plan: its kernels priced, fused, and the mapping judged. What a search over many plans asks of each."""
