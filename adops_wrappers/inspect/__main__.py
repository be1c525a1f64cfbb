"""The command `python -m adops_wrappers.inspect`: a report page about a recording or a run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from adops_wrappers.inspect.report import write_report


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m adops_wrappers.inspect",
        description="Write one self-contained HTML page about a recording or a run directory.",
    )
    parser.add_argument("target", help="a file of ShapingRecorder, or a run directory")
    parser.add_argument("--out", default="report.html", help="the page to write (%(default)s)")
    parser.add_argument(
        "--row", type=int, default=0, help="environment whose episode is drawn (%(default)s)"
    )
    parser.add_argument(
        "--episode", type=int, help="its episode (default: the one with the worst conflict)"
    )
    parser.add_argument(
        "--methods", nargs="+", metavar="NAME", help="methods to compare on the recorded rollout"
    )
    given = parser.parse_args(arguments)
    try:
        page = write_report(
            given.target, given.out, row=given.row, episode=given.episode, methods=given.methods
        )
    except (OSError, ValueError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
