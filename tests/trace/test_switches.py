"""Torch's switches, read as values: what a program sees is guarded."""

import contextlib

import pytest
import torch
from torch import nn

import minicompile


def both(turn, now, then):
    """A context that turns a switch to `now`, and then to `then`."""
    @contextlib.contextmanager
    def turned():
        turn(now)
        try:
            yield
        finally:
            turn(then)
    return turned


@contextlib.contextmanager
def flag(owner, name, value):
    """PyTorch's own test helpers forbid to set one without a context."""
    before = getattr(owner, name)
    try:
        with torch.backends.__allow_nonbracketed_mutation():
            setattr(owner, name, value)
        yield
    finally:
        with torch.backends.__allow_nonbracketed_mutation():
            setattr(owner, name, before)


def autocast_dtype(dtype):
    torch.set_autocast_dtype("cpu", dtype)


def deterministic(mode):
    torch.use_deterministic_algorithms(mode[0], warn_only=mode[1])


BACKENDS = torch.backends
#: How a switch is read, and a context in which it stands otherwise.
SWITCHES = {
    "inference": (torch.is_inference_mode_enabled, torch.inference_mode),
    "of a tensor": (lambda: torch.ones(1).is_inference(),
                    torch.inference_mode),
    "of a tensor, asked by torch": (
        lambda: torch.is_inference(torch.ones(1)), torch.inference_mode),
    "grad": (torch.is_grad_enabled, torch.no_grad),
    "default dtype": (torch.get_default_dtype, both(
        torch.set_default_dtype, torch.float64, torch.float32)),
    "default device": (torch.get_default_device, both(
        torch.set_default_device, "meta", None)),
    "autocast": (lambda: torch.is_autocast_enabled("cpu"),
                 lambda: torch.autocast("cpu")),
    "autocast elsewhere": (
        lambda: torch.is_autocast_enabled("cuda"), both(
            lambda on: torch.set_autocast_enabled("cuda", on), True, False)),
    "dtype of autocast": (lambda: torch.get_autocast_dtype("cpu"), both(
        autocast_dtype, torch.float16, torch.bfloat16)),
    "cache of autocast": (torch.is_autocast_cache_enabled, both(
        torch.set_autocast_cache_enabled, False, True)),
    "deterministic": (torch.are_deterministic_algorithms_enabled, both(
        deterministic, (True, False), (False, False))),
    "only warnings": (
        torch.is_deterministic_algorithms_warn_only_enabled, both(
            deterministic, (True, True), (False, False))),
    "debug mode": (torch.get_deterministic_debug_mode, both(
        torch.set_deterministic_debug_mode, "warn", "default")),
    "precision": (torch.get_float32_matmul_precision, both(
        torch.set_float32_matmul_precision, "medium", "highest")),
    "anomaly": (torch.is_anomaly_enabled, both(
        torch.autograd.set_detect_anomaly, True, False)),
    "threads": (torch.get_num_threads, both(
        torch.set_num_threads, torch.get_num_threads() + 1,
        torch.get_num_threads())),
    "warn always": (torch.is_warn_always_enabled, both(
        torch.set_warn_always, True, False)),
    "fill": (lambda: torch.utils.deterministic.fill_uninitialized_memory,
             lambda: flag(torch.utils.deterministic,
                          "fill_uninitialized_memory", False)),
    "flash": (BACKENDS.cuda.flash_sdp_enabled, both(
        BACKENDS.cuda.enable_flash_sdp, False, True)),
    "math": (BACKENDS.cuda.math_sdp_enabled, both(
        BACKENDS.cuda.enable_math_sdp, False, True)),
    "tf32": (lambda: BACKENDS.cuda.matmul.allow_tf32, lambda: flag(
        BACKENDS.cuda.matmul, "allow_tf32", True)),
    "cudnn": (lambda: BACKENDS.cudnn.enabled, lambda: flag(
        BACKENDS.cudnn, "enabled", False)),
    "benchmark": (lambda: BACKENDS.cudnn.benchmark, lambda: flag(
        BACKENDS.cudnn, "benchmark", True)),
    "cudnn deterministic": (
        lambda: BACKENDS.cudnn.deterministic, lambda: flag(
            BACKENDS.cudnn, "deterministic", True)),
    "mkldnn": (lambda: BACKENDS.mkldnn.enabled, lambda: flag(
        BACKENDS.mkldnn, "enabled", False))}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SWITCHES)
def test_each_switch_is_read_again(name):
    read, other = SWITCHES[name]

    def program(x):
        return x * 2, read()

    compiled = minicompile.compile(program, backend="eager")
    x = torch.ones(2)
    for context in (contextlib.nullcontext, other) * 2:
        with context():
            assert compiled(x)[1] == read()
    with other():
        fresh = minicompile.compile(program, backend="eager")
        assert fresh(x)[1] == read()
    assert compiled(x)[1] == read()


