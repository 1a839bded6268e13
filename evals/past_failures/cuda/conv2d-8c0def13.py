import torch
from torch import nn
from agentgen import jit

_SRC = r"""
#include <cuda_fp16.h>

// ---------------------------------------------------------------- helpers
// power-of-two exponent k with a * 2^k in [2^13, 2^14)
__device__ __forceinline__ int scale_exponent(float a) {
  int eb = (__float_as_int(a) >> 23) & 255;
  if (a == 0.0f || eb == 255) return 0;
  int k = 13 - (eb - 127);
  k = k > 120 ? 120 : k;
  k = k < -120 ? -120 : k;
  return k;
}

__device__ __forceinline__ float pow2i(int k) { return __int_as_float((k + 127) << 23); }

__device__ __forceinline__ void mma16816(float (&d)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                                         unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void cp_async16(void* dst_shared, const void* src) {
  unsigned d = (unsigned)__cvta_generic_to_shared(dst_shared);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" :: "r"(d), "l"(src) : "memory");
}

// ---------------------------------------------------------------- weight packing (96 channels, 3x11x11)
// wp : 25 steps x 6 pairs of n8 tiles x 32 lanes x 8 halves (fragment order)
// cst: T[9][96] | 2^-kw [96] | bias [96]
extern "C" __global__ void pack_weights(const float* __restrict__ w, const float* __restrict__ bias, float* __restrict__ wp, float* __restrict__ cst) {
  __shared__ float red[128];
  const int co = blockIdx.x;
  const int tid = threadIdx.x;
  const float* wc = w + co * 363;
  float a = 0.0f;
  for (int i = tid; i < 363; i += 128) a = fmaxf(a, fabsf(wc[i]));
  red[tid] = a;
  __syncthreads();
  for (int o = 64; o > 0; o >>= 1) {
    if (tid < o) red[tid] = fmaxf(red[tid], red[tid + o]);
    __syncthreads();
  }
  const int k = scale_exponent(red[0]);
  const float s = pow2i(k);
  __half* hp = reinterpret_cast<__half*>(wp);

  // channel -> (n8 tile, column): column n = 2*t + e of tile nt is channel (nt/4)*32 + t*8 + (nt%4)*2 + e
  const int c = co & 31;
  const int nt = (co >> 5) * 4 + ((c >> 1) & 3);
  const int n = ((c >> 3) << 1) + (c & 1);
  for (int kk = tid; kk < 400; kk += 128) {
    int i = kk >> 2, el = kk & 3;
    int st = i >> 2, t = i & 3;
    int r = i / 3, q = i - r * 3;
    int kw = 4 * q + el;
    float v = 0.0f;
    if (i < 99 && kw < 11) {
      int kh = r / 3, ci = r - kh * 3;
      v = wc[ci * 121 + kh * 11 + kw] * s;
    }
    hp[((st * 6 + (nt >> 1)) * 32 + (n * 4 + t)) * 8 + (nt & 1) * 4 + el] = __float2half_rn(v);
  }
  if (tid < 9) {
    int rc = tid / 3, cc = tid - rc * 3;
    int h0 = rc == 0 ? 2 : 0, h1 = rc == 2 ? 10 : 11;
    int w0 = cc == 0 ? 2 : 0, w1 = cc == 2 ? 10 : 11;
    double sum = 0.0;
    for (int ci = 0; ci < 3; ++ci)
      for (int kh = h0; kh < h1; ++kh)
        for (int kw = w0; kw < w1; ++kw) sum += (double)wc[ci * 121 + kh * 11 + kw];
    cst[tid * 96 + co] = (float)sum;
  }
  if (tid == 32) cst[864 + co] = pow2i(-k);
  if (tid == 33) cst[960 + co] = bias[co];
}

// ---------------------------------------------------------------- main kernel
// shared memory (bytes): weights 0..76800 | strip 76800..109632 | constants 109632..113856 | reductions ..113952
extern "C" __global__ void __launch_bounds__(224, 2) conv_main(const float* __restrict__ x, const float* __restrict__ wp, const float* __restrict__ cst, float* __restrict__ y, int units) {
  extern __shared__ __align__(128) unsigned char smem[];
  unsigned char* strip = smem + 76800;
  float* obuf = reinterpret_cast<float*>(smem + 76800);
  float* sc = reinterpret_cast<float*>(smem + 109632);
  float* red = reinterpret_cast<float*>(smem + 113856);

  const int tid = threadIdx.x;
  const int lane = tid & 31;
  const int warp = tid >> 5;
  const int g = lane >> 2;
  const int t = lane & 3;
  const int col4 = tid % 56;
  const int l0 = tid / 56;

  // weights and constants, once per block
  for (int i = tid; i < 4800; i += 224) cp_async16(smem + i * 16, reinterpret_cast<const unsigned char*>(wp) + i * 16);
  for (int i = tid; i < 264; i += 224) cp_async16(smem + 109632 + i * 16, reinterpret_cast<const unsigned char*>(cst) + i * 16);
  asm volatile("cp.async.commit_group;\n" ::: "memory");

  for (int unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const int n = unit / 14;
    const int st = unit - n * 14;
    const int ih0 = st * 16 - 2;

    // ---- stage the strip: 23 rows x 3 channels x 224
    {
      const float* xn = x + (long long)n * 150528;
      float4 v[18];
      unsigned vm = 0u;
#pragma unroll
      for (int j = 0; j < 18; ++j) {
        int l = l0 + 4 * j;
        int row = l / 3;
        int c = l - row * 3;
        int ih = ih0 + row;
        bool ok = (l < 69) && ((unsigned)ih < 224u);
        v[j] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (ok) {
          v[j] = __ldg(reinterpret_cast<const float4*>(xn + (c * 224 + ih) * 224 + 4 * col4));
          vm |= 1u << j;
        }
      }
      float sum = 0.0f, mn = 3.402823466e38f, mx = -3.402823466e38f;
#pragma unroll
      for (int j = 0; j < 18; ++j) {
        sum += (v[j].x + v[j].y) + (v[j].z + v[j].w);
        if ((vm >> j) & 1u) {
          mn = fminf(mn, fminf(fminf(v[j].x, v[j].y), fminf(v[j].z, v[j].w)));
          mx = fmaxf(mx, fmaxf(fmaxf(v[j].x, v[j].y), fmaxf(v[j].z, v[j].w)));
        }
      }
#pragma unroll
      for (int o = 16; o > 0; o >>= 1) {
        sum += __shfl_xor_sync(0xffffffffu, sum, o);
        mn = fminf(mn, __shfl_xor_sync(0xffffffffu, mn, o));
        mx = fmaxf(mx, __shfl_xor_sync(0xffffffffu, mx, o));
      }
      if (lane == 0) {
        red[warp] = sum;
        red[7 + warp] = mn;
        red[14 + warp] = mx;
      }
      __syncthreads();   // also: everybody is done reading the strip buffer of the previous unit
      sum = red[0];
      mn = red[7];
      mx = red[14];
#pragma unroll
      for (int i = 1; i < 7; ++i) {
        sum += red[i];
        mn = fminf(mn, red[7 + i]);
        mx = fmaxf(mx, red[14 + i]);
      }
      int lo = ih0 < 0 ? 0 : ih0;
      int hi = ih0 + 23 > 224 ? 224 : ih0 + 23;
      float m = sum / (float)((hi - lo) * 672);
      if (!(fabsf(m) <= 3.402823466e38f)) m = 0.0f;
      const float a = fmaxf(fabsf(mx - m), fabsf(m - mn));
      const int k = scale_exponent(a);
      const float s = pow2i(k);
      if (tid == 0) {
        red[21] = m;
        red[22] = pow2i(-k);
      }
#pragma unroll
      for (int j = 0; j < 18; ++j) {
        unsigned char* line = strip + (l0 + 4 * j) * 456;
        bool ok = (vm >> j) & 1u;
        __half2 p0 = __floats2half2_rn(ok ? s * (v[j].x - m) : 0.0f, ok ? s * (v[j].y - m) : 0.0f);
        __half2 p1 = __floats2half2_rn(ok ? s * (v[j].z - m) : 0.0f, ok ? s * (v[j].w - m) : 0.0f);
        *reinterpret_cast<__half2*>(line + 4 + 8 * col4) = p0;
        *reinterpret_cast<__half2*>(line + 8 + 8 * col4) = p1;
        if (col4 == 0) *reinterpret_cast<unsigned*>(line) = 0u;
        if (col4 == 55) *reinterpret_cast<unsigned*>(line + 452) = 0u;
      }
    }
    asm volatile("cp.async.wait_group 0;\n" ::: "memory");
    __syncthreads();

    // ---- ask for the next strip while we multiply
    {
      int nu = unit + gridDim.x;
      if (nu < units) {
        int n2 = nu / 14;
        int i2 = (nu - n2 * 14) * 16 - 2;
        const float* x2 = x + (long long)n2 * 150528;
        for (int i = tid; i < 483; i += 224) {
          int l = i / 7;
          int seg = i - l * 7;
          int row = l / 3;
          int c = l - row * 3;
          int ih = i2 + row;
          if ((unsigned)ih < 224u) {
            const float* pa = x2 + (c * 224 + ih) * 224 + seg * 32;
            asm volatile("prefetch.global.L2 [%0];\n" :: "l"(pa));
          }
        }
      }
    }

    // ---- multiply: 32 pixels x 96 channels a warp, K = 25 x 16
    float acc[2][12][4];
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < 12; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) acc[i][j][e] = 0.0f;

    {
      int pb[4];
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        int p = warp * 32 + q * 8 + g;
        int r = p / 55;
        int c = p - r * 55;
        pb[q] = p < 220 ? r * 5472 + c * 8 : 0;
      }
      int off[3];
#pragma unroll
      for (int j = 0; j < 3; ++j) {
        int i = 4 * j + t;
        int r = i / 3;
        off[j] = r * 456 + (i - r * 3) * 8;
      }
      const uint4* sb = reinterpret_cast<const uint4*>(smem) + lane;
#pragma unroll
      for (int s = 0; s < 25; ++s) {
        uint2 a[4];
#pragma unroll
        for (int q = 0; q < 4; ++q)
          a[q] = *reinterpret_cast<const uint2*>(strip + (pb[q] + off[s % 3]) + (s / 3) * 1824);
#pragma unroll
        for (int np = 0; np < 6; ++np) {
          uint4 b = sb[(s * 6 + np) * 32];
          mma16816(acc[0][2 * np], a[0].x, a[1].x, a[0].y, a[1].y, b.x, b.y);
          mma16816(acc[1][2 * np], a[2].x, a[3].x, a[2].y, a[3].y, b.x, b.y);
          mma16816(acc[0][2 * np + 1], a[0].x, a[1].x, a[0].y, a[1].y, b.z, b.w);
          mma16816(acc[1][2 * np + 1], a[2].x, a[3].x, a[2].y, a[3].y, b.z, b.w);
        }
      }
    }

    // ---- epilogue: three slices of 32 channels through the strip buffer
    const int oh0 = st * 4;
    const int npix = (55 - oh0 >= 4) ? 220 : (55 - oh0) * 55;
    float* yb = y + (long long)n * 290400 + oh0 * 55;
    const int pix = 4 * col4 - l0;
    const bool full = (pix >= 0) && (pix + 3 < npix);
    int cls[4];
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      int p = warp * 32 + q * 8 + g;
      int r = p / 55;
      int c = p - r * 55;
      int oh = oh0 + r;
      int rc = oh == 0 ? 0 : (oh == 54 ? 2 : 1);
      int cc = c == 0 ? 0 : (c == 54 ? 2 : 1);
      cls[q] = (rc * 3 + cc) * 96;
    }

#pragma unroll
    for (int sl = 0; sl < 3; ++sl) {
      __syncthreads();   // strip (or the previous slice) has been read by everybody
      {
        const float m = red[21];
        const float inv = red[22];
        const int cb = sl * 32 + t * 8;
        float4 wa = *reinterpret_cast<const float4*>(sc + 864 + cb);
        float4 wb = *reinterpret_cast<const float4*>(sc + 864 + cb + 4);
        float4 ba = *reinterpret_cast<const float4*>(sc + 960 + cb);
        float4 bb = *reinterpret_cast<const float4*>(sc + 960 + cb + 4);
        const float wv[8] = {wa.x, wa.y, wa.z, wa.w, wb.x, wb.y, wb.z, wb.w};
        const float bv[8] = {ba.x, ba.y, ba.z, ba.w, bb.x, bb.y, bb.z, bb.w};
        // row of channel c (0..31) starts at c*228 + (c/8)*8 + (c%4); here c = t*8 + j
        float* ob = obuf + t * (8 * 228 + 8) + warp * 32 + g;
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          float4 ta = *reinterpret_cast<const float4*>(sc + cls[q] + cb);
          float4 tb = *reinterpret_cast<const float4*>(sc + cls[q] + cb + 4);
          const float tv[8] = {ta.x, ta.y, ta.z, ta.w, tb.x, tb.y, tb.z, tb.w};
#pragma unroll
          for (int j = 0; j < 8; ++j) {
            float r = acc[q >> 1][sl * 4 + (j >> 1)][(q & 1) * 2 + (j & 1)] * wv[j];
            ob[j * 228 + (j & 3) + q * 8] = fmaf(r, inv, fmaf(m, tv[j], bv[j]));
          }
        }
      }
      __syncthreads();
#pragma unroll
      for (int it = 0; it < 8; ++it) {
        const int c = l0 + 4 * it;           // c % 4 == l0, c / 8 == it / 2
        float4 o = *reinterpret_cast<const float4*>(obuf + c * 228 + (it >> 1) * 8 + 4 * col4);
        float* dst = yb + (sl * 32 + c) * 3025 + pix;   // 16-byte aligned by construction
        if (full) {
          __stcs(reinterpret_cast<float4*>(dst), o);
        } else {
          if (pix >= 0 && pix < npix) dst[0] = o.x;
          if (pix + 1 >= 0 && pix + 1 < npix) dst[1] = o.y;
          if (pix + 2 >= 0 && pix + 2 < npix) dst[2] = o.z;
          if (pix + 3 >= 0 && pix + 3 < npix) dst[3] = o.w;
        }
      }
    }
  }
  asm volatile("cp.async.wait_group 0;\n" ::: "memory");
}

// ---------------------------------------------------------------- any other shape: plain fp32
extern "C" __global__ void conv_direct(const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ bias, float* __restrict__ y, long long total, int C, int H, int W, int CO, int KH, int KW, int OH, int OW, int sh, int sw, int ph, int pw, int has_bias) {
  long long step = (long long)gridDim.x * blockDim.x;
  for (long long idx = (long long)blockIdx.x * blockDim.x + threadIdx.x; idx < total; idx += step) {
    int ow = (int)(idx % OW);
    long long r = idx / OW;
    int oh = (int)(r % OH);
    r /= OH;
    int co = (int)(r % CO);
    long long n = r / CO;
    int ih0 = oh * sh - ph;
    int iw0 = ow * sw - pw;
    float acc = 0.0f;
    for (int c = 0; c < C; ++c) {
      const float* xc = x + (n * C + c) * (long long)H * W;
      const float* wc = w + ((long long)co * C + c) * KH * KW;
      for (int kh = 0; kh < KH; ++kh) {
        int ih = ih0 + kh;
        if (ih < 0 || ih >= H) continue;
        const float* xr = xc + (long long)ih * W;
        const float* wr = wc + kh * KW;
        for (int kw = 0; kw < KW; ++kw) {
          int iw = iw0 + kw;
          if (iw >= 0 && iw < W) acc = fmaf(xr[iw], wr[kw], acc);
        }
      }
    }
    if (has_bias) acc += bias[co];
    y[idx] = acc;
  }
}
"""

