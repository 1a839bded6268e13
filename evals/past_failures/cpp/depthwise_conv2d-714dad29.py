import torch
from torch import nn
from agentgen import jit

lib = jit.cpp(r"""
#include <cstdint>
#include <cstring>
#include <vector>
#include <omp.h>
#if defined(__AVX512F__) && defined(__AVX512BW__)
#include <immintrin.h>
#define DW_AVX512 1
#endif

static inline float bf16_to_float(uint16_t h) {
  uint32_t u = ((uint32_t)h) << 16;
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}

static inline uint16_t float_to_bf16(float f) {
  uint32_t u;
  std::memcpy(&u, &f, 4);
  if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)0x7fc0;
  u += 0x7fffu + ((u >> 16) & 1u);
  return (uint16_t)(u >> 16);
}

static inline void convert_row(const uint16_t* __restrict x, float* __restrict d, int64_t n) {
  int64_t j = 0;
#ifdef DW_AVX512
  for (; j + 16 <= n; j += 16) {
    const __m256i h = _mm256_loadu_si256((const __m256i*)(x + j));
    const __m512i u = _mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16);
    _mm512_storeu_ps(d + j, _mm512_castsi512_ps(u));
  }
#endif
  for (; j < n; ++j) d[j] = bf16_to_float(x[j]);
}

#ifdef DW_AVX512

#ifndef __AVX512BF16__
alignas(64) static const uint16_t kOddWords[32] = {
    1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
    33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};

static inline __attribute__((always_inline)) __m512i round_bits(__m512 v) {
  const __m512i u = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  return _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
}
#endif

// 32 bf16, round to nearest even: lo first, then hi
static inline __attribute__((always_inline)) __m512i pack2(__m512 lo, __m512 hi) {
#ifdef __AVX512BF16__
  return (__m512i)_mm512_cvtne2ps_pbh(hi, lo);
#else
  const __m512i idx = _mm512_loadu_si512((const void*)kOddWords);
  return _mm512_permutex2var_epi16(round_bits(lo), idx, round_bits(hi));
#endif
}

// sums over the three rows, for the left, centre and right tap, of 16 aligned columns
static inline __attribute__((always_inline)) void taps(
    const float* a, const float* b, const float* c, int64_t o, const __m512 (&w)[9],
    __m512& L, __m512& C, __m512& R) {
  const __m512 xa = _mm512_loadu_ps(a + o);
  const __m512 xb = _mm512_loadu_ps(b + o);
  const __m512 xc = _mm512_loadu_ps(c + o);
  L = _mm512_fmadd_ps(xc, w[6], _mm512_fmadd_ps(xb, w[3], _mm512_mul_ps(xa, w[0])));
  C = _mm512_fmadd_ps(xc, w[7], _mm512_fmadd_ps(xb, w[4], _mm512_mul_ps(xa, w[1])));
  R = _mm512_fmadd_ps(xc, w[8], _mm512_fmadd_ps(xb, w[5], _mm512_mul_ps(xa, w[2])));
}

// out[j] = L[j - 1] + C[j] + R[j + 1]
static inline __attribute__((always_inline)) __m512 join(
    __m512 Lbefore, __m512 L, __m512 C, __m512 R, __m512 Rafter) {
  const __m512 l = _mm512_castsi512_ps(
      _mm512_alignr_epi32(_mm512_castps_si512(L), _mm512_castps_si512(Lbefore), 15));
  const __m512 r = _mm512_castsi512_ps(
      _mm512_alignr_epi32(_mm512_castps_si512(Rafter), _mm512_castps_si512(R), 1));
  return _mm512_add_ps(_mm512_add_ps(l, C), r);
}

// One output row, 3x3, padding 1. a, b, c: column 0 of three ring rows; what lies right of
// column n in them is zero for at least 32 columns.
template <int CW>
static inline __attribute__((always_inline)) void row33(
    const float* a, const float* b, const float* c, const float* wc, uint16_t* y, int64_t nrt) {
  const int64_t n = CW ? (int64_t)CW : nrt;
  __m512 w[9];
  for (int i = 0; i < 9; ++i) w[i] = _mm512_set1_ps(wc[i]);
  __m512 Lm = _mm512_setzero_ps();
  __m512 L0, C0, R0, L1, C1, R1, L2, C2, R2;
  taps(a, b, c, 0, w, L0, C0, R0);
  int64_t j = 0;
  for (; j + 32 <= n; j += 32) {
    taps(a, b, c, j + 16, w, L1, C1, R1);
    if (j + 32 < n) {
      taps(a, b, c, j + 32, w, L2, C2, R2);
    } else {
      L2 = _mm512_setzero_ps();
      C2 = _mm512_setzero_ps();
      R2 = _mm512_setzero_ps();
    }
    const __m512 o0 = join(Lm, L0, C0, R0, R1);
    const __m512 o1 = join(L0, L1, C1, R1, R2);
    _mm512_storeu_si512((void*)(y + j), pack2(o0, o1));
    Lm = L1;
    L0 = L2;
    C0 = C2;
    R0 = R2;
  }
  if (j < n) {
    taps(a, b, c, j + 16, w, L1, C1, R1);
    taps(a, b, c, j + 32, w, L2, C2, R2);
    const __m512 o0 = join(Lm, L0, C0, R0, R1);
    const __m512 o1 = join(L0, L1, C1, R1, R2);
    const __mmask32 mask = (__mmask32)((1u << (unsigned)(n - j)) - 1u);
    _mm512_mask_storeu_epi16((void*)(y + j), mask, pack2(o0, o1));
  }
}

#endif

// One output row, any kernel size. rp[ky]: the ring row's column -padding.
template <int K>
static inline void row_any(const float* const* rp, const float* wc, uint16_t* y, int64_t n,
                           int64_t khrt, int64_t kwrt) {
  const int64_t KH = K ? (int64_t)K : khrt;
  const int64_t KW = K ? (int64_t)K : kwrt;
  for (int64_t j = 0; j < n; j += 16) {
    float acc[16];
    for (int l = 0; l < 16; ++l) acc[l] = 0.0f;
    for (int64_t ky = 0; ky < KH; ++ky) {
      const float* r = rp[ky] + j;
      for (int64_t kx = 0; kx < KW; ++kx) {
        const float wv = wc[ky * KW + kx];
        for (int l = 0; l < 16; ++l) acc[l] += wv * r[kx + l];
      }
    }
    const int m = n - j < 16 ? (int)(n - j) : 16;
    for (int l = 0; l < m; ++l) y[j + l] = float_to_bf16(acc[l]);
  }
}

// Planes lo..hi. M33: 3x3 with padding 1; CW: the width when known at compile time, else 0.
template <bool M33, int CW>
static void do_planes(const uint16_t* x, const float* w, uint16_t* y, int64_t lo, int64_t hi,
                      int64_t channels, int64_t H, int64_t Wrt, int64_t KHrt, int64_t KWrt,
                      int64_t PHrt, int64_t PWrt) {
  if (lo >= hi) return;
  const int64_t W = CW ? (int64_t)CW : Wrt;
  const int64_t KH = M33 ? 3 : KHrt;
  const int64_t KW = M33 ? 3 : KWrt;
  const int64_t PH = M33 ? 1 : PHrt;
  const int64_t PW = M33 ? 1 : PWrt;
  const int64_t OH = H + 2 * PH - KH + 1;
  const int64_t OW = W + 2 * PW - KW + 1;
  const int64_t slots = KH + 1;

  // Ring rows: D columns (the last PW of them the left border), the row, zeros to the right.
  const int64_t D = (PW + 15) / 16 * 16;
  const int64_t nvw = (W + 15) / 16 + 2;
  const int64_t nvo = (OW + 15) / 16 + 2 + (KW + 15) / 16;
  const int64_t pitch = D + 16 * (nvw > nvo ? nvw : nvo);

  static thread_local std::vector<float> store;
  static thread_local std::vector<const float*> rows;
  store.assign((size_t)((slots + 1) * pitch + 16), 0.0f);
  rows.assign((size_t)KH, (const float*)nullptr);
  float* base = (float*)((((uintptr_t)store.data()) + 63) / 64 * 64);
  const float* zero_row = base;      // stays zero
  float* ring = base + pitch;        // borders stay zero: only W columns from D on are written
  const float** rp = rows.data();

  const int64_t ahead = 2240;        // elements: 4480 bytes, always in a later page
  const uint16_t* x_end = x + hi * H * W;
  const uint16_t* y_end = y + hi * OH * OW;
  {
    const uint16_t* p = x + lo * H * W;
    for (int64_t e = 0; e < ahead && p + e < x_end; e += 32)
      __builtin_prefetch((const void*)(p + e), 0, 3);
  }

  for (int64_t plane = lo; plane < hi; ++plane) {
    const uint16_t* xp = x + plane * H * W;
    uint16_t* yp = y + plane * OH * OW;
    const float* wc = w + (plane % channels) * KH * KW;
    int64_t done = 0;
    for (int64_t o = 0; o < OH; ++o) {
      // rows o - PH .. o - PH + KH - 1 are needed now, one more is converted ahead
      int64_t need = o - PH + KH + 1;
      if (need > H) need = H;
      for (; done < need; ++done) {
        const uint16_t* src = xp + done * W;
        if (x_end - src > ahead) {
          const uint16_t* pf = src + ahead;
          for (int64_t e = 0; e < W; e += 32) __builtin_prefetch((const void*)(pf + e), 0, 3);
        }
        const int64_t slot = M33 ? (done & 3) : (done % slots);
        convert_row(src, ring + slot * pitch + D, W);
      }

      for (int64_t ky = 0; ky < KH; ++ky) {
        const int64_t i = o - PH + ky;
        if (i >= 0 && i < H) {
          const int64_t slot = M33 ? (i & 3) : (i % slots);
          rp[ky] = ring + slot * pitch + (D - PW);
        } else {
          rp[ky] = zero_row + (D - PW);
        }
      }

      uint16_t* yrow = yp + o * OW;
      if (y_end - yrow > 2 * OW) {
        const uint16_t* pf = yrow + 2 * OW;
        for (int64_t e = 0; e < OW; e += 32) __builtin_prefetch((const void*)(pf + e), 1, 3);
      }

#ifdef DW_AVX512
      if constexpr (M33) {
        row33<CW>(rp[0] + 1, rp[1] + 1, rp[2] + 1, wc, yrow, OW);
      } else
#endif
      {
        if (KH == 3 && KW == 3)
          row_any<3>(rp, wc, yrow, OW, KH, KW);
        else
          row_any<0>(rp, wc, yrow, OW, KH, KW);
      }
    }
  }
}

extern "C" void depthwise_conv(int64_t input, const float* weight, int64_t output, int64_t planes,
                               int64_t channels, int64_t height, int64_t width, int64_t kh,
                               int64_t kw, int64_t ph, int64_t pw) {
  const uint16_t* x = (const uint16_t*)(uintptr_t)input;
  uint16_t* y = (uint16_t*)(uintptr_t)output;
  if (planes <= 0 || channels <= 0) return;
  if (height + 2 * ph - kh + 1 <= 0 || width + 2 * pw - kw + 1 <= 0) return;
  int64_t want = (int64_t)omp_get_max_threads();
  if (want > planes) want = planes;
  if (want < 1) want = 1;
  const bool m33 = kh == 3 && kw == 3 && ph == 1 && pw == 1;
  #pragma omp parallel num_threads((int)want)
  {
    const int64_t nt = omp_get_num_threads();
    const int64_t id = omp_get_thread_num();
    const int64_t lo = planes * id / nt;
    const int64_t hi = planes * (id + 1) / nt;
    if (m33 && width == 160)
      do_planes<true, 160>(x, weight, y, lo, hi, channels, height, width, kh, kw, ph, pw);
    else if (m33)
      do_planes<true, 0>(x, weight, y, lo, hi, channels, height, width, kh, kw, ph, pw);
    else
      do_planes<false, 0>(x, weight, y, lo, hi, channels, height, width, kh, kw, ph, pw);
  }
}
""", options=())


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size, padding):
        super().__init__()
        self.conv = nn.Conv2d(
            channels, channels, kernel_size, padding=padding, groups=channels, bias=False, dtype=torch.bfloat16
        )

    def prepare(self):
        # (channels, 1, kh, kw) in fp32, exact
        self.packed = self.conv.weight.detach().to(torch.float32).contiguous()

    def forward(self, x):
        x = x.contiguous()
        batch, channels, height, width = x.shape
        kh, kw = self.conv.weight.shape[2], self.conv.weight.shape[3]
        ph, pw = self.conv.padding
        out = torch.empty(
            (batch, channels, height + 2 * ph - kh + 1, width + 2 * pw - kw + 1),
            dtype=torch.bfloat16, device=x.device,
        )
        # bf16 tensors go in by address (their elements are read as 16-bit words)
        lib.depthwise_conv(
            x.data_ptr(), self.packed, out.data_ptr(), batch * channels, channels,
            height, width, kh, kw, ph, pw,
        )
        return out
