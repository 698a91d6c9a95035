"""Speed of two commits side by side: ratios of CPU seconds, with an interval.

    python -m benchmarks.compare REV [--new REV] [--only TEXT] [--pairs P] [--store FILE.csv]

Compares the last commit (`--new`) with REV on the benchmarks of `benchmarks/asv/speed` whose names
contain TEXT; files that are not committed do not count. Both commits take turns, in P pairs of
processes. The number of a process is the lower quartile of its samples, since other work on the
machine adds to CPU seconds and takes nothing away. The ratio of a benchmark is the median over the
pairs, which differ by where memory happens to lie, and its interval that of ranks for a median, at
99 % (with fewer than eight pairs, their whole range). Benchmarks whose ratio is off 1 by more than
4 % are measured in P further pairs. One whose ratio is above 1.1 with an interval above 1 ends the
run with exit status 1. So do four or more benchmarks with a word of their names in common ("l21",
"PrivateMTL", "counts") if the median of their ratios is above 1.05, because what costs one table
15 % costs others less. "peakmem" is the peak of bytes of a process.
"""

import argparse
import csv
import json
import platform
import re
import statistics
import sys
import time
from dataclasses import dataclass
from math import exp, log
from pathlib import Path

from scipy.stats import binom

from .asv.worker import benchmarks
from .checkouts import checkout, git, python

LIMIT = 1.1
SHARED_LIMIT = 1.05  # of the median of FEW or more benchmarks
FEW = 4
LEVEL = 0.99
UNCLEAR = 0.04  # a ratio so far off 1 is measured with more pairs
FIELDS = (
    "commit",
    "against",
    "date",
    "machine",
    "benchmark",
    "unit",
    "value",
    "value_against",
    "ratio",
    "low",
    "high",
    "pairs",
)


@dataclass(frozen=True)
class Ratio:
    """New over old: the estimate, its interval, the medians of both and the number of pairs."""

    ratio: float
    low: float
    high: float
    new: float
    old: float
    pairs: int

    @property
    def alarm(self):
        return self.ratio > LIMIT and self.low > 1.0

    @property
    def faster(self):
        return self.ratio < 1.0 / LIMIT and self.high < 1.0


