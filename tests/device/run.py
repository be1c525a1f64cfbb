"""Run a script or a module on the simulated CUDA device, which simulated_gpu.py describes.

python tests/device/run.py SCRIPT ARGS...
python tests/device/run.py -m MODULE ARGS...
"""

import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str]) -> None:
    """Activate the device and run what the arguments name, as `python ARGUMENTS` would."""
    if arguments in ([], ["-m"]):
        sys.exit(f"error: nothing to run.\n\n{__doc__}")
    if str(ROOT) not in sys.path:
        sys.path.insert(1, str(ROOT))
    from tests.device import simulated_gpu

    simulated_gpu.activate()
    if arguments[0] == "-m":
        sys.argv, sys.path[0] = arguments[1:], str(Path.cwd())
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = arguments, str(Path(arguments[0]).resolve().parent)
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
