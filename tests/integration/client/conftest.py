from collections.abc import Iterator

import pytest

from turbopump.testing import Cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster
