"""Random programs of views, writes, aliases and gradients.

    python -m tests.split.programs [first seed] [count] [dynamic]

compares that many with eager in float64 and prints what differs; dynamic:
one recording with symbolic sizes for several sizes.
"""

from __future__ import annotations

import random
import sys
import traceback
from collections import Counter
from dataclasses import dataclass

import torch

from minicompile.core.errors import BackendError
from tests.split import dynamic
from tests.split.judge import assert_same, observe

VIEWS = """{a}.t() | {a}.transpose(0, -1) | {a}.view(-1) | {a}[0]
    | {a}[:, 0] | {a}[1:] | {a}[..., ::2] | {a}[None] | {a}.unsqueeze(-1)
    | {a}.squeeze() | {a}.reshape(-1) | {a}.diagonal() | {a}.detach()
    | {a}.expand(2, *{a}.shape) | {a}.narrow(0, 0, 1) | {a}.view_as({a})
    | {a}.unfold(0, 2, 1) | {a}.chunk(2)[0] | {a}.split(1)[-1]
    | {a}.unbind(0)[1] | {a}.flatten()
    | {a}.permute( *reversed(range({a}.dim()))) | {a}.swapaxes(0, -1)
    | {a}.contiguous() | {a}.T | {a}.movedim(0, -1)
    | {a}.contiguous().clone().as_strided((2,), (1,)) | {a}.expand_as({a})
    | {a}.view(2, -1)"""
# Eager's median of an expanded tensor reads beyond its memory: contiguous.
VALUES = """{a}.sin() | {a} * 2 | {a} + {b} | {a} * {b} | {a} - {b}
    | torch.where({a} > 0, {a}, {b}) | {a}.relu() | {a}.tanh() | {a}.clone()
    | {a}.sum(0) | {a}.sum() | {a}.mean(-1, keepdim=True) | {a}.softmax(-1)
    | {a}.amax(0) | {a}.cumsum(0) | {a}.var(-1) | {a}.abs() | {a}.sigmoid()
    | torch.maximum({a}, {b}) | {a}.logsumexp(-1) | torch.cat([{a}, {a}])
    | torch.stack([{a}, {b}]) | {a} @ {b} | {a}.flip(0) | {a}.roll(1)
    | F.gelu({a}) | F.pad({a}, (1, 1)) | F.layer_norm({a}, {a}.shape[-1:])
    | {a}.clamp(-1, 1) | -{a} | {a}.repeat(2, *[1] * ({a}.dim() - 1))
    | {a}.gather(0, ({a} > 0).long()) | {a}[torch.tensor([0, 1, 0])]
    | {a}.masked_fill({a} > 0.5, 0.25)
    | {a}.index_select(0, torch.tensor([1, 0])) | {a}.exp().log1p()
    | torch.zeros_like({a}) | torch.addcmul({a}, {b}, {a}) | {a}.prod(0)
    | F.dropout({a}.contiguous(), 0.5) | {a}.contiguous().median(0)[0]
    | {a}.sort(-1)[0]
    | torch.tensor([1.0, 2.0], dtype=torch.float64) | {a}.lerp({b}, 0.3)
    | ({a} > {b}).to({a}.dtype) | {a}.tril() | {a}.norm() | {a}.max(0)[0]"""
WRITES = """{a}.add_(1) | {a}.mul_({c}) | {a}.copy_({c}) | {a}.sin_()
    | {a}.relu_() | {a}.zero_() | {a}.fill_(0.5) | {a}.sub_({c}, alpha=2)
    | {a}.masked_fill_({a} > 0, 0.25) | {a}.clamp_(min=0) | {a}.t_()
    | {a}.index_add_(0, torch.tensor([0]), {c}[:1]) | {a}.exp_()
    | {a}.scatter_(0, torch.zeros_like({a}, dtype=torch.long), {c})
    | {a}.lerp_({c}, 0.5) | {a}.addcmul_({a}.clone(), {c}) | {a}.neg_()
    | {a}.index_copy_(0, torch.tensor([1]), {c}[:1])
    | {a}.__setitem__(0, {c}[0]) | {a}.__setitem__((..., 0), 2.0)
    | {a}.__setitem__(slice(1, None), {c}[1:]) | {a}.detach_()
    | {a}.__setitem__({a} > 0, 0.0) | {a}[0].mul_(2) | {a}[:, 1].add_({c})
    | {a}.diagonal().add_(1) | {a}.view(-1)[1:].mul_(3) | {a}.t().add_({c})
    | {a}.detach().add_(1) | {a}.detach().mul_(2)
    | torch.add({a}, {c}, out={a})
    | {a}.index_put_((torch.tensor([0, 0]),), {c}[:1], accumulate=True)
    | {a}.resize_(2) | {a}.expand_as({a}).add_(1)"""


def table(text: str) -> list[str]:
    """The statements between the bars."""
    return [" ".join(part.split()) for part in text.split("|")]


KINDS = [(table(VIEWS), 4, True), (table(VALUES), 4, True),
         (table(WRITES), 3, False)]
SHAPES = [(3,), (2, 3), (3, 3), (4, 2), (2, 2, 3), (1, 3), (3, 1), (4,),
          ()]


@dataclass(frozen=True)
class Program:
    """A function's source, and the inputs to call it with."""

    seed: int
    source: str
    inputs: tuple
    leaves: bool  # inputs that require grad are leaves

    def function(self):
        """The function that the source defines."""
        scope = {"torch": torch, "F": torch.nn.functional}
        exec(self.source, scope)
        return scope["program"]


