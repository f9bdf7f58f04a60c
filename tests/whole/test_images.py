"""Random programs on images, each at two sizes, with their gradients."""

import warnings

import pytest
import torch
from torch.torch_version import TorchVersion

from tests.whole.images import judged


#: What PyTorch's own fake kernels say of some gradients of interpolation
#: when sizes are symbols; such a graph runs as traced.
REFUSED = "isIntList() INTERNAL ASSERT"


def check(seed: int, backend: str) -> None:
    """The program is right at both sizes, and nothing else fell back."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.filterwarnings("default", r"(?s).*isIntList\(\) INTERNAL")
        compiled = judged(seed, backend)
    if compiled is not None:
        assert all(REFUSED in reason for reason
                   in compiled.stats().fallbacks), seed


@pytest.mark.slow(sample=5)
@pytest.mark.parametrize("seed", range(1000, 1016))
def test_a_sample_of_programs(seed):
    check(seed, "split")


@pytest.mark.slow(sample=2)
@pytest.mark.parametrize("seed", range(1020, 1024))
def test_a_sample_in_kernels(seed):
    check(seed, "fused")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16,
                                   torch.bfloat16])
@pytest.mark.parametrize("seed", [40, *range(1030, 1040)])
def test_a_sample_on_a_gpu(seed, dtype):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        judged(seed, "split", "cuda", dtype)


#: These pad an image that is laid out as channels last by replication.
#: PyTorch 2.11's fake kernel says that the result is contiguous.
PADDED = pytest.mark.xfail(
    TorchVersion(torch.__version__) < "2.13", strict=True,
    reason="the fake kernel of replication_pad2d gives other strides")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [
    pytest.param(seed, marks=PADDED if seed in (235, 391) else ())
    for seed in range(500)])
def test_many_programs(seed):
    check(seed, "fused" if seed % 5 == 0 else "split")
