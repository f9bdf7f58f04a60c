"""How long each stage takes, and what a long compile is doing.

In: the names of stages as they begin. Out: seconds by stage, which the
debug folder has; and on a terminal, while a compile takes longer than a
second, one line that names the stage. PyTorch's are dynamo_timed in
torch/_dynamo/utils.py, and no line.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter

from rich.console import Console

from ...core import log

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
            if sys.stderr.isatty():
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
