import torch
from torch import nn
from agentgen import jit

_SRC = r"""
#include <cuda_fp16.h>

// ---------------------------------------------------------------------------
// Packed chunk row (n, q): padded input rows 4q..4q+3, as FP16, k = r*12 + c*4 + col
//   [6 slabs of 8 k][2 planes: even X, odd X][30 entries] x 16 B = 5760 B,
//   then 16 B whose first int is the row's exponent.
// Shared memory of the main kernel (bytes)
//   0      : weights, [25 slices][2 k halves][96 channels] x 16 B
//   76800  : 2 chains x 6 stages x 5776
//   146112 : winv[96], bias[96]
//   146880 : full[12], empty[12], weights' barrier
//   147080 : end
// ---------------------------------------------------------------------------
#define ROW_BYTES 5776
#define ROW_HALVES 2888
#define EXP_OFF 5760
#define NST 6
#define W_BYTES 76800
#define X_OFF 76800
#define C_OFF 146112
#define B_OFF 146880
#define KEEP 0x7fffffff

__device__ __forceinline__ uint32_t smem_u32(const void* p) {
  return (uint32_t)__cvta_generic_to_shared(p);
}

__device__ __forceinline__ void mbar_init(uint32_t a, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(a), "r"(count) : "memory");
}

__device__ __forceinline__ void mbar_arrive(uint32_t a) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(a) : "memory");
}

__device__ __forceinline__ void mbar_expect(uint32_t a, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :: "r"(a), "r"(bytes) : "memory");
}

__device__ __forceinline__ void mbar_wait(uint32_t a, uint32_t parity) {
  uint32_t ok;
  do {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}\n"
        : "=r"(ok) : "r"(a), "r"(parity) : "memory");
  } while (!ok);
}

__device__ __forceinline__ void bulk_copy(uint32_t dst, const void* src, uint32_t bytes,
                                          uint32_t bar) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
      :: "r"(dst), "l"(src), "r"(bytes), "r"(bar) : "memory");
}

__device__ __forceinline__ void ldsm4(uint32_t (&f)[4], uint32_t a) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3]) : "r"(a) : "memory");
}

__device__ __forceinline__ void wgmma96(float (&d)[48], const uint32_t (&a)[4], uint64_t db,
                                        int sd) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %53, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, "
      "%40, %41, %42, %43, %44, %45, %46, %47}, "
      "{%48, %49, %50, %51}, %52, p, 1, 1, 0;\n"
      "}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]),
        "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
        "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]),
        "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),
        "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]),
        "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(db), "r"(sd));
}

// weights of slice s: no swizzle, K-major, LBO = 96 * 16 B, SBO = 128 B
__device__ __forceinline__ uint64_t wdesc(uint32_t b16, int s) {
  return ((uint64_t)8u << 32) | (uint64_t)((b16 + (uint32_t)(s * 192)) | (96u << 16));
}

__device__ __forceinline__ void touch(float (&d)[48]) {
#pragma unroll
  for (int i = 0; i < 48; ++i) asm volatile("" : "+f"(d[i]) :: "memory");
}

__device__ __forceinline__ float pow2i(int e) {   // -126 <= e <= 127
  return __uint_as_float((uint32_t)(127 + e) << 23);
}

struct Pipe {
  uint32_t o0;     // lane's ldmatrix address in stage 0, dx = 0 (dx = 2: + 16)
  uint32_t o1;     // the same for dx = 1
  uint32_t ex;     // address of the exponent in stage 0
  uint32_t full;   // barriers of this chain
  uint32_t empty;
  int st;
  uint32_t ph;
  int ec;          // exponent of the open accumulators
};

// One chunk row: dq = 0 begins fr, dq = 1 continues md, dq = 2 completes od.
template <bool D0, bool D1, bool D2>
__device__ __forceinline__ void step(float (&fr)[48], float (&md)[48], float (&od)[48], Pipe& p,
                                     uint32_t b16, int lane) {
  uint32_t f[9][4];
  uint32_t gt[4];
  mbar_wait(p.full + p.st * 8, p.ph);
  __syncwarp();
  const uint32_t so = (uint32_t)(p.st * ROW_BYTES);
  int er;
  asm volatile("ld.shared.s32 %0, [%1];" : "=r"(er) : "r"(p.ex + so) : "memory");
  const uint32_t a0 = p.o0 + so;
  const uint32_t a1 = p.o1 + so;
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    ldsm4(f[i], a0 + 1920 * i);
    ldsm4(f[3 + i], a1 + 1920 * i);
    ldsm4(f[6 + i], a0 + 16 + 1920 * i);
  }
  if (D2) {
    // left-over halves k = 32..35 of the three dx in one slice
    const bool lo = (lane & 3) < 2;
    const uint32_t u0 = __shfl_up_sync(0xffffffffu, f[5][0], 2);
    const uint32_t u1 = __shfl_up_sync(0xffffffffu, f[5][1], 2);
    gt[0] = lo ? f[2][0] : u0;
    gt[1] = lo ? f[2][1] : u1;
    gt[2] = lo ? f[8][0] : 0u;
    gt[3] = lo ? f[8][1] : 0u;
  }
  __syncwarp();
  if (lane == 0) mbar_arrive(p.empty + p.st * 8);
  if (++p.st == NST) {
    p.st = 0;
    p.ph ^= 1u;
  }
  if (er != KEEP && er != p.ec) {
    if (D1 || D2) {
      const int d = er - p.ec;
      const int h = d / 2;
      const float f1 = pow2i(h);
      const float f2 = pow2i(d - h);
      if (D1) {
#pragma unroll
        for (int i = 0; i < 48; ++i) md[i] = (md[i] * f1) * f2;
      }
      if (D2) {
#pragma unroll
        for (int i = 0; i < 48; ++i) od[i] = (od[i] * f1) * f2;
      }
    }
    p.ec = er;
  }
  __syncwarp();
  if (D0) touch(fr);
  if (D1) touch(md);
  if (D2) touch(od);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  if (D2) {
#pragma unroll
    for (int dx = 0; dx < 3; ++dx) {
#pragma unroll
      for (int i = 0; i < 2; ++i) wgmma96(od, f[dx * 3 + i], wdesc(b16, 18 + dx * 2 + i), 1);
    }
    wgmma96(od, gt, wdesc(b16, 24), 1);
  }
  if (D1) {
#pragma unroll
    for (int s = 0; s < 9; ++s) wgmma96(md, f[s], wdesc(b16, 9 + s), 1);
  }
  if (D0) {
#pragma unroll
    for (int s = 0; s < 9; ++s) wgmma96(fr, f[s], wdesc(b16, s), s == 0 ? 0 : 1);
  }
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  if (D0) touch(fr);
  if (D1) touch(md);
  if (D2) touch(od);
}

// A finished conv row (number lo of the part): horizontal maximum, running maximum, store.
__device__ __forceinline__ void finish(float (&d)[48], float (&best)[24], int lo, int ec,
                                       float* op, const float2* cw2, bool ok) {
  float h[24];
#pragma unroll
  for (int j = 0; j < 12; ++j) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const float e = d[4 * j + c];
      const float o = d[4 * j + 2 + c];
      const float n = __shfl_down_sync(0xffffffffu, e, 4);
      h[2 * j + c] = fmaxf(fmaxf(e, o), n);
    }
  }
  if (ec != 0) {
    const float sc = pow2i(-ec);
#pragma unroll
    for (int i = 0; i < 24; ++i) h[i] *= sc;
  }
  if (lo & 1) {
#pragma unroll
    for (int i = 0; i < 24; ++i) best[i] = fmaxf(best[i], h[i]);
  } else {
    if (lo > 0 && ok) {
      float* q = op + ((lo >> 1) - 1) * 27;
#pragma unroll
      for (int j = 0; j < 12; ++j) {
        const float2 w = cw2[4 * j];
        const float2 b = cw2[48 + 4 * j];
        const float v0 = fmaxf(best[2 * j], h[2 * j]);
        const float v1 = fmaxf(best[2 * j + 1], h[2 * j + 1]);
        q[j * 5832] = fmaxf(fmaf(v0, w.x, b.x), 0.0f);
        q[j * 5832 + 729] = fmaxf(fmaf(v1, w.y, b.y), 0.0f);
      }
    }
#pragma unroll
    for (int i = 0; i < 24; ++i) best[i] = h[i];
  }
}

extern "C" __global__ void __launch_bounds__(384, 1) conv_pool_march(
    const __half* __restrict__ xs, const __half* __restrict__ wp, const float* __restrict__ winv,
    const float* __restrict__ bias, float* __restrict__ out, int total) {
  extern __shared__ __align__(1024) unsigned char smem[];
  const int tid = threadIdx.x;
  const int wg = __shfl_sync(0xffffffffu, tid >> 7, 0);
  const int lane = tid & 31;
  const uint32_t sbase = smem_u32(smem);
  const uint32_t bars = sbase + B_OFF;
  const uint32_t wbar = bars + 4 * NST * 8;

  if (tid == 0) {
    for (int i = 0; i < 2 * NST; ++i) {
      mbar_init(bars + i * 8, 1);
      mbar_init(bars + (2 * NST + i) * 8, 4);
    }
    mbar_init(wbar, 1);
    asm volatile("fence.proxy.async;" ::: "memory");
  }
  if (tid < 96) {
    float* cc = reinterpret_cast<float*>(smem + C_OFF);
    cc[tid] = winv[tid];
    cc[96 + tid] = bias[tid];
  }
  __syncthreads();

  const int nchains = 2 * (int)gridDim.x;

  if (wg == 2) {
    // ------------------------------ producer ------------------------------
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;" ::: "memory");
    const int pw = (tid - 256) >> 5;
    if (pw < 2 && lane == 0) {
      if (pw == 0) {
        mbar_expect(wbar, W_BYTES);
        for (int i = 0; i < 5; ++i) {
          bulk_copy(sbase + i * 15360,
                    reinterpret_cast<const unsigned char*>(wp) + (size_t)i * 15360, 15360, wbar);
        }
      }
      const int chain = 2 * (int)blockIdx.x + pw;
      int pos = (int)((long long)total * chain / nchains);
      const int end = (int)((long long)total * (chain + 1) / nchains);
      const uint32_t sx = sbase + X_OFF + pw * (NST * ROW_BYTES);
      const uint32_t full = bars + pw * (NST * 8);
      const uint32_t empty = full + 2 * NST * 8;
      int st = 0;
      uint32_t ph = 1;
      while (pos < end) {
        const int img = pos / 27;
        const int pr = pos - img * 27;
        int P = 27 - pr;
        P = P < end - pos ? P : end - pos;
        const unsigned char* src = reinterpret_cast<const unsigned char*>(xs) +
                                   ((long long)img * 57 + 2 * pr) * ROW_BYTES;
        const int L = 2 * P + 3;
        for (int l = 0; l < L; ++l) {
          mbar_wait(empty + st * 8, ph);
          mbar_expect(full + st * 8, ROW_BYTES);
          bulk_copy(sx + st * ROW_BYTES, src, ROW_BYTES, full + st * 8);
          src += ROW_BYTES;
          if (++st == NST) {
            st = 0;
            ph ^= 1u;
          }
        }
        pos += P;
      }
    }
  } else {
    // ------------------------------ consumers ------------------------------
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;" ::: "memory");
    const int warp = (tid >> 5) & 3;
    const int g = lane >> 2;
    const int t = lane & 3;
    const int i8 = lane & 7;
    const int e = (lane >> 3) & 1;
    const int hi = lane >> 4;
    const uint32_t b16 = sbase >> 4;

    Pipe p;
    const uint32_t sx = sbase + X_OFF + wg * (NST * ROW_BYTES);
    p.o0 = sx + hi * 960 + e * 480 + (7 * warp + i8) * 16;
    p.o1 = sx + hi * 960 + (1 - e) * 480 + (7 * warp + i8 + e) * 16;
    p.ex = sx + EXP_OFF;
    p.full = bars + wg * (NST * 8);
    p.empty = p.full + 2 * NST * 8;
    p.st = 0;
    p.ph = 0;
    p.ec = 0;

    const int col = 7 * warp + g;
    const bool ok = (g < 7) && (col < 27);
    const float2* cw2 = reinterpret_cast<const float2*>(smem + C_OFF) + t;

    const int chain = 2 * (int)blockIdx.x + wg;
    int pos = (int)((long long)total * chain / nchains);
    const int end = (int)((long long)total * (chain + 1) / nchains);

    float A0[48], A1[48], A2[48], best[24];
#pragma unroll
    for (int i = 0; i < 48; ++i) {
      A0[i] = 0.0f;
      A1[i] = 0.0f;
      A2[i] = 0.0f;
    }
#pragma unroll
    for (int i = 0; i < 24; ++i) best[i] = 0.0f;

    mbar_wait(wbar, 0);
    __syncwarp();

#pragma unroll 1
    while (pos < end) {
      const int img = pos / 27;
      const int pr = pos - img * 27;
      int P = 27 - pr;
      P = P < end - pos ? P : end - pos;
      const int last = 2 * P;
      float* op = out + (long long)img * 69984 + (2 * t) * 729 + pr * 27 + col;

      step<true, false, false>(A0, A0, A0, p, b16, lane);
      step<true, true, false>(A1, A0, A0, p, b16, lane);
      int l = 2;
#pragma unroll 1
      while (true) {
        step<true, true, true>(A2, A1, A0, p, b16, lane);
        finish(A0, best, l - 2, p.ec, op, cw2, ok);
        if (++l > last) {
#pragma unroll
          for (int i = 0; i < 48; ++i) {
            A0[i] = A1[i];
            A1[i] = A2[i];
          }
          break;
        }
        step<true, true, true>(A0, A2, A1, p, b16, lane);
        finish(A1, best, l - 2, p.ec, op, cw2, ok);
        if (++l > last) {
#pragma unroll
          for (int i = 0; i < 48; ++i) {
            A1[i] = A0[i];
            A0[i] = A2[i];
          }
          break;
        }
        step<true, true, true>(A1, A0, A2, p, b16, lane);
        finish(A2, best, l - 2, p.ec, op, cw2, ok);
        if (++l > last) break;
      }
      // A1: the part's last conv row, A0: the one before
      step<false, true, true>(A2, A1, A0, p, b16, lane);
      finish(A0, best, last - 1, p.ec, op, cw2, ok);
      step<false, false, true>(A2, A2, A1, p, b16, lane);
      finish(A1, best, last, p.ec, op, cw2, ok);
      pos += P;
    }
  }
}

__device__ __forceinline__ uint32_t pack2(float a, float b) {
  __half2 h = __floats2half2_rn(a, b);
  return *reinterpret_cast<uint32_t*>(&h);
}

__device__ __forceinline__ float amax2(float m, float2 v) {
  return fmaxf(m, fmaxf(fabsf(v.x), fabsf(v.y)));
}

// One block per chunk row (n, q); one 16-byte entry per thread.
extern "C" __global__ void __launch_bounds__(384, 5) pack_rows(const float* __restrict__ x,
                                                               __half* __restrict__ xs) {
  __shared__ uint32_t red[12];
  const int tid = threadIdx.x;
  const int row = blockIdx.x;
  const int n = row / 57;
  const int q = row - n * 57;
  const int slab = tid / 60;
  const int X = tid - slab * 60;
  const bool act = tid < 360;
  const float* xi = x + (long long)n * 150528;
  float2 v[4];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    v[2 * h] = make_float2(0.0f, 0.0f);
    v[2 * h + 1] = make_float2(0.0f, 0.0f);
    const int m = 2 * slab + h;
    const int r = m / 3;
    const int c = m - r * 3;
    const int iy = 4 * q + r - 2;
    if (act && iy >= 0 && iy < 224) {
      const int off = c * 50176 + iy * 224 + 4 * X - 2;
      if (X > 0 && X < 57) v[2 * h] = __ldcs(reinterpret_cast<const float2*>(xi + off));
      if (X < 56) v[2 * h + 1] = __ldcs(reinterpret_cast<const float2*>(xi + off + 2));
    }
  }
  float mx = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; ++i) mx = amax2(mx, v[i]);
  const uint32_t wm = __reduce_max_sync(0xffffffffu, __float_as_uint(mx));
  if ((tid & 31) == 0) red[tid >> 5] = wm;
  __syncthreads();
  uint32_t m = 0;
#pragma unroll
  for (int i = 0; i < 12; ++i) m = red[i] > m ? red[i] : m;
  const int E = (int)(m >> 23);
  int e = 0;
  if (m != 0u && E < 255 && (m < 0x3a800000u || m > 0x47000000u)) {
    e = 141 - E;                 // brings the maximum into [2^14, 2^15)
    e = e > 80 ? 80 : e;
  }
  const float sc = pow2i(e);
  unsigned char* dst = reinterpret_cast<unsigned char*>(xs + (long long)row * ROW_HALVES);
  if (act) {
    uint4 o;
    o.x = pack2(v[0].x * sc, v[0].y * sc);
    o.y = pack2(v[1].x * sc, v[1].y * sc);
    o.z = pack2(v[2].x * sc, v[2].y * sc);
    o.w = pack2(v[3].x * sc, v[3].y * sc);
    *reinterpret_cast<uint4*>(dst + slab * 960 + (X & 1) * 480 + (X >> 1) * 16) = o;
  } else if (tid == 360) {
    uint4 o;
    o.x = m == 0u ? (uint32_t)KEEP : (uint32_t)e;   // an all-zero row fits any exponent
    o.y = 0u;
    o.z = 0u;
    o.w = 0u;
    *reinterpret_cast<uint4*>(dst + EXP_OFF) = o;
  }
}

// One block per output channel: power-of-two scale, then the packed FP16 weights.
extern "C" __global__ void pack_weights(const float* __restrict__ w, __half* __restrict__ wp,
                                        float* __restrict__ winv) {
  __shared__ float red[128];
  const int n = blockIdx.x;
  const int tid = threadIdx.x;
  const float* wn = w + n * 363;
  float m = 0.0f;
  for (int i = tid; i < 363; i += 128) m = fmaxf(m, fabsf(wn[i]));
  red[tid] = m;
  __syncthreads();
  for (int h = 64; h > 0; h >>= 1) {
    if (tid < h) red[tid] = fmaxf(red[tid], red[tid + h]);
    __syncthreads();
  }
  m = red[0];
  int E = 127;
  if (m > 0.0f) {
    E = (int)((__float_as_uint(m) >> 23) & 255u);
    E = E < 1 ? 1 : (E > 253 ? 253 : E);
  }
  const float sc = __uint_as_float((uint32_t)(254 - E) << 23);
  if (tid == 0) winv[n] = __uint_as_float((uint32_t)E << 23);
  for (int i = tid; i < 400; i += 128) {
    const int s = i >> 4;
    const int kk = i & 15;
    int dq, dx, kq;
    bool ok = true;
    if (s < 18) {
      dq = s / 9;
      const int r9 = s - dq * 9;
      dx = r9 / 3;
      kq = (r9 - dx * 3) * 16 + kk;
    } else if (s < 24) {
      dq = 2;
      dx = (s - 18) >> 1;
      kq = ((s - 18) & 1) * 16 + kk;
    } else {
      dq = 2;
      dx = kk >> 2;
      kq = 32 + (kk & 3);
      ok = kk < 12;
    }
    const int r = kq / 12;
    const int rem = kq - r * 12;
    const int c = rem >> 2;
    const int kh = 4 * dq + r;
    const int kw = 4 * dx + (rem & 3);
    float v = 0.0f;
    if (ok && kh < 11 && kw < 11) v = wn[(c * 11 + kh) * 11 + kw] * sc;
    wp[((s * 2 + (kk >> 3)) * 96 + n) * 8 + (kk & 7)] = __float2half_rn(v);
  }
}

// Any shape, fp32: one thread per pooled output.
extern "C" __global__ void conv_pool_generic(
    const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ bias,
    float* __restrict__ out, int B, int C, int H, int W, int O, int KH, int KW, int S, int P,
    int PS, int PST, int PH, int PW) {
  const long long n = (long long)B * O * PH * PW;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n;
       i += (long long)gridDim.x * blockDim.x) {
    long long r = i;
    const int pw = (int)(r % PW);
    r /= PW;
    const int ph = (int)(r % PH);
    r /= PH;
    const int o = (int)(r % O);
    const int b = (int)(r / O);
    const float* xb = x + (long long)b * C * H * W;
    const float* wo = w + (long long)o * C * KH * KW;
    const float bo = bias[o];
    float best = 0.0f;
    for (int py = 0; py < PS; ++py) {
      for (int px = 0; px < PS; ++px) {
        const int y0 = (ph * PST + py) * S - P;
        const int x0 = (pw * PST + px) * S - P;
        float sum = 0.0f;
        for (int c = 0; c < C; ++c) {
          for (int kh = 0; kh < KH; ++kh) {
            const int yy = y0 + kh;
            if (yy < 0 || yy >= H) continue;
            const float* xr = xb + ((long long)c * H + yy) * W;
            const float* wr = wo + (c * KH + kh) * KW;
            for (int kw = 0; kw < KW; ++kw) {
              const int xx = x0 + kw;
              if (xx >= 0 && xx < W) sum = fmaf(xr[xx], wr[kw], sum);
            }
          }
        }
        best = fmaxf(best, sum + bo);
      }
    }
    out[i] = best;
  }
}
"""

