"""What every wrapper of this package is, around an env and around a vector env."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import AutoresetMode, VectorWrapper

from adops_wrappers.batched import require_one_row
from adops_wrappers.episodes import EnvLayout
from adops_wrappers.wrappers.spec import record_arguments

if TYPE_CHECKING:
    SingleBase = gym.Wrapper[Any, Any, Any, Any]
    VectorBase = VectorWrapper[Any, Any, Any, Any, Any]

    class Layer:
        """What a wrapper can rely on that is composed with one of the two classes below."""

        env: Any

        @property
        def layer_name(self) -> str:
            """The name that users type, by which a stack's saved state finds this layer."""

        def layout_of(self, env: Any, mode: AutoresetMode | str | None, /) -> EnvLayout:
            """Check the kind of `env` and describe it."""

        def _wrap(
            self,
            env: Any,
            layout: EnvLayout,
            constructor: Callable[..., None],
            given: dict[str, Any],
        ) -> None: ...

else:
    SingleBase, VectorBase, Layer = gym.Wrapper, VectorWrapper, object


def _shown(wrapper: Any) -> str:
    """Show a wrapper by the name that users type."""
    return f"<{wrapper.layer_name}{wrapper.env}>"


class SingleEnvWrapper(SingleBase, RecordConstructorArgs):
    """A wrapper of this package for one env."""

    __str__ = __repr__ = _shown

    def layout_of(self, env: Any, autoreset_mode: AutoresetMode | str | None) -> EnvLayout:
        """Check the kind of `env` and describe it."""
        require_one_row(env)
        return EnvLayout.of_env(env, autoreset_mode)

    def _wrap(
        self,
        env: Any,
        layout: EnvLayout,
        constructor: Callable[..., None],
        given: dict[str, Any],
    ) -> None:
        """Call the constructors of Gymnasium; `given`, the arguments, goes into `env.spec`."""
        record_arguments(self, constructor, given)
        gym.Wrapper.__init__(self, env)


class VectorEnvWrapper(VectorBase):
    """A wrapper of this package for a vector env."""

    autoreset_mode: AutoresetMode
    """When the env resets itself, as it declares or as the user says."""
    __str__ = __repr__ = _shown

    def layout_of(self, env: Any, autoreset_mode: AutoresetMode | str | None) -> EnvLayout:
        """Check the kind of `env` and describe it."""
        return EnvLayout.of_vector_env(env, autoreset_mode)

    def _wrap(
        self,
        env: Any,
        layout: EnvLayout,
        constructor: Callable[..., None],
        given: dict[str, Any],
    ) -> None:
        """Call the constructor of Gymnasium; vector envs have no spec of their wrappers."""
        VectorWrapper.__init__(self, env)
        # For wrappers and learners above that ask either: Gymnasium's do, and TorchRL.
        self.autoreset_mode = layout.mode
        if not layout.mode_is_assumed:
            self.metadata = {**env.metadata, "autoreset_mode": layout.mode}
