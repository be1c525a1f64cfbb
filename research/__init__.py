"""The studies of this repository: sweeps of train/ppo_rnd.py, what they ask, and what came out.

Every study is a command: `python -m research.study`, `research.external`, `research.off_policy`.
`research.sweep` runs grids of your own, `research.analyze` reports on any runs.
"""

from pathlib import Path

ROOT = Path(__file__).parents[1]
"""The checkout."""
