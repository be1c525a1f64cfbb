"""The sweep beside the scripts that it runs: `python -m research.sweep`, see there."""

import sys

from research.sweep import main

if __name__ == "__main__":
    sys.exit(main())
