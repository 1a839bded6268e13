import torch
from torch import nn
from agentgen import jit

k = jit.cuda(r"""
#include <cuda_bf16.h>

// ------------------------------------------------------------------ cast and pack
// A block of 64 rows x 64 columns becomes 8 KB: 128 bytes a row, 16-byte chunk c stored at c ^ (row & 7).
//   A tile (128 m x 64 k)  = 2 such blocks, rows m, columns k;   tiles ordered [m tile][k tile]
//   B tile (64 k x 256 n)  = 4 such blocks, rows k, columns n;   tiles ordered [n tile][k tile]

__device__ __forceinline__ void pack_block(const float* __restrict__ src, int rows, int cols, int r0, int c0,
                                           int vec, char* __restrict__ dst) {
  const int c = threadIdx.x & 7;
  const int rt = threadIdx.x >> 3;          // 0..31
  float4 v[2][2];
  if (vec && r0 + 64 <= rows && c0 + 64 <= cols) {
    const float* p = src + (long long)(r0 + rt) * cols + c0 + c * 8;
    const float* q = p + 32ll * cols;
    v[0][0] = __ldg(reinterpret_cast<const float4*>(p));
    v[0][1] = __ldg(reinterpret_cast<const float4*>(p) + 1);
    v[1][0] = __ldg(reinterpret_cast<const float4*>(q));
    v[1][1] = __ldg(reinterpret_cast<const float4*>(q) + 1);
  } else {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int r = r0 + rt + 32 * i;
      float e[8];
#pragma unroll
      for (int j = 0; j < 8; j++) {
        const int cc = c0 + c * 8 + j;
        e[j] = (r < rows && cc < cols) ? src[(long long)r * cols + cc] : 0.0f;
      }
      v[i][0] = make_float4(e[0], e[1], e[2], e[3]);
      v[i][1] = make_float4(e[4], e[5], e[6], e[7]);
    }
  }
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const int r = rt + 32 * i;
    __nv_bfloat162 h[4];
    h[0] = __floats2bfloat162_rn(v[i][0].x, v[i][0].y);
    h[1] = __floats2bfloat162_rn(v[i][0].z, v[i][0].w);
    h[2] = __floats2bfloat162_rn(v[i][1].x, v[i][1].y);
    h[3] = __floats2bfloat162_rn(v[i][1].z, v[i][1].w);
    uint4 o;
    o.x = *reinterpret_cast<uint32_t*>(&h[0]);
    o.y = *reinterpret_cast<uint32_t*>(&h[1]);
    o.z = *reinterpret_cast<uint32_t*>(&h[2]);
    o.w = *reinterpret_cast<uint32_t*>(&h[3]);
    *reinterpret_cast<uint4*>(dst + r * 128 + ((c ^ (r & 7)) << 4)) = o;
  }
}

extern "C" __global__ void __launch_bounds__(256)
pack_operands(const float* __restrict__ a, const float* __restrict__ b,
              __nv_bfloat16* __restrict__ pa, __nv_bfloat16* __restrict__ pb,
              int M, int N, int K, int KT, int a_blocks, int b_col_blocks, int vec_a, int vec_b) {
  int id = blockIdx.x;
  if (id < a_blocks) {
    const int rb = id / KT;                 // 64-row block of A
    const int kt = id - rb * KT;
    const long long slot = ((long long)(rb >> 1) * KT + kt) * 2 + (rb & 1);
    pack_block(a, M, K, rb * 64, kt * 64, vec_a, reinterpret_cast<char*>(pa) + slot * 8192);
  } else {
    id -= a_blocks;
    const int kt = id / b_col_blocks;
    const int cb = id - kt * b_col_blocks;  // 64-column block of B
    const long long slot = ((long long)(cb >> 2) * KT + kt) * 4 + (cb & 3);
    pack_block(b, K, N, kt * 64, cb * 64, vec_b, reinterpret_cast<char*>(pb) + slot * 8192);
  }
}

// ------------------------------------------------------------------ GEMM
constexpr int kStages = 4;
constexpr uint32_t kTileA = 16384;
constexpr uint32_t kTileB = 32768;
constexpr uint32_t kHalfB = 16384;
constexpr uint32_t kStage = kTileA + kTileB;

__device__ __forceinline__ void wait_parity(uint32_t bar, uint32_t parity) {
  asm volatile(
      "{\n\t"
      ".reg .pred ok;\n\t"
      "WAIT_LOOP:\n\t"
      "mbarrier.try_wait.parity.shared::cta.b64 ok, [%0], %1;\n\t"
      "@ok bra WAIT_DONE;\n\t"
      "bra WAIT_LOOP;\n\t"
      "WAIT_DONE:\n\t"
      "}\n"
      :: "r"(bar), "r"(parity) : "memory");
}

__device__ __forceinline__ void release_slot(uint32_t bar, uint32_t cta) {
  uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(bar), "r"(cta));
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" :: "r"(remote) : "memory");
}

#define ACC8(i) "+f"(acc[i]), "+f"(acc[i+1]), "+f"(acc[i+2]), "+f"(acc[i+3]), \
                "+f"(acc[i+4]), "+f"(acc[i+5]), "+f"(acc[i+6]), "+f"(acc[i+7])

// acc (64 x 256) = A (64 x 16, K-major) * B (16 x 256, N-major) + (accumulate ? acc : 0)
__device__ __forceinline__ void mma_64x256x16(float (&acc)[128], uint64_t desc_a, uint64_t desc_b, int accumulate) {
  asm volatile(
      "{\n\t"
      ".reg .pred p;\n\t"
      "setp.ne.b32 p, %130, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16\n\t"
      "{%0,   %1,   %2,   %3,   %4,   %5,   %6,   %7,\n\t"
      " %8,   %9,   %10,  %11,  %12,  %13,  %14,  %15,\n\t"
      " %16,  %17,  %18,  %19,  %20,  %21,  %22,  %23,\n\t"
      " %24,  %25,  %26,  %27,  %28,  %29,  %30,  %31,\n\t"
      " %32,  %33,  %34,  %35,  %36,  %37,  %38,  %39,\n\t"
      " %40,  %41,  %42,  %43,  %44,  %45,  %46,  %47,\n\t"
      " %48,  %49,  %50,  %51,  %52,  %53,  %54,  %55,\n\t"
      " %56,  %57,  %58,  %59,  %60,  %61,  %62,  %63,\n\t"
      " %64,  %65,  %66,  %67,  %68,  %69,  %70,  %71,\n\t"
      " %72,  %73,  %74,  %75,  %76,  %77,  %78,  %79,\n\t"
      " %80,  %81,  %82,  %83,  %84,  %85,  %86,  %87,\n\t"
      " %88,  %89,  %90,  %91,  %92,  %93,  %94,  %95,\n\t"
      " %96,  %97,  %98,  %99,  %100, %101, %102, %103,\n\t"
      " %104, %105, %106, %107, %108, %109, %110, %111,\n\t"
      " %112, %113, %114, %115, %116, %117, %118, %119,\n\t"
      " %120, %121, %122, %123, %124, %125, %126, %127},\n\t"
      "%128, %129, p, 1, 1, 0, 1;\n\t"
      "}\n"
      : ACC8(0), ACC8(8), ACC8(16), ACC8(24), ACC8(32), ACC8(40), ACC8(48), ACC8(56),
        ACC8(64), ACC8(72), ACC8(80), ACC8(88), ACC8(96), ACC8(104), ACC8(112), ACC8(120)
      : "l"(desc_a), "l"(desc_b), "r"(accumulate));
}

// Pairs of M tiles in groups of 8, walked down the group first, then to the next N tile.
__device__ __forceinline__ void locate(int t, int pairs_m, int tiles_n, int& pm, int& tn) {
  const int group = t / (8 * tiles_n);
  const int inside = t - group * (8 * tiles_n);
  const int height = min(8, pairs_m - group * 8);
  tn = inside / height;
  pm = group * 8 + inside - tn * height;
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
gemm_bf16(const __nv_bfloat16* __restrict__ pa, const __nv_bfloat16* __restrict__ pb, float* __restrict__ out,
          int M, int N, int KT, int pairs_m, int tiles_n, int vec_out) {
  extern __shared__ unsigned char dyn[];
  __shared__ __align__(8) unsigned long long bars[2 * kStages];

  const uint32_t stages = ((uint32_t)__cvta_generic_to_shared(dyn) + 1023u) & ~1023u;
  const uint32_t full = (uint32_t)__cvta_generic_to_shared(bars);
  const uint32_t empty = full + 8 * kStages;
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  const int total = pairs_m * tiles_n;
  const int first = blockIdx.x >> 1;
  const int step = gridDim.x >> 1;
  const int role = threadIdx.x >> 7;        // 0: producer, 1 and 2: consumers

  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; s++) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(full + 8 * s), "r"(1) : "memory");
      // 8 consumer warps in each of the two CTAs
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(empty + 8 * s), "r"(16) : "memory");
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");

  if (role == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 0) {
      int slot = 0;
      uint32_t phase = 0;
      for (int t = first; t < total; t += step) {
        int pm, tn;
        locate(t, pairs_m, tiles_n, pm, tn);
        const char* ga = reinterpret_cast<const char*>(pa) + (long long)(pm * 2 + (int)rank) * KT * kTileA;
        const char* gb = reinterpret_cast<const char*>(pb) + (long long)tn * KT * kTileB + rank * kHalfB;
        for (int kt = 0; kt < KT; kt++) {
          wait_parity(empty + 8 * slot, phase ^ 1);
          const uint32_t bar = full + 8 * slot;
          const uint32_t sa = stages + slot * kStage;
          const uint32_t sb = sa + kTileA + rank * kHalfB;
          asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(kStage) : "memory");
          asm volatile(
              "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
              :: "r"(sa), "l"(ga), "r"(kTileA), "r"(bar) : "memory");
          asm volatile(
              "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
              " [%0], [%1], %2, [%3], %4;"
              :: "r"(sb), "l"(gb), "r"(kHalfB), "r"(bar), "h"((unsigned short)3) : "memory");
          ga += kTileA;
          gb += kTileB;
          if (++slot == kStages) { slot = 0; phase ^= 1; }
        }
      }
    }
    __syncwarp();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int lane = threadIdx.x & 31;
    const int warp = (threadIdx.x >> 5) & 3;
    const int half = role - 1;
    const uint64_t base_a = (1ull << 62) | ((uint64_t)(1024 >> 4) << 32) | (1ull << 16);
    const uint64_t base_b = (1ull << 62) | ((uint64_t)(1024 >> 4) << 32) | ((uint64_t)(8192 >> 4) << 16);
    float acc[128];
    int slot = 0;
    uint32_t phase = 0;
    for (int t = first; t < total; t += step) {
      int pm, tn;
      locate(t, pairs_m, tiles_n, pm, tn);
      int last = 0;
      for (int kt = 0; kt < KT; kt++) {
        wait_parity(full + 8 * slot, phase);
        const uint32_t sa = stages + slot * kStage + half * 8192;
        const uint32_t sb = stages + slot * kStage + kTileA;
        const uint64_t da = base_a | (uint64_t)((sa & 0x3FFFF) >> 4);
        const uint64_t db = base_b | (uint64_t)((sb & 0x3FFFF) >> 4);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        mma_64x256x16(acc, da, db, kt > 0 ? 1 : 0);
#pragma unroll
        for (int j = 1; j < 4; j++) mma_64x256x16(acc, da + 2 * j, db + 128 * j, 1);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        if (kt > 0) {
          asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
          if (lane < 2) release_slot(empty + 8 * last, lane);
        }
        last = slot;
        if (++slot == kStages) { slot = 0; phase ^= 1; }
      }
      asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
      if (lane < 2) release_slot(empty + 8 * last, lane);

      const int row = (pm * 2 + (int)rank) * 128 + half * 64 + warp * 16 + (lane >> 2);
      const int col = tn * 256 + (lane & 3) * 2;
      const bool whole = vec_out && (tn * 256 + 256 <= N);
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int r = row + 8 * h;
        if (r < M) {
          float* o = out + (long long)r * N + col;
          if (whole) {
#pragma unroll
            for (int j = 0; j < 32; j++)
              *reinterpret_cast<float2*>(o + 8 * j) = make_float2(acc[4 * j + 2 * h], acc[4 * j + 2 * h + 1]);
          } else {
#pragma unroll
            for (int j = 0; j < 32; j++) {
              if (col + 8 * j < N) o[8 * j] = acc[4 * j + 2 * h];
              if (col + 8 * j + 1 < N) o[8 * j + 1] = acc[4 * j + 2 * h + 1];
            }
          }
        }
      }
    }
  }
  // The peer may still arrive on barriers here: leave together.
  asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
}
""".replace("WAIT_LOOP", "WAIT_LOOP_%=").replace("WAIT_DONE", "WAIT_DONE_%="))

