import torch
from torch import nn
from agentgen import jit

_SRC = r"""
#include <cuda_fp16.h>
// ---------------------------------------------------------------------------
// Specialised path: C=3, H=W=224, 11x11, stride 4, pad 2, 96 output channels.
// K order: lines r = kh*3+c (33 of them), two at a time (d), 12 taps each (kw 11
// has zero weight), as three half-steps j of 4 tap pairs:
//   j=0: line 2d,   pair q          j=1: q<2 line 2d pair 4+q, else line 2d+1 pair q-2
//   j=2: line 2d+1, pair 2+q
// Half-step h is half (h&1) of k16 step h/2.  50 half-steps, 25 k16 steps, K = 400.
//
// A band (256 flat pixels) lies in shared memory as FP16 lines of 464 bytes:
// line = group*12 + dh*3 + c, a group being the image rows 4G-2 .. 4G+1;
// column -2 is at byte 4.  Each group has its own power-of-two exponent.
// ---------------------------------------------------------------------------

#define PITCH 464
#define GROUPB 5568
#define BANDB 55680
#define OFF_BAND 76800
#define OFF_T 188160
#define OFF_WB 191616
#define OFF_STAGE 192384
#define OFF_RED 225152
#define OFF_E 225312
#define OFF_PIV 225440
#define OFF_BAR 225456

__device__ __forceinline__ float fin_abs(float v) {
  const float a = fabsf(v);
  return (a < INFINITY) ? a : 0.0f;
}

__device__ __forceinline__ float4 ldg4(const float* p) {
  float4 v;
  asm volatile("ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];\n"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p));
  return v;
}

__device__ __forceinline__ unsigned pack_h2(float lo, float hi) {
  unsigned d;
  asm volatile("cvt.rn.f16x2.f32 %0, %1, %2;\n" : "=r"(d) : "f"(hi), "f"(lo));
  return d;
}

__device__ __forceinline__ void sts2(unsigned addr, unsigned a, unsigned b) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};\n" ::"r"(addr), "r"(a), "r"(b) : "memory");
}

__device__ __forceinline__ void bar128(int id) { asm volatile("bar.sync %0, 128;\n" ::"r"(id) : "memory"); }

__device__ __forceinline__ void mbar_init(unsigned bar, unsigned count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(bar), "r"(count) : "memory");
}
__device__ __forceinline__ void mbar_arrive(unsigned bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void mbar_wait(unsigned bar, unsigned parity) {
  unsigned ok;
  do {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}\n"
        : "=r"(ok) : "r"(bar), "r"(parity) : "memory");
  } while (ok == 0u);
  __syncwarp();
}

// ---- staging ----------------------------------------------------------------

// warp w of a warpgroup loads image row 4G-2+w of the group, three channels
__device__ __forceinline__ void load_group(float4 (&v)[6], const float* x, int vg, int w, int lane) {
  const int n = vg / 57;
  const int ih = 4 * (vg - n * 57) - 2 + w;
  if ((unsigned)ih < 224u) {
    const float* p = x + (long long)n * 150528 + ih * 224;
    const float* pa = p + 4 * lane;
    const float* pb = p + 4 * min(lane + 32, 55);
    v[0] = ldg4(pa);
    v[1] = ldg4(pb);
    v[2] = ldg4(pa + 50176);
    v[3] = ldg4(pb + 50176);
    v[4] = ldg4(pa + 100352);
    v[5] = ldg4(pb + 100352);
  } else {
#pragma unroll
    for (int i = 0; i < 6; ++i) v[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  }
}

// subtract the pivot, find the group's exponent, scale, round, store.
// dst: shared address of the group's first line.  Lanes 24..31 repeat lane 23's
// second load and store the same values to the same place.
__device__ __forceinline__ void process_group(float4 (&v)[6], int vg, float m, unsigned dst, unsigned* red,
                                              int parity, int barid, int w, int lane, int* eout) {
  const int G = vg % 57;
  const bool ok = (unsigned)(4 * G - 2 + w) < 224u;
  const float mm = ok ? m : 0.0f;
  float mx = 0.0f;
#pragma unroll
  for (int i = 0; i < 6; ++i) {
    v[i].x -= mm;
    v[i].y -= mm;
    v[i].z -= mm;
    v[i].w -= mm;
    mx = fmaxf(mx, fmaxf(fmaxf(fin_abs(v[i].x), fin_abs(v[i].y)), fmaxf(fin_abs(v[i].z), fin_abs(v[i].w))));
  }
  unsigned u = __reduce_max_sync(0xffffffffu, __float_as_uint(mx));
  if (lane == 0) red[4 * parity + w] = u;
  bar128(barid);
  const uint4 rr = *(const uint4*)(red + 4 * parity);
  u = max(max(rr.x, rr.y), max(rr.z, rr.w));
  const int e = max((int)(u >> 23) - 131, -122);
  if (w == 0 && lane == 0) *eout = (u != 0u) ? e : -1000;
  const float sc = __int_as_float((127 - e) << 23);
  const unsigned da = dst + (unsigned)(w * 3 * PITCH + 8 + 8 * lane);
  const unsigned db = dst + (unsigned)(w * 3 * PITCH + 8 + 8 * min(lane + 32, 55));
#pragma unroll
  for (int c = 0; c < 3; ++c) {
    sts2(da + c * PITCH, pack_h2(v[2 * c].x * sc, v[2 * c].y * sc), pack_h2(v[2 * c].z * sc, v[2 * c].w * sc));
    sts2(db + c * PITCH, pack_h2(v[2 * c + 1].x * sc, v[2 * c + 1].y * sc),
         pack_h2(v[2 * c + 1].z * sc, v[2 * c + 1].w * sc));
  }
}

// mean of 256 fixed samples of an image; the same bits in every lane and warp
__device__ __forceinline__ float img_pivot(const float* xi, int lane) {
  const float* p = xi + 56 + lane * 2352;
  const float4 a = ldg4(p);
  const float4 b = ldg4(p + 75264);
  float s = ((a.x + a.y) + (a.z + a.w)) + ((b.x + b.y) + (b.z + b.w));
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) s += __shfl_xor_sync(0xffffffffu, s, o);
  s *= 0.00390625f;
  return (fabsf(s) < 1e38f) ? s : 0.0f;
}

struct Band {
  int n0, n1;   // first and last image
  int g0, ng;   // first virtual group, number of groups
};

__device__ __forceinline__ Band band_of(int b, int M) {
  Band B;
  const int ma = b * 256;
  const int mz = min(ma + 255, M - 1);
  B.n0 = ma / 3025;
  B.n1 = mz / 3025;
  B.g0 = B.n0 * 57 + (ma - B.n0 * 3025) / 55;
  B.ng = B.n1 * 57 + (mz - B.n1 * 3025) / 55 + 3 - B.g0;
  return B;
}

__device__ __forceinline__ void pf_l2(const float* p) { asm volatile("prefetch.global.L2 [%0];\n" ::"l"(p)); }

__device__ __forceinline__ void prefetch_band(const float* x, int b, int M, int w, int lane) {
  const Band B = band_of(b, M);
  {
    const int n = (w >> 1) ? B.n1 : B.n0;
    pf_l2(x + (long long)n * 150528 + 56 + ((w & 1) * 32 + lane) * 2352);
  }
  const int c = lane / 7;
  const int off = c * 50176 + (lane - c * 7) * 32;
  for (int i = 0; i < B.ng; ++i) {
    const int vg = B.g0 + i;
    const int n = vg / 57;
    const int ih = 4 * (vg - n * 57) - 2 + w;
    if (lane < 21 && (unsigned)ih < 224u) pf_l2(x + (long long)n * 150528 + ih * 224 + off);
  }
}

// ---- multiplication ---------------------------------------------------------

__device__ __forceinline__ void wg_fence() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
__device__ __forceinline__ void wg_commit() { asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }
__device__ __forceinline__ void wg_wait0() { asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory"); }
__device__ __forceinline__ void wg_wait1() { asm volatile("wgmma.wait_group.sync.aligned 1;\n" ::: "memory"); }

__device__ __forceinline__ void wgmma96(float (&d)[48], unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                                        unsigned long long desc, int scaleD) {
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
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(desc), "r"(scaleD));
}

template <int OFF>
__device__ __forceinline__ unsigned lds32(unsigned addr) {
  unsigned v;
  asm volatile("ld.shared.b32 %0, [%1+%2];\n" : "=r"(v) : "r"(addr), "n"(OFF) : "memory");
  return v;
}

__device__ __forceinline__ unsigned hmul2(unsigned a, unsigned b) {
  unsigned v;
  asm volatile("mul.f16x2 %0, %1, %2;\n" : "=r"(v) : "r"(a), "r"(b));
  return v;
}

// half-step H of two pixels: b0, b1 window origins (+4q), x0, x1 the same for j=1
template <int H>
__device__ __forceinline__ void ld_half(unsigned& u0, unsigned& u1, unsigned b0, unsigned b1, unsigned x0, unsigned x1) {
  constexpr int d = H / 3;
  constexpr int j = H % 3;
  if constexpr (j == 0) {
    constexpr int off = 2 * d * PITCH;
    u0 = lds32<off>(b0);
    u1 = lds32<off>(b1);
  } else if constexpr (j == 1) {
    constexpr int off = 2 * d * PITCH;
    u0 = lds32<off>(x0);
    u1 = lds32<off>(x1);
  } else {
    constexpr int off = (2 * d + 1) * PITCH + 8;
    u0 = lds32<off>(b0);
    u1 = lds32<off>(b1);
  }
}

template <int C>
__device__ __forceinline__ void load_chunk(unsigned (&f)[8], unsigned b0, unsigned b1, unsigned x0, unsigned x1) {
  ld_half<4 * C>(f[0], f[1], b0, b1, x0, x1);
  ld_half<4 * C + 1>(f[2], f[3], b0, b1, x0, x1);
  if constexpr (C < 12) {
    ld_half<4 * C + 2>(f[4], f[5], b0, b1, x0, x1);
    ld_half<4 * C + 3>(f[6], f[7], b0, b1, x0, x1);
  }
}

template <int S>
__device__ __forceinline__ unsigned long long wdesc(unsigned long long d128, unsigned long long d32) {
  if constexpr (S < 24) return d128 + (unsigned long long)((S >> 2) * 768 + (S & 3) * 2);
  else return d32;
}

template <int C>
__device__ __forceinline__ void step(float (&acc)[48], unsigned (&cur)[8], unsigned (&nxt)[8],
                                     unsigned b0, unsigned b1, unsigned x0, unsigned x1,
                                     const unsigned (&f0)[3], const unsigned (&f1)[3],
                                     unsigned long long d128, unsigned long long d32) {
  constexpr int S0 = 2 * C;
  constexpr int G0 = S0 / 9;
  cur[0] = hmul2(cur[0], f0[G0]);
  cur[1] = hmul2(cur[1], f1[G0]);
  cur[2] = hmul2(cur[2], f0[G0]);
  cur[3] = hmul2(cur[3], f1[G0]);
  if constexpr (C < 12) {
    constexpr int G1 = (S0 + 1) / 9;
    cur[4] = hmul2(cur[4], f0[G1]);
    cur[5] = hmul2(cur[5], f1[G1]);
    cur[6] = hmul2(cur[6], f0[G1]);
    cur[7] = hmul2(cur[7], f1[G1]);
  }
  wg_fence();
  wgmma96(acc, cur[0], cur[1], cur[2], cur[3], wdesc<S0>(d128, d32), (C > 0) ? 1 : 0);
  if constexpr (C < 12) {
    wgmma96(acc, cur[4], cur[5], cur[6], cur[7], wdesc<S0 + 1>(d128, d32), 1);
  }
  wg_commit();
  if constexpr (C < 12) {
    wg_wait1();                       // the previous chunk has been multiplied
    load_chunk<C + 1>(nxt, b0, b1, x0, x1);
  }
}

// 2^d as a half, twice; d <= 0
__device__ __forceinline__ unsigned pow2_h2(int d) {
  unsigned h;
  if (d >= -14) h = (unsigned)(15 + d) << 10;
  else if (d >= -24) h = 1u << (d + 24);
  else h = 0u;
  return h | (h << 16);
}

__device__ __forceinline__ void window_scale(const int* e, unsigned (&f)[3], float& s) {
  const int e0 = e[0], e1 = e[1], e2 = e[2];
  const int E = max(e0, max(e1, e2));
  f[0] = pow2_h2(e0 - E);
  f[1] = pow2_h2(e1 - E);
  f[2] = pow2_h2(e2 - E);
  s = __int_as_float((max(E, -126) + 127) << 23);
}

// weights -> the exact image of shared memory (FP16, swizzled, each channel scaled
// by a power of two); T[9][96]; the inverse of the scale.  One block per channel.
extern "C" __global__ void __launch_bounds__(128) pack_w(const float* __restrict__ w, __half* __restrict__ wp, float* __restrict__ tt, float* __restrict__ wsc) {
  __shared__ unsigned red[4];
  const int n = blockIdx.x;
  const int t = threadIdx.x;
  float mx = 0.0f;
  for (int i = t; i < 363; i += 128) mx = fmaxf(mx, fin_abs(w[n * 363 + i]));
  unsigned u = __reduce_max_sync(0xffffffffu, __float_as_uint(mx));
  if ((t & 31) == 0) red[t >> 5] = u;
  __syncthreads();
  u = max(max(red[0], red[1]), max(red[2], red[3]));
  const int kx = (u == 0u) ? 0 : min(135 - (int)(u >> 23), 126);
  const float sc = __int_as_float((127 + kx) << 23);
  if (t == 0) wsc[n] = __int_as_float((127 - kx) << 23);
  for (int kk = t; kk < 400; kk += 128) {
    const int s = kk >> 4;
    const int k = kk & 15;
    const int h = 2 * s + (k >> 3);
    const int q = (k & 7) >> 1;
    const int e = k & 1;
    const int d = h / 3;
    const int j = h - d * 3;
    int row, pair;
    if (j == 0) { row = 2 * d; pair = q; }
    else if (j == 1) {
      if (q < 2) { row = 2 * d; pair = 4 + q; }
      else { row = 2 * d + 1; pair = q - 2; }
    } else { row = 2 * d + 1; pair = 2 + q; }
    const int kw = 2 * pair + e;
    float v = 0.0f;
    if (row < 33 && kw < 11) v = w[n * 363 + (row % 3) * 121 + (row / 3) * 11 + kw] * sc;
    int dst;
    if (s < 24) {
      const int kin = (s & 3) * 16 + k;
      dst = (s >> 2) * 6144 + n * 64 + (((kin >> 3) ^ (n & 7)) << 3) + (kin & 7);
    } else {
      dst = 36864 + n * 16 + (((k >> 3) ^ ((n >> 2) & 1)) << 3) + (k & 7);
    }
    wp[dst] = __float2half_rn(v);
  }
  if (t < 9) {
    const int vh = t / 3;
    const int vw = t - vh * 3;
    const int kh0 = (vh == 0) ? 2 : 0, kh1 = (vh == 2) ? 10 : 11;
    const int kw0 = (vw == 0) ? 2 : 0, kw1 = (vw == 2) ? 10 : 11;
    double sum = 0.0;
    for (int c = 0; c < 3; ++c)
      for (int kh = kh0; kh < kh1; ++kh)
        for (int kw = kw0; kw < kw1; ++kw) sum += (double)w[n * 363 + c * 121 + kh * 11 + kw];
    tt[t * 96 + n] = (float)sum;
  }
}

extern "C" __global__ void __launch_bounds__(640, 1) conv_main(const float* __restrict__ x, const __half* __restrict__ wp, const float* __restrict__ tt, const float* __restrict__ wsc, const float* __restrict__ bias, float* __restrict__ out, int M, int nbands) {
  extern __shared__ unsigned char smraw[];
  const unsigned sb = (unsigned)__cvta_generic_to_shared(smraw);
  const unsigned padb = (1024u - (sb & 1023u)) & 1023u;
  unsigned char* sm = smraw + padb;
  const unsigned sa = sb + padb;
  float* sT = (float*)(sm + OFF_T);            // [9][96]
  float4* sWB = (float4*)(sm + OFF_WB);        // [48] {scale, scale, bias, bias}
  int* sE = (int*)(sm + OFF_E);                // [2][16]
  float* sPiv = (float*)(sm + OFF_PIV);        // [2][2]
  const unsigned barFull = sa + OFF_BAR;       // [2]
  const unsigned barEmpty = sa + OFF_BAR + 16; // [2]

  const int tid = threadIdx.x;
  const int wg = __shfl_sync(0xffffffffu, tid >> 7, 0);
  const int w = __shfl_sync(0xffffffffu, (tid >> 5) & 3, 0);
  const int lane = tid & 31;
  unsigned* red = (unsigned*)(sm + OFF_RED) + wg * 8;
  const int gstride = gridDim.x;

  // weights: once per block
  for (int i = tid; i < 4800; i += 640) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(sa + 16u * (unsigned)i), "l"(wp + 8 * i) : "memory");
  }
  asm volatile("cp.async.commit_group;\n" ::: "memory");

  // first band: staged by all five warpgroups, groups wg and wg+5
  {
    const Band B = band_of(blockIdx.x, M);
    float4 vA[6], vB[6];
    const bool hasA = wg < B.ng;
    const bool hasB = wg + 5 < B.ng;
    if (hasA) load_group(vA, x, B.g0 + wg, w, lane);
    if (hasB) load_group(vB, x, B.g0 + wg + 5, w, lane);
    const float p0 = img_pivot(x + (long long)B.n0 * 150528, lane);
    float p1 = p0;
    if (B.n1 != B.n0) p1 = img_pivot(x + (long long)B.n1 * 150528, lane);
    if (tid == 0) {
      mbar_init(barFull, 1u);
      mbar_init(barFull + 8, 1u);
      mbar_init(barEmpty, 16u);
      mbar_init(barEmpty + 8, 16u);
      sPiv[0] = p0;
      sPiv[1] = p1;
    }
    // the columns -2, -1 and 224, 225 of all lines of both buffers stay zero
    for (int i = tid; i < 240; i += 640) {
      *(unsigned*)(sm + OFF_BAND + i * PITCH + 4) = 0u;
      *(unsigned*)(sm + OFF_BAND + i * PITCH + 456) = 0u;
    }
    for (int i = tid; i < 864; i += 640) sT[i] = tt[i];
    if (tid < 48) sWB[tid] = make_float4(wsc[2 * tid], wsc[2 * tid + 1], bias[2 * tid], bias[2 * tid + 1]);
    if (hasA) {
      const int vg = B.g0 + wg;
      process_group(vA, vg, (vg / 57 == B.n0) ? p0 : p1, sa + OFF_BAND + wg * GROUPB, red, 0, wg + 1, w, lane, sE + wg);
    }
    if (hasB) {
      const int vg = B.g0 + wg + 5;
      process_group(vB, vg, (vg / 57 == B.n0) ? p0 : p1, sa + OFF_BAND + (wg + 5) * GROUPB, red, 1, wg + 1, w, lane,
                    sE + wg + 5);
    }
    if (wg == 4 && (int)blockIdx.x + gstride < nbands) prefetch_band(x, blockIdx.x + gstride, M, w, lane);
  }

  asm volatile("cp.async.wait_group 0;\n" ::: "memory");
  asm volatile("fence.proxy.async;\n" ::: "memory");
  __syncthreads();

  if (wg == 4) {
    // ------------------------------ producer ------------------------------
    int it = 1;
    for (int b = blockIdx.x + gstride; b < nbands; b += gstride, ++it) {
      const int buf = it & 1;
      const Band B = band_of(b, M);
      float4 vA[6], vB[6];
      load_group(vA, x, B.g0, w, lane);
      const float p0 = img_pivot(x + (long long)B.n0 * 150528, lane);
      float p1 = p0;
      if (B.n1 != B.n0) p1 = img_pivot(x + (long long)B.n1 * 150528, lane);
      if (b + gstride < nbands) prefetch_band(x, b + gstride, M, w, lane);
      if (it >= 2) mbar_wait(barEmpty + 8 * buf, (unsigned)(((it >> 1) - 1) & 1));
      if (tid == 512) {
        sPiv[2 * buf] = p0;
        sPiv[2 * buf + 1] = p1;
      }
      const unsigned dst = sa + OFF_BAND + buf * BANDB;
      int* eb = sE + 16 * buf;
      for (int gi = 0; gi < B.ng; gi += 2) {
        const int vg = B.g0 + gi;
        if (gi + 1 < B.ng) load_group(vB, x, vg + 1, w, lane);
        process_group(vA, vg, (vg / 57 == B.n0) ? p0 : p1, dst + gi * GROUPB, red, 0, 5, w, lane, eb + gi);
        if (gi + 1 < B.ng) {
          if (gi + 2 < B.ng) load_group(vA, x, vg + 2, w, lane);
          process_group(vB, vg + 1, ((vg + 1) / 57 == B.n0) ? p0 : p1, dst + (gi + 1) * GROUPB, red, 1, 5, w, lane,
                        eb + gi + 1);
        }
      }
      bar128(5);
      if (tid == 512) mbar_arrive(barFull + 8 * buf);
    }
  } else {
    // ------------------------------ consumers -----------------------------
    const int q = lane & 3;
    const int r = lane >> 2;
    const unsigned jump = (q < 2) ? 16u : 456u;

    const unsigned long long lo = (unsigned long long)((sa & 0x3FFFFu) >> 4);
    const unsigned long long d128 = (1ull << 62) | (64ull << 32) | (1ull << 16) | lo;
    const unsigned long long d32 = (3ull << 62) | (16ull << 32) | (1ull << 16) | (lo + 4608ull);

    float* stg = (float*)(sm + OFF_STAGE) + wg * 2048;
    const int px0 = 16 * w + r;
    const int w0 = 128 * q + (px0 ^ (q << 3));
    const int w1 = 128 * q + ((px0 + 8) ^ (q << 3));
    const int rd = 128 * w + (lane ^ (w << 3));

    float acc[48];
#pragma unroll
    for (int i = 0; i < 48; ++i) acc[i] = 0.0f;

    int it = 0;
    for (int b = blockIdx.x; b < nbands; b += gstride, ++it) {
      const int buf = it & 1;
      const int mb = b * 256;
      const int tb = mb + 64 * wg;

      if (it >= 1) mbar_wait(barFull + 8 * buf, (unsigned)(((it - 1) >> 1) & 1));

      unsigned b0, b1;
      unsigned f0[3], f1[3];
      float s0, s1, m0, m1;
      int c0, c1;
      {
        const int na = mb / 3025;
        const int ga = na * 57 + (mb - na * 3025) / 55;
        const unsigned bandA = sa + OFF_BAND + buf * BANDB + 4 + 4 * q;
        const int* eb = sE + 16 * buf;
        {
          const int mp = min(tb + px0, M - 1);
          const int n = mp / 3025;
          const int rem = mp - n * 3025;
          const int oh = rem / 55;
          const int ow = rem - oh * 55;
          const int sl = n * 57 + oh - ga;
          b0 = bandA + (unsigned)(sl * GROUPB + 8 * ow);
          window_scale(eb + sl, f0, s0);
          m0 = sPiv[2 * buf + (n - na)];
          const int ch = (oh == 0) ? 0 : ((oh == 54) ? 2 : 1);
          const int cw = (ow == 0) ? 0 : ((ow == 54) ? 2 : 1);
          c0 = (ch * 3 + cw) * 96 + 2 * q;
        }
        {
          const int mp = min(tb + px0 + 8, M - 1);
          const int n = mp / 3025;
          const int rem = mp - n * 3025;
          const int oh = rem / 55;
          const int ow = rem - oh * 55;
          const int sl = n * 57 + oh - ga;
          b1 = bandA + (unsigned)(sl * GROUPB + 8 * ow);
          window_scale(eb + sl, f1, s1);
          m1 = sPiv[2 * buf + (n - na)];
          const int ch = (oh == 0) ? 0 : ((oh == 54) ? 2 : 1);
          const int cw = (ow == 0) ? 0 : ((ow == 54) ? 2 : 1);
          c1 = (ch * 3 + cw) * 96 + 2 * q;
        }
      }
      const unsigned x0 = b0 + jump;
      const unsigned x1 = b1 + jump;
      __syncwarp();

      unsigned u[8], v[8];
      load_chunk<0>(u, b0, b1, x0, x1);
      step<0>(acc, u, v, b0, b1, x0, x1, f0, f1, d128, d32);
      step<1>(acc, v, u, b0, b1, x0, x1, f0, f1, d128, d32);
      step<2>(acc, u, v, b0, b1, x0, x1, f0, f1, d128, d32);
      step<3>(acc, v, u, b0, b1, x0, x1, f0, f1, d128, d32);
      step<4>(acc, u, v, b0, b1, x0, x1, f0, f1, d128, d32);
      step<5>(acc, v, u, b0, b1, x0, x1, f0, f1, d128, d32);
      step<6>(acc, u, v, b0, b1, x0, x1, f0, f1, d128, d32);
      step<7>(acc, v, u, b0, b1, x0, x1, f0, f1, d128, d32);
      step<8>(acc, u, v, b0, b1, x0, x1, f0, f1, d128, d32);
      step<9>(acc, v, u, b0, b1, x0, x1, f0, f1, d128, d32);
      step<10>(acc, u, v, b0, b1, x0, x1, f0, f1, d128, d32);
      step<11>(acc, v, u, b0, b1, x0, x1, f0, f1, d128, d32);
      step<12>(acc, u, v, b0, b1, x0, x1, f0, f1, d128, d32);
      wg_wait0();
#pragma unroll
      for (int i = 0; i < 48; ++i) asm volatile("" : "+f"(acc[i]) :: "memory");

      // the band has been read
      __syncwarp();
      if (lane == 0) mbar_arrive(barEmpty + 8 * buf);
      __syncwarp();

      // epilogue: 16 channels x 64 pixels at a time through shared memory
      {
        const int mA = tb + lane;
        const int mB = mA + 32;
        const bool okA = mA < M;
        const bool okB = mB < M;
        const int nA = mA / 3025;
        const int nB = mB / 3025;
        float* oA = out + (long long)nA * 290400 + (mA - nA * 3025) + 2 * w * 3025;
        float* oB = out + (long long)nB * 290400 + (mB - nB * 3025) + 2 * w * 3025;
#pragma unroll
        for (int i = 0; i < 6; ++i) {
          float* st = stg + (i & 1) * 1024;
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const int gr = 2 * i + h;
            const float4 wb = sWB[4 * gr + q];
            const float2 t0 = *(const float2*)(sT + c0 + 8 * gr);
            const float2 t1 = *(const float2*)(sT + c1 + 8 * gr);
            st[512 * h + w0] = fmaf(acc[4 * gr + 0] * wb.x, s0, fmaf(m0, t0.x, wb.z));
            st[512 * h + w0 + 64] = fmaf(acc[4 * gr + 1] * wb.y, s0, fmaf(m0, t0.y, wb.w));
            st[512 * h + w1] = fmaf(acc[4 * gr + 2] * wb.x, s1, fmaf(m1, t1.x, wb.z));
            st[512 * h + w1 + 64] = fmaf(acc[4 * gr + 3] * wb.y, s1, fmaf(m1, t1.y, wb.w));
          }
          bar128(wg + 1);
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const int ch = 16 * i + 8 * h;
            const float y0 = st[512 * h + rd];
            const float y1 = st[512 * h + rd + 32];
            const float y2 = st[512 * h + rd + 64];
            const float y3 = st[512 * h + rd + 96];
            if (okA) {
              __stcs(oA + ch * 3025, y0);
              __stcs(oA + (ch + 1) * 3025, y2);
            }
            if (okB) {
              __stcs(oB + ch * 3025, y1);
              __stcs(oB + (ch + 1) * 3025, y3);
            }
          }
        }
      }
    }
  }
}

// every other shape: plain fp32
extern "C" __global__ void conv_generic(const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ bias, float* __restrict__ out, int C, int H, int W, int CO, int KH, int KW, int S, int P, int OH, int OW, long long total) {
  const long long idx = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (idx >= total) return;
  const int ow = (int)(idx % OW);
  long long rest = idx / OW;
  const int oh = (int)(rest % OH);
  rest /= OH;
  const int co = (int)(rest % CO);
  const long long n = rest / CO;
  const int ih0 = oh * S - P;
  const int iw0 = ow * S - P;
  const int kh0 = max(0, -ih0);
  const int kh1 = min(KH, H - ih0);
  const int kw0 = max(0, -iw0);
  const int kw1 = min(KW, W - iw0);
  float acc = 0.0f;
  for (int c = 0; c < C; ++c) {
    const float* xc = x + (n * C + c) * (long long)H * W;
    const float* wc = w + ((long long)co * C + c) * KH * KW;
    for (int kh = kh0; kh < kh1; ++kh) {
      const float* xr = xc + (long long)(ih0 + kh) * W + iw0;
      const float* wr = wc + kh * KW;
      for (int kw = kw0; kw < kw1; ++kw) acc = fmaf(xr[kw], wr[kw], acc);
    }
  }
  out[idx] = acc + bias[co];
}
"""

