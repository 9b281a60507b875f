"""The claims of ``benchmarks/joint.py``, a module for each kind of run."""
