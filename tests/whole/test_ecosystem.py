"""Compiled models in the hands of the libraries that train them."""

import ast
import copy
import inspect
import pickle
import subprocess
import sys
import tarfile
from importlib.resources import files
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import (GPT2Config, GPT2LMHeadModel, Trainer,
                          TrainingArguments)

import minicompile
from minicompile import TOOLS
from minicompile.dispatch.driver import CompiledModule
from tests.whole.test_modules import INSTALLED


class Scaled(nn.Module):
    def __init__(self, scale=2.0):
        super().__init__()
        self.scale = scale

    def forward(self, x, *, shift: float = 0.0):
        """Scale, then shift."""
        return x * self.scale + shift


def test_type_checkers_find_annotations():
    """py.typed promises that every public function is annotated."""
    assert files("minicompile").joinpath("py.typed").is_file()
    functions = []
    for each in map(minicompile.__dict__.get, minicompile.__all__):
        functions += [each] if inspect.isfunction(each) else [
            value for name, value in vars(each).items()
            if inspect.isfunction(value) and not name.startswith("__")]
    for function in functions:
        shape = inspect.signature(function)
        assert shape.return_annotation is not shape.empty, function
        for given in shape.parameters.values():
            assert (given.name == "self"
                    or given.annotation is not given.empty), function


USED = """
import torch
from torch import nn

import minicompile


def scaled(x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
    return x * scale


@minicompile.compile(dynamic=True, options={"cudagraphs": False})
def shifted(x: torch.Tensor) -> torch.Tensor:
    return x + 1


minicompile.compile(scaled, mode="reduce-overhead")(torch.ones(2), scale=3)
minicompile.compile(nn.Linear(2, 2), fullgraph=True)(torch.ones(2))
minicompile.explain(shifted)(torch.ones(2)).save("page.html")


@minicompile.register_backend("mine")
def mine(graph: torch.fx.GraphModule, inputs: list[object]) -> object:
    return graph.forward


@minicompile.disable
def shown(x: torch.Tensor) -> None:
    print(x)


with minicompile.set_stance("force_eager"):
    print(minicompile.diagnose(scaled)(torch.ones(2)))
minicompile.mark_dynamic(torch.ones(2), 0)
minicompile.compile_module_(nn.Linear(2, 2), regions=True)
print(minicompile.list_backends(), minicompile.save_cache("saved"))
print(minicompile.partition, minicompile.calibrate, minicompile.tour)
print(minicompile.list_options(), minicompile.__version__)
minicompile.reset()
"""


@pytest.mark.slow
@pytest.mark.parametrize("line, wrong", [
    ("", ""), ("minicompile.compile(scaled, mode=3)", 'Argument "mode"'),
    ("minicompile.compile(scaled, dynamik=True)", "dynamik"),
    ("minicompile.explain(shifted)(1).show()", '"show"'),
    ("minicompile.mark_dynamic(torch.ones(2))", '"dim"')])
def test_a_type_checker_knows_what_is_public(line, wrong, tmp_path):
    pytest.importorskip("mypy")
    script = tmp_path / "used.py"
    script.write_text(USED + line)
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict",
         "--follow-imports=silent", "--cache-dir", tmp_path.parent, script],
        capture_output=True, text=True, cwd=Path(__file__).parents[2])
    found = [each for each in ran.stdout.splitlines() if "error:" in each]
    assert ran.returncode == len(found) == bool(wrong), ran.stdout
    assert not wrong or wrong in found[0]


def test_a_type_checker_knows_every_tool():
    text = inspect.getsource(minicompile)
    typed = ast.parse(text[text.index("if TYPE_CHECKING"):]).body[0].body
    assert TOOLS == {row.module: [each.name for each in row.names]
                     for row in typed}


def test_help_describes_every_argument_mode_and_option():
    text = inspect.getdoc(minicompile.compile)
    for name in inspect.signature(minicompile.compile).parameters:
        assert f"\n{name}: " in text or name == "model"
    for name in minicompile.list_mode_options():
        assert f'"{name}"' in text
    for name in minicompile.list_options():
        assert f"{name}=" in text


