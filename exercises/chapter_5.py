"""Your answers to the exercises of chapter 5.

The tasks: 05-program.md, 05-triton.md.
`make exercise N=5.1` judges one of them, `make exercise N=5` all.
"""


# 5.1 Predict the passes.
def passes(kernel):
    raise NotImplementedError


# 5.2 Memory twice.
def plan(schedule):
    raise NotImplementedError


# 5.3 Bytes.
def traffic(kernel):
    raise NotImplementedError


# 5.4 Replace this stage with yours.
class PythonPrinter:
    prelude = begin = ""

    def define(self, kernels):
        raise NotImplementedError

    def launch(self, kernel, tensors, numbers):
        raise NotImplementedError


# 5.5 How many loads.
def line(count):
    raise NotImplementedError


# 5.6 A row of your own.
form = None


# 5.7 Which kernels are short of registers?
def crowded(kernels):
    raise NotImplementedError


# 5.8 Replace this stage with yours.
def tile(kernel):
    raise NotImplementedError
