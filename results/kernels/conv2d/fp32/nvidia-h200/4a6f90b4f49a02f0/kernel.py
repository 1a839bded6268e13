import math

import torch
from torch import nn
from agentgen import jit

k = jit.cuda(r"""
#include <cuda_fp16.h>

typedef unsigned int u32;
typedef unsigned long long u64;

// shared memory map (bytes from a 128-byte aligned base)
#define W_BYTES   153600
#define RING_OFF  153600
#define PSTRIDE   6208          /* 388 slots of 16 bytes: 384 used, 4 of padding */
#define RING_WRAP 6144u         /* 384 slots */
#define TAB_OFF   228096
#define WINV_OFF  228496
#define BIAS_OFF  228880
#define MAX_OFF   229264
#define BAR_OFF   229280

__device__ __forceinline__ void mbar_init(u32 bar, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(count) : "memory");
}
__device__ __forceinline__ void mbar_arrive(u32 bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(bar) : "memory");
}
__device__ __forceinline__ void mbar_expect(u32 bar, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(bytes) : "memory");
}
__device__ __forceinline__ void mbar_wait(u32 bar, u32 parity) {
  u32 ok;
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
__device__ __forceinline__ void bulk_copy(u32 dst, const void* src, u32 bytes, u32 bar) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
      :: "r"(dst), "l"(src), "r"(bytes), "r"(bar) : "memory");
}
__device__ __forceinline__ void cp8(u32 dst, const void* src, u32 src_bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;"
               :: "r"(dst), "l"(src), "r"(src_bytes) : "memory");
}
__device__ __forceinline__ void wg_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wg_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int N>
__device__ __forceinline__ void wg_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory");
}
__device__ __forceinline__ void pin48(float (&d)[48]) {
#pragma unroll
  for (int i = 0; i < 48; ++i) asm volatile("" : "+f"(d[i]) :: "memory");
}

__device__ __forceinline__ void mma96(float (&d)[48], const u32 (&a)[4], u64 desc, int scale_d) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %53, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
      "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
      "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, "
      "{%48, %49, %50, %51}, %52, p, 1, 1, 0;\n"
      "}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
        "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
        "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),
        "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
        "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),
        "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]),
        "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(desc), "r"(scale_d)
      : "memory");
}

// two raw fp32 values -> packed fp16 high parts and packed fp16 remainders
__device__ __forceinline__ void split2(float a, float b, float s, u32& hi, u32& lo) {
  a *= s;
  b *= s;
  __half2 h = __floats2half2_rn(a, b);
  float2 f = __half22float2(h);
  __half2 l = __floats2half2_rn(a - f.x, b - f.y);
  hi = *reinterpret_cast<u32*>(&h);
  lo = *reinterpret_cast<u32*>(&l);
}

// raw slots of rows g and g+8 -> A fragments (hi and lo)
__device__ __forceinline__ void convert(const float4& r0, const float4& r1, float s,
                                        u32 (&hi)[4], u32 (&lo)[4]) {
  split2(r0.x, r0.y, s, hi[0], lo[0]);
  split2(r1.x, r1.y, s, hi[1], lo[1]);
  split2(r0.z, r0.w, s, hi[2], lo[2]);
  split2(r1.z, r1.w, s, hi[3], lo[3]);
#pragma unroll
  for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(hi[i]), "+r"(lo[i]) :: "memory");
}

__device__ __forceinline__ void load_raw(const unsigned char* ring, u32 rb, u32 v,
                                         float4& r0, float4& r1) {
  u32 off = v & 2047u;
  u32 po = v >> 11;
  u32 p0 = rb + off;
  u32 p1 = p0 + 128u;
  p0 = min(p0, p0 - RING_WRAP);   // unsigned: wraps to huge when no wrap is needed
  p1 = min(p1, p1 - RING_WRAP);
  r0 = *reinterpret_cast<const float4*>(ring + po + p0);
  r1 = *reinterpret_cast<const float4*>(ring + po + p1);
}

// 128 slots of all 12 planes
__device__ __forceinline__ void issue_chunk(const float* xi, int H, int chunk, u32 dst_stage, int lane) {
#pragma unroll 1
  for (int qd = 0; qd < 4; ++qd) {
    int local = lane + 32 * qd;
    int f = chunk * 128 + local;
    int r4 = f / 57;
    int s = f - r4 * 57;
    bool v0 = (s >= 1);
    bool v1 = (s <= 55);
    u32 dst = dst_stage + (u32)local * 16u;
#pragma unroll
    for (int c = 0; c < 3; ++c) {
#pragma unroll
      for (int ry = 0; ry < 4; ++ry) {
        int iy = 4 * r4 + ry - 2;
        bool vy = (iy >= 0) && (iy < H);
        long long o = ((long long)c * H + iy) * 224 + (4 * s - 2);
        const float* s0 = (vy && v0) ? (xi + o) : xi;
        const float* s1 = (vy && v1) ? (xi + o + 2) : xi;
        u32 d = dst + (u32)(c * 4 + ry) * (u32)PSTRIDE;
        cp8(d, s0, (vy && v0) ? 8u : 0u);
        cp8(d + 8u, s1, (vy && v1) ? 8u : 0u);
      }
    }
  }
}

// absolute maximum of a chunk that has arrived, then signal it
__device__ __forceinline__ void finish_chunk(unsigned char* sm, int st, u32 full_bar, int lane) {
  const unsigned char* p = sm + RING_OFF + st * 2048 + lane * 16;
  u32 mx = 0u;
#pragma unroll 1
  for (int qd = 0; qd < 4; ++qd) {
#pragma unroll
    for (int pl = 0; pl < 12; ++pl) {
      uint4 v = *reinterpret_cast<const uint4*>(p + pl * PSTRIDE + qd * 512);
      mx = max(mx, v.x & 0x7fffffffu);
      mx = max(mx, v.y & 0x7fffffffu);
      mx = max(mx, v.z & 0x7fffffffu);
      mx = max(mx, v.w & 0x7fffffffu);
    }
  }
#pragma unroll
  for (int d = 16; d > 0; d >>= 1) {
    u32 o = __shfl_xor_sync(0xffffffffu, mx, d);
    mx = max(mx, o);
  }
  if (lane == 0) *reinterpret_cast<u32*>(sm + MAX_OFF + 4 * st) = mx;
  mbar_arrive(full_bar);
}

extern "C" __global__ void __launch_bounds__(288, 1)
conv_main(const float* __restrict__ x, const __half* __restrict__ wpack,
          const float* __restrict__ winv, const float* __restrict__ bias,
          float* __restrict__ y, int H, int OH, int tpi, int tiles) {
  extern __shared__ unsigned char smem_raw[];
  u32 raw_addr = (u32)__cvta_generic_to_shared(smem_raw);
  u32 sbase = (raw_addr + 127u) & ~127u;
  unsigned char* sm = smem_raw + (sbase - raw_addr);

  const int tid = (int)threadIdx.x;
  const int warp = tid >> 5;
  const int lane = tid & 31;

  const u32 bar_full = sbase + BAR_OFF;         // 3 barriers
  const u32 bar_empty = sbase + BAR_OFF + 24;   // 3 barriers
  const u32 bar_w = sbase + BAR_OFF + 48;

  if (tid == 0) {
    for (int i = 0; i < 3; ++i) {
      mbar_init(bar_full + 8u * i, 32u);
      mbar_init(bar_empty + 8u * i, 8u);
    }
    mbar_init(bar_w, 1u);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  if (tid < 100) {
    u32 v = 0u;
    if (tid < 99) {
      int c = tid / 33;
      int rem = tid - c * 33;
      int ky = rem / 3;
      int kd = rem - ky * 3;
      int plane = c * 4 + (ky & 3);
      int off = (ky >> 2) * 57 + kd;
      v = ((u32)(plane * PSTRIDE) << 11) | (u32)(off * 16);
    }
    *reinterpret_cast<u32*>(sm + TAB_OFF + 4 * tid) = v;
  }
  if (tid < 96) {
    *reinterpret_cast<float*>(sm + WINV_OFF + 4 * tid) = winv[tid];
    *reinterpret_cast<float*>(sm + BIAS_OFF + 4 * tid) = bias[tid];
  }
  __syncthreads();

  const int t0 = (int)((long long)tiles * blockIdx.x / gridDim.x);
  const int t1 = (int)((long long)tiles * (blockIdx.x + 1) / gridDim.x);

  if (warp == 8) {
    // ------------------------------ loader ------------------------------
    if (lane == 0) {
      mbar_expect(bar_w, (u32)W_BYTES);
      const unsigned char* src = reinterpret_cast<const unsigned char*>(wpack);
      for (int j = 0; j < 25; ++j)
        bulk_copy(sbase + 6144u * (u32)j, src + 6144 * j, 6144u, bar_w);
    }
    __syncwarp();
    int q = 0;
    for (int t = t0; t < t1; ++t) {
      int n = t / tpi;
      int i = t - n * tpi;
      bool first = (t == t0) || (i == 0);
      const float* xi = x + (long long)n * 3 * H * 224;
      for (int kk = first ? 0 : 1; kk < 2; ++kk) {
        int st = q % 3;
        if (q >= 3) mbar_wait(bar_empty + 8u * (u32)st, (u32)((q / 3 - 1) & 1));
        issue_chunk(xi, H, i + kk, sbase + RING_OFF + (u32)st * 2048u, lane);
        if (q >= 1) {
          asm volatile("cp.async.wait_all;" ::: "memory");
          __syncwarp();
          if (q == 1) finish_chunk(sm, 0, bar_full, lane);
          finish_chunk(sm, st, bar_full + 8u * (u32)st, lane);
        }
        ++q;
      }
    }
  } else {
    // ----------------------------- consumers ----------------------------
    const int g = lane >> 2;
    const int t4 = lane & 3;
    const int row = warp * 16 + g;   // warpgroup 0: rows 0..63, warpgroup 1: rows 64..127
    const unsigned char* ring = sm + RING_OFF;
    const u32* tab = reinterpret_cast<const u32*>(sm + TAB_OFF) + t4;
    const u32* cmax = reinterpret_cast<const u32*>(sm + MAX_OFF);
    const int plane_out = OH * 55;

    // no swizzle, K stride (leading) 3072 bytes, N stride 128 bytes
    const u64 desc0 = (u64)((sbase >> 4) & 0x3FFFu) | ((u64)192 << 16) | ((u64)8 << 32);

    mbar_wait(bar_w, 0u);

    int qc = 0;
    for (int t = t0; t < t1; ++t) {
      const int n = t / tpi;
      const int i = t - n * tpi;
      if (t != t0) qc += (i == 0) ? 2 : 1;
      const int s0 = qc % 3;
      const int s1 = (qc + 1) % 3;
      mbar_wait(bar_full + 8u * (u32)s0, (u32)((qc / 3) & 1));
      mbar_wait(bar_full + 8u * (u32)s1, (u32)(((qc + 1) / 3) & 1));

      // power-of-two scale that brings the largest value to [2^14, 2^15)
      u32 mx = max(cmax[s0], cmax[s1]);
      u32 E = mx >> 23;
      E = max(E, 15u);
      E = min(E, 254u);
      const float sx = __uint_as_float((268u - E) << 23);
      const float sx_inv = __uint_as_float((E - 14u) << 23);

      const u32 rb = (u32)(s0 * 128 + row) * 16u;

      float tot[48], hh[48], cr[48];
#pragma unroll
      for (int e = 0; e < 48; ++e) {
        tot[e] = 0.0f;
        hh[e] = 0.0f;
        cr[e] = 0.0f;
      }
      u32 ahi[2][4], alo[2][4];
      float4 r0, r1;
      load_raw(ring, rb, tab[0], r0, r1);
      u32 vnext = tab[4];
      convert(r0, r1, sx, ahi[0], alo[0]);
      pin48(hh);
      pin48(cr);

#pragma unroll
      for (int j = 0; j < 25; ++j) {
        const int b = j & 1;
        const u64 dhi = desc0 + (u64)(j * 384);
        const u64 dlo = dhi + (u64)96;
        wg_fence();
        mma96(cr, alo[b], dhi, (j > 0) ? 1 : 0);
        mma96(cr, ahi[b], dlo, 1);
        mma96(hh, ahi[b], dhi, (j % 5 != 0) ? 1 : 0);
        wg_commit();
        if (j < 24) {
          load_raw(ring, rb, vnext, r0, r1);
          if (j < 23) vnext = tab[4 * (j + 2)];
        }
        wg_wait<1>();
        if (j < 24) {
          asm volatile("" : "+f"(r0.x), "+f"(r0.y), "+f"(r0.z), "+f"(r0.w),
                            "+f"(r1.x), "+f"(r1.y), "+f"(r1.z), "+f"(r1.w) :: "memory");
          convert(r0, r1, sx, ahi[b ^ 1], alo[b ^ 1]);
        }
        if (j % 5 == 4) {
          wg_wait<0>();
          pin48(hh);
          if (j == 24) pin48(cr);
#pragma unroll
          for (int e = 0; e < 48; ++e) tot[e] += hh[e];
        }
      }

      // every read of the ring for this tile is done
      __syncwarp();
      if (lane == 0) {
        mbar_arrive(bar_empty + 8u * (u32)s0);
        if (i == tpi - 1) mbar_arrive(bar_empty + 8u * (u32)s1);
      }

      // epilogue
      const int m0 = i * 128 + row;
      const int m1 = m0 + 8;
      const int oy0 = m0 / 57;
      const int ox0 = m0 - oy0 * 57;
      const int oy1 = m1 / 57;
      const int ox1 = m1 - oy1 * 57;
      const bool ok0 = (ox0 < 55) && (oy0 < OH);
      const bool ok1 = (ox1 < 55) && (oy1 < OH);
      float* yb = y + (long long)n * 96 * plane_out + (long long)(2 * t4) * plane_out;
      float* y0 = yb + (oy0 * 55 + ox0);
      float* y1 = yb + (oy1 * 55 + ox1);
#pragma unroll
      for (int e = 0; e < 12; ++e) {
        const int ch = 8 * e + 2 * t4;
        const float2 wi = *reinterpret_cast<const float2*>(sm + WINV_OFF + 4 * ch);
        const float2 bi = *reinterpret_cast<const float2*>(sm + BIAS_OFF + 4 * ch);
        const int o = 8 * e * plane_out;
        if (ok0) {
          y0[o] = ((tot[4 * e + 0] + cr[4 * e + 0]) * sx_inv) * wi.x + bi.x;
          y0[o + plane_out] = ((tot[4 * e + 1] + cr[4 * e + 1]) * sx_inv) * wi.y + bi.y;
        }
        if (ok1) {
          y1[o] = ((tot[4 * e + 2] + cr[4 * e + 2]) * sx_inv) * wi.x + bi.x;
          y1[o + plane_out] = ((tot[4 * e + 3] + cr[4 * e + 3]) * sx_inv) * wi.y + bi.y;
        }
      }
    }
  }
}

// any other shape: one thread per output
extern "C" __global__ void __launch_bounds__(256)
conv_any(const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ bias,
         float* __restrict__ y, long long total, int C, int H, int W, int O, int OH, int OW,
         int KH, int KW, int SH, int SW, int PH, int PW) {
  long long idx = (long long)blockIdx.x * 256 + threadIdx.x;
  if (idx >= total) return;
  long long r = idx;
  int ox = (int)(r % OW);
  r /= OW;
  int oy = (int)(r % OH);
  r /= OH;
  int o = (int)(r % O);
  long long n = r / O;
  const int iy0 = oy * SH - PH;
  const int ix0 = ox * SW - PW;
  int kx_lo = ix0 < 0 ? -ix0 : 0;
  int kx_hi = (W - ix0) < KW ? (W - ix0) : KW;
  double acc = 0.0;
  for (int c = 0; c < C; ++c) {
    for (int ky = 0; ky < KH; ++ky) {
      int iy = iy0 + ky;
      if (iy < 0 || iy >= H) continue;
      const float* xr = x + ((n * C + c) * (long long)H + iy) * W;
      const float* wr = w + (((long long)o * C + c) * KH + ky) * KW;
      float p = 0.0f;
      for (int kx = kx_lo; kx < kx_hi; ++kx) p = fmaf(xr[ix0 + kx], wr[kx], p);
      acc += (double)p;
    }
  }
  y[idx] = (float)(acc + (double)bias[o]);
}
""")

