"""Libraries beside torch, as programs use them: no break, one graph."""

import functools
import logging
import subprocess
import sys
from io import StringIO

import einops
import pytest
import torch
import torch.nn.functional as F
from einops.layers.torch import Rearrange, Reduce
from torch import nn
from torch.nn.attention import (SDPBackend, _cur_sdpa_kernel_backends,
                                sdpa_kernel)
from tqdm import tqdm, trange
from tqdm.auto import tqdm as auto
from transformers.activations import ACT2FN

import minicompile
from tests.same import assert_same

IMAGE = torch.randn(2, 3, 4, 6, requires_grad=True)
FLAT, LARGEST = Rearrange("b c h w -> b (c h w)"), Reduce(
    "b c (h p) w -> b c h", "max", p=2)


def one_graph(fn, *args, **options):
    """The same as eager, forward and backward, in one graph."""
    compiled = assert_same(fn, *args, fullgraph=True, **options)
    assert compiled.stats().graphs == 1
    assert not minicompile.explain(fn)(*args).graph_breaks
    return compiled


# einops

EINOPS = {
    "rearrange": lambda x: einops.rearrange(
        x, "b c (h p) (w q) -> b (h w) (p q c)", p=2, q=3),
    "reduce": lambda x: einops.reduce(x, "b c h w -> b c", "mean"),
    "repeat": lambda x: einops.repeat(x, "b c h w -> b k c h w", k=3),
    "einsum": lambda x: einops.einsum(
        x, x, "b c h w, b c h v -> b h w v"),
    "pack": lambda x: einops.unpack(*einops.pack(
        [x, x[:, 0]], "b * w"), "b * w"),
    "a list": lambda x: einops.rearrange([x, x], "n b ... -> b n ..."),
    "layers": lambda x: (FLAT(x), LARGEST(x)),
    "in a module": nn.Sequential(
        Rearrange("b c h w -> b h w c"), nn.Linear(3, 2), nn.GELU())}


@pytest.mark.parametrize("name", EINOPS)
def test_einops_leaves_no_break(name):
    one_graph(EINOPS[name], IMAGE)