def test_the_source_archive_has_the_tests_and_the_book(tmp_path):
    subprocess.run(
        [sys.executable, "-c", "from setuptools import setup; setup()",
         "-q", "egg_info", "--egg-base", tmp_path, "sdist", "--dist-dir",
         tmp_path], cwd=Path(__file__).parents[2], check=True)
    [archive] = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    assert {"minicompile/pipeline.py", "minicompile/report/views/explorer.html",
            "tests/same.py", "tests/emit/golden", "chapters/index.md",
            "chapters/book.css", "chapters/results/trace.json", "mkdocs.yml",
            "Makefile", ".ci/run"} <= names


def test_the_signature_of_forward_shows_through():
    compiled = minicompile.compile(Scaled())
    for each in (compiled, copy.deepcopy(compiled),
                 pickle.loads(pickle.dumps(compiled))):
        assert inspect.signature(each.forward) == inspect.signature(
            Scaled().forward)
        assert each.forward.__doc__ == "Scale, then shift."
        assert each(torch.ones(2), shift=1.0).tolist() == [3, 3]
        assert each.forward(torch.ones(2)).tolist() == [2, 2]


def test_the_module_within_may_be_replaced():
    compiled = minicompile.compile(Scaled())
    assert compiled(torch.ones(1)).item() == 2
    compiled._orig_mod = Scaled(5.0)
    assert compiled(torch.ones(1)).item() == 5
    assert compiled.scale == 5.0


def test_a_container_is_one_in_its_wrapper():
    compiled = minicompile.compile(nn.Sequential(nn.ReLU(), nn.Tanh()))
    assert len(compiled) == 2 and compiled and compiled[1] in compiled
    assert [*compiled] == [*compiled._orig_mod]
    single = minicompile.compile(nn.ReLU())
    assert single
    with pytest.raises(TypeError, match="ReLU"):
        len(single)


def test_a_class_is_compiled_with_its_objects():
    """As torch.compile has it: it stays a class, and its calls compile."""
    @minicompile.compile(fullgraph=True)
    class Shifted(Scaled):
        def forward(self, x):
            return super().forward(x, shift=1.0)

    class Derived(Shifted):
        def forward(self, x):
            return super().forward(x) * 3

    @minicompile.compile
    class Adds:
        def __init__(self, value):
            self.value = value

        def __call__(self, x):
            return x + self.value

    x = torch.ones(2)
    for made, wanted in ((Shifted(), 3), (Derived(), 9), (Adds(5), 6)):
        assert made(x).tolist() == [wanted] * 2
        assert type(made).__call__.stats().graphs
    assert isinstance(Derived(), Shifted) and Adds(1).value == 1
    assert minicompile.compile(nn.Linear, disable=True) is nn.Linear
    assert minicompile.compile(int)("3") == 3


def gpt():
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(
        n_layer=1, n_head=2, n_embd=32, vocab_size=64, n_positions=32,
        bos_token_id=0, eos_token_id=1, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0))


def trained(model, folder):
    """The losses of a few steps of Hugging Face's Trainer."""
    tokens = torch.arange(16 * 16).reshape(16, 16) * 7 % 64
    trainer = Trainer(model, TrainingArguments(
        str(folder), max_steps=4, per_device_train_batch_size=4,
        logging_steps=1, save_strategy="no", report_to=[], use_cpu=True,
        disable_tqdm=True, label_names=["labels"]), train_dataset=[
            {"input_ids": row, "labels": row} for row in tokens])
    trainer.train()
    return trainer, [seen["loss"] for seen in trainer.state.log_history
                     if "loss" in seen]


@pytest.mark.slow(sample=1)
@pytest.mark.parametrize("how", ["in place", "wrapped"])
def test_a_trainer_trains_a_compiled_model(tmp_path, how):
    pytest.importorskip("accelerate")
    _, wanted = trained(gpt(), tmp_path)
    model = gpt()
    if how == "wrapped":
        model = compiled = minicompile.compile(model)
    else:
        minicompile.compile_module_(model)
        compiled = model._compiled_call_impl
    trainer, losses = trained(model, tmp_path)
    assert losses == pytest.approx(wanted, rel=1e-4)
    assert compiled.stats().graphs == 1
    assert "eval_loss" in trainer.evaluate(trainer.train_dataset)
    if how == "in place":
        trainer.save_model(str(tmp_path / "out"))
        again = GPT2LMHeadModel.from_pretrained(tmp_path / "out")
        for name, weight in model.state_dict().items():
            assert torch.equal(again.state_dict()[name], weight)


