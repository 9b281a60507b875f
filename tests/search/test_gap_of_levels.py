"""A gap is left to fusion: the sharding of each plan is the best of its level, or "optimal per level" would not be."""

from __future__ import annotations

from unittest.mock import patch

import dfopt as df
from dfopt.documents.assumptions import profile
from dfopt.search.verify import verify
from dfopt.sharding.interchip import optimize_interchip


def test_a_sharding_is_optimal_for_its_level_whatever_the_gap() -> None:
    """Found by benchmarks/consistency.py, seed 20261139, request 217: vit-b-16 on 8 TPU v5e with a gap of 1 %."""
    chosen = profile("ideal").with_(sharding_objective="bytes")
    asked = {"phase": "training", "batch": 8, "microbatch": "1", "recompute": "none", "gap": 0.05}
    with patch("dfopt.solving.levels.optimize_interchip", wraps=optimize_interchip) as spy:
        result = df.solve("gpt2-small", "h100-8", assumptions=chosen, sensitivity=False, **asked)
    assert spy.call_count > 1 and {call.kwargs["gap"] for call in spy.call_args_list} == {0.0}
    assert verify(result).ok
