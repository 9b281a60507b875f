"""Sweeps: a study document, solved cell by cell on this machine into a resumable store and a tidy frame."""

from dfopt.studies.claims import Verdict
from dfopt.studies.runs import Runs
from dfopt.studies.sweep import collect, sweep

__all__ = ["Runs", "Verdict", "collect", "sweep"]
