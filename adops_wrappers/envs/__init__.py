"""The gallery: small registered envs in which agents exploit a raw intrinsic bonus.

Importing this package only registers the ids; an env's code is loaded when the env is made.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gymnasium.envs.registration import register, registry

if TYPE_CHECKING:
    from adops_wrappers.envs.atari_ram import AtariRamEnv, AtariRamVectorEnv, montezuma_key
    from adops_wrappers.envs.deep_sea import DeepSeaEnv, DeepSeaVectorEnv
    from adops_wrappers.envs.fountain import FountainEnv, FountainVectorEnv
    from adops_wrappers.envs.gallery import GalleryEnv, GalleryVectorEnv
    from adops_wrappers.envs.gridworld import World, get_world
    from adops_wrappers.envs.layouts import LAYOUTS, Layout
    from adops_wrappers.envs.minizuma import MiniZumaEnv, MiniZumaVectorEnv
    from adops_wrappers.envs.noisy_tv import NoisyTV, NoisyTVEnv, NoisyTVVector
    from adops_wrappers.envs.tensor_gallery import GalleryTensorEnv as GalleryTensorEnv

_GRID_WORLDS = (
    "KeyDoor",
    "KeyDoorTV",
    "KeyDoorCoin",
    "TVCorridor",
    "LoopFarm",
    "DancingSkulls",
)
_HOME = {
    "DeepSeaEnv": "deep_sea",
    "DeepSeaVectorEnv": "deep_sea",
    "AtariRamEnv": "atari_ram",
    "AtariRamVectorEnv": "atari_ram",
    "FountainEnv": "fountain",
    "FountainVectorEnv": "fountain",
    "LAYOUTS": "layouts",
    "GalleryEnv": "gallery",
    "GalleryTensorEnv": "tensor_gallery",  # not in `__all__`: it needs torch
    "GalleryVectorEnv": "gallery",
    "Layout": "layouts",
    "MiniZumaEnv": "minizuma",
    "MiniZumaVectorEnv": "minizuma",
    "NoisyTV": "noisy_tv",
    "NoisyTVEnv": "noisy_tv",
    "NoisyTVVector": "noisy_tv",
    "World": "gridworld",
    "get_world": "gridworld",
    "montezuma_key": "atari_ram",
}
GALLERY_IDS = tuple(f"adops/{name}-v0" for name in _GRID_WORLDS)
"""The ids of the grid worlds, for `gymnasium.make` and `gymnasium.make_vec`."""

__all__ = [
    "GALLERY_IDS",
    "LAYOUTS",
    "AtariRamEnv",
    "AtariRamVectorEnv",
    "DeepSeaEnv",
    "DeepSeaVectorEnv",
    "FountainEnv",
    "FountainVectorEnv",
    "GalleryEnv",
    "GalleryVectorEnv",
    "Layout",
    "MiniZumaEnv",
    "MiniZumaVectorEnv",
    "NoisyTV",
    "NoisyTVEnv",
    "NoisyTVVector",
    "World",
    "get_world",
    "montezuma_key",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _register(env_id: str, module: str, name: str, **settings: Any) -> None:
    if env_id not in registry:
        entry_point = f"{__name__}.{module}:{name}"
        register(
            id=env_id,
            entry_point=f"{entry_point}Env",
            vector_entry_point=f"{entry_point}VectorEnv",
            kwargs=settings,
        )


for _layout, _id in zip(_GRID_WORLDS, GALLERY_IDS, strict=True):
    _register(_id, "gallery", "Gallery", layout=_layout)
_register("adops/MiniZuma-v0", "minizuma", "MiniZuma")
_register("adops/Fountain-v0", "fountain", "Fountain")
_register("adops/DeepSea-v0", "deep_sea", "DeepSea")
_register("adops/AtariRam-v0", "atari_ram", "AtariRam")
_register("adops/MontezumaRam-v0", "atari_ram", "AtariRam", game="montezuma_revenge")
