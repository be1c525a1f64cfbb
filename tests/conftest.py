"""Settings for all tests."""

import os

from hypothesis import settings

# No deadline: a busy machine is not a defect. The same examples on every CI run.
settings.register_profile("project", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("project")
