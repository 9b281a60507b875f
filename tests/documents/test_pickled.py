"""Documents in other processes: what is known of them there does not come from here."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from dfopt.documents.modules import Modules
from dfopt.documents.on_axes import OnAxes
from dfopt.documents.plan import Plan

_ASKS = """
import pathlib, pickle, sys
from dfopt.documents.modules import Modules
from dfopt.documents.plan import Plan
known = pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())
assert known == {one: str(one) for one in known}
assert Plan(tp=4, tp_dims=("x",)) in known
assert Plan(mp=2, mp_dims=("x",), modules=Modules(stream="n", mixer="context")) in known
"""


@pytest.mark.parametrize("seed", ["1", "2"])
def test_plans_are_found_again_in_another_process(tmp_path: Path, seed: str) -> None:
    """Words hash differently in every process: nothing that was worked out from their hashes may travel."""
    plans = [Plan(tp=4, tp_dims=("x",)), Plan(mp=2, mp_dims=("x",), modules=Modules(stream="n", mixer="context"))]
    assert all(isinstance(one, OnAxes) and hash(one) and one.shards for one in plans)
    sent = tmp_path / "plans.pickle"
    sent.write_bytes(pickle.dumps({one: str(one) for one in plans}))
    inherited = {**os.environ, "PYTHONHASHSEED": seed}
    subprocess.run([sys.executable, "-c", _ASKS, str(sent)], check=True, env=inherited, timeout=60)
