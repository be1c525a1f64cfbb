"""The floor plans of the gallery.

`#` wall, `.` floor, `S` start, `G` goal, `K` key, `D` door, `T` noisy TV, `C` coin, `B` bell,
`~` dance floor, `X` skull.
"""

from __future__ import annotations

from dataclasses import dataclass

CATCH_PROBABILITY = 0.1
"""The chance to be caught by the skull with every step that ends on the dance floor."""
COIN_REWARD = 0.1


@dataclass(frozen=True)
class Layout:
    """One env of the gallery."""

    plan: tuple[str, ...]
    horizon: int
    """The default number of steps after which an episode is truncated."""
    tempting: str
    """The symbol of the cells that pay the tempting bonus."""
    story: str
    """What tempts the agent away from its task."""

    @property
    def has_use(self) -> bool:
        """Whether there is a fifth action, `use`."""
        return any("D" in row for row in self.plan)


def _key_door(first_row: str) -> tuple[str, ...]:
    return (
        "###############",
        first_row,
        "#......#......#",
        "#......#......#",
        "#......D......#",
        "#......#......#",
        "#K.....#.....G#",
        "###############",
    )


LAYOUTS = {
    "KeyDoor": Layout(
        _key_door("#S.....#......#"),
        80,
        "K",
        "Two rooms: fetch the key, open the door, reach the goal. A bonus that never wears off "
        "pays for standing where the key was.",
    ),
    "KeyDoorTV": Layout(
        _key_door("#S.....#.....T#"),
        80,
        "T",
        "KeyDoor with a noisy TV behind the door, away from the goal: its picture is new at "
        "every step.",
    ),
    "KeyDoorCoin": Layout(
        _key_door("#S....C#......#"),
        80,
        "K",
        "KeyDoor with a coin worth 0.1 in the first room: a small reward that is found long "
        "before the goal.",
    ),
    "TVCorridor": Layout(
        ("####################", "#T...S............G#", "####################"),
        100,
        "T",
        "A corridor with a noisy TV 4 steps to the left of the start and the goal 13 to the right.",
    ),
    "LoopFarm": Layout(
        (
            "##########",
            "#..B######",
            "#S#.....G#",
            "#...######",
            "##########",
        ),
        60,
        "B",
        "A ring with a bell beside the way to the goal: the bell pays every time it is reached, "
        "so that laps pay more than arriving.",
    ),
    "DancingSkulls": Layout(
        (
            "#############",
            "#...........#",
            "#S.........G#",
            "#...~~X~~...#",
            "#############",
        ),
        60,
        "~",
        "A dance floor around a skull: its picture is new at every step, and with every step on "
        "it the skull catches the dancer with probability 0.1, which ends the episode.",
    ),
}
