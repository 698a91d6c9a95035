"""Cases that hypothesis draws from strategies, the same ones in every run."""

import hypothesis


def drawn(number, **strategies):
    """Run a test on so many draws of its arguments, which come before fixtures.

    Arguments are continuous where products of a few values would miss what is between them.
    """
    settings = hypothesis.settings(
        max_examples=number,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    )
    return lambda test: settings(hypothesis.given(**strategies)(test))
