"""Where answers go: files that cannot be written, full disks, closed streams. An answer is never thrown away."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_tools import GRAPH, SYSTEM, Answer, call, write

from dfopt.documents import files
from dfopt.documents.files import check_writable, replaced, write_text
from dfopt.errors import DocumentError


@pytest.fixture
def solve(tmp_path: Path) -> tuple[str, ...]:
    graph, system = write(tmp_path, "g.yaml", GRAPH), write(tmp_path, "s.yaml", SYSTEM)
    return ("solve", str(graph), str(system), "--no-sensitivity", "-q")


@pytest.mark.parametrize("option, name", [("-o", "r.json"), ("--dump", "m.lp")])
@pytest.mark.parametrize("folder", ["no/such", "/proc"])
def test_a_place_that_takes_no_file_is_told_before_the_work(
    solve: tuple[str, ...], folder: str, option: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not Path("/proc/self").exists() and folder == "/proc":
        pytest.skip("no such folder here")
    monkeypatch.setattr("dfopt.search.answer", lambda *_, **__: pytest.fail("it was solved"))
    answer = call(*solve, option, f"{folder}/{name}")
    assert (answer.code, answer.out) == (2, "")
    assert "cannot be written" in answer.err and "name a file in an existing folder" in answer.err


def test_an_answer_whose_file_fails_after_all_is_printed(
    solve: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "r.json", "what was there")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "replace", full)
    answer = call(*solve, "-o", path, "--force")
    assert answer.code == 3
    assert "\nstep  " in answer.out
    assert "r.json: 1 problem\n  $: cannot be written: No space left on device" in answer.err
    assert path.read_text() == "what was there"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["g.yaml", "r.json", "s.yaml"]


def test_files_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "one\n")
    with contextlib.suppress(RuntimeError), replaced(path) as part:
        part.write_text("half")
        raise RuntimeError
    assert path.read_text() == "one\n"
    link = tmp_path / "link.txt"
    link.symlink_to(path)
    write_text(link, "two\n")
    assert link.is_symlink() and path.read_text() == "two\n"
    assert check_writable(path) == path and path.read_text() == "two\n"
    assert len(list(tmp_path.iterdir())) == 2


def test_devices_and_pipes_are_written_as_they_are(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_text(pipe, "through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    write_text(os.devnull, "gone")
    assert not Path(os.devnull).is_file()


def test_a_folder_and_a_protected_file_take_nothing(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="it is a folder"):
        check_writable(tmp_path)
    path = write(tmp_path, "a.txt", "mine")
    path.chmod(0o400)
    if os.access(path, os.W_OK):
        pytest.skip("this user may write everywhere")
    with pytest.raises(DocumentError, match="Permission denied"):
        write_text(path, "yours")


def shell(words: str) -> Answer:
    script = f"{sys.executable} -m dfopt {words}"
    found = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=120)
    return Answer(found.returncode, found.stdout, found.stderr)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device here")
@pytest.mark.parametrize("words", ["list graphs", "show gpt2-small --json", "--help"])
@pytest.mark.parametrize(
    "where, why", [("> /dev/full", "No space left on device"), (">&-", "Bad file descriptor"), ("<&- >&- 2>&-", "")]
)
def test_no_traceback_where_nothing_can_be_printed(words: str, where: str, why: str) -> None:
    answer = shell(f"{words} {where}")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err == (f"dfopt: the answer cannot be printed: {why}\n" if why else "")


def test_a_result_is_whole_although_it_cannot_be_printed(solve: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    answer = shell(f"{' '.join(solve)} -o {path} >&-")
    assert answer.code == 1
    assert json.loads(path.read_text())["level_gap"] == 0.0
    assert call("check", path).code == 0
