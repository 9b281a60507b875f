"""A file as an ONNX model, or one clear error that it is none."""

from __future__ import annotations

from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from onnx import inliner

from dfopt.documents.files import read_bytes
from dfopt.errors import refuse


def parse(path: Path, file: str) -> onnx.ModelProto:
    """Model of an ONNX file with functions inlined; external data are not read."""
    try:
        model = onnx.load_model_from_string(read_bytes(path, onnx.checker.MAXIMUM_PROTOBUF), format="protobuf")
    except DecodeError:
        refuse(file, "found no ONNX model, or one that was cut off", "export it again, in protobuf")
    if not model.graph.node:
        refuse(file, "found no nodes, expected an ONNX model", "is it the right file, and whole?")
    if model.training_info:
        refuse(file, "found a training graph", "export the model for inference")
    named = (*model.graph.node, *model.graph.initializer, *model.graph.input, *model.graph.output)
    texts = [part.name for part in named]
    texts += [text for node in model.graph.node for text in (node.op_type, node.domain, *node.input, *node.output)]
    if not all(isinstance(text, str) for text in texts):
        refuse(file, "found a name that is no text", "is the file whole?")
    if not model.opset_import:
        refuse(file, "the file does not say of which opset its operators are", "export it again, with opset_import")
    return inliner.inline_local_functions(model) if model.functions else model
