"""A trace step by step: what each instruction did to stack and graph."""

import pytest
import torch
from torch.nn import functional as F

from chapters._book.walk import traced, walk
from minicompile.core.errors import Unsupported
from chapters._book.steps import steps
from minicompile.trace import trace


def bend(x, w, scale):
    h = F.layer_norm(x @ w, (w.shape[1],))
    return twice(h) if scale != 1 else h


def twice(h):
    return h * 2


ARGUMENTS = torch.ones(4, 8), torch.ones(8, 16), 2


def test_the_steps_are_the_trace_taken_apart():
    taken, made = steps(bend, *ARGUMENTS), trace(bend, ARGUMENTS)
    nodes = [n.split()[0] for step in taken for n in step.nodes]
    assert nodes == [n.name for n in made.graph.graph.nodes
                     if n.op not in ("placeholder", "output")]
    guards = [guard for step in taken for guard in step.guards]
    assert sorted(guards) == sorted(map(str, made.guards))


def test_a_step_shows_the_stack_it_left():
    matmul, = (step for step in steps(bend, *ARGUMENTS)
               if step.nodes == ("matmul f32[4, 16]",))
    assert matmul.opcode == "BINARY_OP" and matmul.argument == "matmul"
    assert matmul.stack[-1] == "f32[4, 16]" and "NULL" in matmul.stack
    assert matmul.line == bend.__code__.co_firstlineno + 1


def test_a_called_function_is_a_frame_deeper():
    taken = steps(bend, *ARGUMENTS)
    assert {step.line - twice.__code__.co_firstlineno
            for step in taken if step.depth == 2} == {1}
    assert taken[-1].depth == 1 and taken[-1].opcode == "RETURN_VALUE"


def test_steps_print_and_draw_themselves():
    taken = steps(bend, *ARGUMENTS)
    lines = str(taken).splitlines()
    assert any("BINARY_OP" in line and "| NULL" in line for line in lines)
    assert "     + matmul f32[4, 16]" in lines
    assert max(map(len, lines)) < 120
    picture = walk(traced(bend, taken), "bend")
    assert picture.count(": BINARY_OP") == 2 and "<b>matmul" in picture


def test_a_trace_that_cannot_go_on_says_so():
    with pytest.raises(Unsupported):
        steps(lambda x: x.item(), torch.ones(1))
