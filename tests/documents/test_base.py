"""Documents: what loads, what is refused and how it is said, and that a dump comes back equal."""

from __future__ import annotations

import enum
import json
import os
import threading
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError, model_validator

from dfopt.documents import zoo as zoo_module
from dfopt.documents.base import Document, Part, problem
from dfopt.documents.json_schema import schema_json
from dfopt.documents.zoo import find, zoo
from dfopt.errors import DocumentError, GraphError, Issue, NotInZoo, SchemaVersionError, UnitError
from dfopt.units import Bandwidth, Bytes, Ratio, Seconds


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Ring(Part):
    kind: Literal["ring"] = "ring"
    latency: Seconds


class Switch(Part):
    kind: Literal["switch"] = "switch"
    radix: int


class Dram(Part):
    """A memory.

    Attributes
    ----------
    bandwidth : e.g. 1 GB/s
        Rate of one chip in both directions. A system has one.
    """

    bandwidth: Bandwidth = Field(gt=0)
    capacity: Bytes | None = Field(default=None, gt=0)
    efficiency: Annotated[Ratio, Field(le=1)] = 1.0


class Box(Document):
    SCHEMA: ClassVar[str] = "dfopt/box/2"
    name: str = Field(min_length=1)
    count: int = Field(default=1, ge=1)
    flag: bool = False
    weight: float = 0.5
    colour: Colour = Colour.RED
    topology: Literal["ring", "switch", "torus"] = "ring"
    dram: Dram | None = None
    drams: tuple[Dram, ...] = ()
    links: tuple[Annotated[Ring | Switch, Field(discriminator="kind")], ...] = ()
    table: dict[int, float] = Field(default_factory=dict)
    limit: int | Literal["none"] | None = None
    shape: tuple[int, ...] | None = (1,)

    @model_validator(mode="after")
    def _checks(self) -> Self:
        if self.name == "bad":
            raise problem("found the name {bad}, expected a good one", "rename it", "$.name")
        if self.name == "worse":
            raise ValueError("worse is never good")
        if self.name == "cycle":
            raise GraphError("cycle", [Issue("$.kernels[0]", "a cycle", "cut it")])
        return self


class Latent(Document):
    SCHEMA: ClassVar[str] = "dfopt/latent/1"
    latency: Seconds | None = 1e-6


class Early(Document):
    """A validator that runs before must not change what types are taken."""

    SCHEMA: ClassVar[str] = "dfopt/early/1"
    sizes: tuple[int, ...]
    colour: Colour = Colour.RED
    child: Dram | None = None

    @model_validator(mode="before")
    @classmethod
    def _same(cls, data: Any) -> Any:
        return dict(data)


def refused(data: dict[str, Any], kind: type[Exception] = DocumentError) -> dict[str, Issue]:
    with pytest.raises(DocumentError) as caught:
        Box.from_data({"schema": "dfopt/box/2", "name": "x", **data}, "box.yaml")
    assert type(caught.value) is kind, caught.value
    assert caught.value.path == "box.yaml" and caught.value.exit_code == 3
    paths = [issue.where for issue in caught.value.issues]
    assert len(set(paths)) == len(paths)
    return {issue.where: issue for issue in caught.value.issues}


