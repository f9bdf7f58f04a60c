"""Where a call that cannot be traced whole may be cut.

In: the exception that ended a trace. Out: the frames to leave waiting.
That can be done only if what its callee returns is,
unchanged, what the calling instruction pushes; functions of this stage
that keep that promise are marked `passes_on`. Anything else between two
frames, and the cut moves out to the calling instruction. PyTorch's is
torch/_dynamo/symbolic_convert.py:InstructionTranslatorBase.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType

_direct: set[CodeType] = set()


def passes_on(function: Callable) -> Callable:
    """Mark: all this returns or pushes is the result of its last call."""
    _direct.add(function.__code__)
    return function


def waiting(error: BaseException, run: CodeType) -> list:
    """The frames, outermost first, that an exception came through.

    `run` is the code that runs a frame. The list ends where something
    other than a plain call stands between two of them.
    """
    frames, direct = [], True
    here = error.__traceback__
    while here is not None:
        code, names = here.tb_frame.f_code, here.tb_frame.f_locals
        if code is run:
            if not frames or names["self"] is not frames[-1]:
                if frames and not direct or _standard(names["self"]):
                    break
                frames.append(names["self"])
            direct = True
        elif code not in _direct:
            direct = False
        here = here.tb_next
    return frames


def _standard(frame) -> bool:
    """Whether a frame belongs to the standard library: one step to us."""
    root = str(frame.globals.get("__name__")).partition(".")[0]
    return root in sys.stdlib_module_names - {"__main__"}