def test_libraries_unwrap_a_compiled_model(tmp_path):
    """As one of torch.compile: they ask isinstance()."""
    accelerate = pytest.importorskip("accelerate")
    model = gpt()
    compiled = minicompile.compile(model)
    tools, accelerator = accelerate.utils, accelerate.Accelerator(cpu=True)
    assert tools.is_compiled_module(compiled)
    assert not tools.is_compiled_module(model)
    assert tools.has_compiled_regions(nn.Sequential(compiled))
    assert accelerator.prepare(compiled) is compiled
    assert accelerator.unwrap_model(compiled) is compiled
    assert accelerator.unwrap_model(
        compiled, keep_torch_compile=False) is model
    compiled.save_pretrained(tmp_path)
    again = GPT2LMHeadModel.from_pretrained(tmp_path).state_dict()
    assert all(torch.equal(again[name], weight)
               for name, weight in model.state_dict().items())


class Stepped(Scaled):
    """As a LightningModule is; lightning is not installed here."""

    def training_step(self, batch, index):
        return self(batch).sum() * (index + 1)


@pytest.mark.parametrize("backend", ["fused", "a function"])
def test_lightning_compiles_the_steps_of_a_module(backend):
    """The steps of from_compiled() and to_uncompiled() in
    lightning/pytorch/utilities/compile.py."""
    given = dict(fullgraph=True, dynamic=False,
                 options={"recompile_limit": 3})
    if backend != "fused":
        given |= dict(backend=lambda graph, inputs: graph, options=None)
    compiled = minicompile.compile(Stepped(), **given)
    assert isinstance(compiled, torch._dynamo.OptimizedModule)
    module, names = compiled._orig_mod, ("forward", "training_step")
    before = {name: getattr(module, name) for name in names}
    for name in names:
        setattr(module, name, compiled.dynamo_ctx(before[name]))
    x = torch.randn(4)
    for index in range(2):
        torch.testing.assert_close(module.training_step(x, index),
                                   x.sum() * 2 * (index + 1))
    assert module.training_step.stats().graphs == 2
    assert module.training_step.cache.settings == compiled.cache.settings
    for name in names:
        setattr(module, name, before[name])
    assert module(x).equal(x * 2)


def test_a_wrapper_is_of_both_classes():
    compiled = minicompile.compile(Scaled())
    for each in (compiled, copy.deepcopy(compiled), copy.copy(compiled),
                 *(pickle.loads(pickle.dumps(compiled, number))
                   for number in range(2, pickle.HIGHEST_PROTOCOL + 1))):
        assert isinstance(each, CompiledModule)
        assert isinstance(each, torch._dynamo.OptimizedModule)
        assert isinstance(each, nn.Module) and not isinstance(each, Scaled)
        assert each(torch.ones(1)).item() == 2
        assert repr(each).startswith("OptimizedModule(")
        assert type(each).__name__ == "OptimizedModule"


def test_a_copy_of_a_plain_wrapper_is_compiled_by_itself():
    """Of the road's, which libraries do not take for torch.compile's."""
    one = CompiledModule(Scaled(), minicompile.compile(
        Scaled())._compile_settings)
    assert one(torch.ones(1)).item() == 2
    for each in (copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        each.scale, each.note = 3.0, "copied"
        assert each(torch.ones(1)).item() == 3
        assert one(torch.ones(1)).item() == 2 and one.cache is not each.cache


def test_torch_compile_goes_into_what_is_compiled():
    inner = minicompile.compile(lambda x: x.sin() * 2)
    model = minicompile.compile(Scaled())

    @torch.compile(backend="eager", fullgraph=True)
    def outer(x):
        return model(inner(x), shift=1.0) + 1

    x = torch.randn(4)
    torch.testing.assert_close(outer(x), x.sin() * 4 + 2)


@INSTALLED
def test_accelerate_hands_its_graphs_to_our_backend():
    accelerate = pytest.importorskip("accelerate")
    plugin = accelerate.utils.TorchDynamoPlugin(backend="eager")
    plugin.to_kwargs = lambda: {"backend": "minicompile"}
    prepared = accelerate.Accelerator(
        dynamo_plugin=plugin, cpu=True).prepare(Scaled())
    x = torch.randn(4)
    torch.testing.assert_close(prepared(x, shift=1.0), x * 2 + 1)
