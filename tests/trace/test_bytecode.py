"""Decoded bytecode agrees with what `dis` says of it."""

import dis
import json
import types

import pytest
import torch

from minicompile.trace.bytecode import Bytecode, decode


def codes():
    """Code objects of several shapes, nested ones included."""
    found = []
    for module in (json.decoder, torch.nn.functional, dis, types):
        found += [f.__code__ for f in vars(module).values()
                  if isinstance(f, types.FunctionType)]
    for code in found:
        found += [c for c in code.co_consts
                  if isinstance(c, types.CodeType)]
    return found


CODES = codes()


def test_lines_and_offsets():
    for code in CODES:
        known = {i.offset: i for i in dis.get_instructions(code)}
        for step in decode(code).instructions:
            assert step.offset in known
            positions = known[step.offset].positions
            assert positions.lineno in (None, step.line)


def test_jumps_land_where_dis_says():
    for code in CODES:
        program = decode(code)
        for step in program.instructions:
            if "JUMP" in step.name:
                target = program.instructions[step.argument]
                said = next(i for i in dis.get_instructions(code)
                            if i.offset == step.offset).argval
                assert target.offset >= said
                between = [i.opname for i in dis.get_instructions(code)
                           if said <= i.offset < target.offset]
                assert all(name in ("NOP", "RESUME", "EXTENDED_ARG",
                                    "PRECALL", "CACHE") for name in between)


def test_handlers_are_those_of_the_exception_table():
    for code in CODES:
        theirs = dis.Bytecode(code).exception_entries
        ours = decode(code).handlers
        assert [(h.start, h.end, h.depth, h.lasti) for h in ours] == [
            (e.start, e.end, e.depth, e.lasti) for e in theirs]


def test_code_is_decoded_once():
    def f(x):
        return x + 1

    program = decode(f.__code__)
    assert isinstance(program, Bytecode) and decode(f.__code__) is program
    names = [step.name for step in program.instructions]
    assert "BINARY_OP" in names and names[-1] == "RETURN_VALUE"


@pytest.mark.parametrize("name", ["LOAD_FAST_LOAD_FAST", "PRECALL",
                                  "LOAD_METHOD", "RETURN_CONST"])
def test_one_versions_opcodes_are_gone(name):
    assert not any(step.name == name for code in CODES
                   for step in decode(code).instructions)
