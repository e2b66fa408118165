"""python -m gpuboost."""

import sys

from gpuboost.cli import main

sys.exit(main())
