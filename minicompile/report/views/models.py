"""The models the book compiles: an MLP, a small GPT, a small ResNet.

Plain PyTorch, written the way people write it. `build` gives a model
and a batch of its size; every model takes the batch and returns a loss.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Classifier(nn.Module):
    """Layers, and a loss of their results; inputs, classes -> loss."""

    def __init__(self, *layers: nn.Module):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(self.layers(x), target)


def mlp() -> Classifier:
    """Three linear layers, for (batch, 64)."""
    return Classifier(
        nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(),
        nn.Linear(256, 10))


class Attention(nn.Module):
    """Causal self-attention over (batch, time, width)."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        q, k, v = [part.view(batch, time, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(x).split(width, dim=2)]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).reshape(batch, time, width)
        return self.out(y)


class Block(nn.Module):
    """One transformer layer: attention and an MLP, normalised before."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                 nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """A small GPT; (batch, time) tokens and targets -> loss."""

    def __init__(self, vocabulary: int = 1000, width: int = 256,
                 layers: int = 4, heads: int = 4, time: int = 128):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(time, width)
        self.blocks = nn.ModuleList(
            Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor, target: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.places(places)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), target.flatten())


class Residual(nn.Module):
    """Two convolutions and a shortcut over (batch, channels, h, w)."""

    def __init__(self, channels: int, out: int, stride: int = 1):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(out)
        self.shortcut = (nn.Identity() if stride == 1 and channels == out
                         else nn.Conv2d(channels, out, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


def resnet() -> Classifier:
    """A small ResNet, for (batch, 3, h, w) images."""
    return Classifier(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), Residual(16, 16),
        Residual(16, 32, 2), Residual(32, 64, 2), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(64, 10))


def lines() -> tuple[Tensor, Tensor]:
    """A batch of tokens, and for each the one that comes next."""
    tokens = torch.randint(1000, (4, 129))
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


#: The models by name, each with what draws a batch.
MODELS = {
    "mlp": (mlp, lambda: (torch.randn(32, 64), torch.randint(10, (32,)))),
    "gpt": (GPT, lines),
    "resnet": (resnet, lambda: (torch.randn(8, 3, 32, 32),
                                torch.randint(10, (8,)))),
}


def build(name: str, device: str = "cpu",
          seed: int = 0) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """The model and one batch, the same for the same seed."""
    torch.manual_seed(seed)
    make, draw = MODELS[name]
    with torch.device(device):
        batch = draw()
    return make().to(device), batch
