"""Your answers to the exercises of chapter 2.

The tasks: 02-guards.md, 02-dynamic.md.
`make exercise N=2.1` judges one of them, `make exercise N=2` all.
"""


# 2.1 Spare a question.
def spare(guards):
    raise NotImplementedError


# 2.2 In which order?
def ordered(questions):
    raise NotImplementedError


# 2.3 Which entry to try?
def telling(checks):
    raise NotImplementedError


# 2.4 Replace this stage with yours.
def build_check(guards, constants, inputs=()):
    raise NotImplementedError


# 2.5 How many graphs?
def compiles(shapes):
    raise NotImplementedError


# 2.6 What are we ready for?
def ready(compiled, make, sizes):
    raise NotImplementedError


# 2.7 Replace this stage with yours.
def bucketed(function):
    raise NotImplementedError
