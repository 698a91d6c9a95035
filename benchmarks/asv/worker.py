"""A process that measures benchmarks of `speed` when its parent requests them.

One line of JSON comes in for each, ``[name, seconds]`` with the least length of a sample, and one
goes out: ``{"value": number}``, ``{"skipped": text}`` or ``{"error": text}``. A benchmark that
comes again keeps its state. Its first call is not timed: it compiles, or reads numba's cache.
"""

import importlib
import itertools
import json
import os
import pkgutil
import sys

if __name__ == "__main__":  # nothing else may print between the lines
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)


def benchmarks():
    """-> dict: name -> (class, name of the method, values of parameters), as asv finds them"""
    package = importlib.import_module("benchmarks.asv.speed")
    found = {}
    for info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        for name, cls in vars(module).items():
            if not isinstance(cls, type) or name.startswith("_"):
                continue
            for method in dir(cls):
                if method.startswith(("time_", "peakmem_")):
                    for values in itertools.product(*getattr(cls, "params", ())):
                        label = f"{info.name}.{name}.{method}"
                        label += f"({', '.join(values)})" if values else ""
                        found[label] = cls, method, values
    return found


class Measured:
    """A benchmark with its state: `value` measures it once more."""

    def __init__(self, cls, method, values):
        self.case = cls()
        if hasattr(self.case, "setup"):
            self.case.setup(*values)
        self.call = lambda: getattr(self.case, method)(*values)
        self.memory = method.startswith("peakmem_")
        if not hasattr(cls, "process_pairs"):
            self.call()

    def value(self, least):
        """Seconds of a call, or the process's peak of bytes."""
        if self.memory:
            import resource  # not on Windows

            self.call()
            unit = 1 if sys.platform == "darwin" else 1024
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        clock = type(self.case).timer
        calls, more, start = 0, 1, clock()
        while True:
            for _ in range(more):  # reading the clock takes as long as a short call does
                self.call()
            calls += more
            passed = clock() - start
            if passed >= least:
                return passed / calls
            more = max(1, min(calls, int(calls * (least / max(passed, 1e-6) - 1.0))))


def main():
    known, current = benchmarks(), {}
    for line in sys.stdin:
        name, least = json.loads(line)
        try:
            if name not in current:
                current.clear()
                current[name] = Measured(*known[name])
            answer = {"value": current[name].value(least)}
        except NotImplementedError as reason:
            answer = {"skipped": str(reason)}
        except Exception as error:  # an older commit may lack what is measured
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main()
