"""ONNX models: nodes drawn as kernels."""

from dfopt.frontends.onnx.convert import read

__all__ = ["read"]