def test_a_switch_that_the_program_turns_is_read_as_turned():
    def state():
        return (torch.get_autocast_dtype("cpu"),
                torch.is_autocast_enabled("cpu"),
                torch.is_autocast_enabled("cuda"),
                torch.is_autocast_cache_enabled(), torch.is_grad_enabled())

    def program(x):
        with torch.autocast("cpu", torch.float16, cache_enabled=False):
            with torch.no_grad():
                inside = state()
        return x * 2, inside, state()

    compiled = minicompile.compile(program, backend="eager", fullgraph=True)
    x = torch.ones(2)
    for dtype in (torch.bfloat16, torch.float16, torch.bfloat16):
        autocast_dtype(dtype)
        assert compiled(x)[1:] == program(x)[1:]
    assert compiled.stats().graphs == 2


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_tensors_are_made_on_the_default_device(device):
    def program(x):
        made = [torch.ones(2), torch.tensor(1), torch.rand(2),
                torch.zeros(2, device="cpu"), torch.empty_like(x)]
        with torch.device("cpu"):
            made.append(torch.arange(3))
        return torch.get_default_device(), [each.device for each in made]

    compiled = minicompile.compile(program, backend="eager", fullgraph=True)
    x = torch.ones(2)
    for context in (contextlib.nullcontext(), torch.device(device)) * 2:
        with context:
            assert compiled(x) == program(x)
    assert compiled.stats().graphs == 2


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["eager", "split"])
def test_numbers_of_places_are_made_on_the_default_device(backend, dynamic):
    def program(x):
        n = x.shape[0]
        return (torch.linspace(0, 1, n), torch.tril_indices(n, n),
                torch.arange(n), torch.range(0, n), torch.tensor([n, 2]),
                torch.full((n,), n))

    compiled = minicompile.compile(program, backend=backend, dynamic=dynamic)
    with torch.device("meta"):
        for n in (3, 5):
            x = torch.ones(n, device="cpu")
            assert [made.device for made in compiled(x)] == [
                made.device for made in program(x)]


class Negative(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        return -made if function is torch.sin else made


def test_kernels_run_under_a_default_device_and_under_no_other_mode():
    def program(x):
        return torch.sin(x) + torch.arange(3)

    compiled = minicompile.compile(program)
    x = torch.randn(3)
    torch.set_default_device("cpu")
    try:
        torch.testing.assert_close(compiled(x), program(x))
        assert compiled.stats().kernels == compiled.stats().graphs == 1
        with Negative():
            assert compiled(x).equal(program(x))
    finally:
        torch.set_default_device(None)
    with Negative():
        assert compiled(x).equal(program(x))
    assert compiled.stats().graphs == 1


def test_what_is_not_asked_is_not_guarded():
    compiled = minicompile.compile(lambda x: x * 2, backend="eager")
    for name in ("threads", "anomaly", "precision", "flash", "warn always",
                 "cache of autocast", "dtype of autocast", "benchmark"):
        with SWITCHES[name][1]():
            compiled(torch.ones(2))
    assert compiled.stats().graphs == 1


def test_an_unknown_question_breaks():
    compiled = minicompile.compile(
        lambda x: (x * 2, torch._C._get_cpu_capability()), fullgraph=True,
        backend="eager")
    with pytest.raises(minicompile.errors.Unsupported,
                       match="_get_cpu_capability"):
        compiled(torch.ones(2))


def test_a_switch_that_is_no_constant_is_a_break():
    compiled = minicompile.compile(
        lambda x: (x * 2, str(torch._C._get_blas_preferred_backend())),
        backend="eager")
    for _ in range(2):
        assert compiled(torch.ones(2))[1] == str(
            torch._C._get_blas_preferred_backend())
    assert compiled.stats().graph_breaks and not compiled.stats().fallbacks


def stack():
    return torch._C._len_torch_function_stack()


def broken(x):
    with torch.device("meta"):
        print(end="")
        made = torch.ones(2), stack()
    return x + 1, *made, torch.ones(2)


def two(x):
    with torch.device("meta"):
        with torch.device("cpu"), torch.no_grad():
            print(end="")
            first = torch.ones(2)
        return x + 1, first, torch.ones(2), stack()


def fails(x):
    try:
        with torch.device("meta"):
            print(end="")
            raise ValueError("mine")
    except ValueError as error:
        return x + 1, str(error), stack(), torch.ones(2)


def layer(x):
    with torch.device("meta"):
        made = nn.Linear(2, 2)
    return made.to_empty(device="cpu").weight.device, x + 1, stack()


def test_a_break_under_two_devices_leaves_the_outer_one():
    """Where it goes on, the inner one alone does not say what is left."""
    compiled = minicompile.compile(two, backend="eager")
    for device in ("cpu", "meta", "cpu"):
        with torch.device(device):
            x = torch.ones(2, 3, device="cpu")
            assert str(compiled(x)) == str(two(x)) and stack() == 1
    assert str(compiled(x)) == str(two(x)) and not stack()


@pytest.mark.parametrize("function", [broken, two, fails, layer])
def test_a_break_under_a_device_goes_on_under_it(function):
    compiled = minicompile.compile(function, backend="eager")
    x = torch.ones(2, 3)
    for _ in range(2):
        assert str(compiled(x)) == str(function(x)) and not stack()
    with pytest.raises(minicompile.Unsupported):
        minicompile.compile(function, fullgraph=True)(x)
    assert not stack()
