"""The tool that changes the package and looks whether tests notice."""

import pytest

from tests import mutants


@pytest.mark.slow  # reads all sources
@pytest.mark.skipif(not (mutants.ROOT / "skpmtl").is_dir(), reason="needs the sources")
def test_equivalent_mutants_are_mutants():
    """A line of the list that no longer fits the source hides nothing, and goes."""
    keys = mutants.equivalents(mutants.EQUIVALENT)
    for file in {file for file, *_ in keys}:
        own = {key for key in keys if key[0] == file}
        texts = {text for _, text, _, _ in own}
        found = mutants.mutants(file, (mutants.ROOT / file).read_text(), texts)
        assert own <= {mutant.key for mutant in found} | {mutant.tuned for mutant in found}
