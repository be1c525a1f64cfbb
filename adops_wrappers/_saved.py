"""Saved state says under which settings it was made, and loads under no others."""

from __future__ import annotations

from typing import Any, ClassVar


class KeepsSettings:
    """Base of what has a `state_dict` whose numbers depend on settings.

    A subclass names these settings in `state_depends_on`, puts `settings_state()` into its
    `state_dict`, and calls `require_settings_of(state)` first when it loads one.
    """

    state_depends_on: ClassVar[tuple[str, ...]] = ()
    """The settings, attributes all of them, without which the saved numbers mean nothing."""

    def state_settings(self) -> dict[str, Any]:
        """Return the settings on which the state depends."""
        return {name: getattr(self, name) for name in self.state_depends_on}

    def settings_state(self) -> dict[str, Any]:
        """Return the part of a `state_dict` that says under which settings it was made."""
        settings = self.state_settings()
        return {"settings": settings} if settings else {}

    def require_settings_of(self, state: dict[str, Any]) -> None:
        """Raise unless a `state_dict` was made under these settings.

        A setting that it does not mention is not compared: version 0.2 saved none.
        """
        saved, mine = state.get("settings", {}), self.state_settings()
        other = [name for name in saved if name in mine and saved[name] != mine[name]]
        if other:
            was, here = (
                ", ".join(f"{name}={settings[name]!r}" for name in other)
                for settings in (saved, mine)
            )
            raise ValueError(
                f"Cannot load this state into {type(self).__name__}: it was saved under {was}, and "
                f"the settings here are {here}, under which the saved numbers would mean something "
                f"else. Build it with {was}, as it was when the state was saved."
            )