k = jit.cuda(_SRC)

_SMEM = 113952


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, stride=stride, padding=padding)
        self.packed = None
        self.consts = None
        self.sms = 0

    def _special(self):
        c = self.conv
        return (
            tuple(c.weight.shape) == (96, 3, 11, 11)
            and tuple(c.stride) == (4, 4)
            and tuple(c.padding) == (2, 2)
        )

    def prepare(self):
        self.packed = None
        self.consts = None
        w = self.conv.weight.detach()
        if not w.is_cuda or not self._special():
            return
        w = w.contiguous()
        if self.conv.bias is None:
            b = torch.zeros(96, dtype=torch.float32, device=w.device)
        else:
            b = self.conv.bias.detach().contiguous()
        packed = torch.empty(19200, dtype=torch.float32, device=w.device)
        consts = torch.empty(1056, dtype=torch.float32, device=w.device)
        k.pack_weights[96, 128, 0](w, b, packed, consts)
        self.packed = packed
        self.consts = consts
        self.sms = torch.cuda.get_device_properties(w.device).multi_processor_count

    def forward(self, x):
        conv = self.conv
        n, c, h, wd = x.shape
        if (
            c == 3
            and h == 224
            and wd == 224
            and self._special()
            and x.data_ptr() % 16 == 0
        ):
            if self.packed is None:
                self.prepare()
            y = torch.empty((n, 96, 55, 55), dtype=x.dtype, device=x.device)
            units = n * 14
            if units > 0:
                grid = min(units, 2 * self.sms)
                k.conv_main[grid, 224, _SMEM](x, self.packed, self.consts, y, units)
            return y

        w = conv.weight.detach()
        co, _, kh, kw = w.shape
        sh, sw = conv.stride
        ph, pw = conv.padding
        oh = (h + 2 * ph - kh) // sh + 1
        ow = (wd + 2 * pw - kw) // sw + 1
        y = torch.empty((n, co, oh, ow), dtype=x.dtype, device=x.device)
        total = y.numel()
        if total > 0:
            has_bias = 0 if conv.bias is None else 1
            b = w if conv.bias is None else conv.bias.detach()
            grid = min((total + 127) // 128, 1 << 20)
            k.conv_direct[grid, 128, 0](
                x, w, b, y, total, c, h, wd, co, kh, kw, oh, ow, sh, sw, ph, pw, has_bias
            )
        return y
