"""Random programs of tensors: what no one thought of testing."""

import random

import torch

SHAPES = [(4, 6), (6, 4), (2, 3, 4), (24,), (6,), (4,), (1, 6), (4, 1), ()]


class Program:
    """A random function of a few tensors, the same for the same seed."""

    def __init__(self, seed: int, steps: int = 14):
        self.random = random.Random(seed)
        self.shapes = self.random.sample(SHAPES, 4)
        self.seed, self.steps = seed, steps
        self.__name__ = f"program_{seed}"

    def inputs(self, dtype=torch.float64):
        torch.manual_seed(self.seed)
        return [torch.randn(shape, dtype=dtype) for shape in self.shapes]

    def __call__(self, *inputs):
        choose = random.Random(self.seed)
        pool = list(inputs)
        for _ in range(self.steps):
            made = choose.choice(self.moves)(choose, pool)
            if made is not None:
                pool.append(made)
        new = pool[len(inputs):] or [pool[0] + 1]
        return tuple(choose.sample(new, min(len(new), 3))) + (new[-1],)


def fitting(choose, pool):
    """Two tensors of the pool that broadcast with each other."""
    for _ in range(20):
        a, b = choose.choice(pool), choose.choice(pool)
        try:
            torch.broadcast_shapes(a.shape, b.shape)
            return a, b
        except RuntimeError:
            continue
    return pool[0], pool[0]


def unary(choose, pool):
    name = choose.choice("sin cos exp tanh sigmoid abs neg relu".split())
    return getattr(torch, name)(choose.choice(pool).clamp(-3, 3))


def binary(choose, pool):
    name = choose.choice("add sub mul maximum minimum".split())
    return getattr(torch, name)(*fitting(choose, pool))


def chosen(choose, pool):
    a, b = fitting(choose, pool)
    return torch.where(a > b, a, b * 2)


def reduction(choose, pool):
    a = choose.choice(pool)
    axes = choose.sample(range(a.dim()), choose.randint(0, a.dim()))
    name = choose.choice("sum mean amax amin var".split())
    if name == "var":
        return torch.var(a, axes or None, correction=0,
                         keepdim=choose.random() < 0.5)
    if name in ("amax", "amin") and not axes:
        axes = list(range(a.dim()))
    return getattr(torch, name)(a, axes, keepdim=choose.random() < 0.5)


def reshape(choose, pool):
    a = choose.choice(pool)
    shapes = {24: [(4, 6), (6, 4), (2, 3, 4), (24,), (2, 12), (3, 8)],
              6: [(6,), (1, 6), (2, 3), (3, 2)], 4: [(4,), (4, 1), (2, 2)]}
    if a.numel() in shapes:
        return a.reshape(choose.choice(shapes[a.numel()]))


def view(choose, pool):
    a = choose.choice(pool)
    if not a.dim():
        return a.expand(4)
    axis = choose.randrange(a.dim())
    return choose.choice([
        lambda: a.transpose(0, axis), lambda: a.flip(axis),
        lambda: a.unsqueeze(axis), lambda: a.select(axis, -1),
        lambda: a.narrow(axis, 0, max(a.shape[axis] - 1, 1)),
        lambda: a[..., ::2], lambda: a.contiguous(), lambda: a.clone(),
        lambda: a.expand(2, *a.shape)])()


def joined(choose, pool):
    a = choose.choice(pool)
    if not a.dim():
        return torch.stack([a, a + 1])
    axis = choose.randrange(a.dim())
    return choose.choice([
        lambda: torch.cat([a, a * 2], axis),
        lambda: torch.nn.functional.pad(a, (1, 2), value=0.5),
        lambda: torch.nn.functional.pad(a, (-1, 1)) if a.shape[-1] > 1
        else a + 0,
        lambda: torch.stack([a, a.sin()], axis)])()


def picked(choose, pool):
    """A few elements or rows, at places that other elements tell."""
    a = choose.choice(pool)
    if not a.dim():
        return None
    axis = choose.randrange(a.dim())
    size, some = a.shape[axis], choose.choice(pool).flatten()[
        :choose.randint(1, 3)]
    places = (some.nan_to_num().clamp(-3, 3) * 7).long() % size
    one = places[0].expand([1 if k == axis else n
                            for k, n in enumerate(a.shape)])
    return choose.choice([
        lambda: a.index_select(axis, places), lambda: a.gather(axis, one),
        lambda: a.movedim(axis, 0)[places - size],
        lambda: a.movedim(axis, 0)[places, ..., places % a.shape[0]]
        if axis == 1 and a.dim() == 2 else a[..., places[:1] % 1]])()


def product(choose, pool):
    for _ in range(20):
        a, b = choose.choice(pool), choose.choice(pool)
        if a.dim() == b.dim() == 2 and a.shape[1] == b.shape[0]:
            return a @ b


Program.moves = [unary, unary, binary, binary, binary, chosen, reduction,
                 reduction, reshape, view, view, joined, product, picked]
