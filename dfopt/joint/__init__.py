"""What single layers take by resource, with the options of their kernels open: the menu of options, and a dual bound."""
