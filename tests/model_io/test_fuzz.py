"""Whatever a file holds, loading it gives a model that predicts or a ModelFormatError: no crash, no hang, no other error."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from mutations import FORMATS, STRUCTURAL, encode, original, outcome

pytestmark = pytest.mark.long

COUNT = 5000


@pytest.mark.slow
def test_mutated_files_are_refused_or_predict():
    script = Path(__file__).with_name("mutations.py")
    run = subprocess.run(
        [sys.executable, script, "--count", str(COUNT), "--seed", "0"], capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr.replace("\r", "\n")[-3000:]
    counts = json.loads(run.stdout)
    assert sum(counts.values()) == COUNT
    for raw_format in FORMATS:
        for kind in ("bytes", "document"):  # both happen: some changes leave a model sound, a gain for example
            assert counts[f"{kind} {raw_format}: loaded"] > 20
            assert counts[f"{kind} {raw_format}: refused"] > 100


@pytest.mark.parametrize("raw_format", FORMATS)
@pytest.mark.parametrize("fault", STRUCTURAL)
def test_structural_fault_is_always_refused(fault, raw_format):
    for seed in range(30):
        chance = random.Random(seed)
        document = original(chance, has_trees=True)
        STRUCTURAL[fault](document, chance)
        assert outcome(encode(document, raw_format)) == "refused", seed


@pytest.mark.parametrize("raw_format", FORMATS)
def test_files_without_a_fault_are_loaded(raw_format):
    outcomes = {outcome(encode(original(random.Random(seed)), raw_format)) for seed in range(50)}
    assert outcomes == {"loaded"}
