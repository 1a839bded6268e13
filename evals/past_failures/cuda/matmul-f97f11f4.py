import torch
from torch import nn
from agentgen import jit

k = jit.cuda(r"""
#include <cuda_fp16.h>

#define NO_EXP (-30000)
#define NSTAGE 4
#define STAGE_SZ 49152
#define FIRST_ROWS 1024

__device__ __forceinline__ uint32_t s2u(const void* p) {
  return (uint32_t)__cvta_generic_to_shared(p);
}

__device__ __forceinline__ void wg_bar(int wg) {
  asm volatile("bar.sync %0, 128;" :: "r"(wg + 1) : "memory");
}

__device__ __forceinline__ void proxy_fence() {
  asm volatile("fence.proxy.async;" ::: "memory");
}

__device__ __forceinline__ int load_acquire(const int* p) {
  int v;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}

__device__ __forceinline__ void bar_init(uint32_t bar, uint32_t n) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(n) : "memory");
}

__device__ __forceinline__ void bar_wait(uint32_t bar, uint32_t parity) {
  uint32_t ok;
  do {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}\n" : "=r"(ok) : "r"(bar), "r"(parity) : "memory");
  } while (ok == 0);
}

__device__ __forceinline__ void bar_arrive(uint32_t bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(bar) : "memory");
}

__device__ __forceinline__ void bar_expect(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(bytes) : "memory");
}

__device__ __forceinline__ void copy_bulk(uint32_t dst, const void* src, uint32_t bytes, uint32_t bar) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
      :: "r"(dst), "l"(src), "r"(bytes), "r"(bar) : "memory");
}

// ---------------------------------------------------------------- conversion helpers

__device__ __forceinline__ float p2(int e) { return __int_as_float((e + 127) << 23); }

// v * 2^d, in two steps so that neither factor overflows
__device__ __forceinline__ float shift_exp(float v, int d) {
  d = min(250, max(-250, d));
  int h = d >> 1;
  return v * p2(h) * p2(d - h);
}

__device__ __forceinline__ void read8(float (&v)[8], const float* __restrict__ row, int start, int n, bool vec) {
  if (vec && start + 8 <= n) {
    const float4* q = reinterpret_cast<const float4*>(row + start);
    float4 x = __ldcs(q);
    float4 y = __ldcs(q + 1);
    v[0] = x.x; v[1] = x.y; v[2] = x.z; v[3] = x.w;
    v[4] = y.x; v[5] = y.y; v[6] = y.z; v[7] = y.w;
  } else {
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] = (start + j < n) ? row[start + j] : 0.0f;
  }
}

__device__ __forceinline__ uint32_t h2bits(float x, float y) {
  __half2 h = __floats2half2_rn(x, y);
  return *reinterpret_cast<uint32_t*>(&h);
}

__device__ __forceinline__ void write8(__half* dst, const float (&v)[8]) {
  uint4 u = make_uint4(h2bits(v[0], v[1]), h2bits(v[2], v[3]), h2bits(v[4], v[5]), h2bits(v[6], v[7]));
  *reinterpret_cast<uint4*>(dst) = u;
}

__device__ __forceinline__ int wg_max(int x, int* sh, int wg) {
  x = __reduce_max_sync(0xffffffffu, x);
  int* s = sh + wg * 4;
  if ((threadIdx.x & 31) == 0) s[(threadIdx.x >> 5) & 3] = x;
  wg_bar(wg);
  int r = max(max(s[0], s[1]), max(s[2], s[3]));
  wg_bar(wg);
  return r;
}

__device__ __forceinline__ long long pos_b(int row, int c, int ksteps) {
  return ((long long)(c >> 5) * ksteps + (row >> 6)) * 16384 + ((c >> 3) & 3) * 4096 + (row & 63) * 64 +
         (((c ^ row) & 7) << 3);
}

__device__ __forceinline__ long long pos_a(int row, int c, int ksteps) {
  return ((long long)(row >> 7) * ksteps + (c >> 3)) * 8192 + (row & 127) * 64 + (((c ^ row) & 7) << 3);
}

__device__ __forceinline__ void read_row(float (&v)[4][8], const float* __restrict__ src, int row, int rows, int n,
                                         int t) {
  int len = row < rows ? n : 0;
  const float* p = src + (row < rows ? (long long)row * n : 0LL);
  bool vec = (((unsigned long long)p) & 15ULL) == 0ULL;
#pragma unroll
  for (int i = 0; i < 4; ++i) read8(v[i], p, (t + i * 128) * 8, len, vec);
}

__device__ __forceinline__ int maxbits(const float (&v)[8], int m) {
#pragma unroll
  for (int j = 0; j < 8; ++j) m = max(m, __float_as_int(v[j]) & 0x7fffffff);
  return m;
}

// normalise and write row `row` of B, whose first 4096 values are in v
__device__ __forceinline__ void finish_b(float (&v)[4][8], const float* __restrict__ b, __half* ib, short* ek, int row,
                                         int K, int N, int chunks, int ksteps, int t, int wg, int* sh) {
  int m = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) m = maxbits(v[i], m);
  int len = row < K ? N : 0;
  const float* p = b + (row < K ? (long long)row * N : 0LL);
  bool vec = (((unsigned long long)p) & 15ULL) == 0ULL;
  for (int c = t + 512; c < chunks; c += 128) {
    float w[8];
    read8(w, p, c * 8, len, vec);
    m = maxbits(w, m);
  }
  m = wg_max(m, sh, wg);
  int e = m == 0 ? 0 : max(m >> 23, 1) - 141;
  if (t == 0) ek[row] = (short)(m == 0 ? NO_EXP : e);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    int c = t + i * 128;
    if (c < chunks) {
#pragma unroll
      for (int j = 0; j < 8; ++j) v[i][j] = shift_exp(v[i][j], -e);
      write8(ib + pos_b(row, c, ksteps), v[i]);
    }
  }
  for (int c = t + 512; c < chunks; c += 128) {
    float w[8];
    read8(w, p, c * 8, len, vec);
#pragma unroll
    for (int j = 0; j < 8; ++j) w[j] = shift_exp(w[j], -e);
    write8(ib + pos_b(row, c, ksteps), w);
  }
}

__device__ __forceinline__ void unpack_exp(const short* ek, int c, int (&e)[8]) {
  int4 u = *reinterpret_cast<const int4*>(ek + c * 8);
  e[0] = (int)(short)(u.x & 0xffff); e[1] = u.x >> 16;
  e[2] = (int)(short)(u.y & 0xffff); e[3] = u.y >> 16;
  e[4] = (int)(short)(u.z & 0xffff); e[5] = u.z >> 16;
  e[6] = (int)(short)(u.w & 0xffff); e[7] = u.w >> 16;
}

__device__ __forceinline__ int maxexp(const float (&v)[8], const int (&e)[8], int m) {
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    int bits = __float_as_int(v[j]) & 0x7fffffff;
    int x = max(bits >> 23, 1) - 127 + e[j];
    if (bits != 0 && e[j] != NO_EXP) m = max(m, x);
  }
  return m;
}

__device__ __forceinline__ void apply_exp(float (&v)[8], const int (&e)[8], int f) {
#pragma unroll
  for (int j = 0; j < 8; ++j) v[j] = (e[j] == NO_EXP) ? 0.0f : shift_exp(v[j], e[j] - f);
}

// convert one row of A and count it in its panel
__device__ __forceinline__ void convert_a(const float* __restrict__ a, __half* ia, const short* ek, int* fm, int* count,
                                          int row, int M, int K, int chunks, int ksteps, int t, int wg, int* sh) {
  float v[4][8];
  read_row(v, a, row, M, K, t);
  int len = row < M ? K : 0;
  const float* p = a + (row < M ? (long long)row * K : 0LL);
  bool vec = (((unsigned long long)p) & 15ULL) == 0ULL;
  int m = NO_EXP;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    int c = t + i * 128;
    if (c < chunks) {
      int e[8];
      unpack_exp(ek, c, e);
      m = maxexp(v[i], e, m);
    }
  }
  for (int c = t + 512; c < chunks; c += 128) {
    float w[8];
    int e[8];
    read8(w, p, c * 8, len, vec);
    unpack_exp(ek, c, e);
    m = maxexp(w, e, m);
  }
  m = wg_max(m, sh, wg);
  int f = m == NO_EXP ? 0 : m - 14;
  if (t == 0) fm[row] = f;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    int c = t + i * 128;
    if (c < chunks) {
      int e[8];
      unpack_exp(ek, c, e);
      apply_exp(v[i], e, f);
      write8(ia + pos_a(row, c, ksteps), v[i]);
    }
  }
  for (int c = t + 512; c < chunks; c += 128) {
    float w[8];
    int e[8];
    read8(w, p, c * 8, len, vec);
    unpack_exp(ek, c, e);
    apply_exp(w, e, f);
    write8(ia + pos_a(row, c, ksteps), w);
  }
  proxy_fence();
  wg_bar(wg);
  if (t == 0) {
    __threadfence();
    atomicAdd(count + (row >> 7), 1);
  }
}

// ---------------------------------------------------------------- tensor cores

__device__ __forceinline__ unsigned long long descriptor(uint32_t addr, uint32_t lbo, uint32_t sbo) {
  unsigned long long d = (addr & 0x3ffffu) >> 4;
  d |= (unsigned long long)(lbo >> 4) << 16;
  d |= (unsigned long long)(sbo >> 4) << 32;
  d |= 1ULL << 62;
  return d;
}

#define R8(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), \
              "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]), "+f"(c[i + 7])

__device__ __forceinline__ void mma_64x256x16(float (&c)[128], unsigned long long da, unsigned long long db, int keep) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
      "}, %128, %129, p, 1, 1, 0, 1;\n"
      "}\n"
      : R8(0), R8(8), R8(16), R8(24), R8(32), R8(40), R8(48), R8(56),
        R8(64), R8(72), R8(80), R8(88), R8(96), R8(104), R8(112), R8(120)
      : "l"(da), "l"(db), "r"(keep));
}

extern "C" __global__ void __launch_bounds__(512, 1) matmul_all(const float* __restrict__ a, const float* __restrict__ b,
                                      __half* ia, __half* ib, int* ekraw, int* fm, int* cnt, float* out,
                                      int M, int N, int K, int mt, int nt, int ksteps) {
  extern __shared__ unsigned char dyn[];
  __shared__ __align__(8) unsigned long long bars[2 * NSTAGE];
  __shared__ int sh[16];

  short* ek = reinterpret_cast<short*>(ekraw);
  int* count = cnt + 1;
  uint32_t stage0 = (s2u(dyn) + 1023u) & ~1023u;
  uint32_t full = s2u(bars);
  uint32_t empty = full + 8 * NSTAGE;
  int t = threadIdx.x & 127;
  int lane = threadIdx.x & 31;
  int wg = __shfl_sync(0xffffffffu, (int)(threadIdx.x >> 7), 0);

  if (threadIdx.x == 0) {
    for (int s = 0; s < NSTAGE; ++s) {
      bar_init(full + 8 * s, 1);
      bar_init(empty + 8 * s, 8);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    proxy_fence();
  }

  int kp = ksteps * 64;
  int mp = mt * 128;
  int achunks = kp >> 3;
  int bchunks = nt * 32;
  int slots = gridDim.x * 4;
  int first = min(mp, FIRST_ROWS);

  // phase 1: B, the next row is fetched while this one is finished
  {
    int row = blockIdx.x * 4 + wg;
    float cur[4][8];
    if (row < kp) read_row(cur, b, row, K, N, t);
    while (row < kp) {
      int next = row + slots;
      float nxt[4][8];
      if (next < kp) {
        read_row(nxt, b, next, K, N, t);
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int j = 0; j < 8; ++j) nxt[i][j] = 0.0f;
      }
      finish_b(cur, b, ib, ek, row, K, N, bchunks, ksteps, t, wg, sh);
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j) cur[i][j] = nxt[i][j];
      row = next;
    }
    proxy_fence();
  }

  // barrier over the grid
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(cnt, 1);
    while (load_acquire(cnt) < (int)gridDim.x) { }
    __threadfence();
  }
  __syncthreads();

  // phase 2: the first panels of A
  for (int row = blockIdx.x * 4 + wg; row < first; row += slots) {
    convert_a(a, ia, ek, fm, count, row, M, K, achunks, ksteps, t, wg, sh);
  }

  int tiles = mt * nt;

  if (wg == 3) {
    // converter: the rest of A, in order
    asm volatile("setmaxnreg.dec.sync.aligned.u32 72;");
    for (int row = first + blockIdx.x; row < mp; row += gridDim.x) {
      convert_a(a, ia, ek, fm, count, row, M, K, achunks, ksteps, t, wg, sh);
    }
  } else if (wg == 2) {
    // producer
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (t == 0) {
      int s = 0;
      uint32_t ph = 1;
      for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        int tm = tile / nt;
        int tn = tile - tm * nt;
        while (load_acquire(count + tm) < 128) __nanosleep(64);
        proxy_fence();
        const __half* pa = ia + (long long)tm * ksteps * 8192;
        const __half* pb = ib + (long long)tn * ksteps * 16384;
        for (int kt = 0; kt < ksteps; ++kt) {
          uint32_t dst = stage0 + s * STAGE_SZ;
          uint32_t fb = full + 8 * s;
          bar_wait(empty + 8 * s, ph);
          bar_expect(fb, STAGE_SZ);
          copy_bulk(dst, pa, 16384, fb);
          copy_bulk(dst + 16384, pb, 32768, fb);
          pa += 8192;
          pb += 16384;
          if (++s == NSTAGE) { s = 0; ph ^= 1; }
        }
      }
    }
  } else {
    // consumers: 64 rows each
    asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");
    float c[128];
#pragma unroll
    for (int i = 0; i < 128; ++i) c[i] = 0.0f;
    int s = 0;
    uint32_t ph = 0;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      int tm = tile / nt;
      int tn = tile - tm * nt;
      int prev = 0;
      for (int kt = 0; kt < ksteps; ++kt) {
        bar_wait(full + 8 * s, ph);
        uint32_t src = stage0 + s * STAGE_SZ;
        unsigned long long da = descriptor(src + wg * 8192, 16, 1024);
        unsigned long long db = descriptor(src + 16384, 8192, 1024);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        mma_64x256x16(c, da, db, kt != 0);
        mma_64x256x16(c, da + 2, db + 128, 1);
        mma_64x256x16(c, da + 4, db + 256, 1);
        mma_64x256x16(c, da + 6, db + 384, 1);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
        if (kt > 0 && lane == 0) bar_arrive(empty + 8 * prev);
        __syncwarp();
        prev = s;
        if (++s == NSTAGE) { s = 0; ph ^= 1; }
      }
      asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
      if (lane == 0) bar_arrive(empty + 8 * prev);
      __syncwarp();

      int r0 = tm * 128 + wg * 64 + (t >> 5) * 16 + (lane >> 2);
      int r1 = r0 + 8;
      int col = tn * 256 + (lane & 3) * 2;
      int f0 = min(250, max(-250, __ldcg(fm + r0)));
      int f1 = min(250, max(-250, __ldcg(fm + r1)));
      float x0 = p2(f0 >> 1), y0 = p2(f0 - (f0 >> 1));
      float x1 = p2(f1 >> 1), y1 = p2(f1 - (f1 >> 1));
      float* o0 = out + (long long)r0 * N + col;
      float* o1 = out + (long long)r1 * N + col;
      if ((N & 1) == 0 && tm * 128 + 128 <= M && tn * 256 + 256 <= N) {
#pragma unroll
        for (int j = 0; j < 32; ++j) {
          __stcs(reinterpret_cast<float2*>(o0 + 8 * j), make_float2(c[4 * j] * x0 * y0, c[4 * j + 1] * x0 * y0));
          __stcs(reinterpret_cast<float2*>(o1 + 8 * j), make_float2(c[4 * j + 2] * x1 * y1, c[4 * j + 3] * x1 * y1));
        }
      } else {
#pragma unroll
        for (int j = 0; j < 32; ++j) {
          bool in0 = col + 8 * j < N;
          bool in1 = col + 8 * j + 1 < N;
          if (r0 < M && in0) o0[8 * j] = c[4 * j] * x0 * y0;
          if (r0 < M && in1) o0[8 * j + 1] = c[4 * j + 1] * x0 * y0;
          if (r1 < M && in0) o1[8 * j] = c[4 * j + 2] * x1 * y1;
          if (r1 < M && in1) o1[8 * j + 1] = c[4 * j + 3] * x1 * y1;
        }
      }
    }
  }
}
""")

