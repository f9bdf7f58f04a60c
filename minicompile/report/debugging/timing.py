"""The time of each stage of a compile, and of each kernel of a call.

In: the stages as they begin, and loaded programs. Out: seconds by stage,
which the debug folder has. On a terminal, a compile that takes longer
than a second has a line that names its stage. While a profiler runs, each
launch of a CPU kernel is a row of its trace; a GPU names its kernels by
itself. PyTorch's are dynamo_timed in torch/_dynamo/utils.py and
cpp.enable_kernel_profile in torch/_inductor/config.py.
"""

import ctypes
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial, wraps
from inspect import unwrap
from types import FunctionType

from torch.autograd import profiler

from ...core import log
from ...core.graph import Boxed
from ...emit.launch import Launch
from ...emit.program import RUNS

#: Seconds before a compile shows itself.
PATIENCE = 1


class Clock(threading.local):
    """The stage of this thread's compile, and the seconds of each."""

    def __init__(self):
        self.stage, self.since, self.line = "", 0.0, None
        self.seconds: Counter[str] = Counter()

    def begin(self, stage: str) -> None:
        """Count the stage that ends; show the one that begins."""
        now = time.perf_counter()
        if self.stage:
            self.seconds[self.stage] += now - self.since
        elif stage:
            if stage != "guards":  # they come after the rest
                self.seconds = Counter()
            if getattr(sys.stderr, "isatty", bool)():  # it may be None
                from rich.console import Console

                self.line = Console(stderr=True).status("")
                self.timer = threading.Timer(PATIENCE, self.line.start)
                self.timer.daemon = True
                self.timer.start()
        self.stage, self.since = stage, now
        if self.line:
            self.line.update(f"minicompile: {stage}")
        if self.line and not stage:
            self.timer.cancel()
            self.timer.join()  # so that it does not start any more
            self.line.stop()
            self.line = None


CLOCK = Clock()
log.BEGINS.append(CLOCK.begin)


def launched_by(launch: Callable[[str, Callable], object], run: Callable,
                kernels: Iterable[str]) -> Callable:
    """A program whose kernels are launched by `launch(name, call)`."""
    program = unwrap(run)
    names = dict(program.__globals__)

    def watched(name: str, kernel: Callable) -> Callable:
        def call(*given):
            return launch(name, partial(
                getattr(kernel, "run", kernel), *given))
        call.run = call  # as Triton's kernels are launched
        return call

    names |= {name: watched(name, names[name]) for name in kernels}
    return FunctionType(program.__code__, names)


def profiled(run: Boxed) -> Boxed:
    """The program; under a profiler its CPU kernels are rows."""
    kernels = [name for name, each in unwrap(run).__globals__.items()
               if type(each) is Launch
               or isinstance(each, ctypes._CFuncPtr)]
    seen = launched_by(lambda name, launch: profiler.record_function(
        name)(launch)(), run, kernels)

    @wraps(run)
    def call(inputs: list) -> tuple:
        return (seen if profiler._is_profiler_enabled else run)(inputs)
    return call if kernels else run


RUNS.append(profiled)
