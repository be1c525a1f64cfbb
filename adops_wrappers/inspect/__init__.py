"""Inspecting shaped rewards: record a stack, reshape the rollout, find conflicts, plot, report."""

from adops_wrappers.inspect.conflicts import Conflict, conflicts
from adops_wrappers.inspect.recording import Recording
from adops_wrappers.inspect.reshape import reshape
from adops_wrappers.inspect.wrappers import ShapingRecorder

__all__ = ["Conflict", "Recording", "ShapingRecorder", "conflicts", "reshape"]
