"""Random programs on images, each at two sizes, with their gradients."""

import warnings

import pytest
import torch

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


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(500))
def test_many_programs(seed):
    check(seed, "fused" if seed % 5 == 0 else "split")
