import torch
from torch import nn
from agentgen import jit

_SRC = r"""
#include <cuda_fp16.h>

#define STAGES 3
#define STAGE_BYTES 65536

__device__ __forceinline__ int block_exponent(float mx) {
  int e = (int)((__float_as_uint(mx) >> 23) & 255u);
  if (mx == 0.0f) return 141;
  return e < 15 ? 15 : e;
}

__device__ __forceinline__ void split2(float x, float y, unsigned& hi, unsigned& lo) {
  __half hx = __float2half_rn(x);
  __half hy = __float2half_rn(y);
  __half lx = __float2half_rn(x - __half2float(hx));
  __half ly = __float2half_rn(y - __half2float(hy));
  hi = (unsigned)__half_as_ushort(hx) | ((unsigned)__half_as_ushort(hy) << 16);
  lo = (unsigned)__half_as_ushort(lx) | ((unsigned)__half_as_ushort(ly) << 16);
}

extern "C" __global__ void __launch_bounds__(256, 4) split_pack(
    const float* __restrict__ a, const float* __restrict__ b,
    __half* __restrict__ pa, __half* __restrict__ pb,
    float* __restrict__ sa, float* __restrict__ sb,
    int M, int N, int K, int nC, int nblkA, int nNb, int vec) {
  __shared__ uint4 buf[2048];
  __shared__ float smax[256];
  const int tid = threadIdx.x;
  const int bid = blockIdx.x;
  const int nKb = nC * 2;
  if (bid < nblkA) {
    const int kc = bid % nC;
    const int mt = bid / nC;
    const int warp = tid >> 5, lane = tid & 31;
    const int m0 = mt * 64 + warp * 8;
    const int k0 = kc * 128 + lane * 4;
    float4 v[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int m = m0 + i;
      float4 t = make_float4(0.f, 0.f, 0.f, 0.f);
      if (m < M) {
        const float* p = a + (long long)m * K + k0;
        if (vec) {
          if (k0 < K) t = __ldcs(reinterpret_cast<const float4*>(p));
        } else {
          if (k0 < K) t.x = p[0];
          if (k0 + 1 < K) t.y = p[1];
          if (k0 + 2 < K) t.z = p[2];
          if (k0 + 3 < K) t.w = p[3];
        }
      }
      v[i] = t;
    }
    const int kb = kc * 2 + (lane >> 4);
    const int c = (lane & 15) >> 1;
    const int sub = lane & 1;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int m = m0 + i;
      float mx = fmaxf(fmaxf(fabsf(v[i].x), fabsf(v[i].y)), fmaxf(fabsf(v[i].z), fabsf(v[i].w)));
      mx = fmaxf(mx, 0.0f);
#pragma unroll
      for (int o = 16; o > 0; o >>= 1) mx = fmaxf(mx, __shfl_xor_sync(0xffffffffu, mx, o));
      const int e = block_exponent(mx);
      const float s = __uint_as_float((unsigned)(268 - e) << 23);
      uint2 hi, lo;
      split2(v[i].x * s, v[i].y * s, hi.x, lo.x);
      split2(v[i].z * s, v[i].w * s, hi.y, lo.y);
      const int t = m >> 7, r = m & 127;
      const long long base = ((long long)t * nKb + kb) * 2 * 8192;
      const int off = r * 64 + ((c ^ (r & 7)) << 3) + sub * 4;
      *reinterpret_cast<uint2*>(pa + base + off) = hi;
      *reinterpret_cast<uint2*>(pa + base + 8192 + off) = lo;
      if (lane == 0) sa[((long long)t * nC + kc) * 128 + r] = __uint_as_float((unsigned)(e - 14) << 23);
    }
  } else {
    const int id = bid - nblkA;
    const int nb = id % nNb;
    const int kc = id / nNb;
    const int nl = tid & 63, g = tid >> 6;
    const int n = nb * 64 + nl;
    const int k0 = kc * 128 + g * 32;
    float v[32];
    const float* p = b + (long long)k0 * N + n;
    if (n < N && k0 + 32 <= K) {
#pragma unroll
      for (int j = 0; j < 32; ++j) v[j] = __ldcs(p + (long long)j * N);
    } else {
#pragma unroll
      for (int j = 0; j < 32; ++j) {
        v[j] = 0.0f;
        if (n < N && k0 + j < K) v[j] = p[(long long)j * N];
      }
    }
    float mx = 0.0f;
#pragma unroll
    for (int j = 0; j < 32; ++j) mx = fmaxf(mx, fabsf(v[j]));
    smax[tid] = mx;
    __syncthreads();
    mx = fmaxf(fmaxf(smax[nl], smax[nl + 64]), fmaxf(smax[nl + 128], smax[nl + 192]));
    const int e = block_exponent(mx);
    const float s = __uint_as_float((unsigned)(268 - e) << 23);
    const int kbl = g >> 1;
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      uint4 hi, lo;
      split2(v[q * 8 + 0] * s, v[q * 8 + 1] * s, hi.x, lo.x);
      split2(v[q * 8 + 2] * s, v[q * 8 + 3] * s, hi.y, lo.y);
      split2(v[q * 8 + 4] * s, v[q * 8 + 5] * s, hi.z, lo.z);
      split2(v[q * 8 + 6] * s, v[q * 8 + 7] * s, hi.w, lo.w);
      const int c = ((g & 1) * 4 + q) ^ (nl & 7);
      buf[((kbl * 2 + 0) * 64 + nl) * 8 + c] = hi;
      buf[((kbl * 2 + 1) * 64 + nl) * 8 + c] = lo;
    }
    const int t = nb >> 1;
    if (g == 0)
      sb[((long long)t * nC + kc) * 128 + (nb & 1) * 64 + nl] = __uint_as_float((unsigned)(e - 14) << 23);
    __syncthreads();
    uint4* dst = reinterpret_cast<uint4*>(pb);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int idx = i * 256 + tid;
      const int region = idx >> 9;
      const int off = idx & 511;
      const long long d = (((long long)t * nKb + kc * 2 + (region >> 1)) * 2 + (region & 1)) * 1024
                          + (nb & 1) * 512 + off;
      dst[d] = buf[idx];
    }
  }
}

__device__ __forceinline__ void mbar_init(uint32_t bar, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
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

__device__ __forceinline__ void mbar_expect(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}

__device__ __forceinline__ void mbar_arrive_rank(uint32_t bar, uint32_t rank) {
  asm volatile(
      "{\n"
      ".reg .b32 ra;\n"
      "mapa.shared::cluster.u32 ra, %0, %1;\n"
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [ra];\n"
      "}\n" ::"r"(bar), "r"(rank) : "memory");
}

__device__ __forceinline__ void bulk_load(uint32_t dst, const void* src, uint32_t bytes, uint32_t bar) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
      ::"r"(dst), "l"(src), "r"(bytes), "r"(bar) : "memory");
}

__device__ __forceinline__ void bulk_load_mc(uint32_t dst, const void* src, uint32_t bytes, uint32_t bar,
                                             unsigned short mask) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;"
      ::"r"(dst), "l"(src), "r"(bytes), "r"(bar), "h"(mask) : "memory");
}

__device__ __forceinline__ void cluster_sync_all() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;\n" ::: "memory");
}

__device__ __forceinline__ uint64_t make_desc(uint32_t addr) {
  uint64_t d = (uint64_t)((addr & 0x3FFFFu) >> 4);
  d |= (uint64_t)1 << 16;
  d |= (uint64_t)64 << 32;
  d |= (uint64_t)1 << 62;
  return d;
}

__device__ __forceinline__ void wgmma_op(float (&d)[64], uint64_t da, uint64_t db, int scale_d) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
      "{@REGS@}, "
      "%64, %65, p, 1, 1, 0, 0;\n"
      "}\n"
      : @OUTS@
      : "l"(da), "l"(db), "r"(scale_d));
}

__device__ __forceinline__ void fence_regs(float (&d)[64]) {
#pragma unroll
  for (int i = 0; i < 64; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

template <int FIRST>
__device__ __forceinline__ void issue_stage(float (&d)[64], uint32_t sbase, int wg) {
  const uint64_t ah = make_desc(sbase + wg * 8192);
  const uint64_t al = make_desc(sbase + 16384 + wg * 8192);
  const uint64_t bh = make_desc(sbase + 32768);
  const uint64_t bl = make_desc(sbase + 49152);
  fence_regs(d);
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
#pragma unroll
  for (int k = 0; k < 4; ++k) wgmma_op(d, al + 2 * k, bh + 2 * k, (FIRST && k == 0) ? 0 : 1);
#pragma unroll
  for (int k = 0; k < 4; ++k) wgmma_op(d, ah + 2 * k, bl + 2 * k, 1);
#pragma unroll
  for (int k = 0; k < 4; ++k) wgmma_op(d, ah + 2 * k, bh + 2 * k, 1);
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

template <int LEFT>
__device__ __forceinline__ void wait_groups() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(LEFT) : "memory");
}

__device__ __forceinline__ void flush_chunk(float (&master)[64], float (&acc)[64], const float* sc, int rowl, int q) {
  fence_regs(acc);
  const float ra0 = sc[rowl];
  const float ra1 = sc[rowl + 8];
  const float* cbp = sc + 128 + q * 2;
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    const float2 cb = *reinterpret_cast<const float2*>(cbp + j * 8);
    master[j * 4 + 0] = fmaf(acc[j * 4 + 0] * ra0, cb.x, master[j * 4 + 0]);
    master[j * 4 + 1] = fmaf(acc[j * 4 + 1] * ra0, cb.y, master[j * 4 + 1]);
    master[j * 4 + 2] = fmaf(acc[j * 4 + 2] * ra1, cb.x, master[j * 4 + 2]);
    master[j * 4 + 3] = fmaf(acc[j * 4 + 3] * ra1, cb.y, master[j * 4 + 3]);
  }
}

__device__ __forceinline__ void tile_of(int id, int tm2, int tn, int& pm, int& pn) {
  const int per = 8 * tn;
  const int grp = id / per;
  const int first = grp * 8;
  int gsz = tm2 - first;
  if (gsz > 8) gsz = 8;
  const int rem = id - grp * per;
  pm = first + rem % gsz;
  pn = rem / gsz;
}

__device__ __forceinline__ void release_stage(uint32_t bar, int lane) {
  __syncwarp();
  if (lane < 2) mbar_arrive_rank(bar, (uint32_t)lane);
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(288, 1) gemm_split(
    const __half* __restrict__ pa, const __half* __restrict__ pb,
    const float* __restrict__ sa, const float* __restrict__ sb,
    float* __restrict__ out, int M, int N, int nC, int tm2, int tn) {
  extern __shared__ unsigned char smem_raw[];
  const uint32_t raw = (uint32_t)__cvta_generic_to_shared(smem_raw);
  const uint32_t base = (raw + 1023u) & ~1023u;
  const uint32_t sc_base = base + STAGES * STAGE_BYTES;
  const uint32_t full = sc_base + 4096;
  const uint32_t empty = full + 8 * STAGES;
  const float* sc_ptr = reinterpret_cast<const float*>(smem_raw + (sc_base - raw));

  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  const int tid = threadIdx.x;
  const int warp = tid >> 5;
  const int lane = tid & 31;
  if (tid == 0) {
    for (int i = 0; i < STAGES; ++i) {
      mbar_init(full + 8 * i, 1);
      mbar_init(empty + 8 * i, 16);
    }
    asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
    asm volatile("fence.proxy.async;\n" ::: "memory");
  }
  __syncthreads();
  cluster_sync_all();

  const int npairs = tm2 * tn;
  const int ncl = gridDim.x >> 1;
  const int cid = blockIdx.x >> 1;
  const int nKb = nC * 2;

  if (warp == 8) {
    if (lane == 0) {
      int slot = 0;
      uint32_t ph = 0;
      int gc = 0;
      for (int id = cid; id < npairs; id += ncl) {
        int pm, pn;
        tile_of(id, tm2, tn, pm, pn);
        const int tm = pm * 2 + (int)rank;
        const __half* ap = pa + (long long)tm * nKb * 16384;
        const __half* bp = pb + (long long)pn * nKb * 16384 + (long long)rank * 8192;
        const float* sap = sa + (long long)tm * nC * 128;
        const float* sbp = sb + (long long)pn * nC * 128;
        for (int kb = 0; kb < nKb; ++kb) {
          const uint32_t fb = full + 8 * slot;
          const uint32_t st = base + slot * STAGE_BYTES;
          mbar_wait(empty + 8 * slot, ph ^ 1u);
          const bool lead = (kb & 1) == 0;
          mbar_expect(fb, STAGE_BYTES + (lead ? 1024u : 0u));
          bulk_load(st, ap + (long long)kb * 16384, 32768u, fb);
          bulk_load_mc(st + 32768u + rank * 16384u, bp + (long long)kb * 16384, 16384u, fb, (unsigned short)3);
          if (lead) {
            const uint32_t d = sc_base + (gc & 3) * 1024;
            bulk_load(d, sap + (long long)(kb >> 1) * 128, 512u, fb);
            bulk_load(d + 512u, sbp + (long long)(kb >> 1) * 128, 512u, fb);
            ++gc;
          }
          if (++slot == STAGES) { slot = 0; ph ^= 1u; }
        }
      }
    }
    __syncwarp();
  } else {
    const int wg = warp >> 2;
    const int rowl = wg * 64 + (warp & 3) * 16 + (lane >> 2);
    const int q = lane & 3;
    const int pairs_k = nC >> 1;
    int slot = 0, prev = 0;
    uint32_t ph = 0;
    int gc = 0;
    float acc0[64], acc1[64], master[64];
#pragma unroll
    for (int i = 0; i < 64; ++i) { acc0[i] = 0.0f; acc1[i] = 0.0f; }

    for (int id = cid; id < npairs; id += ncl) {
      int pm, pn;
      tile_of(id, tm2, tn, pm, pn);
#pragma unroll
      for (int i = 0; i < 64; ++i) master[i] = 0.0f;

      for (int p = 0; p < pairs_k; ++p) {
        // first half of the even chunk; the odd chunk before it is promoted meanwhile
        mbar_wait(full + 8 * slot, ph);
        issue_stage<1>(acc0, base + slot * STAGE_BYTES, wg);
        if (p > 0) {
          wait_groups<1>();
          release_stage(empty + 8 * prev, lane);
          flush_chunk(master, acc1, sc_ptr + ((gc + 3) & 3) * 256, rowl, q);
        }
        prev = slot;
        if (++slot == STAGES) { slot = 0; ph ^= 1u; }
        // second half of the even chunk
        mbar_wait(full + 8 * slot, ph);
        issue_stage<0>(acc0, base + slot * STAGE_BYTES, wg);
        wait_groups<1>();
        release_stage(empty + 8 * prev, lane);
        prev = slot;
        if (++slot == STAGES) { slot = 0; ph ^= 1u; }
        // first half of the odd chunk; the even one is promoted meanwhile
        mbar_wait(full + 8 * slot, ph);
        issue_stage<1>(acc1, base + slot * STAGE_BYTES, wg);
        wait_groups<1>();
        release_stage(empty + 8 * prev, lane);
        flush_chunk(master, acc0, sc_ptr + (gc & 3) * 256, rowl, q);
        prev = slot;
        if (++slot == STAGES) { slot = 0; ph ^= 1u; }
        // second half of the odd chunk
        mbar_wait(full + 8 * slot, ph);
        issue_stage<0>(acc1, base + slot * STAGE_BYTES, wg);
        wait_groups<1>();
        release_stage(empty + 8 * prev, lane);
        prev = slot;
        if (++slot == STAGES) { slot = 0; ph ^= 1u; }
        gc += 2;
      }
      wait_groups<0>();
      release_stage(empty + 8 * prev, lane);
      flush_chunk(master, acc1, sc_ptr + ((gc + 3) & 3) * 256, rowl, q);

      const int row0 = (pm * 2 + (int)rank) * 128 + rowl;
      const int row1 = row0 + 8;
      const int col0 = pn * 128 + q * 2;
      float* o0 = out + (long long)row0 * N;
      float* o1 = out + (long long)row1 * N;
      if ((N & 1) == 0) {
#pragma unroll
        for (int j = 0; j < 16; ++j) {
          const int col = col0 + j * 8;
          if (col < N) {
            if (row0 < M) __stcs(reinterpret_cast<float2*>(o0 + col), make_float2(master[j * 4], master[j * 4 + 1]));
            if (row1 < M) __stcs(reinterpret_cast<float2*>(o1 + col), make_float2(master[j * 4 + 2], master[j * 4 + 3]));
          }
        }
      } else {
#pragma unroll
        for (int j = 0; j < 16; ++j) {
          const int col = col0 + j * 8;
          if (col < N) {
            if (row0 < M) o0[col] = master[j * 4];
            if (row1 < M) o1[col] = master[j * 4 + 2];
          }
          if (col + 1 < N) {
            if (row0 < M) o0[col + 1] = master[j * 4 + 1];
            if (row1 < M) o1[col + 1] = master[j * 4 + 3];
          }
        }
      }
    }
    __syncwarp();
  }
  // nobody leaves while the other block may still signal or write here
  cluster_sync_all();
}
"""

