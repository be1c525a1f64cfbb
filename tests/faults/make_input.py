"""Writes what the careless program of the tests reads."""

from pathlib import Path

if __name__ == "__main__":
    Path("in.txt").write_text("y" * 1000)
