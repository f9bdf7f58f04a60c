"""The sentences for a reader, one for each reason to stop a trace.

In: the kinds of `unsupported`. Out: a row for each, the sentence and what
to write instead. Without this file, a reason is its kind and its details.
PyTorch's sentences are in torch/_dynamo/graph_break_registry.json.
"""

from ..reasons import REASONS

_MOVE = "move it out of the compiled function"

REASONS |= {
    "data-dependent": (
        "{what} needs the values of a tensor, which a trace does not have",
        "use torch.where or another tensor operation, or move the "
        "decision out of the compiled function"),
    "builtin": ("the C function {what} cannot be followed", _MOVE),
    "library": ("{what} belongs to a library that is not traced", _MOVE),
    "disabled": ("{what} is marked to be left alone",
                 "remove disable() if the function can be compiled"),
    "opcode": ("the bytecode instruction {what} is not supported", _MOVE),
    "exception": (
        "{what} is raised while tracing",
        "the function runs as it is, so that the exception reaches you"),
    "argument": (
        "an operator cannot be recorded with the argument {what}",
        "pass tensors, numbers, strings, dtypes, devices and containers "
        "of them"),
    "input": ("{what} cannot become a graph input",
              "pass a plain torch.Tensor or nn.Parameter"),
    "untracked": ("{what} came out of a call that was not recorded",
                  "call the tensor operation directly"),
    "aliasing": (
        "inputs {what} share memory and one of them is written to",
        "pass a clone of one of them"),
    "effect": ("{what} changes something outside the function in a way "
               "that cannot be replayed", _MOVE),
    "result": ("{what} cannot be rebuilt after the graph has run",
               "return tensors, constants, containers or plain objects"),
    "attribute": ("{what} cannot be looked up by a trace",
                  "use a plain attribute"),
    "recursion": ("calls are nested deeper than {what}",
                  "write the recursion as a loop"),
    "finalizer": ("{what} runs when an object dies, unseen by a trace",
                  "let a `with` statement release what the object holds"),
    "gradient": ("{what} runs autograd inside the compiled function",
                 "call it outside, on the result"),
    "code": ("{what} cannot be traced, or not from its middle on", _MOVE),
    "branch": (
        "{what}: no graph inside a graph can do that",
        "let it return new tensors, those of two branches alike, and write "
        "to nothing"),
    "internal": ("minicompile itself failed: {what}",
                 "please report it; the function runs as it is"),
}