DYN_SMEM = 4 * 49152 + 1024


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self._sms = 0

    def forward(self, a, b):
        a = a.contiguous()
        b = b.contiguous()
        M, K = a.shape
        N = b.shape[1]
        dev = a.device
        out = torch.empty((M, N), dtype=torch.float32, device=dev)
        if M == 0 or N == 0:
            return out
        if K == 0:
            return out.zero_()
        if self._sms == 0:
            self._sms = torch.cuda.get_device_properties(dev).multi_processor_count

        mt = (M + 127) // 128
        nt = (N + 255) // 256
        ksteps = (K + 63) // 64
        mp, npad, kp = mt * 128, nt * 256, ksteps * 64

        ia = torch.empty(mp * kp, dtype=torch.float16, device=dev)
        ib = torch.empty(npad * kp, dtype=torch.float16, device=dev)
        ek = torch.empty(kp // 2, dtype=torch.int32, device=dev)  # kp shorts
        fm = torch.empty(mp, dtype=torch.int32, device=dev)
        cnt = torch.zeros(1 + mt, dtype=torch.int32, device=dev)

        k.matmul_all.cooperative[self._sms, 512, DYN_SMEM](
            a, b, ia, ib, ek, fm, cnt, out, M, N, K, mt, nt, ksteps)
        return out
