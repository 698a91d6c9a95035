"""Clients with different sets of tasks, drawn: the scenarios of the FedMTL studies."""

import numpy as np
from sklearn.utils import check_random_state

__all__ = ["make_fedmtl_clients"]

_WAYS = ("pairs", "any")


def make_fedmtl_clients(
    n_clients=60,
    n_samples=117,
    n_features=12,
    *,
    n_tasks=8,
    n_classes=5,
    tasks_per_client=2,
    n_domains=1,
    correlation=0.0,
    n_hidden=6,
    noise=0.057,
    shift=0.57,
    n_test=0,
    random_state=None,
):
    """Classification tasks on common hidden features; a client has some of the tasks.

    Hidden features are ``h = max(A' (x - m), 0)`` with the mean m of the client's domain, A common
    to all. The label of task k is the class of the largest of the scores ``B_k' h + noise * sd *
    Gumbel``, where sd is the spread of the scores at the client. Domains have tasks of the same
    names, but different B_k and m, so that they contradict each other; less so with a larger
    `correlation` of their B_k. Features are normal with unit variance around m, which is 0 with one
    domain. A and B_k are normal.

    These are the scenarios of the package's FedMTL study. The numbers among the defaults were
    chosen so that the paper's method has the accuracies of the study that the package started
    from (.794, .759, .834, .814 in the order below), with one hidden layer of 32, plain SGD of step
    size 0.5 without penalty, batches of 10, and 20 rounds of one epoch.

    ======================================  ==============================================
    scenario                                arguments
    ======================================  ==============================================
    two random tasks, one domain            ``make_fedmtl_clients()``
    two random tasks, two domains           ``n_domains=2``
    fixed pairs, two domains                ``tasks_per_client="pairs", n_domains=2``
    one to all tasks, one domain            ``tasks_per_client="any"``
    two random tasks, correlated domains    ``n_domains=2, correlation=0.8``
    fixed pairs, correlated domains         the same, ``tasks_per_client="pairs"``
    ======================================  ==============================================

    Parameters
    ----------
    n_clients, n_samples, n_features : int, default=60, 117 and 12
        Number of clients, of rows per client and of features.
    n_tasks, n_classes : int, default=8 and 5
        Number of tasks, and of classes of each.
    tasks_per_client : int, "pairs" or "any", default=2
        That many tasks, drawn for every client; or one of the pairs (0, 1), (2, 3), ...; or any
        number from 1 to `n_tasks`.
    n_domains : int, default=1
        Domains, which the clients take in turn: client i belongs to i mod `n_domains`.
    correlation : float in [0, 1], default=0.0
        Of the entries of B_k in any two domains.
    n_hidden : int, default=6
        Hidden features.
    noise : float, default=0.057
        Noise of the scores, in units of their spread.
    shift : float, default=0.57
        Root mean square of the entries of the domains' means, with two or more domains.
    n_test : int, default=0
        Further rows per client, returned as a test set.
    random_state : int, RandomState instance or None, default=None
        Seed of all draws.

    Returns
    -------
    X : ndarray of shape (n_clients * n_samples, n_features)
        Rows, sorted by client.
    y : ndarray of shape (n_clients * n_samples, n_tasks)
        Classes from 0, NaN for tasks that the client does not have.
    client : ndarray of shape (n_clients * n_samples,)
        Client of every row, from 0.
    X_test, y_test, client_test : ndarray
        The same for the test set, only with ``n_test > 0``.

    Examples
    --------
    >>> from skpmtl.fedmtl import make_fedmtl_clients
    >>> X, y, client = make_fedmtl_clients(4, 20, random_state=0)
    >>> X.shape, y.shape, int((y[:1] == y[:1]).sum())
    ((80, 12), (80, 8), 2)
    """
    if isinstance(tasks_per_client, str):
        if tasks_per_client not in _WAYS or (tasks_per_client == "pairs" and n_tasks % 2):
            raise ValueError(
                f'tasks_per_client={tasks_per_client!r} must be a number, "any", or "pairs" with '
                f"an even n_tasks (here {n_tasks})."
            )
    elif not 1 <= tasks_per_client <= n_tasks:
        raise ValueError(f"tasks_per_client={tasks_per_client} is not in 1 to n_tasks={n_tasks}.")
    if not 0.0 <= correlation <= 1.0:
        raise ValueError(f"correlation={correlation!r} is not in [0, 1].")
    rng = check_random_state(random_state)
    hidden = rng.normal(size=(n_features, n_hidden))
    scores = rng.normal(size=(n_domains, n_tasks, n_hidden, n_classes))
    if correlation:
        wanted = np.full((n_domains, n_domains), float(correlation))
        np.fill_diagonal(wanted, 1.0)
        values, U = np.linalg.eigh(wanted)
        root = (U * np.sqrt(np.maximum(values, 0.0))) @ U.T
        scores = np.tensordot(root, scores, axes=1)
    scores -= scores.mean(axis=3, keepdims=True)
    means = rng.normal(size=(n_domains, n_features))
    means *= shift * np.sqrt(n_features) / np.linalg.norm(means, axis=1, keepdims=True)
    means *= n_domains > 1
    n = n_samples + n_test
    X = np.empty((n_clients, n, n_features))
    y = np.full((n_clients, n, n_tasks), np.nan)
    for i in range(n_clients):
        if tasks_per_client == "pairs":
            first = 2 * rng.randint(n_tasks // 2)
            tasks = np.array([first, first + 1])
        else:
            count = tasks_per_client
            count = rng.randint(1, n_tasks + 1) if count == "any" else count
            tasks = rng.permutation(n_tasks)[:count]
        X[i] = means[i % n_domains] + rng.normal(size=(n, n_features))
        features = np.maximum((X[i] - means[i % n_domains]) @ hidden, 0.0)
        for k in tasks:
            score = features @ scores[i % n_domains, k]
            score += noise * score.std() * rng.gumbel(size=score.shape)
            y[i, :, k] = score.argmax(axis=1)
    client = np.arange(n_clients)

    def rows(part, count):
        return (
            X[:, part].reshape(-1, n_features),
            y[:, part].reshape(-1, n_tasks),
            np.repeat(client, count),
        )

    train = rows(slice(n_samples), n_samples)
    return train if n_test == 0 else (*train, *rows(slice(n_samples, None), n_test))