k = jit.cuda(_SRC)

_SMEM = 147200


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, pool_size, pool_stride):
        super().__init__()
        # only its weights are used
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, stride=stride, padding=padding)
        self.kernel_size = int(kernel_size)
        self.stride = int(stride)
        self.padding = int(padding)
        self.pool_size = int(pool_size)
        self.pool_stride = int(pool_stride)
        self.in_channels = int(in_channels)
        self.out_channels = int(out_channels)
        self.special = (
            self.in_channels == 3
            and self.out_channels == 96
            and self.kernel_size == 11
            and self.stride == 4
            and self.padding == 2
            and self.pool_size == 3
            and self.pool_stride == 2
        )
        self.packed = None
        self.winv = None
        self.sms = 0

    def prepare(self):
        if not self.special:
            return
        w = self.conv.weight.detach().contiguous()
        if not w.is_cuda:
            return
        packed = torch.empty(25 * 2 * 96 * 8, dtype=torch.float16, device=w.device)
        winv = torch.empty(96, dtype=torch.float32, device=w.device)
        k.pack_weights[96, 128, 0](w, packed, winv)
        self.packed = packed
        self.winv = winv

    def forward(self, x):
        B, C, H, W = x.shape
        K, S, P = self.kernel_size, self.stride, self.padding
        OH = (H + 2 * P - K) // S + 1
        OW = (W + 2 * P - K) // S + 1
        PH = (OH - self.pool_size) // self.pool_stride + 1
        PW = (OW - self.pool_size) // self.pool_stride + 1
        O = self.out_channels
        out = torch.empty((B, O, PH, PW), dtype=torch.float32, device=x.device)
        if out.numel() == 0:
            return out
        bias = self.conv.bias.detach()
        if self.special and H == 224 and W == 224:
            if self.packed is None:
                self.prepare()
            if self.sms == 0:
                self.sms = torch.cuda.get_device_properties(x.device).multi_processor_count
            xs = torch.empty(B * 57 * 2888, dtype=torch.float16, device=x.device)
            k.pack_rows[B * 57, 384, 0](x, xs)
            k.conv_pool_march[self.sms, 384, _SMEM](xs, self.packed, self.winv, bias, out, B * 27)
        else:
            w = self.conv.weight.detach().contiguous()
            n = out.numel()
            grid = min((n + 127) // 128, 1 << 20)
            k.conv_pool_generic[grid, 128, 0](
                x, w, bias, out, B, C, H, W, O, K, K, S, P,
                self.pool_size, self.pool_stride, PH, PW,
            )
        return out
