"""The rules of MiniZuma a second time, for one row, in plain Python: slow and easy to check."""

from __future__ import annotations

from typing import Any

from gymnasium.utils import seeding

from adops_wrappers.envs.minizuma.floorplan import PLAN

MOVES = [(0, 0), (-1, 0), (0, 1), (1, 0), (0, -1)]


def word(key: int, count: int) -> int:
    mask = 2**64 - 1
    z = (key + count * 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def find(symbol: str) -> list[tuple[int, int]]:
    return [(y, x) for y in range(16) for x in range(21) if PLAN[y][x] == symbol]


def room_of(y: int, x: int) -> tuple[int, int]:
    return y // 5, x // 5


def is_inside(y: int, x: int) -> bool:
    return y % 5 != 0 and x % 5 != 0


SKULL_ROOMS = sorted({room_of(*cell) for cell in find("~")})
LASERS = find("!")


class Reference:
    def __init__(self, seed: int, horizon: int = 1000, lives: int = 5) -> None:
        self.horizon, self.max_lives = horizon, lives
        self.key = int(seeding.np_random(seed)[0].integers(2**64, dtype="uint64"))

    def reset(self) -> tuple[list[float], dict[str, int]]:
        self.key = word(self.key, 0)
        chance = word(self.key, 1)
        self.skulls = {}
        for i, room in enumerate(SKULL_ROOMS):
            bits = chance >> (3 * i) & 7
            self.skulls[room] = [bits >> 1, +1 if bits & 1 else -1]
        self.phases = [chance >> (32 + 3 * i) & 7 for i in range(len(LASERS))]
        self.y, self.x = self.spawn = find("S")[0]
        self.rooms = {room_of(self.y, self.x)}
        self.keys: set[str] = set()
        self.doors: set[str] = set()
        self.jewels: set[str] = set()
        self.used: set[str] = set()
        self.lives, self.t = self.max_lives, 0
        return self.observation(), self.info()

    def burning(self, laser: int) -> bool:
        return (self.t + self.phases[laser]) % 8 < 4

    def step(self, action: int) -> tuple[list[float], float, bool, bool, dict[str, int]]:
        self.t += 1
        reward = 0.0
        from_y, from_x = self.y, self.x
        y, x = from_y + MOVES[action][0], from_x + MOVES[action][1]
        at = PLAN[y][x]
        if at == "#":
            y, x = from_y, from_x
        if at in "RBG" and at not in self.doors:
            if at.lower() in self.keys:
                self.keys.remove(at.lower())
                self.doors.add(at)
                reward += 300.0
            else:
                y, x = from_y, from_x
        at = PLAN[y][x]
        if at in "rbg" and at not in self.used:
            self.keys.add(at)
            self.used.add(at)
        if at in "123" and at not in self.jewels:
            self.jewels.add(at)
            reward += 1000.0
        dead = self.meets_skull((from_y, from_x), (y, x))
        if at == "!" and self.burning(LASERS.index((y, x))):
            dead = True
        if dead:
            self.lives -= 1
            y, x = self.spawn
        elif is_inside(y, x) and room_of(y, x) != room_of(*self.spawn):
            self.spawn = (y, x)
            self.rooms.add(room_of(y, x))
        self.y, self.x = y, x
        terminated = self.lives == 0 or len(self.jewels) == 3
        truncated = self.t >= self.horizon and not terminated
        return self.observation(), reward, terminated, truncated, self.info()

    def meets_skull(self, start: tuple[int, int], end: tuple[int, int]) -> bool:
        chance = word(self.key, self.t + 1)
        met = False
        for i, room in enumerate(SKULL_ROOMS):
            bits = chance >> (5 * i) & 31
            place, direction = self.skulls[room]
            was = place
            if bits & 7 == 0:
                direction = -direction
            if bits >> 3 != 0:
                if place + direction in (-1, 4):
                    direction = -direction
                else:
                    place += direction
            self.skulls[room] = [place, direction]
            row = next(y for y, x in find("~") if room_of(y, x) == room)
            before, after = (row, 5 * room[1] + 1 + was), (row, 5 * room[1] + 1 + place)
            met |= end == after or (end == before and start == after)
        return met

    def observation(self) -> list[float]:
        room = room_of(self.y, self.x)
        obs = [float(4 * room[0] + room[1] == i) for i in range(12)]
        obs += [float(self.y % 5 == i) for i in range(5)] + [
            float(self.x % 5 == i) for i in range(5)
        ]
        obs += [float(symbol in self.keys) for symbol in "rbg"]
        obs += [float(symbol in self.doors) for symbol in "RBG"]
        obs += [float(symbol in self.jewels) for symbol in "123"]
        if room in self.skulls:
            place, direction = self.skulls[room]
            obs += [float(place == i) for i in range(4)] + [float(direction)]
        else:
            obs += [0.0] * 5
        countdown = 0.0
        for i, (y, x) in enumerate(LASERS):
            if room in (room_of(y - 1, x), room_of(y + 1, x)):
                clock = (self.t + self.phases[i]) % 8
                countdown = (4 - clock) / 4 if clock < 4 else -(8 - clock) / 4
        return [*obs, countdown, self.lives / self.max_lives]

    def info(self) -> dict[str, Any]:
        stages = len(self.used) + len(self.doors) + len(self.jewels)
        return {"stages": stages, "rooms": len(self.rooms)}