def test_einops_leaves_no_break_when_it_was_never_called():
    """Its caches are empty then, and it has not looked for torch yet."""
    program = """if True:
        import einops, torch, minicompile
        def f(x):
            return einops.rearrange(x, "b c -> (b c)") * 2
        compiled = minicompile.compile(f, fullgraph=True, backend="eager")
        x = torch.ones(2, 3)
        assert torch.equal(compiled(x), f(x))
        assert compiled.stats().graphs == 1
        assert [*einops._backends._type2backend] == [torch.Tensor]"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_library_may_be_installed_for_a_user_alone(tmp_path, monkeypatch):
    folder = tmp_path / "lib" / "site-packages"
    folder.mkdir(parents=True)
    (folder / "for_a_user.py").write_text("""if True:
        import functools

        class Plan:
            factor = 2

        @functools.lru_cache
        def plan(text):
            made = Plan()
            made.text = text
            return made""")
    monkeypatch.syspath_prepend(folder)
    import for_a_user

    seen = []

    def function(x):
        seen.append("b c")
        return x * for_a_user.plan(seen[-1]).factor

    compiled = minicompile.compile(function, fullgraph=True, backend="eager")
    assert torch.equal(compiled(torch.ones(2)), function(torch.ones(2)))
    assert compiled.stats().graphs == 1


def test_einops_takes_sizes_that_vary():
    compiled = minicompile.compile(EINOPS["rearrange"], fullgraph=True)
    for batch in (2, 3, 5, 8):
        x = torch.randn(batch, 3, 4, 6)
        assert torch.equal(compiled(x), EINOPS["rearrange"](x))
    assert compiled.stats().graphs == 2


def test_a_wrong_pattern_is_einops_error():
    def wrong(x):
        return einops.rearrange(x, "b c -> c b d")

    with pytest.raises(einops.EinopsError, match="only on one side"):
        minicompile.compile(wrong)(torch.ones(2, 3))


# Dicts whose class makes something of an item

class Doubling(dict):
    """Makes each item when it is asked for."""

    def __getitem__(self, key):
        return super().__getitem__(key) * 2


def test_activations_are_made_while_tracing():
    def activated(x):
        return ACT2FN["gelu"](x) + ACT2FN["silu"](x), "relu" in ACT2FN

    one_graph(activated, IMAGE)


def test_a_dict_is_copied_without_running_its_class():
    table = Doubling(a=2, b=3)

    def scaled(x):
        return x * table["a"], len(table), [*table.values()]

    compiled = one_graph(scaled, IMAGE)
    table["a"] = 5
    assert torch.equal(compiled(IMAGE)[0], IMAGE * 10)


# Attention's kernels

@pytest.mark.parametrize("kinds", [
    SDPBackend.MATH, [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]])
def test_a_region_chooses_attentions_kernel(kinds):
    def region(q):
        with sdpa_kernel(kinds, set_priority=isinstance(kinds, list)):
            inside = F.scaled_dot_product_attention(q, q, q)
        return inside, F.scaled_dot_product_attention(q * 2, q, q)

    q, before = torch.randn(2, 2, 8, 4), _cur_sdpa_kernel_backends(True)
    one_graph(region, q)
    assert _cur_sdpa_kernel_backends(True) == before
    with sdpa_kernel(kinds):
        inside = torch._fused_sdp_choice(q, q, q)
    flash = sum("flash" in op for op in minicompile.explain(
        region)(q).externs)
    assert flash == 1 + (inside == SDPBackend.FLASH_ATTENTION.value)


def test_another_choice_is_another_graph():
    chosen = []

    def region(q):
        with sdpa_kernel(chosen):
            torch.backends.cuda.enable_flash_sdp(False)
            return q * len(_cur_sdpa_kernel_backends())

    q, before = torch.ones(2), _cur_sdpa_kernel_backends(True)
    compiled = minicompile.compile(region, fullgraph=True)
    for kind in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION) * 2:
        chosen[:] = [kind]
        assert torch.equal(compiled(q), region(q))
        assert _cur_sdpa_kernel_backends(True) == before
    assert compiled.stats().graphs == 2


def test_a_region_around_the_call_is_seen():
    def around(q):
        return F.scaled_dot_product_attention(q, q, q) * len(
            _cur_sdpa_kernel_backends())

    q = torch.randn(1, 1, 4, 2)
    compiled = minicompile.compile(around, fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(compiled(q), around(q))
        with sdpa_kernel([SDPBackend.MATH]):
            torch.testing.assert_close(compiled(q), around(q))
    assert compiled.stats().graphs == 2


@pytest.mark.parametrize("backend", ["eager", "split", "fused"])
def test_a_region_that_fails_leaves_the_switches(backend):
    def fails(q, i):
        with sdpa_kernel(SDPBackend.MATH):
            return F.scaled_dot_product_attention(q, q, q[..., i, :])

    q, before = torch.randn(1, 1, 4, 2), _cur_sdpa_kernel_backends(True)
    compiled = minicompile.compile(fails, backend=backend)
    compiled(q, torch.arange(4))
    with pytest.raises(IndexError):
        compiled(q, torch.arange(4) + 1)
    assert _cur_sdpa_kernel_backends(True) == before


# Loggers and progress bars that say nothing

def test_a_silent_logger_leaves_no_break():
    disabled, strict = map(logging.getLogger, ("disabled", "strict"))
    disabled.disabled = True
    strict.setLevel(logging.ERROR)

    def quiet(x):
        disabled.error("given %s", x)
        strict.warning("given %s", x.shape)
        strict.debug("nothing")
        return x.sin()

    one_graph(quiet, IMAGE)


@pytest.mark.parametrize("bar", [tqdm, auto])
def test_a_disabled_bar_leaves_no_break(bar):
    def shown(x):
        for i in bar(range(3), desc="steps", disable=True):
            x = x + i
        count = bar(total=10, disable=True)
        count.update(3)
        count.set_description("more")
        count.close()
        return x, count.n, count.total

    one_graph(shown, IMAGE)
    one_graph(lambda x: [x * i for i in trange(2, disable=True)], IMAGE)


def test_a_bar_that_is_shown_is_a_break():
    def shown(x, file):
        for i in tqdm(range(3), file=file):
            x = x + i
        return x.sin()

    files = StringIO(), StringIO()
    compiled = minicompile.compile(shown, backend="eager")
    assert torch.equal(compiled(IMAGE, files[0]), shown(IMAGE, files[1]))
    assert "3/3" in files[0].getvalue()


# Caches

@functools.lru_cache
def table(n):
    return [n + offset for offset in OFFSETS]


OFFSETS = [1, 2]


def test_a_cache_of_the_programs_own_is_not_passed_by():
    """It may hold what a global was when it was filled."""
    def scaled(x):
        return x * table(3)[0]

    assert torch.equal(scaled(IMAGE), IMAGE * 4)
    OFFSETS[0] = 5
    compiled = minicompile.compile(scaled)
    assert torch.equal(compiled(IMAGE), IMAGE * 4)
    whole = minicompile.compile(scaled, fullgraph=True)
    assert torch.equal(whole(IMAGE), IMAGE * 4)
    table.cache_clear()
    assert torch.equal(compiled(IMAGE), IMAGE * 8)
    assert torch.equal(whole(IMAGE), IMAGE * 8)


@pytest.mark.parametrize("give", [abs, str])
def test_a_cache_that_is_cleared_is_asked_again(give):
    """Another constant may be in it."""
    @functools.lru_cache
    def scale(n):
        return give(n * factor)

    def scaled(x):
        return x * int(scale(2))

    factor, compiled = 3, minicompile.compile(scaled, fullgraph=True)
    assert torch.equal(compiled(IMAGE), IMAGE * 6)
    factor = 4
    assert torch.equal(compiled(IMAGE), IMAGE * 6)
    scale.cache_clear()
    assert torch.equal(compiled(IMAGE), IMAGE * 8)


def test_a_cached_function_is_an_object_as_any_function_is():
    """It may be a key, and another one in its place is noticed."""
    @functools.lru_cache
    def other(n):
        return n + 4

    def scaled(x, call):
        return x * factors[call] * call(3)

    factors = {cached: 1, other: 10}
    compiled = minicompile.compile(scaled, fullgraph=True)
    for call in (cached, other, cached):
        assert torch.equal(compiled(IMAGE, call), scaled(IMAGE, call))
    assert compiled.stats().graphs == 2


@functools.lru_cache
def cached(n):
    return n + 2
