"""Assumptions are of two kinds: conventions choose entries of the table of charges, space rules choose what is listed.

A convention is read where prices are made: in `terms`, in the judge, and in the physics of single operations that both
call. A space rule is read where the space is listed: the files are named here. What is printed or saved reads either.

A field counts wherever its name is read as an attribute: a copy under the same name counts, too. Objects that have
such names of their own are listed in `OTHERS`.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from dfopt.documents.assumptions import Assumptions

PACKAGE = Path(__file__).resolve().parents[1] / "dfopt"

PRICES = ("terms", "judge", "physics")
PRINTED = ("documents", "show", "exports", "cli", "studies", "api", "frontends", "machines", "technology")
"""Rooms that save, load and print assumptions."""

CONVENTIONS = {
    "overlap", "compute_model", "compute_utilization", "sharding_rules", "masked_scores", "collective_model",
    "all_reduce_passes", "all_to_all_messages", "all_to_all_dims", "weights_from_dram", "layer_boundary", "fanout",
    "skew_buffers", "weight_tiling", "token_blocks", "gradients", "gradient_traffic", "gradient_bandwidth",
    "backward_gathers", "collective_work", "operand_traffic", "optimizer_step", "kernel_overhead", "step_overhead",
    "point_to_point", "point_to_point_parts", "point_to_point_overlap", "optimizer_bytes_per_parameter",
    "training_memory", "layers_exchanged", "memory_reserve", "exchange_buffers",
}  # fmt: skip
FOLLOWS = {"blocks_tokens", "gradient_passes", "by_layer", "by_tiles", "hides_hops_in"}
"""Properties of assumptions that follow from conventions alone."""

SPACE: dict[str, set[str]] = {
    "execution": {"search/claims", "search/space", "sharding/tables"},
    "sharding_objective": {
        "exploring/solves", "regions/space", "search/assembling", "search/claims", "search/dump", "search/heat_aware",
        "search/optimization", "search/unlisted", "search/within", "setting/placements",
        "setting/schedules", "sharding/interchip",
    },
    "stage_time": {"sharding/interchip"},
    "sequence_parallelism": {"calibration/steps", "search/starts/textbook", "setting/plans"},
    "splits_tokens": {"setting/orders", "sharding/tables"},
    "empty_partitions": {"search/assembling", "solving/fusing", "search/space", "setting/schedules"},
    "forward_backward": {
        "formulation/places", "fusion/assignment", "fusion/generation", "fusion/intrachip", "fusion/lattice",
        "fusion/moves", "fusion/one_block", "fusion/partitioning", "fusion/pieces", "fusion/shortfalls",
        "heat/blocks", "regions/lattices", "solving/priced",
        "search/dump", "solving/fusing", "solving/passes", "search/space", "search/verify",
    },
    "gradient_overlap": {"search/assembling"},
    "parameter_overlap": set(),
    "tensor_overlap": {"calibration/steps"},
    "network_dims": {"setting/plans", "setting/zero"},
    "module_schemes": {"setting/plans"},
    "schedule": {"setting/plans", "setting/saved"},
    "bubble": {"setting/plans"},
    "offload": {"setting/placements"},
    "tile_rows": {"setting/plans"},
}  # fmt: skip
"""Files that read each, but for those that price (see `PRICES`); the first two also say how a question is searched."""

OTHERS = {"request", "asked", "plan", "chip", "row", "self"}
"""Last words of objects that have fields of the same names and are no assumptions: what is asked, a plan, a chip."""


@cache
def read() -> dict[str, dict[str, list[str]]]:
    """By field the files that read it, as paths below the package, with the objects that they read it of."""
    names, found = {*CONVENTIONS, *FOLLOWS, *SPACE}, dict[str, dict[str, list[str]]]()
    for path in sorted(PACKAGE.rglob("*.py")):
        place = str(path.relative_to(PACKAGE).with_suffix(""))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in names and isinstance(node.ctx, ast.Load):
                owner = ast.unparse(node.value)
                if owner.split(".")[-1] not in OTHERS:
                    found.setdefault(node.attr, {}).setdefault(place, []).append(f"{owner}:{node.lineno}")
    return found


def room_of(path: str) -> str:
    return path.split("/")[0]


def outside(field: str) -> set[str]:
    """Files that read a field and neither price nor print."""
    places = {path for path in read().get(field, ()) if room_of(path) not in (*PRICES, *PRINTED)}
    return places


def test_every_assumption_is_of_one_kind() -> None:
    names = set(Assumptions.model_fields) - {"schema_", "profile"}
    assert not CONVENTIONS & SPACE.keys()
    assert CONVENTIONS | SPACE.keys() == names | {"splits_tokens"}


def test_conventions_are_read_where_prices_are_made() -> None:
    assert {field: found for field in sorted(CONVENTIONS | FOLLOWS) if (found := outside(field))} == {}


@pytest.mark.parametrize("field", sorted(SPACE))
def test_space_rules_are_read_where_the_space_is_listed(field: str) -> None:
    assert outside(field) == SPACE[field]


def test_a_read_is_seen() -> None:
    assert "solving/fusing" in read()["empty_partitions"] and "terms/chip" in read()["weight_tiling"]
