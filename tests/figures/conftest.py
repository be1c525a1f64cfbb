"""Makes the scripts in figures/ importable, as they are for a script beside them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "figures"))
