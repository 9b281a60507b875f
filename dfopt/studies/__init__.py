"""Sweeps: a study document, solved cell by cell into a resumable store and a tidy frame.

`dfopt.studies.sweep` has ``sweep`` and ``collect``, `dfopt.studies.runs` what they return. Nothing is imported here:
the processes that solve need little of it.
"""