@pytest.mark.parametrize(
    ("data", "where", "message", "remedy"),
    [
        ({"cuont": 3}, "$.cuont", "unknown key", "did you mean 'count'?"),
        ({"schema_": "dfopt/box/2"}, "$.schema_", "unknown key", "did you mean 'schema'?"),
        ({"zzz": 3}, "$.zzz", "unknown key", "known keys: schema, name, count"),
        ({"dram": {"bandwith": "1 GB/s", "bandwidth": "1 GB/s"}}, "$.dram.bandwith", "unknown", "'band"),
        ({"dram": {}}, "$.dram.bandwidth", "missing", "key 'bandwidth': Rate of one chip in both directions"),
        ({"drams": [{"bandwidth": "1 GB/s"}, {}]}, "$.drams[1].bandwidth", "missing", "add the key"),
        ({"name": 3}, "$.name", "found 3, expected text", ""),
        ({"name": None}, "$.name", "found nothing, expected text", ""),
        ({"name": ""}, "$.name", "found '', expected 1 or more characters", ""),
        ({"count": "3"}, "$.count", "found '3', expected a whole number", "without quotes"),
        ({"count": 3.5}, "$.count", "found 3.5, expected a whole number", ""),
        ({"count": 1e23}, "$.count", "found 1e+23, expected a whole number", ""),
        ({"count": True}, "$.count", "found true, expected a whole number", ""),
        ({"count": 0}, "$.count", "found 0, expected a number of 1 or more", ""),
        ({"weight": 10**400}, "$.weight", "found 1000", ""),
        ({"flag": 1}, "$.flag", "found 1, expected true or false", ""),
        ({"flag": "yes"}, "$.flag", "found 'yes', expected true or false", ""),
        ({"weight": "0.5"}, "$.weight", "found '0.5', expected a number", "without quotes"),
        ({"weight": True}, "$.weight", "found true, expected a number", ""),
        ({"weight": float("inf")}, "$.weight", "found inf, expected a finite number", ""),
        ({"colour": "rde"}, "$.colour", "found 'rde', expected 'red' or 'blue'", "did you mean 'red'?"),
        ({"topology": "rnig"}, "$.topology", "found 'rnig', expected 'ring', 'switch' or 'torus'", "'ring'"),
        ({"dram": []}, "$.dram", "found a list of 0, expected a mapping", ""),
        ({"drams": {"a": 1}}, "$.drams", "found a mapping of 1 key, expected a list", ""),
        ({"drams": 5}, "$.drams", "found 5, expected a list", ""),
        ({"links": [{"kind": "rnig"}]}, "$.links[0].kind", "found 'rnig', expected 'ring'", "'ring'"),
        ({"links": [{}]}, "$.links[0].kind", "the key is missing", "'kind'"),
        ({"links": [{"kind": "switch"}]}, "$.links[0].radix", "the key is missing", "'radix'"),
        ({"links": [{"kind": "switch", "radix": "4"}]}, "$.links[0].radix", "found '4'", "quotes"),
        ({"links": [{"kind": "switch", "radix": 4, "radiks": 1}]}, "$.links[0].radiks", "unknown", "'radix'"),
        ({"limit": "some"}, "$.limit", "found 'some', expected a whole number or 'none'", ""),
        ({"table": {"x": 1.0}}, "$.table.x", "found 'x', expected a whole number", ""),
        ({"table": {"1": "a"}}, "$.table.1", "found 'a', expected a number", ""),
        ({"name": "bad"}, "$.name", "found the name {bad}, expected a good one", "rename it"),
        ({"name": "worse"}, "$", "worse is never good", ""),
        ({"dram": {"bandwidth": "0 B/s"}}, "$.dram.bandwidth", "found '0 B/s', expected a number above", ""),
        ({"dram": {"bandwidth": "1 B/s", "efficiency": 2}}, "$.dram.efficiency", "found 2, exp", ""),
        ({"name": 'a' * 500, "count": "x" * 500}, "$.count", "xxx..., expected a whole number", ""),
    ],
)  # fmt: skip
def test_bad_values(data: dict[str, Any], where: str, message: str, remedy: str) -> None:
    issues = refused(data)
    assert list(issues) == [where]
    assert message in issues[where].message and remedy in issues[where].remedy
    assert len(issues[where].message) < 200


@pytest.mark.parametrize(
    ("value", "message", "remedy"),
    [
        (900, "missing unit: found 900, expected e.g. '900 GB/s'", "write its unit"),
        ("900 gb/s", "unknown unit 'gb/s'", "did you mean 'GB/s'"),
        (None, "found nothing, expected a bandwidth", "900 GB/s"),
        (True, "found true or false, expected a bandwidth", "900 GB/s"),
    ],
)
def test_bad_units_are_a_unit_error(value: object, message: str, remedy: str) -> None:
    issue = refused({"dram": {"bandwidth": value}}, UnitError)["$.dram.bandwidth"]
    assert message in issue.message and remedy in issue.remedy


def test_all_issues_at_once_and_as_text() -> None:
    with pytest.raises(DocumentError) as caught:
        Box.from_data({"name": 3, "dram": {"bandwidth": 900, "extra": 1}, "links": [{"kind": "ring"}]}, "box.yaml")
    assert type(caught.value) is DocumentError
    lines = str(caught.value).splitlines()
    assert lines[0] == "box.yaml: 5 problems"
    assert lines[1] == "  $.schema: the key is missing (add the line 'schema: dfopt/box/2')"
    unit = "missing unit: found 900, expected e.g. '900 GB/s' (write its unit, a bandwidth)"
    assert f"  $.dram.bandwidth: {unit}" in lines


