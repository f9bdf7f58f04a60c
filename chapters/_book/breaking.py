"""One function for every reason a trace may end early."""

import time

import numpy
import torch

import minicompile


def ask_a_value(x):
    y = x * 2
    if y.sum() > 0:
        return y + 1
    return y - 1


def take_a_number(x):
    return x * x.max().item()


def count_by_values(x):
    return x[x > 1] * 2


def print_a_line(x):
    y = x * 2
    print("half way")
    return y + 1


def leave_for_numpy(x):
    return x + numpy.ones(3, dtype=numpy.float32).sum()


def read_the_clock(x):
    return x + time.time() * 0


def seed_again(x):
    torch.manual_seed(0)
    return x + torch.rand(3)


def ask_for_a_break(x):
    y = x * 2
    minicompile.graph_break()
    return y + 1


@minicompile.disable(reason="for the book")
def left_alone(x):
    return x + 1


def call_left_alone(x):
    return left_alone(x * 2)


def fail_midway(x):
    y = x * 2
    if y.dim() != 2:
        raise ValueError("a matrix, please")
    return y


def take_a_sparse(x):
    return (SPARSE @ x).sum()


SPARSE = torch.eye(3).to_sparse()


def name_a_result(x):
    y = x * 2
    y.mine = 3
    return y + y.mine


def read_a_version(x):
    return x * x._version


def differentiate(x):
    y = x.detach().requires_grad_()
    (y * y).sum().backward()
    return y.grad


def look_at_locals(x):
    y = 3
    return x + len(locals())


def catch_two_at_once(x):
    try:
        raise ExceptionGroup("both", [ValueError(), KeyError()])
    except* ValueError:
        x = x * 2
    except* KeyError:
        x = x + 1
    return x


def take_an_array(x):
    return x + torch.from_numpy(ARRAY)


ARRAY = numpy.ones(3, dtype=numpy.float32)


def ask_where_it_lives(x):
    return x * x.__dlpack_device__()[0]


def write_to_a_part(x):
    PART.clamp_(min=0)
    return WHOLE + x


WHOLE = torch.ones(3)
PART = WHOLE[:2]


def return_a_list_in_itself(x):
    made = [x + 1]
    made.append(made)
    return made


def start_a_coroutine(x):
    waiting = later(x)
    waiting.close()
    return x + 1


async def later(x):
    return x


def without_end(x, depth=0):
    return x if depth > 500 else without_end(x + 1, depth + 1)


class Closing:
    def __del__(self):
        print("closed")


def make_what_closes_itself(x):
    return x + 1, type(Closing()).__name__


def in_a_with(x):
    with torch.no_grad():
        for _ in range(3):
            x = x * 2
            print("turn", torch.is_grad_enabled())
    return x + 1


def third(x):
    y = x + 1
    print("three levels down")
    return y * 2


def second(x):
    return third(x + 1) - 1


def first(x):
    return second(x * 3) * 4


def choose_between_shapes(x):
    return torch.cond(x.sum() > 0, lambda v: v[:1] * 2, torch.sum, (x,))


EXAMPLES = (choose_between_shapes, ask_a_value, take_a_number,
            count_by_values, print_a_line, leave_for_numpy,
            read_the_clock, seed_again, ask_for_a_break,
            call_left_alone, fail_midway, take_a_sparse,
            name_a_result, read_a_version, differentiate,
            look_at_locals, catch_two_at_once, take_an_array,
            ask_where_it_lives, write_to_a_part, return_a_list_in_itself,
            start_a_coroutine, without_end, make_what_closes_itself)
