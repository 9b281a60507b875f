"""Systems in other sizes: the outermost dim first, rings only as they are sold, and nothing silent."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from dfopt.cli import app
from dfopt.documents.system import System
from dfopt.documents.zoo import families, zoo
from dfopt.errors import DfoptError, DocumentError, NotInZoo, SystemSpecError
from dfopt.library import load_any, load_system
from dfopt.machines.sizes import sized


def dims(system: System) -> list[tuple[str, int]]:
    return [(dim.topology, dim.size) for dim in system.network]


@pytest.mark.parametrize(
    "name, network",
    [
        ("h100-256:64", [("switch", 8), ("switch", 8)]),
        ("h100-256:4096", [("switch", 8), ("switch", 512)]),
        ("h100-256:8", [("switch", 8)]),
        ("h100:4", [("switch", 4)]),
        ("h100-8:4", [("switch", 4)]),
        ("h100-8:3", [("switch", 3)]),
        ("h100-8:1", []),
        ("h100-8:24", [("switch", 8), ("switch", 3)]),
        ("gaudi2:16", [("fully_connected", 8), ("switch", 2)]),
        ("gb200:144", [("switch", 72), ("switch", 2)]),
        ("tpu-v5e:8", [("line", 2), ("line", 4)]),
        ("tpu-v5e:128", [("line", 8), ("ring", 16)]),
        ("tpu-v6e:256", [("ring", 16), ("ring", 16)]),
        ("tpu-v4:4", [("line", 2), ("line", 2)]),
        ("tpu-v5p:64", [("ring", 4), ("ring", 4), ("ring", 4)]),
        ("tpu-v5p:256", [("ring", 4), ("ring", 8), ("ring", 8)]),
        ("tpu-v7x:1", []),
        ("sn10-8-torus:8", [("ring", 4), ("ring", 2)]),
        ("h100-1024-dgx-1-hbm-nvlink:64", [("ring", 8), ("switch", 8)]),
    ],
)
def test_a_name_says_its_size(name: str, network: list[tuple[str, int]]) -> None:
    system = load_system(name)
    assert dims(system) == network
    assert system.chips == int(name.rpartition(":")[2]) == load_any(name).chips  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["h100-256", "h200-32", "tpu-v5e-256", "gb200-nvl72"])
def test_a_system_in_its_own_size_is_itself(name: str) -> None:
    assert load_system(f"{name}:{load_system(name).chips}") == load_system(name)


def test_one_node_becomes_several_as_the_system_of_several_nodes() -> None:
    several, grown = load_system("h100-256:64"), load_system("h100-8:64")
    assert [dim.model_copy(update={"name": "d"}) for dim in several.network[1:]] == [
        dim.model_copy(update={"name": "d"}) for dim in grown.network[1:]
    ]
    assert (grown.name, grown.description) == (
        "h100-8:64", "8 x 8 NVIDIA H100 80GB SXM: h100-8 in another size"
    )  # fmt: skip


@pytest.mark.parametrize(
    "chips, nodes, network",
    [(None, 4, [8, 4]), (16, 4, [4, 4]), (None, 1, [8]), (12, 2, [6, 2]), (4, 1, [4]), (4, 4, [4])],
)
def test_nodes(chips: int | None, nodes: int, network: list[int]) -> None:
    for name in ("h100-256", "h100-8"):
        assert [dim.size for dim in load_system(name, chips=chips, nodes=nodes).network] == network


@pytest.mark.parametrize(
    "name, fits",
    [
        ("h100-256:12", "found 12 chips, expected 1 to 8, or a multiple of 8 (give"),
        ("mi250x-8:16", "found 16 chips, expected 1 to 8 (give"),
        ("h100-1024-dgx-2-hbm-nvlink:2048", "expected 1 to 8, or a multiple of 8 up to 1024 (give"),
        ("sn10-8-torus:4", "found 4 chips, expected 8 (give another number, or change the dims by hand)"),
        ("tpu-v5e:12", "found 12 chips, expected 1, 4, 8, 16, 32, 64, 128, 256 (give"),
        ("tpu-v5p:1000", "expected 896, 960, 1024, 1088, ... (96 sizes, up to 8960) (give"),
        ("wse-3:2", "found 2 chips, expected 1 (give"),
        ("h100-8:0", "found 0 chips"),
    ],
)
def test_sizes_that_cannot_be_had_are_refused_with_those_that_can(name: str, fits: str) -> None:
    with pytest.raises(SystemSpecError) as error:
        load_system(name)
    assert fits in str(error.value)


def test_every_size_that_is_offered_is_made() -> None:
    for name in zoo("systems"):
        system = load_system(name)
        for slices in system.slices or ():
            for shape in slices.sizes:
                made = sized(system, math.prod(shape))
                assert made.chips == math.prod(shape) and (made == system or made.slices is None)
        assert sized(system, system.chips) == system


def test_families_are_systems_of_the_zoo() -> None:
    for family, system in families().items():
        assert family not in zoo("systems") and family.partition("-")[0] in system
        assert sized(load_system(system), load_system(system).chips).chips == load_system(f"{system}").chips


def test_fields_beside_a_size() -> None:
    """A field is set in the system of that size; where it is a dim's size, the outermost dim makes up the rest."""
    slower = {"network.cluster.link_bandwidth": "25 GB/s"}
    assert load_system("h100-8:64", slower).network[1].link_bandwidth == 25e9
    quads = load_system("h100:64", {"network.node.size": 4})
    assert [dim.size for dim in quads.network] == [4, 16]
    assert [dim.size for dim in load_system("h100-8", {"network.nvlink.size": 4}, nodes=4).network] == [4, 4]
    with pytest.raises(DocumentError, match=r"found 64 chips beside network.cluster.size, which make another number"):
        load_system("h100-256", {"network.cluster.size": 16}, chips=64)


def test_names_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(NotInZoo, match="h100-265"):
        load_system("h100-265:64")
    with pytest.raises(DfoptError, match="h100:N is h100-256 with N chips"):
        load_system("h100")
    with pytest.raises(DocumentError, match="found a size beside 8 chips"):
        load_system("h100:64", chips=8)
    load_system("h100-8").dump(tmp_path / "mine.yaml")
    assert load_system(f"{tmp_path / 'mine.yaml'}:16").chips == 16


def test_a_slice_has_a_size_for_each_dim() -> None:
    data = load_system("tpu-v5e-256").to_data()
    for topology, sizes in (["line"], [[4]]), (["line", "line"], [[4]]):
        data["slices"] = [{"topology": topology, "sizes": sizes}]
        with pytest.raises(SystemSpecError, match=r"\$.slices\[0\]: expected a wiring and a size for each of"):
            System.from_data(data, "s")


def test_every_door_takes_them(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from dfopt.documents.study import Study
    from dfopt.studies.systems import machines

    shown = CliRunner().invoke(app, ["show", "h100:16"])
    assert shown.exit_code == 0 and "16 x NVIDIA H100" in shown.stdout
    study = Study.from_data(
        {
            "schema": "dfopt/study/1",
            "name": "s",
            "graphs": [{"graph": "gpt2-small"}],
            "systems": [{"system": "h100:16"}, {"system": "h100-8:2"}],
        },
        "s",
    )
    assert [one.system.chips for one in machines(study.systems, tmp_path, "s")] == [16, 2]
