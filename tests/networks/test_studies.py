"""The studies of networks: who is in which part of the data, and their quick modes."""

from pathlib import Path

import numpy as np

from benchmarks.reproduce import networks_text

ROOT = Path(__file__).parents[2]


def test_no_character_of_training_is_in_a_row_of_the_test():
    """Characters that are their own places in the text of all speakers."""
    length, sizes = networks_text.LENGTH, np.arange(100, 1600, 100)
    begin = np.cumsum(sizes + length) - sizes - length
    X = np.concatenate([np.arange(n) + first for n, first in zip(sizes, begin, strict=True)])
    X = X[:, None] + np.arange(length)
    ends = np.cumsum(sizes)
    speakers = {
        f"s{k}": np.arange(end - n, end) for k, (n, end) in enumerate(zip(sizes, ends, strict=True))
    }

    def read():
        return X, X[:, -1] + 1, speakers

    names = []
    for tune in (False, True):
        learn, adapt, test = networks_text.drawn(read, 3, tune)
        said = [{*part[0].ravel().astype(int), *part[1]} for part in (learn, adapt, test)]
        assert not (said[0] & said[1] or said[0] & said[2] or said[1] & said[2])
        assert set(adapt[2]) == set(test[2])
        mosts = networks_text.LEARN, networks_text.ADAPT, networks_text.ADAPT
        for part, most in zip((learn, adapt, test), mosts, strict=True):
            assert max(np.unique(part[2], return_counts=True)[1]) <= most
            for rows, target, name in zip(*part, strict=True):
                assert begin[int(name[1:])] <= rows[0] and target == rows[-1] + 1
        names.append([set(learn[2]), set(test[2])])
    (learn, test), (same, apart) = names
    assert learn == same and not test & apart
    assert sorted([*learn, *test, *apart]) == sorted(speakers)
    assert {*[*networks_text.drawn(read, 4, True)][2][2]} == apart


def test_generated_plays_are_read_like_others():
    X, y, speakers = networks_text.rows_of("plays", None, True)
    assert len(speakers) == 15 and X.shape[1] == networks_text.LENGTH
    assert X.max() < networks_text.N_CLASSES
    assert min(map(len, speakers.values())) >= networks_text.LEAST
