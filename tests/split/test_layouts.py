"""Tensors that no later stage knows are eager's, and nothing is wrong."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import minicompile
from minicompile import split
from minicompile.core.errors import BackendError
from tests.split.judge import graph_of

ROWS = torch.tensor([0, 2, 2])
TABLE = torch.rand(3, 4)
HALF = torch.full((3, 4), 0.5)

KINDS = {
    "quantized": lambda x: torch.quantize_per_tensor(
        x, 0.1, 0, torch.quint8).dequantize() + 1,
    "quantized by rows": lambda x: torch.quantize_per_channel(
        x, HALF[0, :3], ROWS * 0, 0, torch.qint8).dequantize(),
    "whole numbers of a quantized": lambda x: torch.quantize_per_tensor(
        x, 0.1, 0, torch.quint8).int_repr(),
    "coo": lambda x: x.to_sparse().to_dense() * 2,
    "coo from parts": lambda x: torch.sparse_coo_tensor(
        ROWS[None, :2], x[:2, 0], (4,)).to_dense(),
    "csr": lambda x: (x * 1).to_sparse_csr().to_dense() * 2,
    "mkldnn": lambda x: x.to_mkldnn().to_dense() + 1,
    "nested": lambda x: torch.nested.nested_tensor(
        [x, x]).to_padded_tensor(0.),
    "float8": lambda x: x.to(torch.float8_e4m3fn).float() + 1,
    "complex32": lambda x: (x.to(torch.complex32) * 2).to(torch.complex64),
    "uint16": lambda x: (x * 9).to(torch.uint16).to(torch.int32) + 1,
}
SPARSE = {
    "embedding": lambda x: F.embedding(ROWS, x, sparse=True) * 2,
    "embedding of a result": lambda x: F.embedding(
        ROWS, x * 2, sparse=True),
    "bag": lambda x: F.embedding_bag(ROWS[None], x, sparse=True,
                                     mode="sum"),
    "gather": lambda x: x.gather(0, ROWS[None], sparse_grad=True),
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("backend", ["split", "fused"])
@pytest.mark.filterwarnings("ignore")
def test_a_value_of_another_kind_is_right(name, backend):
    compiled = minicompile.compile(KINDS[name], backend=backend)
    torch.testing.assert_close(compiled(TABLE), KINDS[name](TABLE))


@pytest.mark.parametrize("name", SPARSE)
@pytest.mark.parametrize("backend", ["split", "fused"])
@pytest.mark.filterwarnings("ignore:minicompile runs a graph as traced")
def test_a_sparse_gradient_is_eagers(name, backend):
    found = []
    for function in (SPARSE[name], minicompile.compile(
            SPARSE[name], backend=backend)):
        x = TABLE.clone().requires_grad_()
        function(x).sum().backward()
        found.append(x.grad)
    wanted, got = found
    assert got.layout == wanted.layout
    torch.testing.assert_close(got, wanted)


def test_a_graph_that_quantizes_is_refused():
    with pytest.raises(BackendError, match="quint8"):
        split.record(graph_of(lambda x: torch.quantize_per_tensor(
            x, 0.1, 0, torch.quint8), [TABLE]), [TABLE])
