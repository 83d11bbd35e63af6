"""Programs that tests start are as strict as the tests: in Python's development mode if pytest runs in it."""

import sys

DEVELOPMENT = ("-X", "dev") if sys.flags.dev_mode else ()
PYTHON = (sys.executable, *DEVELOPMENT)
