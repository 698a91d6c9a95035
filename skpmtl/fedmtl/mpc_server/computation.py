"""The aggregation of FedMTL on Shamir shares: one fixed sequence of operations of MPyC.

No branch and no message size depends on data. No value is opened among the servers, of which the
majority is honest; what MPyC opens within a truncation or a comparison is masked, statistically by
`SECURITY` bits or perfectly.
"""

import numpy as np

from .job import PRIME, RESULT, SCORE, SIZE, VALUE

PRECISION = 28  # fractional bits of a result that are not noise
SECURITY = 40


def largest_matching(gains, maximum):
    """Value of the best one-to-one matching of every (R, R) matrix in `gains`; none negative.

    f(S) = max over k in S of f(S without k) + gain[|S| - 1, k] over subsets S of columns: the same
    R 2^(R-1) - 2^R + 1 comparisons for all data.
    """
    n, size, _ = gains.shape
    f = gains[:, 0, :]
    place = {1 << k: k for k in range(size)}
    for r in range(1, size):
        sets = [s for s in range(1 << size) if s.bit_count() == r + 1]
        members = [[k for k in range(size) if s >> k & 1] for s in sets]
        rest = [[place[s ^ 1 << k] for k in own] for s, own in zip(sets, members, strict=True)]
        members, rest = np.array(members), np.array(rest)
        place = {s: at for at, s in enumerate(sets)}
        choices = [f[:, rest[:, q]] + gains[:, r, :][:, members[:, q]] for q in range(r + 1)]
        while len(choices) > 1:
            left = [choices.pop()] if len(choices) % 2 else []
            choices = [maximum(*choices[q : q + 2]) for q in range(0, len(choices), 2)] + left
        f = choices[0]
    return f.reshape(n)


async def aggregate(mpc, job, uploads):
    """Shares of the new models: arrays (N, P) and (N, R, D) of field elements.

    The results have `RESULT` fractional bits; those after `PRECISION` are noise.
    """
    n, rows = job.n_clients, job.max_heads
    integers = mpc.SecInt(64, p=PRIME)  # all fixed-point scales are kept by hand
    fixed = mpc.SecFxp(2 * VALUE, VALUE, p=PRIME)
    field = integers.field

    def secret(elements):
        return integers.array(field.array(elements, check=False))

    async def finished(x):
        """The same array once it is computed, so that blocks do not pile up in memory."""
        return integers.array(await mpc.gather(x))

    def at_least(x, y):  # for |x - y| <= R in units of 2^-SCORE
        return 1 - mpc.np_sgn(x - y, l=job.comparison_bits, LT=True)

    def maximum(x, y):
        return y + at_least(x, y) * (x - y)

    # Eqs. 4, 5. H is symmetric, and H_ii = K_i exactly: a client keeps its own model at Z_i = 1.
    directions, tasks = secret(uploads["directions"]), secret(uploads["tasks"])
    real = np.sum(tasks, axis=2)
    counts = np.sum(real, axis=1)
    first, second = np.triu_indices(n, 1)
    values = [counts * 2**SCORE]
    step = job.pairs_at_once
    for start in range(0, len(first), step):
        i, j = first[start : start + step], second[start : start + step]
        cosines = directions[i] @ np.transpose(directions[j], (0, 2, 1))
        cosines = mpc.np_trunc(cosines, f=SCORE, l=2 * SCORE + 3)
        gains = at_least(cosines, 0) * cosines  # a pair of negative cosine stays unmatched
        values.append(await finished(largest_matching(gains, maximum)))
    at = np.diag(np.arange(n))
    at[first, second] = at[second, first] = n + np.arange(len(first))
    H = np.reshape(np.concatenate(values)[at.ravel()], (n, n))

    # Eqs. 6, 7 without division: S_ij >= Z_i is H_ij >= Z_i K_i, and 1 / K_i cancels in the means.
    least = secret(uploads["threshold"]) * counts
    weights = at_least(H, np.reshape(least, (n, 1))) * H * secret(uploads["size"])

    # Eqs. 8, 9: a row of weights for every client, and one for every uploaded head.
    labels = np.reshape(tasks, (n * rows, job.n_tasks))
    same = await finished(labels @ np.transpose(labels))
    owner = np.repeat(np.arange(n), rows)
    head_weights = weights[owner] * np.sum(np.reshape(same, (n * rows, n, rows)), axis=2)
    padding = 1 - np.reshape(real, (n * rows,))  # keeps the sums of added rows away from 0
    totals = np.sum(head_weights, axis=1) + padding * 2 ** (SCORE + SIZE)
    totals = np.concatenate((np.sum(weights, axis=1), totals))
    bits = SCORE + SIZE + (n * rows).bit_length() + 2
    totals = await mpc.gather(mpc.np_trunc(totals, f=SCORE + SIZE - VALUE, l=bits))
    inverse = integers.array(await mpc.gather(1 / fixed.array(totals, None, False)))
    weights = np.concatenate((weights, head_weights)) * np.reshape(inverse, (n + n * rows, 1))
    weights = await finished(weights)

    # Eqs. 2, 3. The products leave as they are; the mask hides their last bits from the client,
    # as rounding would: exact products would betray the weights.
    async def answer(x):
        y = (await mpc.gather(x)).value
        mask = mpc._np_randoms(field, y.size, 1 << RESULT - PRECISION).value
        return (y + mask.reshape(y.shape)) % PRIME

    step = job.columns_at_once
    shared = [np.empty((n, 0), dtype=object)]
    for start in range(0, job.n_shared, step):
        columns = uploads.columns("shared", start, min(start + step, job.n_shared))
        shared.append(await answer(weights[:n] @ secret(columns)))
    old = secret(uploads["heads"].reshape(n * rows, job.head_length))
    heads = await answer((weights[n:][:, owner] * same) @ old)
    return np.concatenate(shared, axis=1), heads.reshape(n, rows, job.head_length)
