"""Tests that run in a process with simulated GPUs; tests/device/test_device.py starts it."""

from __future__ import annotations

from tests.device import simulated_gpu

collect_ignore_glob = [] if simulated_gpu.active() else ["test_*.py"]
