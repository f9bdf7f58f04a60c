"""Your answers to the exercises of chapter 1.

The tasks: 01-trace.md, 01-breaks.md, 01-graphs.md.
`make exercise N=1.1` judges one of them, `make exercise N=1` all.
"""


# 1.1 A row for an opcode.
row = None


# 1.2 Predict.
operators = None
relied_on = None


# 1.3 Who looked?
def blame(trace):
    raise NotImplementedError


# 1.4 Your own trace.
def trace(function, locals):
    raise NotImplementedError


# 1.5 Where does it break?
def places(compiled):
    raise NotImplementedError


# 1.6 Stop anywhere.
def begin_at(function, line):
    raise NotImplementedError


# 1.7 Without a backward of one's own.
def straight(x, levels):
    raise NotImplementedError


# 1.8 Both, then choose.
def either(pred, true, false, operands):
    raise NotImplementedError


# 1.9 Replace this stage with yours.
def follow():
    raise NotImplementedError
