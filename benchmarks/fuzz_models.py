"""Load mutated model files for as long as wanted: the mutations of tests/model_io/test_fuzz.py, with another seed.

    python benchmarks/fuzz_models.py --seconds 3600 --seed 1

Prints how many files of each kind were refused and loaded. Stops with status 1 at the first file that gives anything but a
sound model, a ModelFormatError, or the error for what is not built; "--first N --count 1" repeats file N of the seed.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "model_io"))

from mutations import main  # noqa: E402 - found through the line above

if __name__ == "__main__":
    sys.exit(main())