_SRC = _SRC.replace("@REGS@", ", ".join("%" + str(i) for i in range(64)))
_SRC = _SRC.replace("@OUTS@", ", ".join('"+f"(d[' + str(i) + '])' for i in range(64)))

k = jit.cuda(_SRC)

_SMEM = 3 * 65536 + 4096 + 64 + 1024
_SMS = {}


def _sm_count(device):
    n = _SMS.get(device)
    if n is None:
        n = torch.cuda.get_device_properties(device).multi_processor_count
        _SMS[device] = n
    return n


class ModelNew(nn.Module):
    def forward(self, a, b):
        a = a.contiguous()
        b = b.contiguous()
        M, K = a.shape
        N = b.shape[1]
        out = torch.empty((M, N), device=a.device, dtype=torch.float32)
        if M == 0 or N == 0:
            return out
        tm2 = (M + 255) // 256
        tn = (N + 127) // 128
        nC = 2 * max(1, (K + 255) // 256)
        mp, np_, kp = tm2 * 256, tn * 128, nC * 128
        pa = torch.empty(2 * mp * kp, device=a.device, dtype=torch.float16)
        pb = torch.empty(2 * np_ * kp, device=a.device, dtype=torch.float16)
        sa = torch.empty(mp * nC, device=a.device, dtype=torch.float32)
        sb = torch.empty(np_ * nC, device=a.device, dtype=torch.float32)
        nblk_a = (mp // 64) * nC
        n_nb = np_ // 64
        nblk_b = n_nb * nC
        vec = 1 if (K % 4 == 0 and a.data_ptr() % 16 == 0) else 0
        k.split_pack[nblk_a + nblk_b, 256, 0](a, b, pa, pb, sa, sb, M, N, K, nC, nblk_a, n_nb, vec)
        clusters = max(1, min(tm2 * tn, _sm_count(a.device) // 2))
        k.gemm_split[2 * clusters, 288, _SMEM](pa, pb, sa, sb, out, M, N, nC, tm2, tn)
        return out
