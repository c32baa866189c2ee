"""Runs rdma-core's own Python tests and notes what comes of each.

usage: suite.py FOLDER RESULTS [--containing WORD] [--after TEST]

FOLDER is the folder `tests` of an rdma-core source tree. Tests run whose name contains WORD, from
the one behind TEST on. RESULTS gets lines of words separated by tabs, each written at once:

    run TEST            the test begins; without a line after it, it has not come to its end
    pass TEST
    skip TEST REASON
    fail TEST REASON    the traceback is on standard output
    end                 all tests have been run

As most tests of the suite have it themselves, every test that an operation answers with
EOPNOTSUPP counts as skipped. What the tests draw at random depends on their names only.
"""

import argparse
import errno
import importlib.util
import os
import random
import signal
import sys
import unittest

LIMIT = 60  # seconds until a test is taken as hanging


def flatten(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flatten(test)
        else:
            yield test


def load(folder):
    """The suite's tests in order. Beside FOLDER lies a folder `pyverbs` without what was built."""
    sys.path.insert(0, folder)
    from args_parser import parser

    sys.argv[1:] = []
    parser.parse_args()
    spec = importlib.util.spec_from_file_location(
        "tests", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    package = importlib.util.module_from_spec(spec)
    sys.modules["tests"] = package
    spec.loader.exec_module(package)
    return list(flatten(unittest.defaultTestLoader.loadTestsFromModule(package)))


class Result(unittest.TestResult):
    """Notes outcomes in a file."""

    def __init__(self, file):
        super().__init__()
        self.file = file
        self.process = os.getpid()

    def note(self, *words):
        # A child that a test forked has nothing to say, and ends here if it came so far.
        if os.getpid() != self.process:
            os._exit(1)
        line = "\t".join(" ".join(str(word).split()) for word in words)
        print(line, file=self.file, flush=True)

    def startTest(self, test):
        super().startTest(test)
        random.seed(test.id())
        self.note("run", test.id())
        print("===", test.id(), flush=True)
        signal.alarm(LIMIT)

    def stopTest(self, test):
        signal.alarm(0)
        super().stopTest(test)

    def addSuccess(self, test):
        self.note("pass", test.id())

    def addSkip(self, test, reason):
        self.note("skip", test.id(), reason)

    def addError(self, test, error):
        if getattr(error[1], "error_code", None) == errno.EOPNOTSUPP:
            return self.addSkip(test, f"Operation not supported ({error[1]})")
        print(self._exc_info_to_string(error, test), flush=True)
        self.note("fail", test.id(), f"{type(error[1]).__name__}: {error[1]}")

    addFailure = addError

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.addError(test, error)


def hang(_signal, _frame):
    raise TimeoutError(f"no end after {LIMIT} seconds")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("folder")
    arguments.add_argument("results")
    arguments.add_argument("--containing", default="")
    arguments.add_argument("--after")
    arguments = arguments.parse_args()
    tests = [test for test in load(arguments.folder) if arguments.containing in test.id()]
    if arguments.after is not None:
        names = [test.id() for test in tests]
        tests = tests[names.index(arguments.after) + 1 :]
    signal.signal(signal.SIGALRM, hang)
    with open(arguments.results, "a") as file:
        result = Result(file)
        unittest.TestSuite(tests).run(result)
        result.note("end")


main()
