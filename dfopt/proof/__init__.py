"""Proofs of bounds by other code than that of the search: from documents, physics of single operations and the judge.

The judge says what one block of kernels pays, as a sum over kernels and tensors, and what a step takes from seconds of
layers. What is here takes minima over these, adds up and scans. It states no rule and imports nothing that searches.
"""
