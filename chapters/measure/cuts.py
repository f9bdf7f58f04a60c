"""What the cut saves on models of real width: ours beside PyTorch's.

Each model is a few layers, recorded on fake tensors, with one joint graph
for both. Bytes are what the backward is given that are no inputs, each memory
counted once; arithmetic is that of matmuls, convolutions and attention
computed once more, elements are those of all other ops, and seconds those
that keeping and recomputing take by our prices, on one machine's GPU.
Writes chapters/results/cuts.json. Run: python -m chapters.measure.cuts
"""

from __future__ import annotations

import copy
import sys
from math import prod

import torch
from functorch.compile import min_cut_rematerialization_partition
import torch.nn.functional as F
from torch import nn

from chapters.measure.timing import save
from minicompile import split
from minicompile.split.prices import min_cut
from minicompile.core.machines import cost
from minicompile.core.graph import nbytes, placeholders, tensors_of, value
from minicompile.split.joint import root
from minicompile.split.prices.min_cut import Prices


MIB = 2 ** 20


class Bottleneck(nn.Module):
    """ResNet-50's block: 1x1, 3x3, 1x1, and what goes around them."""

    def __init__(self, wide: int, narrow: int, out: int, stride: int):
        super().__init__()
        self.layers = nn.ModuleList([
            nn.Conv2d(wide, narrow, 1, bias=False),
            nn.Conv2d(narrow, narrow, 3, stride, 1, bias=False),
            nn.Conv2d(narrow, out, 1, bias=False)])
        self.norms = nn.ModuleList(
            [nn.BatchNorm2d(n) for n in (narrow, narrow, out)])
        self.around = nn.Sequential(
            nn.Conv2d(wide, out, 1, stride, bias=False),
            nn.BatchNorm2d(out)) if wide != out else nn.Identity()

    def forward(self, x):
        y = x
        for k, (layer, norm) in enumerate(zip(self.layers, self.norms)):
            y = norm(layer(y))
            y = y.relu() if k < 2 else y
        return (y + self.around(x)).relu()


def resnet50() -> nn.Module:
    """All of it."""
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64),
              nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    wide = 64
    for stage, blocks in enumerate([3, 4, 6, 3]):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            out = 256 << stage
            layers.append(Bottleneck(wide, out // 4, out, stride))
            wide = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(wide, 1000))


class Captured(Exception):
    """Raised in place of running the graph."""


def captured(call):
    """The torch-level graph of a call, with its inputs, from Dynamo."""
    def backend(graph, inputs):
        found = graph, inputs

        def run(*given):
            raise Captured(*found)
        return run

    torch._dynamo.reset()
    try:
        torch.compile(call, backend=backend, fullgraph=True)()
    except Captured as found:
        return found.args


def cases():
    """(name, a call that gives the loss)."""
    import transformers as t

    def tokens(vocab, *shape):
        return torch.randint(vocab, shape)

    def loss(logits, labels):
        return F.cross_entropy(logits.flatten(0, -2), labels.flatten())

    ids = tokens(50257, 4, 512)
    gpt2 = t.GPT2LMHeadModel(t.GPT2Config(
        n_layer=4, use_cache=False, resid_pdrop=0, embd_pdrop=0,
        attn_pdrop=0))
    yield "GPT-2", lambda: loss(gpt2(input_ids=ids).logits, ids)
    llama = t.LlamaForCausalLM(t.LlamaConfig(
        hidden_size=2048, intermediate_size=8192, num_hidden_layers=2,
        num_attention_heads=32, num_key_value_heads=8, vocab_size=32000,
        use_cache=False))
    words = tokens(32000, 4, 1024)
    yield "Llama", lambda: loss(llama(input_ids=words).logits, words)
    bert = t.BertForMaskedLM(t.BertConfig(
        num_hidden_layers=4, hidden_dropout_prob=0,
        attention_probs_dropout_prob=0))
    masked = tokens(30522, 16, 128)
    yield "BERT", lambda: loss(
        bert(input_ids=masked).logits, masked)
    vit = t.ViTForImageClassification(t.ViTConfig(
        num_hidden_layers=4, hidden_dropout_prob=0,
        attention_probs_dropout_prob=0))
    image = torch.randn(16, 3, 224, 224)
    label = torch.zeros(16, dtype=torch.long)
    yield "ViT", lambda: loss(vit(pixel_values=image).logits, label)
    resnet = resnet50()
    yield "ResNet-50", lambda: resnet(image).logsumexp(1).mean()


def torch_backward(joint: split.Joint) -> torch.fx.GraphModule:
    """The backward that PyTorch's min-cut makes of a joint graph."""
    return min_cut_rematerialization_partition(
        copy.deepcopy(joint.graph), None,
        num_fwd_outputs=joint.forward_outputs,
        static_lifetime_input_indices=list(joint.gradients))[1]


def kept(joint: split.Joint, backward) -> dict:
    """What a backward is given and computes once more."""
    named = {node.name: node for node in joint.early}
    held = {root(named[node.name]) for node
            in placeholders(backward.graph) if node.name in named}
    costs = Prices(joint)
    again = [named[node.name] for node in backward.graph.nodes
             if node.op == "call_function" and node.name in named]
    return {
        "saved_mib": sum(nbytes(value(node)) for node in held
                         if node.op != "placeholder") / MIB,
        "microseconds": costs.plan({
            node.name for node in held & costs.prices.keys()}).seconds * 1e6,
        "again_gflop": sum(map(cost.flops, again)) / 1e9,
        "again_melements": sum(
            prod(tensor.shape) for node in again if cost.kind(node) != "free"
            and not cost.flops(node)
            for tensor in tensors_of(value(node))) / 1e6}


def main(*names: str) -> None:
    """Measure and save; prices are those of the GPU, shapes are real."""
    rows = []
    cost.MACHINES["cpu"] = cost.MACHINES["cuda"]
    for name, call in cases():
        if names and name not in names:
            continue
        joint = split.record(*captured(call))
        pair = split.partition(joint, min_cut.cut(joint).saved)
        rows.append({"model": name, "ours": kept(joint, pair.backward),
                     "torch": kept(joint, torch_backward(joint))})
        print(rows[-1], flush=True)
    if not names:
        save("cuts", rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
