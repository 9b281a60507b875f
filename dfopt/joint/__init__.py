"""What single layers take by resource while options of kernels are open: their menu, and a dual bound."""
