"""What compute-sanitizer prints, as its documentation and its users show it."""

from __future__ import annotations

HEAD = "========= COMPUTE-SANITIZER\n"
CLEAN = HEAD + "========= ERROR SUMMARY: 0 errors\n"
OUT_OF_BOUNDS = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at scale(const float *, float *, int)+0x70 in candidate.cu:12
=========     by thread (232,0,0) in block (3,0,0)
=========     Address 0x7c5838a00fa0 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7c5838a00000 of size 4,000 bytes
=========
========= Invalid __global__ write of size 4 bytes
=========     at scale(const float *, float *, int)+0x70 in candidate.cu:12
=========     by thread (233,0,0) in block (3,0,0)
=========     Address 0x7c5838a00fa4 is out of bounds
=========     and is 5 bytes after the nearest allocation at 0x7c5838a00000 of size 4,000 bytes
=========
========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure" on CUDA API call to cuCtxSynchronize.
=========
========= Target application returned an error
========= ERROR SUMMARY: 24 errors
========= ERROR SUMMARY: 19 errors were not printed. Use --print-limit option to adjust the number of printed errors
"""  # noqa: E501
MISALIGNED = """========= COMPUTE-SANITIZER
========= Invalid __shared__ read of size 16 bytes
=========     at 0xd80 in /data/kernels.cu:162:void fused<(bool)1, __half>(T2 *, int)
=========     by thread (63,0,0) in block (506,0,0)
=========     Address 0x12c is misaligned
=========
========= ERROR SUMMARY: 1 error
"""
RACE = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at void reverse<(int)256>(float *)+0x150 in candidate.cu:27
=========     and Read access at void reverse<(int)256>(float *)+0x160 in candidate.cu:30 [4194304 hazards]
=========     and Write access at void reverse<(int)256>(float *)+0x150 in candidate.cu:27 [4 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
WARNED = """========= COMPUTE-SANITIZER
========= Warning: Race reported between Write access at RAW()+0xf0 in race.cu:40
=========     and Write access at RAW()+0xf0 in race.cu:40 [4 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)
"""
NO_SUMMARY = HEAD + "========= Error: Target application terminated before first instrumented API call\n"
