"""torch.nn, followed module by module, in training and in evaluation."""

import pytest
import torch
from torch import nn

import minicompile
from minicompile.report.views import models


def layers():
    """(name, module, arguments)"""
    x, rows = torch.randn(2, 5, 16), torch.randn(8, 16)
    image, target = torch.randn(2, 4, 8, 8), torch.randint(0, 16, (8,))
    yield "linear", nn.Linear(16, 4), (rows,)
    yield "bilinear", nn.Bilinear(16, 16, 3), (rows, rows)
    yield "sequential", nn.Sequential(
        nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.5), nn.Linear(32, 4)), (
            rows,)
    yield "convolution", nn.Conv2d(4, 8, 3, padding="same"), (image,)
    yield "circular", nn.Conv2d(4, 8, 3, padding=1,
                                padding_mode="circular"), (image,)
    yield "transposed", nn.ConvTranspose2d(4, 2, 3, stride=2), (image,)
    yield "batch norm", nn.BatchNorm2d(4), (image,)
    yield "group norm", nn.GroupNorm(2, 4), (image,)
    yield "instance norm", nn.InstanceNorm2d(4, affine=True), (image,)
    yield "layer norm", nn.LayerNorm(16), (rows,)
    yield "rms norm", nn.RMSNorm(16), (rows,)
    yield "pooling", nn.Sequential(
        nn.MaxPool2d(2), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1),
        nn.Flatten()), (image,)
    yield "max pool with indices", nn.MaxPool2d(2, return_indices=True), (
        image,)
    yield "upsample", nn.Upsample(scale_factor=2), (image,)
    yield "embedding", nn.Embedding(20, 4, padding_idx=0), (target,)
    yield "bag", nn.EmbeddingBag(20, 4), (target.view(2, 4),)
    yield "attention", nn.MultiheadAttention(16, 4, batch_first=True), (
        x, x, x)
    yield "encoder layer", nn.TransformerEncoderLayer(
        16, 4, 32, batch_first=True), (x,)
    yield "decoder layer", nn.TransformerDecoderLayer(
        16, 4, 32, batch_first=True), (x, x)
    yield "encoder", nn.TransformerEncoder(nn.TransformerEncoderLayer(
        16, 4, 32, batch_first=True), 2), (x,)
    yield "transformer", nn.Transformer(
        16, 2, 1, 1, 32, batch_first=True), (x, x)
    yield "gru cell", nn.GRUCell(16, 8), (rows,)
    yield "lstm cell", nn.LSTMCell(16, 8), (rows,)
    yield "cross entropy", nn.CrossEntropyLoss(), (rows, target)
    yield "smooth l1", nn.SmoothL1Loss(), (rows, rows + 1)
    yield "activations", nn.Sequential(*[
        kind() for kind in (nn.ReLU, nn.ELU, nn.SiLU, nn.Mish, nn.Tanh,
                            nn.Hardtanh, nn.PReLU, nn.Softplus)]), (rows,)
    yield "softmax", nn.Softmax(dim=-1), (rows,)
    yield "pixel shuffle", nn.PixelShuffle(2), (image,)
    yield "unflatten", nn.Unflatten(1, (2, 2)), (image,)
    yield "mlp", *models.build("mlp")
    yield "gpt", *_small_gpt()
    yield "resnet", *models.build("resnet")


def _small_gpt():
    model = models.GPT(50, 16, 2, 2, 8)
    return model, (torch.randint(0, 50, (2, 8)),
                   torch.randint(0, 50, (2, 8)))


torch.manual_seed(0)
LAYERS = list(layers())


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name, module, args", LAYERS,
                         ids=[row[0] for row in LAYERS])
def test_layer(name, module, args, training, follow):
    follow(module.train(training), *args)


def test_attention_whose_weights_nobody_wants(follow):
    layer = nn.MultiheadAttention(16, 4, batch_first=True).eval()

    def attended(x):
        y, weights = layer(x, x, x, need_weights=False)
        return y, weights is None
    with torch.no_grad():
        follow(attended, torch.randn(2, 5, 16))


