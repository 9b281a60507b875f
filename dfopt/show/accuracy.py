"""How far answers usually are from measured runs of their kind: figures of ``dfopt guide accuracy``, written down once.

Rows of ``accuracy.csv`` are of one phase, of dense models or of those with experts, of measured efficiency or of ideal,
and of one chip; ``table`` is the section of that page which has the runs and their sources.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Final

from dfopt.documents.assumptions import CHANGED
from dfopt.documents.evaluation import phase_of
from dfopt.show.omissions import JudgedResult, has_experts

NEVER: Final = "never compared with a measurement"


def efficiency_of(answer: JudgedResult) -> str:
    """Text that says whether kernels have the measured efficiency of their chip, or the ideal one."""
    return "measured" if answer.assumptions.compute_model == "efficiency" else "ideal"


def accuracy_words(answer: JudgedResult) -> str:
    """Sentence on the error of such answers against measurements, with its table; or that there are none."""
    off, over, table = _accuracy(answer)
    return f"{off}, {over} (dfopt guide accuracy: {table})" if table else off


def accuracy_off(answer: JudgedResult) -> str:
    """Text on how far answers for the same chip, phase and efficiency are from measurements: ``31 % too fast``."""
    return _accuracy(answer)[0]


def _accuracy(answer: JudgedResult) -> tuple[str, str, str]:
    """How far, over what, and in which table; or that there was no measurement."""
    kind = [phase_of(answer.graph), str(has_experts(answer.graph)), efficiency_of(answer), answer.system.chip.name]
    profile = answer.assumptions.profile
    compares = profile == "default" or (kind[2] == "measured" and not profile.endswith(CHANGED))
    with Path(__file__).with_name("accuracy.csv").open(encoding="utf-8", newline="") as rows:
        errors = {tuple(row[:4]): row[4:] for row in csv.reader(rows)}
    if not compares or answer.system.stack is not None or tuple(kind) not in errors:
        return NEVER, "", ""
    off, over, table = errors[tuple(kind)]
    return off, over, table