@pytest.mark.parametrize(
    ("schema", "remedy"),
    [
        ("dfopt/box/3", "upgrade dfopt"),
        ("dfopt/box/1", "convert the file"),
        ("dfopt/system/1", "this is a system/1 where a box is wanted"),
        ("box", "write 'schema: dfopt/box/2'"),
        (3, "write 'schema: dfopt/box/2'"),
    ],
)
def test_other_schemas(schema: object, remedy: str) -> None:
    issues = refused({"schema": schema, "noise": 1}, SchemaVersionError)
    assert "this dfopt reads 'dfopt/box/2'" in issues["$.schema"].message
    assert issues["$.schema"].remedy.startswith(remedy.replace("system/1", "system"))


def test_a_check_of_the_whole_names_the_file() -> None:
    with pytest.raises(GraphError) as caught:
        Box.from_data({"schema": "dfopt/box/2", "name": "cycle"}, "box.yaml")
    assert caught.value.path == "box.yaml" and caught.value.issues[0].where == "$.kernels[0]"


def test_what_is_taken() -> None:
    box = Box.from_data(
        {"schema": "dfopt/box/2", "name": "x", "count": 1e3, "weight": 2, "colour": "blue",
         "table": {"1": 2.5},
         "drams": [{"bandwidth": "900 GB/s", "efficiency": "90 %"}], "limit": 3.0, "shape": None}
    )  # fmt: skip
    assert (box.count, type(box.count), box.weight, type(box.weight)) == (1000, int, 2.0, float)
    assert box.colour is Colour.BLUE and box.table == {1: 2.5} and box.limit == 3 and box.shape is None
    assert box.drams == (Dram(bandwidth=9e11, efficiency=0.9),)
    early = {"schema": "dfopt/early/1", "sizes": [1, 2e0], "colour": "red", "child": {"bandwidth": "1 B/s"}}
    assert Early.from_data(early).sizes == (1, 2)
    with pytest.raises(UnitError):
        Early.from_data({**early, "child": {"bandwidth": 1}})


def test_python_construction() -> None:
    box = Box(name="x", count=np.int64(4), dram=Dram(bandwidth=9e11))  # type: ignore[arg-type]
    assert box.schema_ == "dfopt/box/2" and box.count == 4 and type(box.count) is int
    assert box == Box(schema="dfopt/box/2", name="x", count=4, dram=Dram(bandwidth="900 GB/s"))  # type: ignore
    with pytest.raises(ValidationError):
        box.name = "y"
    for wrong in ({"count": "3"}, {"count": True}, {"schema": "dfopt/box/1"}, {"nmae": 1}, {"weight": float("nan")}):
        with pytest.raises(ValidationError):
            Box(**{"name": "x", **wrong})  # type: ignore[arg-type]


def test_dumped_data() -> None:
    data = Box(name="x", dram=Dram(bandwidth=9e11), shape=None).to_data()
    assert list(data)[:2] == ["schema", "name"]
    assert data["dram"] == {"bandwidth": "900 GB/s", "efficiency": 1.0}
    assert "limit" not in data and data["shape"] is None  # None is not its default: it says something
    assert json.loads(json.dumps(data)) == data
    assert "schema" not in Box(name="x").to_data()["drams"]


sizes = st.floats(1e-300, 1e300)
drams = st.builds(Dram, bandwidth=sizes, capacity=st.none() | sizes, efficiency=st.floats(0, 1))
links = st.builds(Ring, latency=st.floats(0, 1)) | st.builds(Switch, radix=st.integers())
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
boxes = st.builds(
    Box,
    name=names.filter(lambda name: name not in ("bad", "worse", "cycle")),
    count=st.integers(1, 2**80),
    weight=st.floats(allow_nan=False, allow_infinity=False),
    colour=st.sampled_from(Colour),
    dram=st.none() | drams,
    drams=st.lists(drams, max_size=3).map(tuple),
    links=st.lists(links, max_size=3).map(tuple),
    table=st.dictionaries(st.integers(), st.floats(allow_nan=False, allow_infinity=False), max_size=3),
    limit=st.none() | st.just("none") | st.integers(),
    shape=st.none() | st.lists(st.integers(), max_size=3).map(tuple),
)


@given(boxes, st.sampled_from([".yaml", ".json", ".yml"]))
def test_a_dump_loads_back_equal(tmp_path_factory: pytest.TempPathFactory, box: Box, suffix: str) -> None:
    path = tmp_path_factory.getbasetemp() / f"box{suffix}"
    box.dump(path)
    back = Box.load(path)
    assert back == box and back.digest() == box.digest() and back.to_data() == box.to_data()


def test_the_digest_knows_content_only(tmp_path: Path) -> None:
    one, two = tmp_path / "1.yaml", tmp_path / "2.json"
    one.write_text("schema: dfopt/box/2\nname: x\nweight: 1\ndram: {bandwidth: 1 TB/s}")
    two.write_text('{"dram": {"bandwidth": "1000 GB/s"}, "weight": 1.0, "name": "x", "schema": "dfopt/box/2"}')
    assert Box.load(one).digest() == Box.load(two).digest() == Box.load(str(one)).digest()
    assert Box.load(one).digest() != Box(name="y").digest()
    assert len(Box(name="y").digest()) == 16


def test_load_passes_on_what_the_loader_finds(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("schema: dfopt/box/2\nname: x\nname: y")
    with pytest.raises(DocumentError) as caught:
        Box.load(path)
    assert caught.value.path == str(path) and "duplicate key" in caught.value.issues[0].message
    with pytest.raises(DocumentError, match="expected a mapping"):
        Box.from_data([])  # type: ignore[arg-type]


def test_dump_to_odd_places(tmp_path: Path) -> None:
    box = Box(name="x")
    for odd in (tmp_path / "a.txt", tmp_path / "a", tmp_path / "none" / "a.yaml", "/dev/null"):
        with pytest.raises(DocumentError):
            box.dump(odd)
    (tmp_path / "d.yaml").mkdir()
    with pytest.raises(DocumentError):
        box.dump(tmp_path / "d.yaml")
    assert os.listdir(tmp_path) == ["d.yaml"]


def test_writers_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    written = [Box(name=f"{i}" * 5000) for i in range(8)]
    threads = [threading.Thread(target=box.dump, args=(path,)) for box in written]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Box.load(path) in written and os.listdir(tmp_path) == ["a.json"]


def test_json_schema() -> None:
    schema = schema_json(Box)
    assert schema["$id"] == "dfopt/box/2" and schema["required"] == ["schema", "name"]
    assert schema["properties"]["schema"]["const"] == "dfopt/box/2"
    dram = schema["$defs"]["Dram"]
    assert schema_json(Latent)["properties"]["latency"]["default"] == "1 us"
    assert dram["properties"]["bandwidth"]["type"] == "string" and dram["additionalProperties"] is False
    json.dumps(schema)


@pytest.fixture
def small_zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "dfopt").mkdir()
    (tmp_path / "graphs").mkdir()
    for name in ("gpt3-175b", "gpt3-1.3b", "dlrm"):
        (tmp_path / "graphs" / f"{name}.yaml").touch()
    (tmp_path / "graphs" / "README.md").touch()
    monkeypatch.setattr(zoo_module, "_PACKAGE", tmp_path / "dfopt")
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    return tmp_path


def test_the_zoo(small_zoo: Path) -> None:
    assert zoo("graphs") == ["dlrm", "gpt3-1.3b", "gpt3-175b"] and zoo("systems") == []
    assert find("graphs", "gpt3-1.3b") == small_zoo / "graphs" / "gpt3-1.3b.yaml"
    Path("dlrm").mkdir()  # a folder of that name does not hide the zoo
    assert find("graphs", "dlrm") == small_zoo / "graphs" / "dlrm.yaml"
    Path("gpt3-175b").touch()  # nor does a file, which ./ names
    assert find("graphs", "gpt3-175b") == small_zoo / "graphs" / "gpt3-175b.yaml"
    assert find("graphs", "./gpt3-175b") == Path("gpt3-175b")
    shipped = small_zoo / "dfopt" / "_zoo" / "graphs"
    shipped.mkdir(parents=True)
    (shipped / "only.yaml").touch()
    assert zoo("graphs") == ["only"] and find("graphs", "only") == shipped / "only.yaml"


def test_not_in_the_zoo(small_zoo: Path) -> None:
    for name, close in (("gpt3-175", "gpt3-175b"), ("GPT3-1.3B", "gpt3-1.3b"), ("gpt3-2.7b", "gpt3-1.3b")):
        with pytest.raises(NotInZoo) as caught:
            find("graphs", name)
        assert close in caught.value.matches and close in str(caught.value)
        assert "`dfopt list graphs`" in str(caught.value)
    with pytest.raises(NotInZoo) as caught:
        find("systems", "zzz")
    assert caught.value.matches == () and "`dfopt list systems`" in str(caught.value)


@pytest.mark.parametrize("path", ["none.yaml", "none.json", "./none", "../graphs/nope", Path("none")])
def test_a_path_that_is_no_file(small_zoo: Path, path: str | Path) -> None:
    with pytest.raises(DocumentError, match="no such file") as caught:
        find("graphs", path)
    assert type(caught.value) is DocumentError and caught.value.issues[0].remedy


def test_a_path_that_is_a_directory(small_zoo: Path) -> None:
    with pytest.raises(DocumentError, match="directory"):
        find("graphs", "..")
