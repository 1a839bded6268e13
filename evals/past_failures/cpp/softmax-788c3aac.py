import torch
from torch import nn
from agentgen import jit

lib = jit.cpp(r"""
#include <cstdint>
#include <cstddef>
#include <cmath>
#include <cfloat>
#include <limits>
#include <vector>
#include <immintrin.h>
#include <omp.h>
#if defined(__linux__)
#include <sys/mman.h>
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#endif

#define AI static inline __attribute__((always_inline))

#if defined(__AVX512F__)

#define HAVE_VEC 1
typedef __m512 V;
static constexpr int W = 16;
AI V vload(const float* p) { return _mm512_loadu_ps(p); }
AI void vstore(float* p, V a) { _mm512_storeu_ps(p, a); }
AI void vstream(float* p, V a) { _mm512_stream_ps(p, a); }
AI V vset(float a) { return _mm512_set1_ps(a); }
AI V vmax(V a, V b) { return _mm512_max_ps(a, b); }
AI V vadd(V a, V b) { return _mm512_add_ps(a, b); }
AI V vsub(V a, V b) { return _mm512_sub_ps(a, b); }
AI V vmul(V a, V b) { return _mm512_mul_ps(a, b); }
AI V vfma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
AI V vfms(V a, V b, V c) { return _mm512_fmsub_ps(a, b, c); }
AI V vpow2(V z) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(z), 23)); }
AI float hmax(V a) { return _mm512_reduce_max_ps(a); }
AI double hsum(V s) {
  __m256 lo = _mm512_castps512_ps256(s);
  __m256 hi = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(s), 1));
  return _mm512_reduce_add_pd(_mm512_add_pd(_mm512_cvtps_pd(lo), _mm512_cvtps_pd(hi)));
}

#elif defined(__AVX2__) && defined(__FMA__)

#define HAVE_VEC 1
typedef __m256 V;
static constexpr int W = 8;
AI V vload(const float* p) { return _mm256_loadu_ps(p); }
AI void vstore(float* p, V a) { _mm256_storeu_ps(p, a); }
AI void vstream(float* p, V a) { _mm256_stream_ps(p, a); }
AI V vset(float a) { return _mm256_set1_ps(a); }
AI V vmax(V a, V b) { return _mm256_max_ps(a, b); }
AI V vadd(V a, V b) { return _mm256_add_ps(a, b); }
AI V vsub(V a, V b) { return _mm256_sub_ps(a, b); }
AI V vmul(V a, V b) { return _mm256_mul_ps(a, b); }
AI V vfma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
AI V vfms(V a, V b, V c) { return _mm256_fmsub_ps(a, b, c); }
AI V vpow2(V z) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(z), 23)); }
AI float hmax(V a) {
  __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_max_ps(b, _mm_movehl_ps(b, b));
  b = _mm_max_ss(b, _mm_shuffle_ps(b, b, 1));
  return _mm_cvtss_f32(b);
}
AI double hsum(V s) {
  __m256d a = _mm256_add_pd(_mm256_cvtps_pd(_mm256_castps256_ps128(s)),
                            _mm256_cvtps_pd(_mm256_extractf128_ps(s, 1)));
  __m128d b = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
  return _mm_cvtsd_f64(_mm_add_sd(b, _mm_unpackhi_pd(b, b)));
}

#endif

// Pages of this thread's output that are not yet asked for: [cur, end), both page-aligned.
struct Pages { uintptr_t cur, end; };

AI void populate_to(Pages& pg, uintptr_t hi) {
#if defined(__linux__)
  while (__builtin_expect(pg.cur < hi && pg.cur < pg.end, 0)) {
    const uintptr_t left = pg.end - pg.cur;
    const uintptr_t step = left < 65536 ? left : 65536;
    if (madvise((void*)pg.cur, (size_t)step, MADV_POPULATE_WRITE) != 0) {
      pg.cur = pg.end;                       // refused: ordinary page faults from here on
      return;
    }
    pg.cur += step;
  }
#else
  (void)pg; (void)hi;
#endif
}

#ifdef HAVE_VEC

static constexpr int W4 = 4 * W;            // floats per step
static constexpr int64_t BLK = 1024;        // floats per block: 4 KB, a multiple of W4

// exp(d) = 2^n * 2^f; the magic constant is 1.5 * 2^23 + 127, so that the low
// bits of z, shifted by 23, are the bits of 2^n (exactly zero at n = -127).
#define LOG2E 1.44269504088896341f
#define MAGIC 12583039.0f
#define DMIN  -88.0297f
#define C0 1.0f
#define C1 0.693147207f
#define C2 0.240221092f
#define C3 0.0555032746f
#define C4 0.00967589235f
#define C5 0.00134002887f

AI V exp1(const V x, const V ref) {
  const V d = vmax(vset(DMIN), vsub(x, ref));   // second operand is kept if it is NaN
  const V z = vfma(d, vset(LOG2E), vset(MAGIC));
  const V f = vfms(d, vset(LOG2E), vsub(z, vset(MAGIC)));
  V p = vfma(vset(C5), f, vset(C4));
  p = vfma(p, f, vset(C3));
  p = vfma(p, f, vset(C2));
  p = vfma(p, f, vset(C1));
  p = vfma(p, f, vset(C0));
  return vmul(p, vpow2(z));
}

// Four vectors of exp(x - ref) into e; returns their sum.
AI V exp4(const float* x, float* e, const V ref) {
  const V L = vset(LOG2E), M = vset(MAGIC), C = vset(DMIN);
  V f0 = vmax(C, vsub(vload(x), ref));
  V f1 = vmax(C, vsub(vload(x + W), ref));
  V f2 = vmax(C, vsub(vload(x + 2 * W), ref));
  V f3 = vmax(C, vsub(vload(x + 3 * W), ref));
  const V z0 = vfma(f0, L, M);
  const V z1 = vfma(f1, L, M);
  const V z2 = vfma(f2, L, M);
  const V z3 = vfma(f3, L, M);
  f0 = vfms(f0, L, vsub(z0, M));
  f1 = vfms(f1, L, vsub(z1, M));
  f2 = vfms(f2, L, vsub(z2, M));
  f3 = vfms(f3, L, vsub(z3, M));
  V p0 = vfma(vset(C5), f0, vset(C4));
  V p1 = vfma(vset(C5), f1, vset(C4));
  V p2 = vfma(vset(C5), f2, vset(C4));
  V p3 = vfma(vset(C5), f3, vset(C4));
  p0 = vfma(p0, f0, vset(C3));
  p1 = vfma(p1, f1, vset(C3));
  p2 = vfma(p2, f2, vset(C3));
  p3 = vfma(p3, f3, vset(C3));
  p0 = vfma(p0, f0, vset(C2));
  p1 = vfma(p1, f1, vset(C2));
  p2 = vfma(p2, f2, vset(C2));
  p3 = vfma(p3, f3, vset(C2));
  p0 = vfma(p0, f0, vset(C1));
  p1 = vfma(p1, f1, vset(C1));
  p2 = vfma(p2, f2, vset(C1));
  p3 = vfma(p3, f3, vset(C1));
  p0 = vfma(p0, f0, vset(C0));
  p1 = vfma(p1, f1, vset(C0));
  p2 = vfma(p2, f2, vset(C0));
  p3 = vfma(p3, f3, vset(C0));
  p0 = vmul(p0, vpow2(z0));
  p1 = vmul(p1, vpow2(z1));
  p2 = vmul(p2, vpow2(z2));
  p3 = vmul(p3, vpow2(z3));
  vstore(e, p0);
  vstore(e + W, p1);
  vstore(e + 2 * W, p2);
  vstore(e + 3 * W, p3);
  return vadd(vadd(p0, p1), vadd(p2, p3));
}

// r < W elements, padded with -inf
AI V load_part(const float* x, int64_t r) {
  alignas(64) float buf[W];
  for (int k = 0; k < W; ++k) buf[k] = -std::numeric_limits<float>::infinity();
  for (int64_t k = 0; k < r; ++k) buf[k] = x[k];
  return vload(buf);
}

// Maximum of one block, at least -FLT_MAX, NaN skipped.
AI float block_max(const float* x, int64_t len, int64_t l4, int64_t l1) {
  V a0 = vset(-FLT_MAX), a1 = a0, a2 = a0, a3 = a0;
  for (int64_t i = 0; i < l4; i += W4) {
    a0 = vmax(vload(x + i), a0);
    a1 = vmax(vload(x + i + W), a1);
    a2 = vmax(vload(x + i + 2 * W), a2);
    a3 = vmax(vload(x + i + 3 * W), a3);
  }
  for (int64_t i = l4; i < l1; i += W) a0 = vmax(vload(x + i), a0);
  if (l1 < len) a1 = vmax(load_part(x + l1, len - l1), a1);
  return hmax(vmax(vmax(a0, a1), vmax(a2, a3)));
}

template <bool NT>
AI void put(float* y, V a) {
  if (NT) vstream(y, a); else vstore(y, a);
}

// EXP: exponentials of row x into the scratch e, references of its blocks into refs;
//      returns their sum relative to the last reference.
// SCALE: the row that lies in e, times its block scales, goes to y (before e is overwritten).
// next: the row that follows x, to fetch its first block, or null.
template <bool EXP, bool SCALE, bool NT>
static __attribute__((noinline)) double step(const float* x, const float* next, float* e, float* refs,
                                             const float* scales, float* y, int64_t n, Pages& pg) {
  float m = -FLT_MAX;
  double S = 0.0;
  int64_t j = 0;
  for (int64_t b = 0; b < n; b += BLK, ++j) {
    const int64_t len = (n - b < BLK) ? (n - b) : BLK;
    const int64_t l4 = len - len % W4;
    const int64_t l1 = len - len % W;
    float* eb = e + b;

    const float* xb = nullptr;
    const float* ahead = nullptr;
    if constexpr (EXP) {
      xb = x + b;
      ahead = (b + BLK < n) ? xb + BLK : (next ? next : xb);
      const float bm = block_max(xb, len, l4, l1);
      if (bm > m) {
        if (S > 0.0) S *= std::exp((double)m - (double)bm);
        m = bm;
      }
      refs[j] = m;
    }
    float* yb = nullptr;
    float scale = 0.0f;
    if constexpr (SCALE) {
      yb = y + b;
      scale = scales[j];
      populate_to(pg, (uintptr_t)(yb + len));
    }

    const V ref = vset(m);
    const V sc = vset(scale);
    V s = vset(0.0f);
    for (int64_t i = 0; i < l4; i += W4) {
      if constexpr (EXP) {
        for (int k = 0; k < W4; k += 16)
          _mm_prefetch((const char*)(ahead + i + k), _MM_HINT_T0);
      }
      if constexpr (SCALE) {
        const V v0 = vmul(vload(eb + i), sc);
        const V v1 = vmul(vload(eb + i + W), sc);
        const V v2 = vmul(vload(eb + i + 2 * W), sc);
        const V v3 = vmul(vload(eb + i + 3 * W), sc);
        put<NT>(yb + i, v0);
        put<NT>(yb + i + W, v1);
        put<NT>(yb + i + 2 * W, v2);
        put<NT>(yb + i + 3 * W, v3);
      }
      if constexpr (EXP) s = vadd(s, exp4(xb + i, eb + i, ref));
    }
    for (int64_t i = l4; i < l1; i += W) {
      if constexpr (SCALE) put<NT>(yb + i, vmul(vload(eb + i), sc));
      if constexpr (EXP) {
        const V p = exp1(vload(xb + i), ref);
        vstore(eb + i, p);
        s = vadd(s, p);
      }
    }
    if (l1 < len) {
      if constexpr (SCALE) {
        for (int64_t i = l1; i < len; ++i) yb[i] = eb[i] * scale;
      }
      if constexpr (EXP) {                   // the padding adds exactly 0; e has room for it
        const V p = exp1(load_part(xb + l1, len - l1), ref);
        vstore(eb + l1, p);
        s = vadd(s, p);
      }
    }
    if constexpr (EXP) S += hsum(s);
  }
  return S;
}

// scales[k] = exp(refs[k] - last reference) / S; equal neighbours share one exponential.
static void fill_scales(const float* refs, float* scales, int64_t nblk, double S) {
  const double inv = 1.0 / S;
  const float last = refs[nblk - 1];
  float prev = last;
  double f = inv;
  for (int64_t k = nblk - 1; k >= 0; --k) {
    if (refs[k] != prev) {
      prev = refs[k];
      f = std::exp((double)prev - (double)last) * inv;
    }
    scales[k] = (float)f;
  }
}

template <bool NT>
static void do_rows_t(const float* x, float* y, int64_t r0, int64_t r1, int64_t n, Pages pg) {
  static thread_local std::vector<float> store;
  const int64_t npad = (n + 15) / 16 * 16;
  const int64_t nblk = (n + BLK - 1) / BLK;
  const size_t need = (size_t)(npad + 2 * nblk + 16);     // 16 floats to align by
  if (store.size() < need) store.resize(need);
  float* e = (float*)(((uintptr_t)store.data() + 63) & ~(uintptr_t)63);
  float* refs = e + npad;
  float* scales = refs + nblk;

  double S = step<true, false, NT>(x + r0 * n, (r0 + 1 < r1) ? x + (r0 + 1) * n : nullptr,
                                   e, refs, scales, nullptr, n, pg);
  fill_scales(refs, scales, nblk, S);
  for (int64_t r = r0; r + 1 < r1; ++r) {
    S = step<true, true, NT>(x + (r + 1) * n, (r + 2 < r1) ? x + (r + 2) * n : nullptr,
                             e, refs, scales, y + r * n, n, pg);
    fill_scales(refs, scales, nblk, S);
  }
  step<false, true, NT>(nullptr, nullptr, e, refs, scales, y + (r1 - 1) * n, n, pg);
  if (NT) _mm_sfence();
}

static void do_rows(const float* x, float* y, int64_t r0, int64_t r1, int64_t n, Pages pg, bool big) {
  const bool nt = big && (n % W == 0) && (((uintptr_t)y) % (W * sizeof(float)) == 0);
  if (nt) do_rows_t<true>(x, y, r0, r1, n, pg);
  else    do_rows_t<false>(x, y, r0, r1, n, pg);
}

#else

static void do_rows(const float* x, float* y, int64_t r0, int64_t r1, int64_t n, Pages pg, bool) {
  for (int64_t r = r0; r < r1; ++r) {
    const float* xr = x + r * n;
    float* yr = y + r * n;
    populate_to(pg, (uintptr_t)(yr + n));
    float m = -FLT_MAX;
    for (int64_t i = 0; i < n; ++i) m = (xr[i] > m) ? xr[i] : m;
    double S = 0.0;
    for (int64_t i = 0; i < n; ++i) {
      const float t = std::exp(xr[i] - m);
      yr[i] = t;
      S += (double)t;
    }
    const float inv = (float)(1.0 / S);
    for (int64_t i = 0; i < n; ++i) yr[i] *= inv;
  }
}

#endif

extern "C" void rows_forward(const float* __restrict x, float* __restrict y, int64_t rows, int64_t n) {
  if (rows <= 0 || n <= 0) return;
  const int64_t total = rows * n;
  const bool big = total > (int64_t(1) << 20);            // more than 4 MB of output
  #pragma omp parallel if (total > 16384)
  {
    const int64_t nth = omp_get_num_threads();
    const int64_t t = omp_get_thread_num();
    const int64_t r0 = rows * t / nth;
    const int64_t r1 = rows * (t + 1) / nth;
    if (r0 < r1) {
      Pages pg = {0, 0};
      if (big) {                                          // whole pages inside this thread's rows
        const uintptr_t page = 4096;
        pg.cur = ((uintptr_t)(y + r0 * n) + page - 1) & ~(page - 1);
        pg.end = ((uintptr_t)(y + r1 * n)) & ~(page - 1);
        if (pg.end < pg.cur) pg.end = pg.cur;
      }
      do_rows(x, y, r0, r1, n, pg, big);
    }
  }
}
""", options=())


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        y = torch.empty_like(x)
        lib.rows_forward(x, y, x.shape[0], x.shape[1])
        return y
