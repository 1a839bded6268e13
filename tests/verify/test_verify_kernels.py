"""Whose kernels ran, by their names."""

from __future__ import annotations

import pytest

from agentgen.records.problem import OwnWork
from agentgen.records.trial import Outcome
from agentgen.verify.checks.kernels import defined, identifiers, own_kernels
from agentgen.verify.claims import KernelClaim
from agentgen.verify.findings import Findings, Rejected

SOURCE = '''
@triton.jit
def _softmax_kernel(x, y): ...

code = r"""
template <int N>
__global__ __launch_bounds__(256, (N > 2 ? 2 : 1)) void
conv(const float* x, float* y) { helper(x); }
extern "C" __global__ void pool(const float* __restrict__ x);
__device__ float helper(const float* x) { return *x; }
// nvjet_sm90_gemm is what we beat
"""
'''
FILL = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_"
GEMM = "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32"


def look(*kernels: tuple[str, float], policy: OwnWork = OwnWork.STRICT, source: str = SOURCE) -> Findings:
    findings = Findings()
    claims = [KernelClaim(name=name, count=1, us=us) for name, us in kernels]
    own_kernels(findings, claims, source, (), policy)
    return findings


def test_the_source_defines_its_kernels_and_not_what_it_mentions() -> None:
    names = defined(SOURCE)
    assert {"_softmax_kernel", "conv", "pool"} <= names
    assert not {"helper", "nvjet_sm90_gemm", "__launch_bounds__"} & names


@pytest.mark.parametrize(
    ("kernel", "identifier"),
    [
        ("_Z4convILi3EEvPKfPf", "conv"),
        ("_ZN12_GLOBAL__N_14convEPKfPf", "conv"),
        ("_ZL4convILi3EEvPKfPf", "conv"),
        ("_ZN12_GLOBAL__N_1L4convEPKfPf", "conv"),
        ("conv", "conv"),
        ("_softmax_kernel", "_softmax_kernel"),
        ("void conv<3>(float const*, float*)", "conv"),
        (FILL, "vectorized_elementwise_kernel"),
    ],
)
def test_a_mangled_name_holds_its_identifier(kernel: str, identifier: str) -> None:
    assert identifier in identifiers(kernel)


def test_own_kernels_and_free_fills_pass() -> None:
    (found,) = look(("_Z4convILi3EEvPKfPf", 90.0), ("_softmax_kernel", 5.0), (FILL, 5.0)).checks
    assert found.passed
    assert found.evidence == "95% of device time in 2 kernels of its own, 5% in torch's fills, copies and casts"


@pytest.mark.parametrize("kernels", [[(GEMM, 1.0), ("pool", 99.0)], [(GEMM, 50.0)], [("helper", 3.0), ("pool", 1.0)]])
def test_somebody_elses_kernel_is_refused_however_small(kernels: list[tuple[str, float]]) -> None:
    with pytest.raises(Rejected) as rejected:
        look(*kernels)
    assert rejected.value.outcome is Outcome.CHEATED
    assert "does not define" in rejected.value.reasons[0]


@pytest.mark.parametrize("kernels", [[], [(FILL, 3.0)]])
def test_nothing_of_its_own_is_refused(kernels: list[tuple[str, float]]) -> None:
    with pytest.raises(Rejected, match="no kernel of its own"):
        look(*kernels)


def test_a_library_is_allowed_where_the_problem_says_so() -> None:
    (found,) = look((GEMM, 75.0), ("pool", 25.0), policy=OwnWork.LIBRARY).checks
    assert found.passed
    assert "75% in libraries, allowed" in found.evidence


def test_without_cupti_nothing_is_decided() -> None:
    findings = Findings()
    own_kernels(findings, None, SOURCE, (), OwnWork.STRICT)
    assert [check.passed for check in findings.checks] == [None]
