import torch
from torch import nn
from agentgen import jit

k = jit.cuda(r"""
#include <cuda_fp16.h>

// ---------------------------------------------------------------- split pass

__device__ __forceinline__ void pick_scale(unsigned bits, float& scale, float& inv) {
  // bits: pattern of the largest magnitude; brings it to [2^14, 2^15)
  int se = 268 - (int)(bits >> 23);
  se = se < 1 ? 1 : (se > 253 ? 253 : se);
  if (bits == 0u) se = 127;
  scale = __uint_as_float((unsigned)se << 23);
  inv = __uint_as_float((unsigned)(254 - se) << 23);
}

__device__ __forceinline__ void split2(float x, float y, unsigned& hi, unsigned& lo) {
  __half2 h = __floats2half2_rn(x, y);
  float2 f = __half22float2(h);
  __half2 l = __floats2half2_rn(x - f.x, y - f.y);
  hi = *reinterpret_cast<unsigned*>(&h);
  lo = *reinterpret_cast<unsigned*>(&l);
}

__device__ __forceinline__ float4 load4(const float* __restrict__ p, long long base, int i, int n, int vec) {
  float4 v = make_float4(0.f, 0.f, 0.f, 0.f);
  if (vec) {
    if (i < n) v = __ldcs(reinterpret_cast<const float4*>(p + base + i));
  } else {
    if (i < n) v.x = p[base + i];
    if (i + 1 < n) v.y = p[base + i + 1];
    if (i + 2 < n) v.z = p[base + i + 2];
    if (i + 3 < n) v.w = p[base + i + 3];
  }
  return v;
}

__device__ __forceinline__ unsigned mag(float x) {
  return __float_as_uint(x) & 0x7fffffffu;
}

__device__ __forceinline__ unsigned umax2(unsigned a, unsigned b) {
  return a > b ? a : b;
}

extern "C" __global__ void __launch_bounds__(256) split_pack(const float* __restrict__ a, const float* __restrict__ b, __half* __restrict__ pa, __half* __restrict__ pb, float* __restrict__ sa, float* __restrict__ sb, int M, int N, int K, int MT, int NT, int KC, int vec_a, int vec_b) {
  __shared__ float s[128 * 65];
  const int tid = threadIdx.x;
  const int lane = tid & 31;
  const int warp = tid >> 5;
  const int n_a = MT * KC;
  const long long KT = 2LL * KC;

  if ((int)blockIdx.x < n_a) {
    // 128 rows of a, 128 values of K: a warp per row
    const int mt = blockIdx.x / KC;
    const int kc = blockIdx.x - mt * KC;
    const int kk = kc * 128 + lane * 4;
    __half* dst = pa + ((long long)mt * KT + 2 * kc + (lane >> 4)) * 16384LL;
    float* sdst = sa + ((long long)mt * KC + kc) * 128;
    const int chunk = (lane & 15) >> 1;
#pragma unroll 1
    for (int half_i = 0; half_i < 2; ++half_i) {
      float4 v[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const long long row = (long long)mt * 128 + warp * 16 + half_i * 8 + i;
        v[i] = make_float4(0.f, 0.f, 0.f, 0.f);
        if (row < M) v[i] = load4(a, row * K, kk, K, vec_a);
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int r = warp * 16 + half_i * 8 + i;
        unsigned mx = umax2(umax2(mag(v[i].x), mag(v[i].y)), umax2(mag(v[i].z), mag(v[i].w)));
        mx = __reduce_max_sync(0xffffffffu, mx);
        float sc, inv;
        pick_scale(mx, sc, inv);
        uint2 hi, lo;
        split2(v[i].x * sc, v[i].y * sc, hi.x, lo.x);
        split2(v[i].z * sc, v[i].w * sc, hi.y, lo.y);
        const int off = r * 64 + ((chunk ^ (r & 7)) << 3) + ((lane & 1) << 2);
        *reinterpret_cast<uint2*>(dst + off) = hi;
        *reinterpret_cast<uint2*>(dst + 8192 + off) = lo;
        if (lane == 0) sdst[r] = inv;
      }
    }
  } else {
    // 128 values of K, 64 columns of b, written K-major
    const int t = blockIdx.x - n_a;
    const int kc = t / (2 * NT);
    const int nt64 = t - kc * (2 * NT);
    const int n0 = nt64 * 64;
    const int c4 = (tid & 15) * 4;
    const int kr = tid >> 4;
    float4 v[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const long long kk = (long long)kc * 128 + i * 16 + kr;
      v[i] = make_float4(0.f, 0.f, 0.f, 0.f);
      if (kk < K) v[i] = load4(b, kk * N, n0 + c4, N, vec_b);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float* p = s + (i * 16 + kr) * 65 + c4;
      p[0] = v[i].x;
      p[1] = v[i].y;
      p[2] = v[i].z;
      p[3] = v[i].w;
    }
    __syncthreads();
    const int nl = warp * 8 + (lane >> 2);
    const int q = lane & 3;
    float x[32];
    unsigned mx = 0u;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        x[j * 8 + i] = s[((q + 4 * j) * 8 + i) * 65 + nl];
        mx = umax2(mx, mag(x[j * 8 + i]));
      }
    }
    mx = umax2(mx, __shfl_xor_sync(0xffffffffu, mx, 1));
    mx = umax2(mx, __shfl_xor_sync(0xffffffffu, mx, 2));
    float sc, inv;
    pick_scale(mx, sc, inv);
    const int nt = nt64 >> 1;
    const int r = (nt64 & 1) * 64 + nl;
    if (q == 0) sb[((long long)nt * KC + kc) * 128 + r] = inv;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      uint4 hi, lo;
      split2(x[j * 8 + 0] * sc, x[j * 8 + 1] * sc, hi.x, lo.x);
      split2(x[j * 8 + 2] * sc, x[j * 8 + 3] * sc, hi.y, lo.y);
      split2(x[j * 8 + 4] * sc, x[j * 8 + 5] * sc, hi.z, lo.z);
      split2(x[j * 8 + 6] * sc, x[j * 8 + 7] * sc, hi.w, lo.w);
      const int chunk = q + 4 * (j & 1);
      __half* dst = pb + ((long long)nt * KT + 2 * kc + (j >> 1)) * 16384LL + r * 64 + ((chunk ^ (r & 7)) << 3);
      *reinterpret_cast<uint4*>(dst) = hi;
      *reinterpret_cast<uint4*>(dst + 8192) = lo;
    }
  }
}

// ---------------------------------------------------------------- product

#define STAGES 3
#define STAGE_BYTES 65536
#define SCALE_OFF (STAGES * STAGE_BYTES)
#define BAR_OFF (SCALE_OFF + 4096)

__device__ __forceinline__ void mbar_init(uint32_t bar, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" :: "r"(bar), "r"(count) : "memory");
}

__device__ __forceinline__ void mbar_wait(uint32_t bar, uint32_t parity) {
  uint32_t ok;
  do {
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p;\n"
                 "}\n" : "=r"(ok) : "r"(bar), "r"(parity) : "memory");
  } while (ok == 0u);
}

__device__ __forceinline__ void mbar_expect(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" :: "r"(bar), "r"(bytes) : "memory");
}

__device__ __forceinline__ void mbar_arrive_at(uint32_t bar, uint32_t cta) {
  asm volatile("{\n"
               ".reg .b32 ra;\n"
               "mapa.shared::cluster.u32 ra, %0, %1;\n"
               "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [ra];\n"
               "}\n" :: "r"(bar), "r"(cta) : "memory");
}

__device__ __forceinline__ void bulk_copy(uint32_t dst, const void* src, uint32_t bytes, uint32_t bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n"
               :: "r"(dst), "l"(src), "r"(bytes), "r"(bar) : "memory");
}

__device__ __forceinline__ void bulk_copy_both(uint32_t dst, const void* src, uint32_t bytes, uint32_t bar) {
  const unsigned short mask = 3;
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;\n"
               :: "r"(dst), "l"(src), "r"(bytes), "r"(bar), "h"(mask) : "memory");
}

__device__ __forceinline__ void cluster_sync_all() {
  asm volatile("barrier.cluster.arrive.release;\n" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire;\n" ::: "memory");
}

__device__ __forceinline__ uint64_t make_desc(uint32_t addr) {
  // K-major, 128-byte swizzle, 1024 bytes between groups of 8 rows
  return (uint64_t)((addr & 0x3FFFFu) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62);
}

__device__ __forceinline__ void wgmma_m64n128(float (&d)[64], uint64_t da, uint64_t db, int accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, "
      "%40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, "
      "%56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p, 1, 1, 0, 0;\n"
      "}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "l"(da), "l"(db), "r"(accumulate)
      : "memory");
}

__device__ __forceinline__ void fence_regs(float (&d)[64]) {
#pragma unroll
  for (int i = 0; i < 64; ++i) asm volatile("" : "+f"(d[i]) :: "memory");
}

// the 12 products of one K=64 stage, small terms first
template <bool FIRST>
__device__ __forceinline__ void issue_stage(float (&d)[64], uint32_t stage, uint32_t aoff) {
  const uint64_t ah = make_desc(stage + aoff);
  const uint64_t al = ah + 1024;
  const uint64_t bh = make_desc(stage + 32768u);
  const uint64_t bl = bh + 1024;
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
#pragma unroll
  for (int i = 0; i < 4; ++i) wgmma_m64n128(d, al + 2 * i, bh + 2 * i, (FIRST && i == 0) ? 0 : 1);
#pragma unroll
  for (int i = 0; i < 4; ++i) wgmma_m64n128(d, ah + 2 * i, bl + 2 * i, 1);
#pragma unroll
  for (int i = 0; i < 4; ++i) wgmma_m64n128(d, ah + 2 * i, bh + 2 * i, 1);
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

__device__ __forceinline__ void release_stage(uint32_t empty0, int s, int lane, bool really) {
  __syncwarp();
  if (really && lane < 2) mbar_arrive_at(empty0 + 8u * s, (uint32_t)lane);
}

__device__ __forceinline__ void promote(float (&m)[64], const float (&c)[64], const float* ra, const float* cb) {
  const float r0 = ra[0];
  const float r1 = ra[8];
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    const float2 f = *reinterpret_cast<const float2*>(cb + 8 * j);
    m[4 * j + 0] = fmaf(c[4 * j + 0] * r0, f.x, m[4 * j + 0]);
    m[4 * j + 1] = fmaf(c[4 * j + 1] * r0, f.y, m[4 * j + 1]);
    m[4 * j + 2] = fmaf(c[4 * j + 2] * r1, f.x, m[4 * j + 2]);
    m[4 * j + 3] = fmaf(c[4 * j + 3] * r1, f.y, m[4 * j + 3]);
  }
}

// one chunk of K=128 into cur; the chunk before it (in old) is promoted meanwhile
__device__ __forceinline__ void do_chunk(float (&cur)[64], float (&old)[64], float (&master)[64],
                                         uint32_t base, uint32_t full0, uint32_t empty0, uint32_t aoff,
                                         const float* ra, const float* cb,
                                         int& s, uint32_t& ph, int& g, int lane, bool release_old) {
  mbar_wait(full0 + 8u * s, ph);
  __syncwarp();
  issue_stage<true>(cur, base + (uint32_t)s * STAGE_BYTES, aoff);
  asm volatile("wgmma.wait_group.sync.aligned 1;\n" ::: "memory");
  fence_regs(old);
  release_stage(empty0, s == 0 ? STAGES - 1 : s - 1, lane, release_old);
  const int slot = ((g - 1) & 3) * 256;
  promote(master, old, ra + slot, cb + slot);
  if (++s == STAGES) {
    s = 0;
    ph ^= 1u;
  }
  mbar_wait(full0 + 8u * s, ph);
  __syncwarp();
  issue_stage<false>(cur, base + (uint32_t)s * STAGE_BYTES, aoff);
  asm volatile("wgmma.wait_group.sync.aligned 1;\n" ::: "memory");
  release_stage(empty0, s == 0 ? STAGES - 1 : s - 1, lane, true);
  if (++s == STAGES) {
    s = 0;
    ph ^= 1u;
  }
  ++g;
}

__device__ __forceinline__ void finish_tile(float (&last)[64], float (&master)[64], uint32_t empty0,
                                            const float* ra, const float* cb, int s, int g, int lane) {
  asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory");
  fence_regs(last);
  release_stage(empty0, s == 0 ? STAGES - 1 : s - 1, lane, true);
  const int slot = ((g - 1) & 3) * 256;
  promote(master, last, ra + slot, cb + slot);
}

__device__ __forceinline__ void tile_of(int cl, int MP, int NT, int& mp, int& nt) {
  const int per = 4 * NT;
  const int grp = cl / per;
  const int first = grp * 4;
  const int gs = (MP - first) < 4 ? (MP - first) : 4;
  const int r = cl - grp * per;
  nt = r / gs;
  mp = first + (r - nt * gs);
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1) gemm_split(const __half* __restrict__ pa, const __half* __restrict__ pb, const float* __restrict__ sa, const float* __restrict__ sb, float* __restrict__ y, int M, int N, int KC, int MP, int NT) {
  extern __shared__ unsigned char smem_raw[];
  const uint32_t raw = (uint32_t)__cvta_generic_to_shared(smem_raw);
  const uint32_t pad = ((raw + 1023u) & ~1023u) - raw;
  unsigned char* smem = smem_raw + pad;
  const uint32_t base = raw + pad;
  const uint32_t full0 = base + BAR_OFF;
  const uint32_t empty0 = full0 + 8u * STAGES;
  float* scales = reinterpret_cast<float*>(smem + SCALE_OFF);

  const int tid = threadIdx.x;
  const int lane = tid & 31;
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;\n" : "=r"(rank));

  for (int i = tid; i < 1024; i += 384) scales[i] = 0.f;
  if (tid == 0) {
    for (int i = 0; i < STAGES; ++i) {
      mbar_init(full0 + 8u * i, 1u);
      mbar_init(empty0 + 8u * i, 16u);
    }
    asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
  }
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
  __syncthreads();
  cluster_sync_all();

  const int total = MP * NT;
  const int cl0 = (int)(blockIdx.x >> 1);
  const int cl_step = (int)(gridDim.x >> 1);

  if (tid < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;\n");
    if (tid == 0) {
      int s = 0;
      uint32_t ph = 0;
      int g = 0;
      const int KT = 2 * KC;
      for (int cl = cl0; cl < total; cl += cl_step) {
        int mp, nt;
        tile_of(cl, MP, NT, mp, nt);
        const int mt = 2 * mp + (int)rank;
        const __half* srcA = pa + (long long)mt * KT * 16384LL;
        const __half* srcB = pb + (long long)nt * KT * 16384LL + (long long)rank * 8192LL;
        const float* srcR = sa + (long long)mt * KC * 128LL;
        const float* srcC = sb + (long long)nt * KC * 128LL;
        for (int kt = 0; kt < KT; ++kt) {
          mbar_wait(empty0 + 8u * s, ph ^ 1u);
          const uint32_t bar = full0 + 8u * s;
          const uint32_t st = base + (uint32_t)s * STAGE_BYTES;
          mbar_expect(bar, (kt & 1) ? 66560u : 65536u);
          bulk_copy(st, srcA, 32768u, bar);
          bulk_copy_both(st + 32768u + rank * 16384u, srcB, 16384u, bar);
          if (kt & 1) {
            const uint32_t sd = base + SCALE_OFF + (uint32_t)(g & 3) * 1024u;
            bulk_copy(sd, srcR, 512u, bar);
            bulk_copy(sd + 512u, srcC, 512u, bar);
            srcR += 128;
            srcC += 128;
            ++g;
          }
          srcA += 16384;
          srcB += 16384;
          if (++s == STAGES) {
            s = 0;
            ph ^= 1u;
          }
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;\n");
    const int wg = (tid >> 7) - 1;
    const int warp = (tid & 127) >> 5;
    const uint32_t aoff = (uint32_t)wg * 8192u;
    const int row_in = wg * 64 + warp * 16 + (lane >> 2);
    const int col_in = (lane & 3) * 2;
    const float* ra = scales + row_in;
    const float* cb = scales + 128 + col_in;
    int s = 0;
    uint32_t ph = 0;
    int g = 0;
    float master[64];
    float acc0[64];
    float acc1[64];
#pragma unroll
    for (int i = 0; i < 64; ++i) acc0[i] = 0.f;

    for (int cl = cl0; cl < total; cl += cl_step) {
#pragma unroll
      for (int i = 0; i < 64; ++i) {
        master[i] = 0.f;
        acc1[i] = 0.f;
      }
      int c = 0;
      for (; c + 1 < KC; c += 2) {
        do_chunk(acc0, acc1, master, base, full0, empty0, aoff, ra, cb, s, ph, g, lane, c > 0);
        do_chunk(acc1, acc0, master, base, full0, empty0, aoff, ra, cb, s, ph, g, lane, true);
      }
      if (c < KC) {
        do_chunk(acc0, acc1, master, base, full0, empty0, aoff, ra, cb, s, ph, g, lane, c > 0);
        finish_tile(acc0, master, empty0, ra, cb, s, g, lane);
      } else {
        finish_tile(acc1, master, empty0, ra, cb, s, g, lane);
      }

      int mp, nt;
      tile_of(cl, MP, NT, mp, nt);
      const long long row0 = (long long)(2 * mp + (int)rank) * 128 + row_in;
      const int col0 = nt * 128 + col_in;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const long long row = row0 + 8 * h;
        if (row < M) {
          float* p = y + row * N;
          if ((N & 1) == 0) {
#pragma unroll
            for (int j = 0; j < 16; ++j) {
              const int col = col0 + 8 * j;
              if (col < N) {
                *reinterpret_cast<float2*>(p + col) = make_float2(master[4 * j + 2 * h], master[4 * j + 2 * h + 1]);
              }
            }
          } else {
#pragma unroll
            for (int j = 0; j < 16; ++j) {
              const int col = col0 + 8 * j;
              if (col < N) p[col] = master[4 * j + 2 * h];
              if (col + 1 < N) p[col + 1] = master[4 * j + 2 * h + 1];
            }
          }
        }
      }
      __syncwarp();
    }
  }
  __syncwarp();
  cluster_sync_all();
}
""")

