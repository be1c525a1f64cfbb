"""Tests that run in a process with simulated GPUs; tests/device/test_device.py starts it."""

from __future__ import annotations

import sys

from tests.device import simulated_gpu
from tests.device.commands import TRAIN

collect_ignore_glob = [] if simulated_gpu.active() else ["test_*.py"]
if simulated_gpu.active():
    sys.path.insert(0, str(TRAIN))
