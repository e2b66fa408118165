"""The rungs catch kernels that are broken on purpose (tests/mutants.py), each on the rung that it names."""

import pytest
from cuda_runners import SimulatorRunner, rung_runners, simulator_runners
from mutants import MUTANTS
from rungs import RUNGS

from gpuboost.kernels.cuda_common import CudaKernel

CAUGHT = [m for m in MUTANTS if m.caught_by in ("simulator", *RUNGS)]
SAME = [m for m in MUTANTS if m not in CAUGHT]
RUNNERS = {"simulator": [p.values[0] for p in simulator_runners()], **{p.id: [p.values[0]] for p in rung_runners()}}


def mutated(runner: SimulatorRunner, mutant, used: list[CudaKernel]) -> SimulatorRunner:
    """The runner with the mutant in place of its kernel. used : gets the kernels that were replaced."""

    def rung(kernel, *arguments, **geometry):
        other = mutant.kernel(kernel)
        if other is not kernel:
            used.append(kernel)
        runner.rung(other, *arguments, **geometry)

    return SimulatorRunner(runner.n_multiprocessors, runner.block_size, runner.order, runner.poison, rung)


@pytest.mark.sweep(5)
@pytest.mark.parametrize("mutant", CAUGHT, ids=lambda m: m.name)
def test_a_mutant_is_caught(mutant):
    used: list[CudaKernel] = []
    with pytest.raises(AssertionError):
        for runner in RUNNERS[mutant.caught_by]:
            mutant.check(mutated(runner, mutant, used))
    assert used


@pytest.mark.slow
@pytest.mark.parametrize("rung", RUNNERS)
@pytest.mark.parametrize("mutant", SAME, ids=lambda m: m.name)
def test_a_mutant_that_changes_no_result_passes(mutant, rung):
    used: list[CudaKernel] = []
    for runner in RUNNERS[rung]:
        mutant.check(mutated(runner, mutant, used))
    assert used


def test_there_are_enough_of_each_kind():
    assert len(CAUGHT) >= 30 and {m.caught_by for m in CAUGHT} == {"simulator", *RUNGS}
    assert len({m.name for m in MUTANTS}) == len(MUTANTS)