SMEM_BYTES = 3 * 65536 + 4096 + 64 + 1024


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, a, b):
        a = a.contiguous()
        b = b.contiguous()
        M, K = a.shape
        N = b.shape[1]
        dev = a.device
        if M == 0 or N == 0 or K == 0:
            return torch.zeros((M, N), dtype=torch.float32, device=dev)
        y = torch.empty((M, N), dtype=torch.float32, device=dev)

        MP = (M + 255) // 256
        MT = 2 * MP
        NT = (N + 127) // 128
        KC = (K + 127) // 128
        KT = 2 * KC

        pa = torch.empty(MT * KT * 16384, dtype=torch.float16, device=dev)
        pb = torch.empty(NT * KT * 16384, dtype=torch.float16, device=dev)
        sa = torch.empty(MT * KC * 128, dtype=torch.float32, device=dev)
        sb = torch.empty(NT * KC * 128, dtype=torch.float32, device=dev)

        vec_a = 1 if (K % 4 == 0 and a.data_ptr() % 16 == 0) else 0
        vec_b = 1 if (N % 4 == 0 and b.data_ptr() % 16 == 0) else 0

        blocks = MT * KC + 2 * NT * KC
        k.split_pack[blocks, 256, 0](a, b, pa, pb, sa, sb, M, N, K, MT, NT, KC, vec_a, vec_b)

        sms = torch.cuda.get_device_properties(dev).multi_processor_count
        clusters = max(1, min(MP * NT, sms // 2))
        k.gemm_split[2 * clusters, 384, SMEM_BYTES](pa, pb, sa, sb, y, M, N, KC, MP, NT)
        return y
