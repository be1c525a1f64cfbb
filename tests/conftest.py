"""Settings for all tests."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

# Before torch is imported: two workers of two threads each would wait for each other on two cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# No deadline: a busy machine is not a defect. The same examples on every CI run.
settings.register_profile("project", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("project")

SLOW_FIRST = ("train", "research", "device", "faults", "notebooks", "docs")


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Run torch on one thread, which small networks need no more of."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the folders whose files take longest come first, for parallel runs to end together."""
    here = os.path.dirname(__file__)

    def place(item: pytest.Item) -> int:
        folder = os.path.relpath(item.path, here).split(os.sep)[0]
        return SLOW_FIRST.index(folder) if folder in SLOW_FIRST else len(SLOW_FIRST)

    items.sort(key=place)
