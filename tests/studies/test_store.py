"""The store: what a kill leaves behind, what is no store, and that nothing is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfopt.errors import DocumentError
from dfopt.studies.store import SCHEMA, Store, read_records

FIGURES = {"step_time_s": 0.1, "plan": {"tp": 8}}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.jsonl"


def fill(path: Path, count: int) -> list[dict[str, object]]:
    records: list[dict[str, object]] = [
        {"cell": f"{i:016x}", "status": "optimal", "figures": FIGURES, "message": "äöü\n" * (i % 3)}
        for i in range(count)
    ]
    with Store(path) as store:
        for record in records:
            store.append(record)
    return records


def test_what_is_appended_is_read_back(path: Path) -> None:
    records = fill(path, 5)
    assert [{"schema": SCHEMA, **record} for record in records] == list(read_records(path).values())
    assert len(path.read_bytes().splitlines()) == 5


def test_the_later_of_two_records_counts(path: Path) -> None:
    fill(path, 1)
    with Store(path) as store:
        store.append({"cell": f"{0:016x}", "status": "infeasible"})
    assert [record["status"] for record in read_records(path).values()] == ["infeasible"]


@given(data=st.data())
def test_a_cut_at_any_byte_loses_only_the_last_record(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("cut") / "runs.jsonl"
    fill(path, 4)
    whole = path.read_bytes()
    end = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:end])
    kept = whole[:end].count(b"\n")
    assert len(read_records(path)) == kept  # reading changes nothing
    assert path.stat().st_size == end
    with Store(path) as store:
        assert len(store.records) == kept
        tail = whole[:end].rpartition(b"\n")[2]
        assert bool(store.set_aside) == bool(tail)
        for i in range(kept, 4):
            store.append({"cell": f"{i:016x}", "status": "optimal", "figures": FIGURES, "message": "äöü\n" * (i % 3)})
    assert path.read_bytes() == whole
    beside = path.with_name("runs.jsonl.damaged")
    assert (beside.read_bytes() == tail + b"\n") if tail else not beside.exists()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"{", "line 2: found '{', expected a record with schema 'dfopt/run/1'"),
        (b"\x00\xff\n", "line 2: found"),
        (b"[1]", "line 2: found"),
        (b'{"schema": "dfopt/run/2"}', "line 2: found 'dfopt/run/2'"),
        (b'{"schema": "dfopt/run/1", "status": "optimal"}', "line 2: found nothing for 'cell', expected text"),
        (b'{"schema": "dfopt/run/1", "cell": "a", "status": 1}', "line 2: found 1 for 'status', expected text"),
    ],
)
def test_a_broken_line_before_the_last_is_an_error(path: Path, line: bytes, words: str) -> None:
    fill(path, 1)
    with path.open("ab") as file:
        file.write(line.rstrip(b"\n") + b"\n")
    before = path.read_bytes()
    for read in (Store, read_records):
        with pytest.raises(DocumentError) as caught:
            read(path)
        assert words in str(caught.value)
    assert path.read_bytes() == before


def test_two_sweeps_at_once_are_refused(path: Path) -> None:
    pytest.importorskip("fcntl")
    with Store(path), pytest.raises(DocumentError, match="another sweep writes to it"):
        Store(path)
    Store(path).close()  # free again


def test_where_no_store_can_be(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "no" / "runs.jsonl"):
        with pytest.raises(DocumentError, match="cannot be opened"):
            Store(path)
    with pytest.raises(DocumentError, match="cannot be read"):
        read_records(tmp_path / "none.jsonl")


def test_figures_are_kept_to_the_last_digit(path: Path) -> None:
    with Store(path) as store:
        store.append({"cell": "a", "status": "optimal", "figures": {"x": 0.1 + 0.2}})
        with pytest.raises(ValueError, match="JSON"):
            store.append({"cell": "b", "status": "optimal", "figures": {"x": float("nan")}})
    assert read_records(path)["a"]["figures"]["x"] == 0.1 + 0.2
    assert json.loads(path.read_text()) is not None
