"""Pictures of recordings and runs; each function returns a matplotlib figure."""

from adops_wrappers.inspect.plots.conflicts import plot_film_strip, plot_sign_plane
from adops_wrappers.inspect.plots.streams import plot_corrections, plot_methods, plot_streams
from adops_wrappers.inspect.plots.training import plot_training

__all__ = [
    "plot_corrections",
    "plot_film_strip",
    "plot_methods",
    "plot_sign_plane",
    "plot_streams",
    "plot_training",
]
