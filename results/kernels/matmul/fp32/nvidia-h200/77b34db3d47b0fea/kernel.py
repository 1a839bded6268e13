import torch
from torch import nn
from agentgen import jit

k = jit.cuda(r"""
#include <cuda_fp16.h>

#define STAGE_BYTES 49152
#define A_BYTES 32768
#define B_BYTES 16384
#define NSTAGE 4

// ---------------------------------------------------------------- scales

// exponent by which a row or column is multiplied: its largest magnitude goes to [2^14, 2^15)
__device__ __forceinline__ int scale_shift(int maxbits) {
  if (maxbits == 0) return 0;
  int e = maxbits >> 23;
  if (e == 0) e = 1;
  return 141 - e;
}

__device__ __forceinline__ float pow2i(int h) {
  return __int_as_float((127 + h) << 23);
}

__device__ __forceinline__ unsigned int pack2(__half a, __half b) {
  return (unsigned int)__half_as_ushort(a) | ((unsigned int)__half_as_ushort(b) << 16);
}

__device__ __forceinline__ void split1(float v, float s1, float s2, __half& h, __half& l) {
  float x = v * s1 * s2;
  h = __float2half_rn(x);
  float hf = __half2float(h);
  float r = (fabsf(hf) <= 65504.0f) ? (x - hf) : 0.0f;
  l = __float2half_rn(r);
}

__device__ __forceinline__ void split8(const float* v, float s1, float s2, uint4& hi, uint4& lo) {
  __half h[8], l[8];
#pragma unroll
  for (int j = 0; j < 8; ++j) split1(v[j], s1, s2, h[j], l[j]);
  hi.x = pack2(h[0], h[1]);
  hi.y = pack2(h[2], h[3]);
  hi.z = pack2(h[4], h[5]);
  hi.w = pack2(h[6], h[7]);
  lo.x = pack2(l[0], l[1]);
  lo.y = pack2(l[2], l[3]);
  lo.z = pack2(l[4], l[5]);
  lo.w = pack2(l[6], l[7]);
}

// ---------------------------------------------------------------- prepass of a: one block per row

__device__ __forceinline__ void load8(const float* __restrict__ src, int kk, int K, bool valid, bool vec, float* v) {
  if (vec && kk + 8 <= K) {
    float4 p = *reinterpret_cast<const float4*>(src + kk);
    float4 q = *reinterpret_cast<const float4*>(src + kk + 4);
    v[0] = p.x; v[1] = p.y; v[2] = p.z; v[3] = p.w;
    v[4] = q.x; v[5] = q.y; v[6] = q.z; v[7] = q.w;
  } else {
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] = (valid && kk + j < K) ? src[kk + j] : 0.0f;
  }
}

__device__ __forceinline__ int max8(const float* v, int m) {
#pragma unroll
  for (int j = 0; j < 8; ++j) m = max(m, __float_as_int(v[j]) & 0x7fffffff);
  return m;
}

__device__ __forceinline__ void put_a(uint4* __restrict__ out, long long mt, int KT, int r, int ch, const uint4& hi, const uint4& lo) {
  int kt = ch >> 2;
  int q = ch & 3;
  long long row = (mt * KT + kt) * 256 + r;
  int r7 = r & 7;
  out[row * 8 + (q ^ r7)] = hi;
  out[row * 8 + ((q + 4) ^ r7)] = lo;
}

extern "C" __global__ void __launch_bounds__(256) split_a(const float* __restrict__ A, __half* __restrict__ P, int* __restrict__ rmax, int M, int K, int KT) {
  __shared__ int red[8];
  const int row = blockIdx.x;
  const int tid = threadIdx.x;
  const bool valid = row < M;
  const float* src = A + (valid ? (long long)row * K : 0LL);
  const bool vec = valid && (K % 4 == 0) && ((((unsigned long long)A) & 15ULL) == 0ULL);
  const int nch = KT * 4;

  float v[2][8];
  int m = 0;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    load8(src, (tid + i * 256) * 8, K, valid, vec, v[i]);
    m = max8(v[i], m);
  }
  for (int ch = tid + 512; ch < nch; ch += 256) {
    float w[8];
    load8(src, ch * 8, K, valid, vec, w);
    m = max8(w, m);
  }
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) m = max(m, __shfl_xor_sync(0xffffffffu, m, o));
  if ((tid & 31) == 0) red[tid >> 5] = m;
  __syncthreads();
  m = red[0];
#pragma unroll
  for (int i = 1; i < 8; ++i) m = max(m, red[i]);
  if (tid == 0) rmax[row] = m;

  const int sh = scale_shift(m);
  const int h1 = sh >> 1;
  const float s1 = pow2i(h1);
  const float s2 = pow2i(sh - h1);
  uint4* out = reinterpret_cast<uint4*>(P);
  const long long mt = row >> 8;
  const int r = row & 255;
  uint4 hi, lo;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    int ch = tid + i * 256;
    if (ch < nch) {
      split8(v[i], s1, s2, hi, lo);
      put_a(out, mt, KT, r, ch, hi, lo);
    }
  }
  for (int ch = tid + 512; ch < nch; ch += 256) {
    float w[8];
    load8(src, ch * 8, K, valid, vec, w);
    split8(w, s1, s2, hi, lo);
    put_a(out, mt, KT, r, ch, hi, lo);
  }
}

// ---------------------------------------------------------------- prepass of b: column maxima, then split and transpose

__device__ __forceinline__ float4 load_b4(const float* __restrict__ B, int kr, int col, int K, int N, bool vec) {
  float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  if (kr < K) {
    const float* src = B + (long long)kr * N;
    if (vec && col + 4 <= N) {
      x = *reinterpret_cast<const float4*>(src + col);
    } else {
      if (col < N) x.x = src[col];
      if (col + 1 < N) x.y = src[col + 1];
      if (col + 2 < N) x.z = src[col + 2];
      if (col + 3 < N) x.w = src[col + 3];
    }
  }
  return x;
}

extern "C" __global__ void __launch_bounds__(256) colmax_b(const float* __restrict__ B, int* __restrict__ cmax, int K, int N) {
  __shared__ int red[8][128];
  const int tx = threadIdx.x & 31;
  const int ty = threadIdx.x >> 5;
  const int col = blockIdx.x * 128 + tx * 4;
  const bool vec = (N % 4 == 0) && ((((unsigned long long)B) & 15ULL) == 0ULL);
  const int k0 = blockIdx.y * 128;
  int m0 = 0, m1 = 0, m2 = 0, m3 = 0;
#pragma unroll 8
  for (int i = 0; i < 16; ++i) {
    float4 x = load_b4(B, k0 + ty + i * 8, col, K, N, vec);
    m0 = max(m0, __float_as_int(x.x) & 0x7fffffff);
    m1 = max(m1, __float_as_int(x.y) & 0x7fffffff);
    m2 = max(m2, __float_as_int(x.z) & 0x7fffffff);
    m3 = max(m3, __float_as_int(x.w) & 0x7fffffff);
  }
  red[ty][tx * 4 + 0] = m0;
  red[ty][tx * 4 + 1] = m1;
  red[ty][tx * 4 + 2] = m2;
  red[ty][tx * 4 + 3] = m3;
  __syncthreads();
  if (threadIdx.x < 128) {
    int m = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) m = max(m, red[i][threadIdx.x]);
    int c = blockIdx.x * 128 + threadIdx.x;
    if (c < N && m > 0) atomicMax(&cmax[c], m);
  }
}

extern "C" __global__ void __launch_bounds__(256) split_b(const float* __restrict__ B, __half* __restrict__ P, const int* __restrict__ cmax, int K, int N, int KT) {
  __shared__ float4 tile4[32 * 32];
  const float* tile = reinterpret_cast<const float*>(tile4);
  const int tid = threadIdx.x;
  const int kt = blockIdx.x;
  const int nt = blockIdx.y;
  const bool vec = (N % 4 == 0) && ((((unsigned long long)B) & 15ULL) == 0ULL);
  const int n4 = tid & 31;
  const int ky = tid >> 5;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    int kr = ky + i * 8;
    float4 x = load_b4(B, kt * 32 + kr, nt * 128 + n4 * 4, K, N, vec);
    tile4[kr * 32 + (n4 ^ (2 * (kr >> 3)))] = x;
  }
  __syncthreads();
  uint4* out = reinterpret_cast<uint4*>(P) + ((long long)nt * KT + kt) * 1024;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    int idx = tid + i * 256;
    int n = idx >> 2;
    int q = idx & 3;
    int place = (((n >> 2) ^ (2 * q)) << 2) + (n & 3);
    float v[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] = tile[(q * 8 + j) * 128 + place];
    int sh = scale_shift(cmax[nt * 128 + n]);
    int h1 = sh >> 1;
    uint4 hi, lo;
    split8(v, pow2i(h1), pow2i(sh - h1), hi, lo);
    int r7 = n & 7;
    out[n * 8 + (q ^ r7)] = hi;
    out[n * 8 + ((q + 4) ^ r7)] = lo;
  }
}

// ---------------------------------------------------------------- main kernel

__device__ __forceinline__ void mbar_init(uint32_t bar, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(count) : "memory");
}

__device__ __forceinline__ void mbar_expect(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(bytes) : "memory");
}

__device__ __forceinline__ void mbar_arrive(uint32_t bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(bar) : "memory");
}

__device__ __forceinline__ void mbar_wait(uint32_t bar, uint32_t parity) {
  uint32_t ok;
  do {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}\n"
        : "=r"(ok) : "r"(bar), "r"(parity) : "memory");
  } while (ok == 0u);
}

__device__ __forceinline__ void bulk_load(uint32_t dst, const void* src, uint32_t bytes, uint32_t bar) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
      :: "r"(dst), "l"(src), "r"(bytes), "r"(bar) : "memory");
}

__device__ __forceinline__ uint64_t make_desc(uint32_t addr) {
  // 128-byte swizzle, eight rows of 128 bytes are 1024 bytes apart
  return (uint64_t)((addr & 0x3FFFFu) >> 4) | (1ULL << 16) | (64ULL << 32) | (1ULL << 62);
}

__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_wait0() {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

__device__ __forceinline__ void pin(float (&c)[64]) {
#pragma unroll
  for (int i = 0; i < 64; ++i) asm volatile("" : "+f"(c[i]) :: "memory");
}

__device__ __forceinline__ void wgmma_64x128x16(float (&c)[64], uint64_t da, uint64_t db, int accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, "
      "%40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, "
      "%56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p, 1, 1, 0, 0;\n"
      "}\n"
      :
        "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]),
        "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]),
        "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]),
        "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31]),
        "+f"(c[32]), "+f"(c[33]), "+f"(c[34]), "+f"(c[35]), "+f"(c[36]), "+f"(c[37]), "+f"(c[38]), "+f"(c[39]),
        "+f"(c[40]), "+f"(c[41]), "+f"(c[42]), "+f"(c[43]), "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]),
        "+f"(c[48]), "+f"(c[49]), "+f"(c[50]), "+f"(c[51]), "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]),
        "+f"(c[56]), "+f"(c[57]), "+f"(c[58]), "+f"(c[59]), "+f"(c[60]), "+f"(c[61]), "+f"(c[62]), "+f"(c[63])
      : "l"(da), "l"(db), "r"(accumulate));
}

__device__ __forceinline__ void tile_coords(int tile, int MT, int NT, int& mt, int& nt) {
  const int G = 8;
  int per = G * NT;
  int g = tile / per;
  int rest = tile - g * per;
  int first = g * G;
  int gm = min(MT - first, G);
  nt = rest / gm;
  mt = first + (rest - nt * gm);
}

extern "C" __global__ void __launch_bounds__(384, 1) gemm_main(const __half* __restrict__ Ap, const __half* __restrict__ Bp, const int* __restrict__ rmax, const int* __restrict__ cmax, float* __restrict__ C, int M, int N, int KT, int MT, int NT) {
  extern __shared__ unsigned char smem_raw[];
  __shared__ __align__(8) unsigned long long bars[2 * NSTAGE];

  const uint32_t base = ((uint32_t)__cvta_generic_to_shared(smem_raw) + 1023u) & ~1023u;
  const uint32_t full0 = (uint32_t)__cvta_generic_to_shared(&bars[0]);
  const uint32_t empty0 = full0 + 8u * NSTAGE;
  const int tid = threadIdx.x;
  const int wg = tid >> 7;
  const int tiles = MT * NT;

  if (tid == 0) {
    for (int i = 0; i < NSTAGE; ++i) {
      mbar_init(full0 + 8u * i, 1u);
      mbar_init(empty0 + 8u * i, 8u);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
  }
  __syncthreads();

  if (wg == 0) {
    // producer: one thread feeds the ring
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (tid == 0) {
      int s = 0;
      uint32_t ph = 0;
      const unsigned char* abase = reinterpret_cast<const unsigned char*>(Ap);
      const unsigned char* bbase = reinterpret_cast<const unsigned char*>(Bp);
      for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        int mt, nt;
        tile_coords(tile, MT, NT, mt, nt);
        const unsigned char* asrc = abase + (long long)mt * KT * A_BYTES;
        const unsigned char* bsrc = bbase + (long long)nt * KT * B_BYTES;
        for (int kt = 0; kt < KT; ++kt) {
          mbar_wait(empty0 + 8u * s, ph ^ 1u);
          const uint32_t bar = full0 + 8u * s;
          const uint32_t dst = base + (uint32_t)s * STAGE_BYTES;
          mbar_expect(bar, STAGE_BYTES);
          bulk_load(dst, asrc, A_BYTES, bar);
          bulk_load(dst + A_BYTES, bsrc, B_BYTES, bar);
          asrc += A_BYTES;
          bsrc += B_BYTES;
          if (++s == NSTAGE) { s = 0; ph ^= 1u; }
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int cw = wg - 1;               // rows cw*128 .. cw*128+127 of the tile
    const int lane = tid & 31;
    const int warp = (tid >> 5) & 3;
    int s = 0;
    uint32_t ph = 0;

    float acc[2][64];
    float c[64];
#pragma unroll
    for (int i = 0; i < 64; ++i) c[i] = 0.0f;

    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
#pragma unroll
      for (int i = 0; i < 64; ++i) { acc[0][i] = 0.0f; acc[1][i] = 0.0f; }

      for (int kt = 0; kt < KT; ++kt) {
        const uint32_t st = base + (uint32_t)s * STAGE_BYTES;
        const uint64_t da0 = make_desc(st + (uint32_t)cw * 16384u);
        const uint64_t db = make_desc(st + A_BYTES);
        mbar_wait(full0 + 8u * s, ph);
#pragma unroll
        for (int sub = 0; sub < 2; ++sub) {
          const uint64_t da = da0 + (uint64_t)(sub * 512);
          pin(c);
          wgmma_fence();
          wgmma_64x128x16(c, da + 4, db, 0);        // lo * hi, k 0..15
          wgmma_64x128x16(c, da, db + 4, 1);        // hi * lo
          wgmma_64x128x16(c, da + 6, db + 2, 1);    // lo * hi, k 16..31
          wgmma_64x128x16(c, da + 2, db + 6, 1);    // hi * lo
          wgmma_64x128x16(c, da, db, 1);            // hi * hi
          wgmma_64x128x16(c, da + 2, db + 2, 1);    // hi * hi
          wgmma_commit();
          wgmma_wait0();
          pin(c);
          if (sub == 1 && lane == 0) mbar_arrive(empty0 + 8u * s);
#pragma unroll
          for (int i = 0; i < 64; ++i) acc[sub][i] += c[i];
        }
        if (++s == NSTAGE) { s = 0; ph ^= 1u; }
      }

      int mt, nt;
      tile_coords(tile, MT, NT, mt, nt);
      const int g = lane >> 2;
      const int t = lane & 3;
      const bool pairs = (N & 1) == 0;
#pragma unroll
      for (int sub = 0; sub < 2; ++sub) {
        const int row0 = mt * 256 + cw * 128 + sub * 64 + warp * 16 + g;
        const int row1 = row0 + 8;
        const int sh0 = scale_shift(rmax[row0]);
        const int sh1 = scale_shift(rmax[row1]);
        const float r0a = pow2i(-(sh0 >> 1));
        const float r0b = pow2i(-(sh0 - (sh0 >> 1)));
        const float r1a = pow2i(-(sh1 >> 1));
        const float r1b = pow2i(-(sh1 - (sh1 >> 1)));
        float* out0 = C + (long long)row0 * N;
        float* out1 = C + (long long)row1 * N;
#pragma unroll
        for (int j = 0; j < 16; ++j) {
          const int col = nt * 128 + j * 8 + t * 2;
          const int sx = scale_shift(cmax[col]);
          const int sy = scale_shift(cmax[col + 1]);
          const float xa = pow2i(-(sx >> 1));
          const float xb = pow2i(-(sx - (sx >> 1)));
          const float ya = pow2i(-(sy >> 1));
          const float yb = pow2i(-(sy - (sy >> 1)));
          const float v0 = (acc[sub][4 * j + 0] * (r0a * xa)) * (r0b * xb);
          const float v1 = (acc[sub][4 * j + 1] * (r0a * ya)) * (r0b * yb);
          const float v2 = (acc[sub][4 * j + 2] * (r1a * xa)) * (r1b * xb);
          const float v3 = (acc[sub][4 * j + 3] * (r1a * ya)) * (r1b * yb);
          if (pairs) {
            if (col < N) {
              if (row0 < M) *reinterpret_cast<float2*>(out0 + col) = make_float2(v0, v1);
              if (row1 < M) *reinterpret_cast<float2*>(out1 + col) = make_float2(v2, v3);
            }
          } else {
            if (row0 < M) {
              if (col < N) out0[col] = v0;
              if (col + 1 < N) out0[col + 1] = v1;
            }
            if (row1 < M) {
              if (col < N) out1[col] = v2;
              if (col + 1 < N) out1[col + 1] = v3;
            }
          }
        }
      }
    }
  }
}
""")


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.sms = 0

    def forward(self, a, b):
        a = a.contiguous()
        b = b.contiguous()
        m, kk = a.shape
        n = b.shape[1]
        dev = a.device
        out = torch.empty((m, n), dtype=torch.float32, device=dev)
        if m == 0 or n == 0:
            return out
        if self.sms == 0:
            self.sms = torch.cuda.get_device_properties(dev).multi_processor_count
        mt = (m + 255) // 256
        nt = (n + 127) // 128
        kt = max(1, (kk + 31) // 32)

        # packed hi and lo halves, tile by tile in shared-memory order
        ap = torch.empty((mt * kt * 16384,), dtype=torch.float16, device=dev)
        bp = torch.empty((nt * kt * 8192,), dtype=torch.float16, device=dev)
        rmax = torch.empty((mt * 256,), dtype=torch.int32, device=dev)
        cmax = torch.zeros((nt * 128,), dtype=torch.int32, device=dev)

        k.split_a[mt * 256, 256, 0](a, ap, rmax, m, kk, kt)
        k.colmax_b[(nt, (kt + 3) // 4), 256, 0](b, cmax, kk, n)
        k.split_b[(kt, nt), 256, 0](b, bp, cmax, kk, n, kt)

        grid = min(mt * nt, self.sms)
        k.gemm_main[grid, 384, 4 * 49152 + 1024](ap, bp, rmax, cmax, out, m, n, kt, mt, nt)
        return out