k = jit.cuda(_SRC)

_SMEM = 1024 + 225488


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, stride=stride, padding=padding)
        self.packed = None
        self.tsum = None
        self.wscale = None
        self.sms = None

    def _special(self):
        c = self.conv
        return (
            tuple(c.weight.shape) == (96, 3, 11, 11)
            and tuple(c.stride) == (4, 4)
            and tuple(c.padding) == (2, 2)
        )

    def prepare(self):
        w = self.conv.weight.detach()
        if not (self._special() and w.is_cuda):
            return
        packed = torch.empty(38400, device=w.device, dtype=torch.float16)
        tsum = torch.empty(864, device=w.device, dtype=torch.float32)
        wscale = torch.empty(96, device=w.device, dtype=torch.float32)
        k.pack_w[96, 128, 0](w, packed, tsum, wscale)
        self.packed = packed
        self.tsum = tsum
        self.wscale = wscale
        self.sms = torch.cuda.get_device_properties(w.device).multi_processor_count

    def forward(self, x):
        conv = self.conv
        w = conv.weight.detach()
        b = conv.bias.detach()
        n, c, h, wd = x.shape
        co = w.shape[0]
        kh, kw = w.shape[2], w.shape[3]
        s = conv.stride[0]
        p = conv.padding[0]
        oh = (h + 2 * p - kh) // s + 1
        ow = (wd + 2 * p - kw) // s + 1
        out = torch.empty((n, co, oh, ow), device=x.device, dtype=x.dtype)
        if out.numel() == 0:
            return out
        if (
            h == 224
            and wd == 224
            and self._special()
            and n * 3025 < 2000000000
            and x.data_ptr() % 16 == 0
        ):
            if self.packed is None:
                self.prepare()
            m = n * 3025
            nbands = (m + 255) // 256
            grid = min(self.sms, nbands)
            k.conv_main[grid, 640, _SMEM](x, self.packed, self.tsum, self.wscale, b, out, m, nbands)
        else:
            total = out.numel()
            k.conv_generic[(total + 255) // 256, 256, 0](
                x, w, b, out, c, h, wd, co, kh, kw, s, p, oh, ow, total
            )
        return out
