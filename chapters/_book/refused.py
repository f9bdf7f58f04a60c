"""One function for each reason that a graph runs as it was traced."""

import torch


@torch.library.custom_op("book::halve_", mutates_args={"x"})
def halve_(x: torch.Tensor) -> None:
    x.copy_(x / 2)


@torch.library.custom_op("book::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x):
    return torch.empty_like(x)


def write_in_an_operator_of_ones_own(x):
    y = x.sin()
    halve_(y)
    return y


def operator_without_a_backward(x):
    return twice(x)


def window_over_gaps(x):
    return x[:, ::2].as_strided((2, 2), (1, 1))


def differentiate_eigenvectors(x):
    return torch.linalg.eig(x).eigenvalues.abs()


def sparse_gradient(x):
    return torch.nn.functional.embedding(torch.tensor([2, 0]), x, sparse=True)


EXAMPLES = (write_in_an_operator_of_ones_own, operator_without_a_backward,
            window_over_gaps, differentiate_eigenvectors, sparse_gradient)
