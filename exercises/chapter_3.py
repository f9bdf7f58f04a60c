"""Your answers to the exercises of chapter 3.

The tasks: 03-split.md, 03-cut.md, 03-runtime.md, 03-random.md.
`make exercise N=3.1` judges one of them, `make exercise N=3` all.
"""


# 3.1 Whose gradient?
def costs(joint):
    raise NotImplementedError


# 3.2 A formula of your own.
def silu_backward(grad, x):
    raise NotImplementedError


# 3.3 Your own recorder.
def record(graph, example_inputs):
    raise NotImplementedError


# 3.4 By hand.
saved = None
moved = None


# 3.5 Checkpointing.
def checkpoint(joint):
    raise NotImplementedError


# 3.6 Your own partitioner.
def partition(joint_module, joint_inputs, *, num_fwd_outputs, **more):
    raise NotImplementedError


# 3.7 Who shares?
def sharing(joint):
    raise NotImplementedError


# 3.8 Your own runtime.
def make_runtime(joint, pair, forward, backward):
    raise NotImplementedError


# 3.9 Another distribution.
def laplace(unit, mean=0.0, scale=1.0):
    raise NotImplementedError


# 3.10 Fewer rounds.
def philox(seed, offset, position, rounds=10):
    raise NotImplementedError
