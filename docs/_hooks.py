"""Keeps the navigation buildable: a page that is not written yet is left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    """Drop navigation entries whose file does not exist."""
    config["nav"] = _existing(config["nav"], Path(config["docs_dir"]))
    return config


def _existing(entries: list[Any], root: Path) -> list[Any]:
    kept = []
    for entry in entries:
        ((title, target),) = entry.items()
        if isinstance(target, list):
            kept.append({title: _existing(target, root)})
        elif (root / target).exists():
            kept.append(entry)
    return kept