SMEM_BYTES = 4 * (16384 + 32768) + 1024


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self._sm_counts = {}

    def forward(self, a, b):
        dtype = a.dtype
        a = a.to(torch.float32).contiguous()
        b = b.to(torch.float32).contiguous()
        M, K = a.shape
        N = b.shape[1]
        dev = a.device
        out = torch.empty((M, N), dtype=torch.float32, device=dev)
        if M > 0 and N > 0:
            if dev not in self._sm_counts:
                self._sm_counts[dev] = torch.cuda.get_device_properties(dev).multi_processor_count
            pairs_m = (M + 255) // 256
            tiles_n = (N + 255) // 256
            kt = max(1, (K + 63) // 64)
            a_blocks = pairs_m * 4 * kt
            b_cols = tiles_n * 4
            pa = torch.empty(a_blocks * 4096, dtype=torch.bfloat16, device=dev)
            pb = torch.empty(b_cols * kt * 4096, dtype=torch.bfloat16, device=dev)
            vec_a = int(K % 4 == 0 and a.data_ptr() % 16 == 0)
            vec_b = int(N % 4 == 0 and b.data_ptr() % 16 == 0)
            k.pack_operands[a_blocks + b_cols * kt, 256, 0](
                a, b, pa, pb, M, N, K, kt, a_blocks, b_cols, vec_a, vec_b)
            clusters = max(1, min(self._sm_counts[dev] // 2, pairs_m * tiles_n))
            k.gemm_bf16[2 * clusters, 384, SMEM_BYTES](
                pa, pb, out, M, N, kt, pairs_m, tiles_n, int(N % 2 == 0))
        return out if dtype == torch.float32 else out.to(dtype)
