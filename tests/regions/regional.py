"""Answers of classes of plans as regions alone: the other engine is not asked."""

from __future__ import annotations

import os
from typing import Any, NoReturn
from unittest.mock import patch

import dfopt.search as optimizer
from dfopt.documents.result import Result
from dfopt.search.options import SWITCH


def of_regions(*given: Any, **asked: Any) -> Result:
    """The answer to a question that regions cover."""
    with (
        patch.dict(os.environ, {SWITCH: "1"}),
        patch("dfopt.search.jointly.race", _refuses),
        patch("dfopt.search.branching.Search.run", _refuses),
    ):
        return optimizer.solve(*given, **asked)


def _refuses(*given: Any, **asked: Any) -> NoReturn:
    raise AssertionError("the other engine was asked")
