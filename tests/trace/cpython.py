"""CPython's own tests, each as a compiled function.

`python -m tests.trace.cpython test_dict` runs the tests of that module that
pass by themselves once more, compiled. It prints how many passed, and a
line for each that did not.
"""

import contextlib
import functools
import importlib
import io
import os
import signal
import sys
import unittest
import warnings

import minicompile

#: Seconds for one test, of which compiled ones take more than others.
LIMIT = 60

#: They leave the compiler no `len`, or no depth to work in.
LEFT_OUT = {"test_lru_reentrancy_with_len",
            "test_recursion_in_except_handler"}


class LateError(BaseException):
    """A test takes too long."""


def late(*_):
    raise LateError


def tests(suite):
    """The tests in a suite that are methods."""
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from tests(each)
        elif (name := each._testMethodName).startswith("test") and hasattr(
                getattr(type(each), name, None), "__code__") and (
                name not in LEFT_OUT):
            yield each


def outcome(test) -> str | None:
    """None if a test passes; else the last line of what it tells."""
    result = unittest.TestResult()
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    try:
        with contextlib.redirect_stdout(io.StringIO()), (
                contextlib.redirect_stderr(io.StringIO())):
            test.run(result)
    except LateError:
        return "late"
    except BaseException as error:  # it cannot even be told
        return repr(error)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    told = [text for _, text in (*result.errors, *result.failures)] + [
        text for _, text in result.skipped] + [
        "unexpected" for _ in result.unexpectedSuccesses]
    return told[0].strip().splitlines()[-1] if told else None


def main(name):
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, late)
    module, passed = importlib.import_module(f"test.{name}"), 0
    for test in tests(unittest.defaultTestLoader.loadTestsFromModule(module)):
        kind, method = type(test), test._testMethodName
        if outcome(test) is not None:
            continue
        minicompile.reset()
        again = kind(method)
        setattr(again, method, functools.partial(minicompile.compile(
            getattr(kind, method), backend="eager"), again))
        told = outcome(again)
        if told is None:
            passed += 1
        elif outcome(kind(method)) is None:  # it is no matter of luck
            print(method, "|", kind.__name__, "|", told)
    print("passed", passed, flush=True)
    os._exit(0)  # some tests leave threads


if __name__ == "__main__":
    main(sys.argv[1])