class Shared(nn.Module):
    """Tied weights, module lists and dicts, parameters in containers."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.layers = nn.ModuleList([self.a, nn.Linear(4, 4), self.a])
        self.table = nn.ModuleDict({"act": nn.Tanh(), "out": self.a})
        self.scales = nn.ParameterList([torch.ones(4), torch.ones(4) * 2])
        self.b = nn.Linear(4, 4)
        self.b.weight = self.a.weight

    def forward(self, x):
        for _, layer in enumerate(self.layers):
            x = layer(x)
        for name, layer in self.table.items():
            if name == "act":
                x = layer(x)
        for scale in self.scales:
            x = x * scale
        if "out" in self.table:
            x = self.table["out"](x) + self.layers[-1](x)
        first, *_ = self.layers.children()
        count = len(list(self.parameters())) + len(self.layers[1:])
        return self.b(x) + count, [n for n, _ in self.named_parameters()]


def test_shared_parts(follow):
    follow(Shared(), torch.randn(2, 4))


class Caller(nn.Module):
    """Methods besides forward, class attributes, properties, buffers."""

    scale = 3

    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.arange(4.0), persistent=False)
        self.inner = nn.Linear(4, 4, bias=False)
        self.none = None

    @property
    def width(self):
        return self.inner.in_features

    def part(self, x, *, extra=1):
        return self.inner.forward(x) * self.mask + extra

    def forward(self, x, flag=True, **options):
        if self.none is not None or self.inner.bias is not None:
            return x
        if self.training and flag:
            x = self.part(x, extra=self.scale)
        return {"x": x * self.width, **options,
                "w": self.inner.weight.shape, "d": x.device}


def test_methods_and_properties(follow):
    follow(Caller(), torch.randn(2, 4), extra=3)
    follow(Caller().eval(), torch.randn(2, 4), flag=False)


def test_hooks(follow):
    module = Caller()
    calls = []
    module.inner.register_forward_hook(lambda m, a, out: out * 2)
    module.register_forward_pre_hook(
        lambda m, args: (args[0] + 1, *args[1:]))
    module.register_forward_hook(
        lambda m, args, kwargs, out: calls.append(1), with_kwargs=True)
    follow(module, torch.randn(2, 4))


def test_a_module_that_is_already_there(follow):
    """`to` sets the data of each weight, to that weight."""
    def moves(module, x):
        return module.to("cpu").float()(x)
    follow(moves, nn.Linear(4, 4), torch.randn(2, 4))


class Parts(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Identity()
        self.register_buffer("sum", torch.zeros(2))
        self.register_buffer("last", None)
        nn.init.ones_(self.first.weight)
        nn.init.ones_(self.first.bias)


def adds_to_a_buffer(self, x):
    self.sum = self.sum + x
    return self.sum * 2


def fills_a_buffer(self, x):
    self.last = x + 1
    return self.last * 2


def adds_a_module(self, x):
    self.third, self.relu = self.second, nn.ReLU()
    return self.third(self.relu(x)) + 1


def exchanges_modules(self, x):
    self.first, self.second = self.second, self.first
    return self.first(x)


def drops_modules(self, x):
    self.third, self.second = self.second, None
    del self.third
    return x * 2 if self.second is None else x


@pytest.mark.parametrize("write", [
    adds_to_a_buffer, fills_a_buffer, adds_a_module, exchanges_modules,
    drops_modules], ids=lambda write: write.__name__)
def test_parts_are_set(write):
    ours, theirs = Parts(), Parts()
    compiled = minicompile.compile(write, fullgraph=True, backend="eager")
    for x in torch.eye(2):
        assert torch.equal(compiled(ours, x), write(theirs, x))
        for part in ("_parameters", "_buffers", "_modules"):
            assert list(vars(ours)[part]) == list(vars(theirs)[part])
        for mine, its in zip(ours.state_dict().items(),
                             theirs.state_dict().items()):
            assert mine[0] == its[0] and torch.equal(mine[1], its[1])


class Between(nn.Module):
    def forward(self, input, target):
        return input - target


class Scaled:
    def __call__(self, target, args=2):
        return target * args


def test_arguments_have_the_names_that_the_program_gives_them():
    x = torch.ones(2)
    compiled = minicompile.compile(Between(), backend="eager")
    assert compiled(input=x * 3, target=x).tolist() == [2, 2]
    compiled = minicompile.compile(Scaled(), backend="eager")
    assert compiled(target=x, args=4).tolist() == [4, 4]
