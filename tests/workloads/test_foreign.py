"""Other tools' files are recognised and answered in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dfopt.errors import DocumentError
from dfopt.library import load_any

CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "vocab_size": 128256}


def test_a_hugging_face_config_is_no_document(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    with pytest.raises(DocumentError) as caught:
        load_any(str(path))
    said = str(caught.value)
    assert "\n" not in said
    assert "found a Hugging Face config of llama" in said and "`dfopt import hf`" in said
