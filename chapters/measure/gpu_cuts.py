"""GPT-2 and BERT trained on a GPU with our cut, and with PyTorch's.

    python -m chapters.measure.gpu_cuts

Both cut the same joint graphs, and the same stages make kernels of the
halves, so that they differ in what is saved alone. There is no dropout,
so that they save no mask. Writes chapters/results/gpu_cuts.json.
"""

from __future__ import annotations

from unittest import mock

import torch

import minicompile
from chapters.measure.cuts import torch_backward
from chapters.measure.gpu_transformers import bert, gpt2, memory, step
from chapters.measure.timing import compare, save
from minicompile.dispatch.policy import plans
from minicompile.budget.memory import bound
from minicompile.core.graph import placeholders

MODELS = {
    "GPT-2": (gpt2, ("resid_pdrop", "embd_pdrop", "attn_pdrop")),
    "BERT": (bert, ("hidden_dropout_prob", "attention_probs_dropout_prob"))}


def torch_choice(joint, share: float, **_) -> frozenset[str]:
    """What PyTorch's cut saves, as `choose` names it."""
    if not joint.tangents:
        return frozenset()
    given = placeholders(torch_backward(joint).graph)
    return frozenset({node.name for node in given}
                     & {node.name for node in joint.early})


#: Who cuts, and what chooses the values to save.
CUTS = {"ours": bound.choose, "torch": torch_choice}


def measure(name: str) -> dict:
    """One model's row: for each cut the memory and the time of a step."""
    make, dropouts = MODELS[name]
    model, shape = make(**dict.fromkeys(dropouts, 0.0))
    model = model.cuda().train()
    batch = torch.randint(model.config.vocab_size, shape, device="cuda")
    row, calls = {"model": name}, {}
    for who, choose in CUTS.items():
        compiled = minicompile.compile(model)
        with mock.patch.object(plans, "choose", choose):
            calls[who] = step(compiled, batch)
            calls[who]()
        row[who] = memory(compiled, batch)
    seconds = compare(calls, rounds=15, seconds=0.3, cuda=True)
    for who in CUTS:
        row[who]["step ms"] = seconds[who] * 1e3
    return row


if __name__ == "__main__":
    save("gpu_cuts", [measure(name) for name in MODELS])