def quartile(values):
    """The value that a quarter of the others are below; of fewer than five, the smallest."""
    return sorted(values)[(len(values) - 1) // 4]


def compared(pairs):
    """-> Ratio of samples: for every pair of processes a list of (new, old)"""
    new, old = ([quartile([pair[side] for pair in found]) for found in pairs] for side in (0, 1))
    logs = sorted(log(a / b) for a, b in zip(new, old, strict=True))
    # Between the k-th smallest and the k-th largest value lies the median, but for
    # 2 P(Binomial(n, 1/2) < k).
    k = max(int(binom.ppf((1.0 - LEVEL) / 2.0, len(logs), 0.5)), 1)
    values = statistics.median(logs), logs[k - 1], logs[-k]
    medians = statistics.median(new), statistics.median(old)
    return Ratio(*(exp(value) for value in values), *medians, len(logs))


class Side:
    """A process that measures with the package of one commit."""

    def __init__(self, folder):
        self.process = python(folder, "benchmarks.asv.worker", stdin=-1)

    def value(self, name, least):
        self.process.stdin.write(json.dumps([name, least]) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"error": "the process ended"}

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def measure(folders, names, pairs, seconds=0.15, least=0.01, note=print):
    """Samples of the benchmarks, measured in turns.

    Parameters
    ----------
    folders : pair of Path
        Of the new and the old package.
    names : dict of str to (int or None)
        Benchmarks; those with a number are measured once in each of so many pairs of processes of
        their own.
    pairs : int
    seconds : float
        CPU seconds of the samples of one process together; there are four at least.
    least : float
        CPU seconds of one sample, at least.

    Returns
    -------
    samples : dict of str to list
        For every pair of processes a list of (new, old).
    faults : dict of str to str
        What could not be measured, and why.
    """
    samples, faults = {name: [] for name in names}, {}
    for pair in range(pairs):
        sides = None
        for name, own in names.items():
            if name in faults or (own is not None and pair >= own):
                continue
            if sides is None or own is not None:
                close(sides)
                sides = [Side(folder) for folder in folders]
            found, passed = [], 0.0
            while not found or own is None and (len(found) < 4 or passed < seconds):
                answers = [None, None]
                for side in (0, 1) if (pair + len(found)) % 2 else (1, 0):
                    answers[side] = sides[side].value(name, least)
                wrong = {
                    key: text
                    for answer in answers
                    for key, text in answer.items()
                    if key != "value"
                }
                if wrong:
                    faults[name] = "; ".join(f"{key}: {text}" for key, text in wrong.items())
                    break
                found.append(tuple(answer["value"] for answer in answers))
                passed += max(least, *found[-1])
            samples[name].append(found)
        close(sides)
        note(f"pair {pair + 1} of {pairs}", file=sys.stderr)
    return {name: found for name, found in samples.items() if name not in faults}, faults


def settled(folders, names, pairs, **how):
    """`measure`, and once more what may have changed."""
    samples, faults = measure(folders, names, pairs, **how)
    open_ = [name for name, found in samples.items() if abs(log(compared(found).ratio)) > UNCLEAR]
    if open_:
        print(f"{len(open_)} benchmarks once more", file=sys.stderr)
        again, wrong = measure(folders, {name: names[name] for name in open_}, pairs, **how)
        for name, found in again.items():
            samples[name] += found
        faults |= wrong
    return samples, faults


def close(sides):
    for side in sides or ():
        side.close()


def words_of(name):
    """Of "fits.Private.time_fit(MPMTLLowRankClassifier, 9x9x9)" its class, values and estimator."""
    place, _, values = name.rstrip(")").partition("(")
    words = {place.rpartition(".")[0], *re.split(r"[:,]? ", values)} - {""}
    return words | {word.removesuffix("Classifier") for word in words}


def shared(results):
    """-> dict: word -> (median ratio, number of benchmarks), where the median is above the limit

    Benchmarks that are alarms by themselves do not count. Of words with the same benchmarks the
    first is given.
    """
    ratios = {}
    for name, found in results.items():
        for word in words_of(name) if not found.alarm else ():
            ratios.setdefault(word, {})[name] = found.ratio
    medians = {
        tuple(sorted(group)): (word, statistics.median(group.values()))
        for word, group in sorted(ratios.items(), reverse=True)
        if len(group) >= FEW
    }
    return {
        word: (ratio, len(names))
        for names, (word, ratio) in medians.items()
        if ratio > SHARED_LIMIT
    }


def table(results):
    """Print the ratios. -> names of those that became slower"""
    width = max(map(len, results), default=0)
    print(f"{'benchmark':{width}}   ratio  interval         new       old")
    for name, found in results.items():
        scale = 1e-6 if "peakmem" in name else 1e3
        mark = "  SLOWER" if found.alarm else "  faster" if found.faster else ""
        print(
            f"{name:{width}}  {found.ratio:6.3f}  {found.low:.3f} to {found.high:.3f}"
            f"  {found.new * scale:8.2f}  {found.old * scale:8.2f}{mark}"
        )
    print("new and old: medians, in milliseconds of CPU time, or megabytes.")
    return [name for name, found in results.items() if found.alarm]


def store(path, results, new, old):
    """Add the results to a CSV file."""
    fresh = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if fresh:
            writer.writeheader()
        for name, found in results.items():
            writer.writerow(
                {
                    "commit": new,
                    "against": old,
                    "date": time.strftime("%Y-%m-%d"),
                    "machine": machine(),
                    "benchmark": name,
                    "unit": "bytes" if "peakmem" in name else "CPU seconds",
                    "value": f"{found.new:.4g}",
                    "value_against": f"{found.old:.4g}",
                    "ratio": f"{found.ratio:.3f}",
                    "low": f"{found.low:.3f}",
                    "high": f"{found.high:.3f}",
                    "pairs": found.pairs,
                }
            )


def machine():
    """The processor, and the version of Python."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as file:
            model = next(line.split(":")[1].strip() for line in file if "model name" in line)
    except (OSError, StopIteration):
        pass
    return f"{model}, Python {platform.python_version()}"


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("old", metavar="REV")
    parser.add_argument("--new", default="HEAD", help="default: the last commit")
    parser.add_argument("--only", default="", help="text of names")
    parser.add_argument("--pairs", type=int, default=8, help="of processes")
    parser.add_argument("--list", action="store_true", help="print the names, measure nothing")
    parser.add_argument("--store", type=Path, default=None, help="add the results to this CSV file")
    options = parser.parse_args(arguments)
    names = {
        name: getattr(cls, "process_pairs", None)
        for name, (cls, _, _) in benchmarks().items()
        if options.only in name
    }
    if options.list or not names:
        print("\n".join(names) or f"No name contains {options.only!r}.")
        return 0 if names else 2
    (new, ours), (old, theirs) = checkout(options.new), checkout(options.old)
    if git("status", "--porcelain", "skpmtl") and options.new == "HEAD":
        print("skpmtl/ has changes that are not committed; they are not measured.", file=sys.stderr)
    samples, faults = settled((ours, theirs), names, options.pairs)
    results = {name: compared(found) for name, found in samples.items()}
    print(f"{new} over {old}, {machine()}")
    slower = table(results)
    for name, reason in faults.items():
        print(f"{name}: not compared, {reason}")
    if options.store:
        store(options.store, results, new, old)
    if slower:
        print(
            "\nSlower by more than 10 %; mend each, or explain it in CHANGELOG.rst:",
            *slower,
            sep="\n  ",
        )
    common = shared(results)
    if common:
        print("\nSlower by more than 5 % in common (median ratio, number of benchmarks):")
        for word, (ratio, number) in common.items():
            print(f"  {word}: {ratio:.3f}, {number}")
    return 1 if slower or common else 0


if __name__ == "__main__":
    sys.exit(main())
