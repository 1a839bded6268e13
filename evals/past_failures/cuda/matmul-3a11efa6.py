import torch
from torch import nn
from agentgen import jit

k = jit.cuda(r"""
#include <cuda_bf16.h>

#define STAGES 4
#define STAGE_BYTES 49152
#define A_BYTES 16384
#define B_HALF_BYTES 16384

__device__ __forceinline__ uint32_t smem_u32(const void* p) {
  return (uint32_t)__cvta_generic_to_shared(p);
}

__device__ __forceinline__ void mbar_init(uint32_t bar, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(count) : "memory");
}

__device__ __forceinline__ void mbar_expect(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(bytes) : "memory");
}

__device__ __forceinline__ void mbar_wait(uint32_t bar, uint32_t parity) {
  uint32_t done = 0;
  while (!done) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}\n"
        : "=r"(done) : "r"(bar), "r"(parity) : "memory");
  }
}

__device__ __forceinline__ void mbar_arrive_cluster(uint32_t bar, uint32_t cta) {
  asm volatile(
      "{\n"
      ".reg .b32 ra;\n"
      "mapa.shared::cluster.u32 ra, %0, %1;\n"
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [ra];\n"
      "}\n"
      :: "r"(bar), "r"(cta) : "memory");
}

__device__ __forceinline__ void bulk_load(uint32_t dst, const void* src, uint32_t bytes, uint32_t bar) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
      :: "r"(dst), "l"(src), "r"(bytes), "r"(bar) : "memory");
}

__device__ __forceinline__ void bulk_load_mc(uint32_t dst, const void* src, uint32_t bytes, uint32_t bar,
                                             unsigned short mask) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;"
      :: "r"(dst), "l"(src), "r"(bytes), "r"(bar), "h"(mask) : "memory");
}

__device__ __forceinline__ void cluster_sync_all() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

__device__ __forceinline__ int ld_acquire(const int* p) {
  int v;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}

__device__ __forceinline__ void st_release(int* p, int v) {
  asm volatile("st.release.gpu.global.s32 [%0], %1;" :: "l"(p), "r"(v) : "memory");
}

__device__ __forceinline__ void fence_proxy_async_all() {
  asm volatile("fence.proxy.async;" ::: "memory");
}

#define F4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define F16(i) F4(i), F4(i + 4), F4(i + 8), F4(i + 12)

__device__ __forceinline__ void wgmma_256(float (&d)[128], uint64_t da, uint64_t db, int scale_d) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, "
      "%40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, "
      "%56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, "
      "%72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, "
      "%88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, "
      "%104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, "
      "%120, %121, %122, %123, %124, %125, %126, %127}, "
      "%128, %129, p, 1, 1, 0, 1;\n"
      "}\n"
      : F16(0), F16(16), F16(32), F16(48), F16(64), F16(80), F16(96), F16(112)
      : "l"(da), "l"(db), "r"(scale_d));
}

__device__ __forceinline__ uint2 pack4(float4 v) {
  __nv_bfloat162 lo = __floats2bfloat162_rn(v.x, v.y);
  __nv_bfloat162 hi = __floats2bfloat162_rn(v.z, v.w);
  uint2 r;
  r.x = *reinterpret_cast<uint32_t*>(&lo);
  r.y = *reinterpret_cast<uint32_t*>(&hi);
  return r;
}

__device__ __forceinline__ float4 load_guarded(const float* __restrict__ src, int row, int col, int rows, int cols) {
  float4 v = make_float4(0.f, 0.f, 0.f, 0.f);
  if (row < rows) {
    const float* p = src + (long long)row * cols;
    if (col < cols) v.x = p[col];
    if (col + 1 < cols) v.y = p[col + 1];
    if (col + 2 < cols) v.z = p[col + 2];
    if (col + 3 < cols) v.w = p[col + 3];
  }
  return v;
}

// A unit: 128 rows x 128 k -> two swizzled K-major tiles of 128 x 64 (16 KB each)
__device__ __forceinline__ void convert_a(const float* __restrict__ a, char* dst, int row0, int k0,
                                          int M, int K, int vec, int tid) {
  int r0 = tid >> 5;
  int c4 = tid & 31;
  int c = (c4 & 15) >> 1;
  char* base = dst + (c4 >> 4) * A_BYTES + (c4 & 1) * 8;
  if (vec && row0 + 128 <= M && k0 + 128 <= K) {
    const float* src = a + (long long)(row0 + r0) * K + k0 + c4 * 4;
    for (int b = 0; b < 4; b++) {
      float4 v[8];
#pragma unroll
      for (int j = 0; j < 8; j++)
        v[j] = __ldcs(reinterpret_cast<const float4*>(src + (long long)((b * 8 + j) * 4) * K));
#pragma unroll
      for (int j = 0; j < 8; j++) {
        int r = r0 + (b * 8 + j) * 4;
        *reinterpret_cast<uint2*>(base + r * 128 + ((c ^ (r & 7)) << 4)) = pack4(v[j]);
      }
    }
  } else {
    for (int i = 0; i < 32; i++) {
      int r = r0 + i * 4;
      float4 v = load_guarded(a, row0 + r, k0 + c4 * 4, M, K);
      *reinterpret_cast<uint2*>(base + r * 128 + ((c ^ (r & 7)) << 4)) = pack4(v);
    }
  }
}

// B unit: 64 k x 256 n -> one tile of four swizzled 64 x 64 blocks (8 KB each), n contiguous
__device__ __forceinline__ void convert_b(const float* __restrict__ bm, char* dst, int k0, int n0,
                                          int K, int N, int vec, int tid) {
  int r0 = tid >> 6;
  int n4 = tid & 63;
  int c = (n4 & 15) >> 1;
  char* base = dst + (n4 >> 4) * 8192 + (n4 & 1) * 8;
  if (vec && k0 + 64 <= K && n0 + 256 <= N) {
    const float* src = bm + (long long)(k0 + r0) * N + n0 + n4 * 4;
    for (int b = 0; b < 4; b++) {
      float4 v[8];
#pragma unroll
      for (int j = 0; j < 8; j++)
        v[j] = __ldcs(reinterpret_cast<const float4*>(src + (long long)((b * 8 + j) * 2) * N));
#pragma unroll
      for (int j = 0; j < 8; j++) {
        int r = r0 + (b * 8 + j) * 2;
        *reinterpret_cast<uint2*>(base + r * 128 + ((c ^ (r & 7)) << 4)) = pack4(v[j]);
      }
    }
  } else {
    for (int i = 0; i < 32; i++) {
      int r = r0 + i * 2;
      float4 v = load_guarded(bm, k0 + r, n0 + n4 * 4, K, N);
      *reinterpret_cast<uint2*>(base + r * 128 + ((c ^ (r & 7)) << 4)) = pack4(v);
    }
  }
}

__device__ __forceinline__ void tile_coords(int t, int MP, int NB, int& mp, int& nb) {
  int per = 8 * NB;
  int g = t / per;
  int rem = t - g * per;
  int gs = MP - g * 8;
  if (gs > 8) gs = 8;
  nb = rem / gs;
  mp = g * 8 + (rem - nb * gs);
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(512, 1)
gemm_fused(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out,
           __nv_bfloat16* wa, __nv_bfloat16* wb, int* flags,
           int M, int N, int K, int MB, int NB, int KC, int MA1, int NB1,
           int vec_a, int vec_b, int vec_o) {
  extern __shared__ char smem_raw[];
  __shared__ __align__(8) unsigned long long s_full[STAGES];
  __shared__ __align__(8) unsigned long long s_empty[STAGES];
  __shared__ int s_next[2];

  const int tid = threadIdx.x;
  const int wg = tid >> 7;
  const int KT = KC * 2;
  const int MP = MB >> 1;
  const int tiles = MP * NB;
  const int cluster_id = blockIdx.x >> 1;
  const int clusters = gridDim.x >> 1;
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));

  uint32_t smem_base = (smem_u32(smem_raw) + 1023u) & ~1023u;
  uint32_t full0 = smem_u32(s_full);
  uint32_t empty0 = smem_u32(s_empty);

  int* flag_a = flags + 32;
  int* flag_b = flag_a + MB * KC;

  if (tid == 0) {
    for (int s = 0; s < STAGES; s++) {
      mbar_init(full0 + 8 * s, 1);
      mbar_init(empty0 + 8 * s, 16);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  cluster_sync_all();

  if (wg == 3) {
    // ---------------------------------------------------------------- converters
    asm volatile("setmaxnreg.dec.sync.aligned.u32 96;");
    const int ct = tid & 127;
    const int p1 = MA1 + 2 * NB1;
    const int p2 = 2 * (NB - NB1);
    const int p3 = MB - MA1;
    const int n1 = p1 * KC;
    const int n2 = p2 * KC;
    const int total = n1 + n2 + p3 * KC;
    int ph = 0;
    if (ct == 0) s_next[0] = atomicAdd(flags, 1);
    asm volatile("bar.sync 1, 128;" ::: "memory");
    int u = *(volatile int*)&s_next[0];
    while (u < total) {
      int nxt = 0;
      if (ct == 0) nxt = atomicAdd(flags, 1);
      int is_a, blk, kidx;
      if (u < n1) {
        int kc = u / p1;
        int r = u - kc * p1;
        if (r < MA1) {
          is_a = 1; blk = r; kidx = kc;
        } else {
          int q = r - MA1;
          is_a = 0; blk = q >> 1; kidx = 2 * kc + (q & 1);
        }
      } else if (u < n1 + n2) {
        int v = u - n1;
        int kc = v / p2;
        int q = v - kc * p2;
        is_a = 0; blk = NB1 + (q >> 1); kidx = 2 * kc + (q & 1);
      } else {
        int v = u - n1 - n2;
        int kc = v / p3;
        is_a = 1; blk = MA1 + (v - kc * p3); kidx = kc;
      }
      int* flag;
      if (is_a) {
        char* dst = reinterpret_cast<char*>(wa) + ((long long)blk * KT + 2 * kidx) * A_BYTES;
        convert_a(a, dst, blk * 128, kidx * 128, M, K, vec_a, ct);
        flag = flag_a + blk * KC + kidx;
      } else {
        char* dst = reinterpret_cast<char*>(wb) + ((long long)blk * KT + kidx) * (2 * B_HALF_BYTES);
        convert_b(b, dst, kidx * 64, blk * 256, K, N, vec_b, ct);
        flag = flag_b + blk * KT + kidx;
      }
      if (ct == 0) *(volatile int*)&s_next[ph ^ 1] = nxt;
      fence_proxy_async_all();
      __threadfence();
      asm volatile("bar.sync 1, 128;" ::: "memory");
      if (ct == 0) st_release(flag, 1);
      ph ^= 1;
      u = *(volatile int*)&s_next[ph];
    }
  } else if (wg == 2) {
    // ---------------------------------------------------------------- producer
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (tid == 256) {
      uint32_t it = 0;
      for (int t = cluster_id; t < tiles; t += clusters) {
        int mp, nb;
        tile_coords(t, MP, NB, mp, nb);
        int mb = mp * 2 + (int)rank;
        const char* pa = reinterpret_cast<const char*>(wa) + (long long)mb * KT * A_BYTES;
        const char* pb = reinterpret_cast<const char*>(wb) + (long long)nb * KT * (2 * B_HALF_BYTES)
                         + (long long)rank * B_HALF_BYTES;
        const int* fa = flag_a + mb * KC;
        const int* fb = flag_b + nb * KT;
        for (int kc = 0; kc < KC; kc++) {
          while (true) {
            int x = ld_acquire(fa + kc);
            int y = ld_acquire(fb + 2 * kc);
            int z = ld_acquire(fb + 2 * kc + 1);
            if (x & y & z) break;
            __nanosleep(40);
          }
          fence_proxy_async_all();
#pragma unroll
          for (int h = 0; h < 2; h++) {
            uint32_t s = it & (STAGES - 1);
            uint32_t phase = (it / STAGES) & 1;
            mbar_wait(empty0 + 8 * s, phase ^ 1);
            uint32_t bar = full0 + 8 * s;
            uint32_t st = smem_base + s * STAGE_BYTES;
            mbar_expect(bar, STAGE_BYTES);
            bulk_load(st, pa, A_BYTES, bar);
            bulk_load_mc(st + A_BYTES + rank * B_HALF_BYTES, pb, B_HALF_BYTES, bar, (unsigned short)3);
            pa += A_BYTES;
            pb += 2 * B_HALF_BYTES;
            it++;
          }
        }
      }
    }
    __syncwarp();
  } else {
    // ---------------------------------------------------------------- consumers
    asm volatile("setmaxnreg.inc.sync.aligned.u32 184;");
    const int lane = tid & 31;
    const int warp = (tid & 127) >> 5;
    const uint64_t desc_a_hi = (1ull << 62) | (64ull << 32) | (1ull << 16);
    const uint64_t desc_b_hi = (1ull << 62) | (64ull << 32) | (512ull << 16);
    float d[128];
    uint32_t it = 0;
    for (int t = cluster_id; t < tiles; t += clusters) {
      int mp, nb;
      tile_coords(t, MP, NB, mp, nb);
      for (int kt = 0; kt < KT; kt++) {
        uint32_t s = it & (STAGES - 1);
        uint32_t phase = (it / STAGES) & 1;
        mbar_wait(full0 + 8 * s, phase);
        uint32_t st = smem_base + s * STAGE_BYTES;
        uint64_t da = desc_a_hi | (uint64_t)(((st + (uint32_t)wg * 8192u) & 0x3FFFFu) >> 4);
        uint64_t db = desc_b_hi | (uint64_t)(((st + A_BYTES) & 0x3FFFFu) >> 4);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        wgmma_256(d, da, db, kt != 0);
        wgmma_256(d, da + 2, db + 128, 1);
        wgmma_256(d, da + 4, db + 256, 1);
        wgmma_256(d, da + 6, db + 384, 1);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        if (kt > 0) {
          asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
          if (lane < 2) mbar_arrive_cluster(empty0 + 8 * ((it - 1) & (STAGES - 1)), (uint32_t)lane);
        }
        it++;
      }
      asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
      if (lane < 2) mbar_arrive_cluster(empty0 + 8 * ((it - 1) & (STAGES - 1)), (uint32_t)lane);

      // epilogue
      int row = (mp * 2 + (int)rank) * 128 + wg * 64 + warp * 16 + (lane >> 2);
      int col = nb * 256 + (lane & 3) * 2;
      float* o0 = out + (long long)row * N + col;
      float* o1 = o0 + 8ll * N;
      bool ok0 = row < M;
      bool ok1 = row + 8 < M;
      if (vec_o && nb * 256 + 256 <= N) {
        if (ok0) {
#pragma unroll
          for (int j = 0; j < 32; j++)
            __stcs(reinterpret_cast<float2*>(o0 + j * 8), make_float2(d[j * 4], d[j * 4 + 1]));
        }
        if (ok1) {
#pragma unroll
          for (int j = 0; j < 32; j++)
            __stcs(reinterpret_cast<float2*>(o1 + j * 8), make_float2(d[j * 4 + 2], d[j * 4 + 3]));
        }
      } else {
#pragma unroll
        for (int j = 0; j < 32; j++) {
          int cc = col + j * 8;
          if (ok0 && cc < N) o0[j * 8] = d[j * 4];
          if (ok0 && cc + 1 < N) o0[j * 8 + 1] = d[j * 4 + 1];
          if (ok1 && cc < N) o1[j * 8] = d[j * 4 + 2];
          if (ok1 && cc + 1 < N) o1[j * 8 + 1] = d[j * 4 + 3];
        }
      }
    }
  }
  // no block may leave while its peer still signals its barriers
  cluster_sync_all();
}
""")

