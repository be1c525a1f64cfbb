"""A walk through the first rooms of Montezuma's Revenge, found by a search."""

from __future__ import annotations

_RUNS = (
    "0:4 11:3 12:10 15:1 4:2 14:2 16:4 5:9 0:8 12:10 0:8 12:3 0:3 9:9 15:3 0:1 10:10 9:6 15:1 "
    "0:2 14:7 13:11 4:1 10:3 3:4 0:1 11:5 0:2 11:1 16:8 0:2 10:1 16:2 11:12 3:1 0:5 3:1 11:1 "
    "0:3 10:5 0:5 6:5 2:12 7:2 11:2 2:3 0:1 13:5 2:2 1:4 16:7 7:3 17:7 11:6 7:4 12:6 10:2 "
    "2:12 1:4 16:4 0:6 16:3 4:1 12:1 0:4 11:2 0:3 3:8 0:2 6:6 11:8 0:7 16:3 5:3 0:8 5:27 0:11 "
    "7:1 17:3 15:4 17:9 0:2 11:2 "
)
"""An action, and for how many steps of four frames it is held."""
WALK = [int(run.split(":")[0]) for run in _RUNS.split() for _ in range(int(run.split(":")[1]))]
"""Without sticky actions: takes the key, opens the door on the right, and takes the sword."""
