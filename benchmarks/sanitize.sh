#!/usr/bin/env bash
# NVIDIA's compute-sanitizer over small trainings that launch all CUDA kernels: accesses out of bounds, races in shared memory, and
# barriers that not all threads reach. Arguments go to gpu_digests.py: benchmarks/sanitize.sh --rows 500 --cases "31 leaves" sparse
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH=.${PYTHONPATH:+:$PYTHONPATH}
program=("${PYTHON:-python3}" benchmarks/gpu_digests.py "$@")

"${program[@]}" # compiles: what follows takes kernels from the cache
for tool in memcheck racecheck synccheck; do
    echo "== $tool"
    compute-sanitizer --tool "$tool" --error-exitcode 9 "${program[@]}"
done
