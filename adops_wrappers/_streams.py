"""What a learning critic must know of its wrapper: both discounts and what an episode's end is."""

from __future__ import annotations

from typing import Any, NamedTuple

from adops_wrappers._saved import KeepsSettings


class Streams(NamedTuple):
    """The two streams that a critic values; None where nobody has said so yet."""

    gamma_ext: float | None
    gamma_int: float | None
    int_bootstrap: str | None

    @property
    def complete(self) -> bool:
        """Whether a critic knows all that it needs."""
        return None not in self

    def filled_by(self, other: Streams) -> Streams:
        """Return these, with those of `other` where none is known."""
        pairs = zip(self, other, strict=True)
        return Streams._make(theirs if mine is None else mine for mine, theirs in pairs)


class LearnsStreams(KeepsSettings):
    """Base of critics that learn the values of two streams, and save them."""

    _streams: Streams

    def state_settings(self) -> dict[str, Any]:
        """Return the settings on which the values depend, as far as they are known already."""
        streams = self._streams._asdict().items()
        known = {name: value for name, value in streams if value is not None}
        return {**super().state_settings(), **known}

    def load_streams(self, state: dict[str, Any]) -> None:
        """Take the streams of saved values; a wrapper that comes later must agree with them."""
        self.require_settings_of(state)
        settings = state.get("settings", {})
        saved = Streams._make(settings.get(name) for name in Streams._fields)
        self._streams = self._streams.filled_by(saved)
