"""The bounding form of layout conversions: the exact one where few kernels read a tensor, and less where many do."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import dfopt as df
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.plan import Plan
from dfopt.machines.compose import load_system
from dfopt.physics.pipeline import resolve
from dfopt.setting.instance import Setting
from dfopt.terms.layer import Layer
from dfopt.terms.rules.network import CONVERSIONS, LEAST_CONVERSIONS


def layer_of(readers: int) -> Layer:
    """A product whose output so many others read, on eight chips."""
    names = [f"r{number}" for number in range(readers)]
    kernels = tuple(Kernel(name=name, op="gemm", m=64, k=64, n=64) for name in ("source", *names))
    graph = Graph(name="fan", kernels=kernels, tensors=tuple(Tensor(src="source", dst=name) for name in names))
    setting = Setting(graph, load_system("sn10-8-ring"), resolve(df.profile("default"), "dataflow", 0.9))
    return Layer(setting.under(Plan(tp=8, tp_dims=("ring",))), 1)


def test_few_readers_have_the_exact_amounts() -> None:
    layer = layer_of(2)
    exact, least = ([*term.charges(layer)] for term in (CONVERSIONS, LEAST_CONVERSIONS))
    assert [charge.scope for charge in exact] == [charge.scope for charge in least]
    assert all((a.amount == b.amount).all() for a, b in zip(exact, least, strict=True))


def test_of_many_readers_some_are_a_bound() -> None:
    layer = layer_of(8)
    [exact], [least] = ([*term.charges(layer)] for term in (CONVERSIONS, LEAST_CONVERSIONS))
    assert {*least.scope} < {*exact.scope} and least.amount.size <= 4096 < exact.amount.size
    axes = tuple(axis for axis, kernel in enumerate(exact.scope) if kernel not in least.scope)
    assert (least.amount <= exact.amount.min(axis=axes)).all() and least.amount.any()


@pytest.mark.parametrize("readers", [40])
def test_any_number_of_readers_has_one(readers: int) -> None:
    layer = layer_of(readers)
    assert all(charge.amount.size <= 4096 for charge in LEAST_CONVERSIONS.charges(layer))
    assert np.prod([len(schemes) for schemes in itertools.islice(layer.schemes_k, readers + 1)], dtype=float) > 1e15
