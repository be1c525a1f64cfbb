"""Pictures of recordings and runs; each function returns a matplotlib figure."""

from adops_wrappers.inspect.plots.corrections import plot_corrections
from adops_wrappers.inspect.plots.film import plot_film_strip
from adops_wrappers.inspect.plots.methods import plot_methods
from adops_wrappers.inspect.plots.sign_plane import plot_sign_plane
from adops_wrappers.inspect.plots.streams import plot_streams
from adops_wrappers.inspect.plots.training import plot_training

__all__ = [
    "plot_corrections",
    "plot_film_strip",
    "plot_methods",
    "plot_sign_plane",
    "plot_streams",
    "plot_training",
]
