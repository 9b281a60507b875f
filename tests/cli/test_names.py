"""Names may be anything: they steer no terminal, no page and no spreadsheet."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli_tools import GRAPH, SYSTEM, call, changed, write

from dfopt.documents.files import write_text
from dfopt.errors import DocumentError

EVIL = "=x\x1b[31m\0\u202e</text></title><script>alert(1)</script>$x_$\x9b"
RAW = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202e]|<script>alert")


def renamed(graph: bool) -> dict[str, object]:
    if not graph:
        return changed(SYSTEM, name=EVIL, chip__name=EVIL, description=EVIL)
    data = changed(GRAPH, name=EVIL, description=EVIL, source=EVIL, kernels__1__name=EVIL)
    return changed(data, tensors__0__dst=EVIL, tensors__1__src=EVIL)


def test_names_are_seen_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "g.json", renamed(graph=True))
    write(tmp_path, "s.json", renamed(graph=False))
    write(tmp_path, "st.json", {
        "schema": "dfopt/study/1", "name": EVIL, "graphs": [{"graph": "g.json"}], "options": {"sensitivity": False},
        "systems": [{"system": "s.json", "label": EVIL}, {"system": "s.json", "label": "-2"}],
    })  # fmt: skip
    said = []
    for words in (
        "show g.json", "show s.json", "solve g.json s.json --no-sensitivity -q -o r.yaml", "check r.yaml",
        "score r.yaml", "report r.yaml", "plot r.yaml --kind step -o a.svg", "plot r.yaml --kind timeline -o b.svg",
        "plot r.yaml --kind dataflow -o c.svg", "sweep st.json --jobs 1 -q --csv f.csv", "runs st.runs.jsonl",
        "report st.json -o st.html", "plot st.json --kind heat-map --x system -o d.svg",
    ):  # fmt: skip
        answer = call(*words.split())
        assert answer.code == 0, (words, answer.err)
        said += [answer.out, answer.err]
    for word in (EVIL, f"--{EVIL}", f"--pin={EVIL}", f"--set={EVIL}=1", f"--assume={EVIL}"):
        for words in (["show", word, word], ["solve", "g.json", word], ["solve", "g.json", "s.json", word]):
            said += [call(*words).err]
    assert not RAW.search("".join(said).replace("<script>", ""))
    assert r"=x\x1b[31m\x00\u202e" in said[0]
    for file in [*tmp_path.glob("*.svg"), *tmp_path.glob("*.html")]:
        assert not RAW.search(file.read_text()), file.name
    cells = [cell for line in (tmp_path / "f.csv").read_text().split("\n") for cell in line.split(",")]
    assert f"'{EVIL}" in cells and "'-2" in cells and not any(cell.startswith(("=", '"=')) for cell in cells)


def test_half_a_surrogate_pair_is_not_written(tmp_path: Path) -> None:
    folder = tmp_path / "bad\udcff"
    folder.mkdir()
    write(folder, "g.yaml", {"num-layers": 2, "hidden-size": 64, "num-attention-heads": 4, "seq-length": 32,
          "micro-batch-size": 1, "global-batch-size": 8, "vocab-size": 512})  # fmt: skip
    (folder / "g.yaml").rename(folder / "g\udcfe.yaml")
    answer = call("import", "megatron", folder / "g\udcfe.yaml", "-o", tmp_path / "out")
    assert answer.code == 3 and r"$.name: found 'g\udcfe', expected text in UTF-8" in answer.err
    with pytest.raises(DocumentError, match="half a surrogate pair"):
        write_text(tmp_path / "x.yaml", "name: g\udcfe")
    assert not (tmp_path / "x.yaml").exists() and not (tmp_path / "out").exists()
