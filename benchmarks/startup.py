"""What a process pays before its first result: the import and the first fits.

    python -m benchmarks.startup [--repeats R] [--output FILE.csv]

Every measurement runs in a process of its own. "cold" starts with an empty numba cache, "warm"
follows with the cache that the cold one filled, "prepared" with one that `python -m skpmtl.warm`
filled, whose own time is the measure "skpmtl.warm". "import" is `import skpmtl` after `import
sklearn.linear_model`; "first fit" is what the first fit of a process costs over the second.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile

from .command import command_line, with_commit, write_rows

FIELDS = ("commit", "measure", "estimator", "cache", "seconds")

IMPORT = """
import json, time
import sklearn.linear_model
start = time.perf_counter()
import skpmtl
print(json.dumps(time.perf_counter() - start))
"""

FIT = """
import json, time, warnings
import skpmtl
from skpmtl.datasets import make_low_rank_tasks
warnings.simplefilter("ignore")
X, y, task = make_low_rank_tasks(random_state=0)
if "Classifier" in {estimator!r}:
    y = y > 0
estimator = skpmtl.{estimator}
estimator.set_params(tasks=range(320))
if "Classifier" in {estimator!r}:
    estimator.set_params(classes=[False, True])
seconds = []
for _ in range(2):
    start = time.perf_counter()
    estimator.fit(X, y, task=task)
    seconds.append(time.perf_counter() - start)
print(json.dumps(seconds[0] - seconds[1]))
"""

ESTIMATORS = [
    "MPMTLLowRank(alpha=1.0, epsilon=None)",
    *(
        f"{name}(epsilon={epsilon})"
        for name in ("PrivateMTL", "MPMTLLowRank", "PrivateMeanRegMTL", "PrivateMTLClassifier")
        for epsilon in (None, 1.0)
    ),
]


def fresh_process(program, cache):
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"a fresh process failed:\n{done.stderr}")
    return json.loads(done.stdout)


WARM = """
import json
from skpmtl.warm import warm
print(json.dumps(warm()[0]))
"""


def measure(repeats, estimators, prepare=True):
    """Yield rows; with `prepare` also those with a cache filled by `skpmtl.warm`."""
    with tempfile.TemporaryDirectory() as prepared:
        if prepare:
            seconds = fresh_process(WARM, prepared)
            yield {
                "measure": "skpmtl.warm",
                "estimator": "",
                "cache": "cold",
                "seconds": f"{seconds:.3f}",
            }
        yield from _measure(repeats, estimators, prepared if prepare else None)


def _measure(repeats, estimators, prepared):
    def both(measure, estimator, program):
        seconds = {"cold": [], "warm": []}
        if prepared:
            seconds["prepared"] = [fresh_process(program, prepared) for _ in range(repeats)]
        for _ in range(repeats):
            with tempfile.TemporaryDirectory() as cache:
                for state in ("cold", "warm"):
                    seconds[state].append(fresh_process(program, cache))
        for state, values in seconds.items():
            yield {
                "measure": measure,
                "estimator": estimator,
                "cache": state,
                "seconds": f"{statistics.median(values):.3f}",
            }

    yield from both("import", "", IMPORT)
    for estimator in estimators:
        yield from both("first fit", estimator, FIT.format(estimator=estimator))


def main(arguments=None):
    parser = command_line("startup", __doc__, None, "one estimator, one repeat", "3")
    options = parser.parse_args(arguments)
    estimators = ESTIMATORS[:1] if options.quick else ESTIMATORS
    # Preparing compiles everything, which takes a minute.
    rows = measure(1 if options.quick else options.repeats or 3, estimators, not options.quick)
    return write_rows(with_commit(rows), FIELDS, options.output)


if __name__ == "__main__":
    main()
