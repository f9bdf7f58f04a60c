"""One table from ATen operator to lowering rule, and who may use it."""

from __future__ import annotations

import operator
from collections.abc import Callable

import torch
from torch import fx

from ..core.graph import tensors_of
from ..core.graph import value as fake_of
from .picks import PICKS
from .pointwise import POINTWISE
from .random import RANDOM
from .reductions import REDUCTIONS
from .views import GATHERING, VIEWS

RULES: dict[str, Callable] = {**POINTWISE, **GATHERING, **VIEWS,
                              **REDUCTIONS, **PICKS, **RANDOM}

#: What loops compute with; anything else (complex, float8) is an Extern.
DTYPES = {torch.float32, torch.float64, torch.float16, torch.bfloat16,
          torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
          torch.bool}


def rule_of(node: fx.Node, rules: dict = RULES) -> Callable | None:
    """The rule for a node's operator: by overload, or by name."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return None
    name = str(node.target).removeprefix("aten.")
    return rules.get(name) or rules.get(name.rpartition(".")[0])


def has_loops(node: fx.Node) -> bool:
    """Whether loops can compute the node: it has a rule, elements of
    dtypes that loops know, and all its tensors are on one device."""
    if node.target is operator.getitem:
        return has_loops(node.args[0])
    if rule_of(node) is None:
        return False
    made = tensors_of(fake_of(node))
    read = [t for n in node.all_input_nodes
            for t in tensors_of(fake_of(n))]
    return bool(made) and all(
        t.dtype in DTYPES and t.layout == torch.strided and t.numel()
        and t.device == made[0].device for t in (*made, *read))


def is_view(node: fx.Node) -> bool:
    """Whether the node only looks at its input in another way."""
    return node.target is operator.getitem or (
        rule_of(node, VIEWS) is not None and has_loops(node))
