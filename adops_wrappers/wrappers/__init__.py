"""The wrappers: around an env and around a vector env, with a method composed in.

Nothing is imported here, so that methods can build on these modules.
"""

from typing import Any

from adops_wrappers._renamed import moved


def __getattr__(name: str) -> Any:
    return moved("wrappers", name)
