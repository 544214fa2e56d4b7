"""What a training says before its test."""

from types import SimpleNamespace

import pytest

from regard.cli.training import _test_line  # pyright: ignore[reportPrivateUsage]
from regard.tasks import registry


@pytest.mark.parametrize(("bundled", "said"), [(200, "1,000 pairs"), (0, "t.tsv")])
def test_a_test_is_announced_with_its_size_or_its_data_and_the_beam(bundled, said):
    config = SimpleNamespace(data=SimpleNamespace(bundled=bundled, test=None))
    assert _test_line(registry.find("translate"), config, "t.tsv") == f"testing on {said}, beam 5 …"  # pyright: ignore
