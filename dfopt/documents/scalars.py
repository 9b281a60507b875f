"""Unquoted scalars by the core schema of YAML 1.2, less what is easily misread."""

from __future__ import annotations

import math
import re
from typing import Any, Final

from dfopt.errors import Issue

NO_LIMIT: Final = "leave the key out if there is no limit"

_INT = re.compile(r"[-+]?[0-9]+")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_WORDS: Final = {"": None, "~": None, "null": None, "Null": None, "NULL": None, "true": True, "True": True,
                 "TRUE": True, "false": False, "False": False, "FALSE": False}  # fmt: skip


def resolve(text: str) -> Any:
    """Value of an unquoted YAML 1.2 scalar; spellings that are easily misread are an issue."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    if _LEADING_ZERO.fullmatch(text):
        return Issue("$", f"found {text[:40]}: a leading zero may mean octal", "drop the zero, or quote it")
    if _NOT_FINITE.fullmatch(text):
        return Issue("$", f"found {text}, expected a finite number", NO_LIMIT)
    if _INT.fullmatch(text) or _BASED.fullmatch(text):
        return int(text, 0) if len(text) <= 400 else Issue("$", "found over 400 digits", "shorten the number")
    if _FLOAT.fullmatch(text):
        large = Issue("$", f"found {text[:40]}, too large a number", "check the exponent")
        return float(text) if math.isfinite(float(text)) else large
    return text


def parse_scalar(text: str) -> Any:
    """Value of text as unquoted YAML; ambiguous spellings stay text."""
    value = resolve(text) if text else text
    return text if isinstance(value, Issue) else value
