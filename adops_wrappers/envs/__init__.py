"""The gallery: small registered envs in which a raw intrinsic bonus is hacked."""

from gymnasium.envs.registration import register, registry

from adops_wrappers.envs.layouts import LAYOUTS, Layout
from adops_wrappers.envs.single import GalleryEnv
from adops_wrappers.envs.vectorized import GalleryVectorEnv
from adops_wrappers.envs.world import World, get_world

GALLERY_IDS = tuple(f"adops/{name}-v0" for name in LAYOUTS)
"""The ids to give to `gymnasium.make` and `gymnasium.make_vec`."""

for _name, _id in zip(LAYOUTS, GALLERY_IDS, strict=True):
    if _id not in registry:
        register(
            id=_id,
            entry_point="adops_wrappers.envs:GalleryEnv",
            vector_entry_point="adops_wrappers.envs:GalleryVectorEnv",
            kwargs={"layout": _name},
        )

__all__ = [
    "GALLERY_IDS",
    "LAYOUTS",
    "GalleryEnv",
    "GalleryVectorEnv",
    "Layout",
    "World",
    "get_world",
]
