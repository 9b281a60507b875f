"""The strict loader: each kind of bad file is refused in plain words, and good data comes back equal."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dfopt.documents import files
from dfopt.documents.strict_yaml import dump_yaml, load_strict
from dfopt.errors import DocumentError, Issue


def refused(source: str | Path) -> tuple[Issue, ...]:
    with pytest.raises(DocumentError) as caught:
        load_strict(source)
    assert type(caught.value) is DocumentError
    assert all(issue.remedy and issue.where.startswith("$") for issue in caught.value.issues)
    return caught.value.issues


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e12", 1e12), ("1E+3", 1e3), (".5", 0.5), ("5.", 5.0), ("-1.5e-3", -1.5e-3), ("12", 12), ("-7", -7),
        ("0", 0), ("0x1F", 31), ("0o17", 15), ("on", "on"), ("off", "off"), ("yes", "yes"), ("no", "no"),
        ("1:30", "1:30"), ("2024-01-01", "2024-01-01"), ("1_000", "1_000"), ("true", True), ("False", False),
        ("null", None), ("~", None), ("", None), ("'1'", "1"), ('"true"', "true"), ("900 GB/s", "900 GB/s"),
        ("=", "="), ("0b11", "0b11"), ("1.2.3", "1.2.3"), ("+", "+"), (".", "."),
    ],
)  # fmt: skip
def test_scalars_of_yaml_1_2(text: str, value: object) -> None:
    found = load_strict(f"a: {text}")["a"]
    assert found == value and type(found) is type(value)


def test_keys_are_always_text() -> None:
    assert load_strict("1: a\non: b\n010: c\n~: d\n'': e") == {"1": "a", "on": "b", "010": "c", "~": "d", "": "e"}


@pytest.mark.parametrize(
    ("text", "where", "says"),
    [
        ("a: 1\nb: 2\na: 3", "$.a", "line 3: duplicate key 'a', first on line 1"),
        ("x:\n  - {b: 1, b: 2}", "$.x[0].b", "line 2: duplicate key 'b'"),
        ("a: 010", "$.a", "leading zero"),
        ("a: .inf", "$.a", "expected a finite number"),
        ("a: -.INF", "$.a", "expected a finite number"),
        ("a: .nan", "$.a", "expected a finite number"),
        ("a: 1e999", "$.a", "too large a number"),
        ("a: " + "9" * 5000, "$.a", "over 400 digits"),
        ("a: !!python/object/apply:os.system [ls]", "$.a", "found a tag"),
        ("a: !mine 1", "$.a", "found a tag"),
        ("a: !!int 1", "$.a", "found a tag"),
        ("a: *x", "$.a", "line 1: found an alias"),
        ("a: &x [*x]", "$.a", "a tag or an anchor"),
        ("b: {c: 1}\na:\n  <<: *x", "$.a.<<", "line 3: found an alias"),
        ("? [1, 2]\n: 3", "$", "as a key"),
        ("a: 1\n---\nb: 2", "$", "second document"),
        ("a:\n\tb: 1", "$", "line 2, column 1"),
        ("a: 1\n\tb: 1", "$", "tab"),
        ("a:\n  b: 1\n\tc: 1", "$", "tab"),
        ("a: b: c", "$", "line 1, column 5: mapping values"),
        ("a: [1, 2", "$", "line"),
        ("a: 'x", "$", "line"),
        ("", "$", "empty"),
        ("\n  \n", "$", "empty"),
        ("# only a comment", "$", "found nothing at the top, expected a mapping"),
        ("[1, 2]", "$", "found a list of 2 at the top"),
        ("hello", "$", "found the single value 'hello'"),
        ("a: \x01", "$", "character"),
        ("a: \0", "$", "NUL"),
        ("a: " + "[" * 100 + "]" * 100, "$.a" + "[0]" * 63, "nested more than 64 levels"),
        ("a: " + "[" * 900, "$.a" + "[0]" * 63, "nested more than 64 levels"),
    ],
)
def test_bad_yaml(text: str, where: str, says: str) -> None:
    issue = refused(text)[0]
    assert issue.where == where and says in issue.message


def test_what_the_parser_itself_finds_too_deep() -> None:
    """PyYAML refuses that depth from 6.0.4 on, before the events that lead there: then there is no path."""
    issue = refused("a: " + "[" * 500_000)[0]
    assert issue.where in ("$", "$.a" + "[0]" * 63) and "nested more than 64 levels" in issue.message


def test_all_issues_at_once() -> None:
    issues = refused("a: 010\nb: .nan\na: !x 1")
    assert [issue.where for issue in issues] == ["$.a", "$.b", "$.a", "$.a"]


def test_a_small_file_cannot_stand_for_a_huge_one() -> None:
    lines = ["a0: &a0 [" + ", ".join("x" * 10) + "]"]
    lines += [f"a{i}: &a{i} [" + ", ".join([f"*a{i - 1}"] * 10) + "]" for i in range(1, 30)]
    assert "found a tag or an anchor" in refused("\n".join(lines))[0].message


@pytest.mark.parametrize(
    ("text", "where", "says"),
    [
        ('{"a": 1,\n "b": {"c": 1,\n "c": 2}}', "$.b.c", "line 3: duplicate key 'c'"),
        ('{"a": [1, NaN]}', "$", "found NaN, expected a finite number"),
        ('{"a": -Infinity}', "$", "found -Infinity"),
        ('{"a": "\\ud800"}', "$", "surrogate"),
        ('{"\\ud800": 1}', "$", "surrogate"),
        ('{"a": 1,}', "$", "line 1, column"),
        ('{"a": ' + "9" * 5000 + "}", "$", "too long"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "$", "nested more than 64"),
        ("[1]", "$", "found a list"),
        ("", "$", "empty"),
    ],
)
def test_bad_json(tmp_path: Path, text: str, where: str, says: str) -> None:
    issue = refused(write(tmp_path, "a.json", text))[0]
    assert issue.where == where and says in issue.message


def test_depth_64_is_allowed_in_both(tmp_path: Path) -> None:
    text = '{"a": ' + "[" * 63 + "]" * 63 + "}"
    assert load_strict(text) == load_strict(write(tmp_path, "a.json", text))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"a: 1\nb: \xff\xfe", "line 2: found bytes that are not UTF-8"),
        ("a: 1".encode("utf-16"), "not UTF-8"),
        (b"\x7fELF\x00\x01", "NUL"),
        (b"", "empty"),
        (b"\xef\xbb\xbf", "empty"),
    ],
)
@pytest.mark.parametrize("name", ["a.yaml", "a.json"])
def test_bad_files(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    assert says in refused(write(tmp_path, name, content))[0].message


def test_a_byte_order_mark_and_windows_lines_are_fine(tmp_path: Path) -> None:
    assert load_strict(write(tmp_path, "a.yaml", b"\xef\xbb\xbfa: 1\r\nb: x\r\n")) == {"a": 1, "b": "x"}


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refused(tmp_path / "none.yaml")[0].message == "no such file"
    assert "directory" in refused(tmp_path)[0].message
    assert "cannot be read" in refused(tmp_path / "a\0b")[0].message
    file = write(tmp_path, "a.yaml", "a: 1")
    assert "cannot be read" in refused(file / "below")[0].message

    def denied(*args: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(files, "open", denied, raising=False)
    assert refused(file)[0].message == "permission denied"


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.yaml"
    with open(path, "wb") as file:
        file.truncate(10**12)  # sparse
    assert "1,000,000,000,000 bytes" in refused(path)[0].message
    if os.path.exists("/dev/zero"):  # has no size beforehand
        assert "20,000,001 bytes or more" in refused(Path("/dev/zero"))[0].message
    assert "30,000,000 bytes" in refused("x" * 30_000_000)[0].message


SCALARS = ["1e3", "on", "null", "010", "0o7", "089", "~", "<<", "=", "1:30", ".nan"]
MARKS = ["", " x ", "- a", "a: b", "#", "&a", "\x85", "\u2028"]
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(SCALARS + MARKS)
numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
trees: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda x: st.lists(x, max_size=4) | st.dictionaries(texts, x, max_size=4),
)


@given(st.dictionaries(texts, trees, max_size=5))
@example({"a": 1e17, "b": 1e-7, "c": -0.0})
def test_what_is_written_reads_back(data: dict[str, Any]) -> None:
    back = load_strict(dump_yaml(data))
    assert repr(back) == repr(data)  # equal, and of the same types: 1 == 1.0 == True


@given(st.text(max_size=60))
@example("? a")
@example("a: |\n  x")
@example("- - -")
def test_any_text_loads_or_is_a_document_error(text: str) -> None:
    with contextlib.suppress(DocumentError):
        load_strict(text)


@given(st.binary(max_size=40), st.sampled_from(["a.yaml", "a.json"]))
def test_any_bytes_load_or_are_a_document_error(
    tmp_path_factory: pytest.TempPathFactory, raw: bytes, name: str
) -> None:
    with contextlib.suppress(DocumentError):
        load_strict(write(tmp_path_factory.getbasetemp(), name, raw))
