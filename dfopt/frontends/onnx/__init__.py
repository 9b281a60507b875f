"""ONNX models: nodes drawn as kernels."""

from dfopt.frontends.onnx.model_graph import read

__all__ = ["read"]