def make(seed: int, length: int = 8) -> Program:
    """The program of this seed; every line of it runs in eager."""
    choose = random.Random(seed)
    torch.manual_seed(seed)
    inputs = [make_input(choose) for _ in range(choose.randint(1, 3))]
    names = [f"x{k}" for k in range(len(inputs))]
    scope = {"torch": torch, "F": torch.nn.functional}
    for name, value in zip(names, inputs):
        scope[name] = value.detach().clone(
            memory_format=torch.preserve_format).requires_grad_(
            value.requires_grad) * 1  # a non-leaf may be written to
    lines, made = [], list(names)
    leafy = choose.random() < 0.5
    leaves = {name for name, value in zip(names, inputs)
              if leafy and value.requires_grad}
    while len(lines) < length:
        line, result = statement(choose, made, leaves, len(lines))
        try:
            exec(line, scope)
        except (RuntimeError, IndexError, TypeError, ValueError):
            continue
        lines.append(line)
        if result:
            made.append(result)
    results = choose.sample(made, choose.randint(1, min(4, len(made))))
    body = "\n".join(f"    {line}" for line in lines)
    return Program(seed, f"def program({', '.join(names)}):\n{body}\n"
                   f"    return {', '.join(results)},\n", tuple(inputs),
                   leafy)


def make_input(choose: random.Random) -> torch.Tensor:
    """A tensor: some transposed, some with gaps, some requiring grad."""
    shape = choose.choice(SHAPES)
    value = torch.randn(shape, dtype=torch.float64)
    match choose.randint(0, 5):
        case 0 if len(shape) == 2:
            value = torch.randn(shape[::-1], dtype=torch.float64).t()
        case 1 if shape:
            value = torch.randn(*shape, 2, dtype=torch.float64)[..., 0]
    return value.requires_grad_(choose.random() < 0.5)


def statement(choose: random.Random, made: list[str], leaves: set[str],
              number: int) -> tuple[str, str | None]:
    """One line, and the name it defines if it does."""
    forms, _, defines = choose.choices(
        KINDS, [weight for _, weight, _ in KINDS])[0]
    targets = made if defines else [n for n in made if n not in leaves]
    a = choose.choice(targets or made)
    b = choose.choice(made)
    line = choose.choice(forms).format(a=a, b=b, c=f"{b}.clone()")
    result = f"v{number}" if defines else None
    if result:
        line = f"{result} = {line}"
    if choose.random() < 0.1:
        line = f"with torch.no_grad(): {line}"
    return line, result


def everything(joint) -> set[str]:
    """Save all that the forward computes."""
    return {node.name for node in joint.early}


def judge(program: Program, saved=None) -> str:
    """"same", or why the program was refused; raises if it differs."""
    fn = program.function()
    try:
        torch.manual_seed(0)
        observe(fn, program.inputs, program.leaves)
    except (RuntimeError, IndexError) as error:
        return f"eager: {str(error)[:60]}"
    try:
        assert_same(fn, *program.inputs, calls=1, saved=saved,
                    leaves=program.leaves)
    except BackendError as refusal:
        return f"refused: {reason(refusal)}"
    return "same"


def judge_dynamic(program: Program, saved=None) -> str:
    """As `judge`, one recording with symbolic sizes at several sizes."""
    fn = program.function()
    calls = []
    for more in (0, 1, 3):
        inputs = [grown(each, more) for each in program.inputs]
        try:
            torch.manual_seed(0)
            observe(fn, inputs, program.leaves)
        except (RuntimeError, IndexError) as error:
            if not more:
                return f"eager: {str(error)[:60]}"
        else:
            calls.append(inputs)
    try:
        _, allowed = dynamic.assert_same(
            fn, *calls, saved=saved, leaves=program.leaves,
            duck=bool(program.seed % 3))
    except BackendError as refusal:
        return f"refused: {reason(refusal)}"
    return "same" if allowed == 1 else "same at other sizes too"


def grown(value: torch.Tensor, more: int) -> torch.Tensor:
    """Another tensor laid out alike, every size but 1 larger by `more`."""
    if not more:
        return value
    shape = [size + more * (size > 1) for size in value.shape]
    made = torch.randn(shape, dtype=value.dtype)
    if value.dim() == 2 and value.stride(0) < value.stride(1):
        made = torch.randn(shape[::-1], dtype=value.dtype).t()
    elif value.dim() and not value.is_contiguous():
        made = torch.randn(*shape, 2, dtype=value.dtype)[..., 0]
    return made.requires_grad_(value.requires_grad)


def reason(refusal: BackendError) -> str:
    """The first line of what went wrong, the names left out."""
    return str(refusal).split("failed:")[-1].strip().split("\n")[0][:90]


def outcomes(seeds, judge=judge) -> Counter:
    """How the programs of these seeds end; raises for one that differs."""
    found = Counter()
    for seed in seeds:
        program = make(seed)
        try:
            found[judge(program, [None, everything][seed % 2])] += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}:\n{program.source}"
                                 ) from error
    return found


def main(first: int = 0, count: int = 1000, judge=judge) -> None:
    """Compare `count` programs; print what differs and a summary."""
    outcomes: dict[str, int] = {}
    for seed in range(first, first + count):
        program = make(seed)
        try:
            outcome = judge(program, [None, everything][seed % 2])
        except Exception as error:
            outcome = "DIFFERS"
            print(f"seed {seed}\n{program.source}\n"
                  f"{type(error).__name__}: {str(error)[:1500]}\n")
            if not isinstance(error, AssertionError):
                traceback.print_exc(limit=-6)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    for outcome, times in sorted(outcomes.items(), key=lambda p: -p[1]):
        print(times, outcome)


if __name__ == "__main__":
    judges = [judge_dynamic] * ("dynamic" in sys.argv)
    main(*map(int, sys.argv[1:3]), *judges)