_SMEM = 4 * 49152 + 1024


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self._sms = {}

    def _sm_count(self, device):
        key = str(device)
        if key not in self._sms:
            self._sms[key] = torch.cuda.get_device_properties(device).multi_processor_count
        return self._sms[key]

    def forward(self, a, b):
        dtype = a.dtype
        if a.dtype != torch.float32:
            a = a.to(torch.float32)
        if b.dtype != torch.float32:
            b = b.to(torch.float32)
        a = a.contiguous()
        b = b.contiguous()
        M, K = a.shape
        N = b.shape[1]
        out = torch.empty((M, N), device=a.device, dtype=torch.float32)
        if M == 0 or N == 0:
            return out if dtype == torch.float32 else out.to(dtype)

        mb = 2 * ((M + 255) // 256)          # 128-row blocks, an even number of them
        nb = (N + 255) // 256                # 256-column blocks
        kc = max(1, (K + 127) // 128)        # chunks of 128 along K
        kt = 2 * kc                          # steps of 64 along K
        ma1 = min(mb, 16)
        nb1 = min(nb, 9)

        wa = torch.empty(mb * kt * 128 * 64, device=a.device, dtype=torch.bfloat16)
        wb = torch.empty(nb * kt * 64 * 256, device=a.device, dtype=torch.bfloat16)
        flags = torch.zeros(32 + mb * kc + nb * kt, device=a.device, dtype=torch.int32)

        vec_a = 1 if (K % 4 == 0 and a.data_ptr() % 16 == 0) else 0
        vec_b = 1 if (N % 4 == 0 and b.data_ptr() % 16 == 0) else 0
        vec_o = 1 if N % 2 == 0 else 0

        pairs = (mb // 2) * nb
        clusters = max(1, min(self._sm_count(a.device) // 2, pairs))
        k.gemm_fused[2 * clusters, 512, _SMEM](
            a, b, out, wa, wb, flags,
            M, N, K, mb, nb, kc, ma1, nb1,
            vec_a, vec_b, vec_o)
        return out if dtype == torch.float32 else out.to(dtype)
