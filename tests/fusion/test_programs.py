"""Random programs, and PyTorch's own operator samples, against PyTorch."""

import os
import random
import warnings

import pytest
import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from minicompile.core.errors import BackendError
from minicompile.fusion import fuse
from tests.fusion.graphs import assert_right, aten, joint
from tests.fusion.programs import Program

#: `SWEEP=1 pytest tests/fusion/test_programs.py`: everything, in minutes.
SWEEP = bool(os.environ.get("SWEEP"))


@pytest.mark.slow(sample=10)
@pytest.mark.parametrize("seed", range(1000 if SWEEP else 40))
def test_random_programs(seed):
    program = Program(seed, steps=10 + seed % 25)
    inputs = program.inputs()
    assert_right(aten(program, *inputs), inputs)


@pytest.mark.parametrize("seed", range(300 if SWEEP else 12))
def test_random_programs_with_gradients(seed):
    program = Program(seed, steps=10 + seed % 15)
    inputs = [x.requires_grad_() for x in program.inputs()]
    try:
        graph = joint(lambda *args: sum(
            (part * part).sum() for part in program(*args)), *inputs)
    except BackendError:
        pytest.skip("chapter 3 refuses it")
    tangent = torch.ones((), dtype=torch.float64)
    assert_right(graph, [x.detach() for x in inputs] + [tangent])


#: Their results are whatever the memory held.
EMPTY = {"empty", "empty_like", "empty_permuted", "empty_strided",
         "new_empty", "new_empty_strided"}

def chosen() -> list:
    """PyTorch's own operators, or a tenth of them."""
    try:
        from torch.testing._internal.common_methods_invocations import op_db
    except ModuleNotFoundError as missing:  # expecttest
        return [pytest.param(None, id="none", marks=pytest.mark.skip(
            reason=f"PyTorch's samples need {missing.name}"))]
    found = [op for op in op_db if op.name not in EMPTY]
    count = len(found) if SWEEP else len(found) // 10
    return [pytest.param(op, id=op.formatted_name) for op in (
        random.Random(0).sample(found, count))]


@pytest.mark.slow(sample=15)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", chosen())
def test_samples_of_pytorch(op):
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool):
        if dtype in op.supported_dtypes("cpu"):
            try:
                samples = list(op.sample_inputs("cpu", dtype))
            except Exception:  # some ops have none on this machine
                continue
            for sample in samples[:6 if SWEEP else 2]:
                check(op, sample)


def check(op, sample):
    """One sample through chapter 3 and this one, if chapter 3 takes it."""
    leaves, form = tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [k for k, leaf in enumerate(leaves)
              if isinstance(leaf, torch.Tensor)]

    def function(*tensors):
        given = list(leaves)
        for place, tensor in zip(places, tensors):
            given[place] = tensor
        first, args, kwargs = tree_unflatten(given, form)
        results = tree_flatten(op.op(first, *args, **kwargs))[0]
        return tuple(r for r in results if isinstance(r, torch.Tensor))
    args = [leaves[place] for place in places]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            graph = aten(function, *args)
            schedule = fuse(graph)
    except (BackendError, RuntimeError, AssertionError):
        return  # not for us: no fake kernel, sparse, data-dependent, …
    random_ops = any(torch.Tag.nondeterministic_seeded in getattr(
        node.target, "tags", ()) for node in graph.graph.nodes)
    if not random_ops:
        assert_right(graph, args, schedule)
