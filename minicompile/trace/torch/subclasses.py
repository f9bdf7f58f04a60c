"""Inputs of a user's class of tensors: their parts are the graph's inputs.

In: a tensor of a class with `__tensor_flatten__`. Out: the same of fake
parts, as a node that puts them together. The code of its class runs on
fake parts, and no trace looks into it. A tensor that requires a gradient is
refused: the call is eager, as without this file.
PyTorch's is torch/_dynamo/variables/builder.py (wrap_tensor).
"""

import torch

from ...core.guard import Attribute, Call, Source
from ...core.torch.subclasses import (Together, besides_parts,
                                      has_parts)
from ..reasons import WAYS, unsupported


def of_parts(outside, real: torch.Tensor, source: Source) -> torch.Tensor:
    """The stand-in of a tensor, put together from those of its parts."""
    kind, together = type(real), has_parts(real) and Together(real)
    if not together:
        raise unsupported("input", f"a {kind.__name__}, {source},")
    outside.guard(source, "type", kind)
    outside.guard(Call(outside.constant(besides_parts), source), "equal",
                  together.text)
    parts = [outside.admit(getattr(real, name), Attribute(source, name))
             for name in together.names]
    made = outside.remember(real, outside.recorder.run(
        "call_function", together, together, parts, {}), source)
    if outside.space("attributes", made).written:
        raise unsupported("effect", "a change of a tensor of parts")
    return made


WAYS["subclass"] = of_parts
