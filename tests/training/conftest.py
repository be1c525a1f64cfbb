"""Skips where the extra `train` is missing."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("tyro")
