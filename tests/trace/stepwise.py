"""A trace cut before every one of its instructions, run without graphs."""

from __future__ import annotations

from minicompile.core.errors import Unsupported
from minicompile.trace import History, traced_by
from minicompile.trace.reasons import unsupported
from minicompile.trace.tracer import Tracer


class Refusing(Tracer):
    """A tracer that cannot go on at one moment."""

    def __init__(self, function, moment):
        super().__init__(function, History())
        self.last = moment

    def tick(self):
        super().tick()
        self.frames[-1].moment = self.clock
        if self.clock == self.last:
            raise unsupported("opcode", "nothing")
        return self.clock


def performed(made, function, locals):
    """What a trace's recipe gives, its graph run as it is."""
    names = {**made.constants}
    exec(made.finish, names)
    scope = {**names, "L": locals, "F": function}
    inputs = [eval(source.code(), scope) for source in made.sources]
    return names["finish"](locals, function, made.graph(*inputs))


def every_cut(function, arguments):
    """Yield (moment, run) for each moment that a trace can be cut at.

    `arguments()` makes fresh ones; `run()` performs the call, cut there.
    """
    whole = Tracer(function, History())
    try:
        traced_by(whole, arguments())
    except Unsupported:
        pass
    for moment in range(1, whole.clock + 1):
        locals = arguments()
        try:
            traced_by(Refusing(function, moment), locals)
        except Unsupported as error:
            stops, why = error.stops, error
        for stop in stops:
            try:
                made = traced_by(Tracer(function, History(), stop, why), locals)
            except Unsupported:
                continue
            yield moment, lambda made=made, locals=locals: performed(
                made, function, locals)
