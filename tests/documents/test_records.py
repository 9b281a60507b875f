"""Documents with very many records are written a record at a time, and say the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

import dfopt as df
from dfopt.documents import records
from dfopt.documents.base import Document, digest_of


@pytest.fixture(scope="module")
def result() -> df.Result:
    return df.optimize("gpt2-small", "sn10-8-ring", tp=8, sensitivity=False)


def written(document: Document) -> dict[str, Any]:
    return {key: document.written(key, value) for key, value in document.to_data().items()}


@pytest.mark.parametrize("times", [1, 1001])
def test_the_digest_and_the_text_are_those_of_the_data(result: df.Result, times: int) -> None:
    many = result.model_copy(update={"plans": result.plans[:1] * times})
    assert records.digest(many) == digest_of(many.to_data())
    assert json.loads("".join(records.json_text(many))) == json.loads(json.dumps(written(many)))


def test_a_short_document_has_an_entry_a_line(result: df.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_MANY", 1000)
    documents: list[Document] = [result, result.graph, result.system]
    for document in documents:
        data = written(document)
        assert "".join(records.json_text(document)) == json.dumps(data, indent=1, ensure_ascii=False) + "\n"
        assert "".join(records.json_text(document, ascii_only=True)) == json.dumps(data, indent=1) + "\n"
