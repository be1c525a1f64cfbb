"""Skips where the packages of the analysis are missing."""

from __future__ import annotations

import pytest

pytest.importorskip("scipy")
pytest.importorskip("matplotlib")
