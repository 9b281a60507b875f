"""The store: what a kill leaves behind, what is no store, and that nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfopt.documents.store import SCHEMA, Store, line_of, read_records, write_new
from dfopt.errors import DocumentError

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
    "line",
    [
        b"{",
        b"\x00\xff",
        b"",
        b"[1]",
        b'{"schema":"dfopt/run/1","status":"optimal"}',
        b'{"schema":"dfopt/run/1","cell":"a","status":1}',
        b'{"schema":"dfopt/run/1","cell":"a","status":"optimal","crc32":"00000000"}',
        b'{"schema":"dfopt/run/1","cell":"a","status":"optimal","crc32":"zz"}',
        b'{"schema":"dfopt/run/1","cell":"a","status":"optimal","brc32":"00000000"}',
        b'{"cell":"a","status":"optimal"}',
    ],
)
def test_a_broken_line_in_the_middle_is_set_aside(path: Path, line: bytes) -> None:
    fill(path, 3)
    first, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + line + b"\n" + b"".join(rest))
    before = path.read_bytes()
    assert len(read_records(path)) == 3 and path.read_bytes() == before  # reading changes nothing
    with Store(path) as store:
        assert len(store.records) == 3
        assert f"1 line of {path} had no end or was damaged" in store.set_aside
        store.append({"cell": "last", "status": "infeasible"})
        with pytest.raises(DocumentError, match="another run writes to it"):
            Store(path)  # the file that took its place is locked too
    assert path.read_bytes().startswith(first + b"".join(rest)) and len(read_records(path)) == 4
    assert path.with_name("runs.jsonl.damaged").read_bytes() == line + b"\n"
    names = sorted(one.name for one in path.parent.iterdir())
    assert names == ["runs.jsonl", "runs.jsonl.damaged", "runs.jsonl.lock"]


@given(data=st.data())
def test_a_flipped_bit_anywhere_is_noticed(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("flip") / "runs.jsonl"
    records = {str(record["cell"]): {"schema": SCHEMA, **record} for record in fill(path, 4)}
    whole = bytearray(path.read_bytes())
    spot, bit = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 7))
    whole[spot] ^= 1 << bit
    path.write_bytes(whole)
    with Store(path) as store:
        assert len(store.records) in (2, 3, 4)  # two if two lines became one; four if it is still a line of the same
        assert all(records[key] == record for key, record in store.records.items())
        for key, record in records.items():
            if key not in store.records:
                store.append(record)
    assert read_records(path) == records


LINE = line_of({"cell": "a", "status": "optimal"})


@pytest.mark.parametrize(
    "data",
    [
        b"schema: dfopt/study/1\nname: mine\n",
        b"notes",
        b'{"a": 1}\n',
        b"[1]\n[2]\n",
        b"# notes\n\ntext\n",
        b"\n",
        b"\n\n",
        b"\0" * 99,
        b"\0\n" + LINE,
        b"# what a store has:\n\n" + LINE,
        b" " + LINE,
        b"{\n",
        b"[" * 99_999,
        LINE.replace(b"run", b"rim") * 2,
    ],
)
def test_what_is_no_store_is_left_alone(path: Path, data: bytes) -> None:
    """Only its start says that a file is a store: text may have empty lines, and lines that it quotes from stores."""
    path.write_bytes(data)
    for read in (Store, read_records):
        with pytest.raises(DocumentError, match=r"line 1: found .* expected a record "):
            read(path)
    assert path.read_bytes() == data and [*path.parent.iterdir()] == [path]


@pytest.mark.parametrize("size", [0, 1, 22, 23, 24, 40, len(LINE) - 1, len(LINE)])
def test_an_empty_file_or_a_cut_record_is_a_store(path: Path, size: int) -> None:
    path.write_bytes(LINE[:size])
    with Store(path) as store:
        store.append({"cell": "b", "status": "optimal"})
    assert [*read_records(path)] == ["a", "b"][size < len(LINE) :]


def test_files_beside_a_store_that_are_not_its_own(path: Path) -> None:
    lock, damaged = path.with_name("runs.jsonl.lock"), path.with_name("runs.jsonl.damaged")
    lock.write_text("versions\n")
    with pytest.raises(DocumentError, match="there is a file of that name which is no lock"):
        Store(path)
    assert lock.read_text() == "versions\n"
    lock.unlink()
    damaged.write_text("a person's\n")
    path.write_bytes(LINE + LINE[:30])
    with Store(path) as store:
        assert f"{damaged}1" in store.set_aside
    assert damaged.read_text() == "a person's\n" and path.with_name("runs.jsonl.damaged1").exists()


def test_a_full_disk_loses_nothing_that_was_counted(path: Path, tmp_path: Path) -> None:
    """A limit on the size of files does what a full disk does: a part of the last line is taken, or none."""
    words = (
        "import resource, signal, sys; from dfopt.documents.store import Store, write_new\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500)); store = Store(sys.argv[1])\n"
        "try:\n    for i in range(99): store.append({'cell': str(i), 'status': 'optimal'})\n"
        "except Exception as error: print(error)\n"
        "try: write_new(sys.argv[1] + '.all', [{'cell': 'x' * 600, 'status': 'optimal'}])\n"
        "except Exception as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", words, str(path)], capture_output=True, text=True, check=True)
    assert "make room; the sweep goes on where it stopped" in done.stdout and "cannot be written" in done.stdout
    records = read_records(path)
    assert [*records] == [str(i) for i in range(len(records))] and len(records) > 3
    with Store(path) as store:
        assert not store.set_aside and len(store.records) == len(records)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["runs.jsonl", "runs.jsonl.lock"]


def test_a_device_is_no_store() -> None:
    with pytest.raises(DocumentError, match="it is a folder, a device or a pipe"):
        Store("/dev/full")
    assert not Path("/dev/full.lock").exists()


def test_lines_of_a_newer_version_are_not_ours_to_move(path: Path) -> None:
    fill(path, 1)
    with path.open("a") as file:
        file.write('{"schema": "dfopt/run/2"}\n')
    before = path.read_bytes()
    for read in (Store, read_records):
        with pytest.raises(DocumentError, match="line 2: found 'dfopt/run/2', expected a record with schema"):
            read(path)
    assert path.read_bytes() == before


def test_several_stores_are_read_as_one(tmp_path: Path) -> None:
    one, two, both = (tmp_path / name for name in ("one", "two", "both"))
    with Store(one) as store:
        store.append({"cell": "a", "status": "optimal", "figures": {"x": 1}}, {"cell": "b", "status": "failed"})
    with Store(two) as store:
        store.append({"cell": "a", "status": "failed"}, {"cell": "b", "status": "infeasible"})
        store.append({"cell": "c", "status": "optimal", "figures": {"x": 2}})
    found = read_records(one, two)
    assert [found[key]["status"] for key in "abc"] == ["optimal", "infeasible", "optimal"]
    write_new(both, found.values())
    assert read_records(both) == found
    with pytest.raises(DocumentError, match="the file exists"):
        write_new(both, [])


def test_the_lock_of_a_killed_sweep_is_free_again(path: Path) -> None:
    words = (
        "import sys, time; from dfopt.documents.store import Store; one = Store(sys.argv[1]); print(); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-uc", words, str(path)], stdout=subprocess.PIPE)
    assert holder.stdout is not None and holder.stdout.readline()
    with pytest.raises(DocumentError, match="another run writes to it"):
        Store(path)
    holder.kill()
    holder.communicate()
    Store(path).close()


def test_where_no_store_can_be(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "no" / "runs.jsonl"):
        with pytest.raises(DocumentError, match="cannot be opened"):
            Store(path)
    assert not list(tmp_path.parent.glob(f"{tmp_path.name}*.lock"))
    with pytest.raises(DocumentError, match="cannot be read"):
        read_records(tmp_path / "none.jsonl")


def test_figures_are_kept_to_the_last_digit(path: Path) -> None:
    with Store(path) as store:
        store.append({"cell": "a", "status": "optimal", "figures": {"x": 0.1 + 0.2}})
        with pytest.raises(ValueError, match="JSON"):
            store.append({"cell": "b", "status": "optimal", "figures": {"x": float("nan")}})
    assert read_records(path)["a"]["figures"]["x"] == 0.1 + 0.2
    assert json.loads(path.read_text()) is not None
