"""What has happened to a compiled function, and when it is enough.

In: events, counted by the driver. Out: what `compiled.stats()` shows. A
function that is compiled for every call is slower than eager, so there are
limits; PyTorch's are in torch/_dynamo/cache_size.py.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field

from .options import Options

FULL = """{name} was compiled {count} times, which is its {limit}. A call
that fits none of its graphs runs as eager from now on. Reasons so far:
{reasons}
  hint: let sizes be dynamic, pass numbers that vary as tensors, or set
  options={{"{limit}": ...}}"""


@dataclass
class Stats:
    """What has happened to a compiled function."""

    graphs: int = 0
    recompiles: int = 0
    reasons: list[str] = field(default_factory=list)  # of recompiles
    dynamic: list[str] = field(default_factory=list)  # what became symbols
    graph_breaks: int = 0
    kernels: int = 0
    fallbacks: Counter = field(default_factory=Counter)
    replays: Counter = field(default_factory=Counter)

    def too_many(self, name: str, kept: int, made: int, options: Options,
                 reasons: list[str]) -> str:
        """Why no further entry is made; "" if one may be, and is counted.

        `kept` entries are there, `made` were made. A limit that the user
        has not given is torch.compile's, if that is loaded.
        """
        limits = {"recompile_limit": kept,
                  "accumulated_recompile_limit": made}
        self.reasons += reasons
        theirs = sys.modules.get("torch._dynamo.config")
        for limit, count in limits.items():
            allowed = getattr(options, limit)
            if allowed == getattr(Options, limit):
                allowed = getattr(theirs, limit, allowed)
            if count >= allowed:
                return FULL.format(name=name, count=count, limit=limit,
                                   reasons="\n".join(self.reasons))
        self.recompiles += 1
        return ""