SMEM_BYTES = 229504


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, stride=stride, padding=padding)
        self.packed = None
        self.winv = None
        self.bias_copy = None
        self.sms = 1

    def prepare(self):
        self.packed = None
        w = self.conv.weight.detach()
        if tuple(w.shape) != (96, 3, 11, 11) or w.dtype != torch.float32 or not w.is_cuda:
            return
        if tuple(self.conv.stride) != (4, 4) or tuple(self.conv.padding) != (2, 2):
            return
        dev = w.device
        amax = w.abs().amax(dim=(1, 2, 3)).cpu().tolist()
        scales = []
        inverses = []
        for a in amax:
            e = 0
            if a > 0.0 and math.isfinite(a):
                # largest weight of the channel goes to [2^14, 2^15)
                e = 14 - (math.frexp(a)[1] - 1)
                e = max(-126, min(126, e))
            scales.append(math.ldexp(1.0, e))
            inverses.append(math.ldexp(1.0, -e))
        s = torch.tensor(scales, dtype=torch.float64, device=dev)
        ws = (w.double() * s.view(-1, 1, 1, 1)).float()
        hi = ws.half()
        lo = (ws - hi.float()).half()

        def pack(v):
            p = torch.zeros((96, 3, 11, 12), dtype=torch.float16, device=dev)
            p[:, :, :, :11] = v
            q = torch.zeros((96, 100, 4), dtype=torch.float16, device=dev)
            q[:, :99, :] = p.reshape(96, 99, 4)
            # (n, step, tap group t, k half, bit) -> (step, k half, n, 2t + bit)
            q = q.reshape(96, 25, 4, 2, 2).permute(1, 3, 0, 2, 4)
            return q.reshape(25, 2, 96, 8)

        self.winv = torch.tensor(inverses, dtype=torch.float32, device=dev)
        self.bias_copy = self.conv.bias.detach().clone().contiguous()
        self.sms = torch.cuda.get_device_properties(dev).multi_processor_count
        self.packed = torch.cat([pack(hi), pack(lo)], dim=2).contiguous()

    def forward(self, x):
        x = x.contiguous()
        n, c, h, w = x.shape
        conv = self.conv
        o, _, kh, kw = conv.weight.shape
        sh, sw = conv.stride
        ph, pw = conv.padding
        oh = (h + 2 * ph - kh) // sh + 1
        ow = (w + 2 * pw - kw) // sw + 1
        y = torch.empty((n, o, oh, ow), dtype=x.dtype, device=x.device)
        total = y.numel()
        if total == 0:
            return y
        if (self.packed is not None and c == 3 and w == 224 and h <= 4096
                and n <= 100000 and x.data_ptr() % 8 == 0):
            tpi = (oh * 57 + 127) // 128
            tiles = n * tpi
            grid = min(self.sms, tiles)
            k.conv_main[grid, 288, SMEM_BYTES](
                x, self.packed, self.winv, self.bias_copy, y, h, oh, tpi, tiles)
        else:
            k.conv_any[(total + 255) // 256, 256, 0](
                x, conv.weight, conv.bias, y, total, c, h, w, o, oh, ow,
                kh, kw, sh, sw, ph, pw)
        return y
