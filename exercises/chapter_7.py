"""Your answers to the exercises of chapter 7.

The tasks: 07-budget.md.
`make exercise N=7.1` judges one of them, `make exercise N=7` all.
"""


# 7.1 Every plan.
def best(joint, ceiling):
    raise NotImplementedError


# 7.2 The curve.
def curve(joint, steps):
    raise NotImplementedError


# 7.3 Your own budget.
def choose(joint, budget, *, cut):
    raise NotImplementedError
