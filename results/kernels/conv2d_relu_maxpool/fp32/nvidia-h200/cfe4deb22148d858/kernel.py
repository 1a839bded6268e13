import math

import torch
from torch import nn
from agentgen import jit

k = jit.cuda(r"""
#include <cuda_fp16.h>

// ---------------------------------------------------------------- helpers
__device__ __forceinline__ uint32_t smem_u32(const void* p) {
  return (uint32_t)__cvta_generic_to_shared(p);
}

__device__ __forceinline__ void mbar_init(uint32_t bar, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" :: "r"(bar), "r"(count) : "memory");
}

__device__ __forceinline__ void mbar_expect(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" :: "r"(bar), "r"(bytes) : "memory");
}

__device__ __forceinline__ void mbar_arrive(uint32_t bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" :: "r"(bar) : "memory");
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

__device__ __forceinline__ void bulk_load(uint32_t dst, const void* src, uint32_t bytes, uint32_t bar) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n"
      :: "r"(dst), "l"(src), "r"(bytes), "r"(bar) : "memory");
}

__device__ __forceinline__ void named_sync(int id, int count) {
  asm volatile("bar.sync %0, %1;\n" :: "r"(id), "r"(count) : "memory");
}

__device__ __forceinline__ void named_arrive(int id, int count) {
  asm volatile("bar.arrive %0, %1;\n" :: "r"(id), "r"(count) : "memory");
}

__device__ __forceinline__ void reg_fence(float& r) {
  asm volatile("" : "+f"(r) :: "memory");
}

__device__ __forceinline__ void wg_fence() {
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}

__device__ __forceinline__ void wg_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

__device__ __forceinline__ void wg_wait0() {
  asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory");
}

__device__ __forceinline__ void mma96(float (&d)[48], uint64_t da, uint64_t db, int accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %50, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, "
      "%40, %41, %42, %43, %44, %45, %46, %47}, "
      "%48, %49, p, 1, 1, 0, 0;\n"
      "}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
      : "l"(da), "l"(db), "r"(accumulate));
}

__device__ __forceinline__ void mma48(float (&d)[24], uint64_t da, uint64_t db, int accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %26, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n48k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23}, "
      "%24, %25, p, 1, 1, 0, 0;\n"
      "}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23])
      : "l"(da), "l"(db), "r"(accumulate));
}

__device__ __forceinline__ void split2(float2 v, float s, uint32_t& hi, uint32_t& lo) {
  float a = v.x * s;
  float b = v.y * s;
  __half2 h = __floats2half2_rn(a, b);
  float2 f = __half22float2(h);
  __half2 l = __floats2half2_rn(a - f.x, b - f.y);
  hi = *reinterpret_cast<uint32_t*>(&h);
  lo = *reinterpret_cast<uint32_t*>(&l);
}

// ---------------------------------------------------------------- kernel 1
// One cluster of 8 blocks an image. A thread owns one 4x4x3 cell, keeps it in registers while the
// image's maximum is found, then writes it as fp16 hi and lo into
// planes[image][cell row 57][hi/lo][chunk 6][cell 64][8 halfs].
extern "C" __global__ void __cluster_dims__(8, 1, 1) __launch_bounds__(512, 2)
split_planes(const float* __restrict__ x, __half* __restrict__ planes, float* __restrict__ inv) {
  __shared__ unsigned red[16];
  __shared__ unsigned blockmax;

  const int tid = threadIdx.x;
  const int lane = tid & 31;
  const int rank = blockIdx.x & 7;
  const int n = blockIdx.x >> 3;
  const int cyl = tid >> 6;
  const int cx = tid & 63;
  const int cy = rank * 7 + cyl;
  const bool act = (cyl < 7) || (rank == 7);
  const bool top = act && (cy > 0);
  const bool bot = act && (cy < 56);
  const bool c0 = (cx >= 1) && (cx <= 56);
  const bool c1 = (cx <= 55);

  const float* src = x + (long long)n * 150528 + (long long)((4 * cy - 2) * 224 + 4 * cx - 2);

  float2 v[3][4][2];
#pragma unroll
  for (int c = 0; c < 3; ++c) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const bool rok = (r < 2) ? top : bot;
      v[c][r][0] = (rok && c0) ? __ldg(reinterpret_cast<const float2*>(src + c * 50176 + r * 224))
                               : make_float2(0.0f, 0.0f);
      v[c][r][1] = (rok && c1) ? __ldg(reinterpret_cast<const float2*>(src + c * 50176 + r * 224 + 2))
                               : make_float2(0.0f, 0.0f);
    }
  }

  float m = 0.0f;
#pragma unroll
  for (int c = 0; c < 3; ++c) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        m = fmaxf(m, fmaxf(fabsf(v[c][r][h].x), fabsf(v[c][r][h].y)));
      }
    }
  }
  unsigned mu = __reduce_max_sync(0xffffffffu, __float_as_uint(m));
  if (lane == 0) red[tid >> 5] = mu;
  __syncthreads();
  if (tid < 32) {
    unsigned t = __reduce_max_sync(0xffffffffu, red[lane & 15]);
    if (lane == 0) blockmax = t;
  }
  __syncthreads();
  asm volatile("barrier.cluster.arrive.release;\n" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire;\n" ::: "memory");

  uint32_t remote;
  unsigned got;
  {
    uint32_t local = smem_u32(&blockmax);
    uint32_t peer = (uint32_t)(lane & 7);
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;\n" : "=r"(remote) : "r"(local), "r"(peer));
    asm volatile("ld.shared::cluster.u32 %0, [%1];\n" : "=r"(got) : "r"(remote) : "memory");
  }
  const unsigned amax = __reduce_max_sync(0xffffffffu, got);
  // nobody may leave before all have read: arrive now, wait at the end
  asm volatile("barrier.cluster.arrive.release;\n" ::: "memory");

  int eb = (int)(amax >> 23);
  if (eb < 30) eb = 30;
  if (eb > 254) eb = 254;
  const float scale = __uint_as_float((unsigned)(267 - eb) << 23);   // brings the maximum into [2^13, 2^14)
  if (rank == 0 && tid == 0) inv[n] = __uint_as_float((unsigned)(eb - 13) << 23);

  if (act) {
    uint4* dst = reinterpret_cast<uint4*>(planes) + ((long long)n * 57 + cy) * 768 + cx;
#pragma unroll
    for (int c = 0; c < 3; ++c) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        uint4 hi, lo;
        split2(v[c][2 * h][0], scale, hi.x, lo.x);
        split2(v[c][2 * h][1], scale, hi.y, lo.y);
        split2(v[c][2 * h + 1][0], scale, hi.z, lo.z);
        split2(v[c][2 * h + 1][1], scale, hi.w, lo.w);
        dst[(c * 2 + h) * 64] = hi;
        dst[384 + (c * 2 + h) * 64] = lo;
      }
    }
  }
  asm volatile("barrier.cluster.wait.acquire;\n" ::: "memory");
}

// ---------------------------------------------------------------- kernel 2
// shared memory: weights 165888 | ring 5 x 12288 | exchange 2304 | scales and bias 768 | barriers
#define OFF_RING 165888
#define OFF_XCH 227328
#define OFF_SWB 229632
#define OFF_BAR 230400
#define NSLOT 5u

extern "C" __global__ void __launch_bounds__(288, 1)
conv_pool(const __half* __restrict__ planes, const __half* __restrict__ wpack,
          const float* __restrict__ winv, const float* __restrict__ bias,
          const float* __restrict__ inv, float* __restrict__ out, int total) {
  extern __shared__ __align__(1024) unsigned char smem[];
  const int tid = threadIdx.x;
  const int warp = tid >> 5;
  const int lane = tid & 31;
  const uint32_t sbase = smem_u32(smem);
  const uint32_t wbar = sbase + OFF_BAR;
  const uint32_t fullb = wbar + 8;
  const uint32_t emptyb = wbar + 48;
  float* swb = reinterpret_cast<float*>(smem + OFF_SWB);

  if (tid == 0) {
    mbar_init(wbar, 1);
    for (int i = 0; i < 5; ++i) {
      mbar_init(fullb + 8 * i, 1);
      mbar_init(emptyb + 8 * i, 8);
    }
    asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
    asm volatile("fence.proxy.async;\n" ::: "memory");
  }
  if (tid < 96) {
    swb[tid] = winv[tid];
    swb[96 + tid] = bias[tid];
  }
  __syncthreads();

  const int first = (int)((long long)blockIdx.x * total / (long long)gridDim.x);
  const int last = (int)((long long)(blockIdx.x + 1) * total / (long long)gridDim.x);

  if (warp == 8) {
    // -------- producer: one thread loads everything
    if (lane == 0) {
      mbar_expect(wbar, 165888u);
      const unsigned char* wsrc = reinterpret_cast<const unsigned char*>(wpack);
      for (int i = 0; i < 27; ++i) bulk_load(sbase + i * 6144, wsrc + i * 6144, 6144u, wbar);
      unsigned L = 0;
      int g = first;
      while (g < last) {
        const int n = g / 27;
        const int p0 = g - n * 27;
        int P = 27 - p0;
        if (P > last - g) P = last - g;
        const int rows = 2 * P + 3;
        const unsigned char* src = reinterpret_cast<const unsigned char*>(planes)
                                   + ((long long)n * 57 + 2 * p0) * 12288;
        for (int i = 0; i < rows; ++i) {
          const unsigned use = L / NSLOT;
          const unsigned slot = L - use * NSLOT;
          if (use > 0) mbar_wait(emptyb + 8 * slot, (use - 1) & 1);
          mbar_expect(fullb + 8 * slot, 12288u);
          bulk_load(sbase + OFF_RING + slot * 12288, src + (long long)i * 12288, 12288u, fullb + 8 * slot);
          ++L;
        }
        g += P;
      }
    }
  } else {
    // -------- consumers: two warpgroups, 48 channels each, taking turns on the tensor cores
    const int wg = warp >> 2;
    const int w = warp & 3;
    const int gq = lane >> 2;
    const int q = lane & 3;
    float* xch = reinterpret_cast<float*>(smem + OFF_XCH) + wg * 288;

    const uint64_t abase = (uint64_t)(((sbase + OFF_RING) >> 4) & 0x3FFF)
                           | ((uint64_t)(1024 >> 4) << 16) | ((uint64_t)(128 >> 4) << 32);
    const uint64_t bbase = (uint64_t)(((sbase + (uint32_t)wg * 82944u) >> 4) & 0x3FFF)
                           | ((uint64_t)(1536 >> 4) << 16) | ((uint64_t)(128 >> 4) << 32);

    float d[48];
    float e[24];
    float run[24];
#pragma unroll
    for (int i = 0; i < 48; ++i) d[i] = 0.0f;
#pragma unroll
    for (int i = 0; i < 24; ++i) { e[i] = 0.0f; run[i] = 0.0f; }

    mbar_wait(wbar, 0);
    if (wg == 1) named_arrive(3, 256);

    unsigned L0 = 0;
    int buf = 0;
    int g = first;
    while (g < last) {
      const int n = g / 27;
      const int p0 = g - n * 27;
      int P = 27 - p0;
      if (P > last - g) P = last - g;
      const int R = 2 * P + 1;
      const float sx = inv[n];
      float* obase = out + (long long)n * 69984 + (long long)(wg * 48 + 2 * q) * 729;

      mbar_wait(fullb + 8 * (L0 % NSLOT), (L0 / NSLOT) & 1);
      mbar_wait(fullb + 8 * ((L0 + 1) % NSLOT), ((L0 + 1) / NSLOT) & 1);

      for (int r = 0; r < R; ++r) {
        const unsigned La = L0 + (unsigned)r;
        const unsigned s0 = La % NSLOT;
        const unsigned s1 = (La + 1) % NSLOT;
        const unsigned s2 = (La + 2) % NSLOT;
        mbar_wait(fullb + 8 * s2, ((La + 2) / NSLOT) & 1);
        named_sync(3 + wg, 256);

#pragma unroll
        for (int i = 0; i < 48; ++i) reg_fence(d[i]);
#pragma unroll
        for (int i = 0; i < 24; ++i) reg_fence(e[i]);
        wg_fence();
#pragma unroll
        for (int ty = 0; ty < 3; ++ty) {
          const unsigned sl = (ty == 0) ? s0 : ((ty == 1) ? s1 : s2);
          const uint64_t arow = abase + (uint64_t)(sl * 768u);
#pragma unroll
          for (int tx = 0; tx < 3; ++tx) {
#pragma unroll
            for (int ch = 0; ch < 3; ++ch) {
              const int step = (ty * 3 + tx) * 3 + ch;
              const uint64_t da = arow + (uint64_t)(ch * 128 + tx);
              const uint64_t db = bbase + (uint64_t)(step * 192);
              mma96(d, da, db, step > 0 ? 1 : 0);
              mma48(e, da + 384, db, step > 0 ? 1 : 0);
            }
          }
        }
        wg_commit();
        named_arrive(4 - wg, 256);
        wg_wait0();
#pragma unroll
        for (int i = 0; i < 48; ++i) reg_fence(d[i]);
#pragma unroll
        for (int i = 0; i < 24; ++i) reg_fence(e[i]);

        if (lane == 0) {
          mbar_arrive(emptyb + 8 * s0);
          if (r == R - 1) {
            mbar_arrive(emptyb + 8 * s1);
            mbar_arrive(emptyb + 8 * s2);
          }
        }
        __syncwarp();

        // vertical maximum in registers
        if (r & 1) {
#pragma unroll
          for (int i = 0; i < 24; ++i) run[i] = fmaxf(run[i], d[i] + (d[24 + i] + e[i]));
        } else {
          float mx[24];
#pragma unroll
          for (int i = 0; i < 24; ++i) {
            const float val = d[i] + (d[24 + i] + e[i]);
            mx[i] = fmaxf(run[i], val);
            run[i] = val;
          }
          if (r > 0) {
            // one pool row is complete: horizontal maximum and store
            float* xb = xch + buf * 144;
            if (w > 0 && lane < 4) {
#pragma unroll
              for (int j = 0; j < 6; ++j) {
                *reinterpret_cast<float2*>(xb + (w - 1) * 48 + 8 * j + 2 * lane) =
                    make_float2(mx[4 * j], mx[4 * j + 1]);
              }
            }
            named_sync(1 + wg, 128);
            const int p = p0 + (r >> 1) - 1;
            const int pxa = 8 * w + (gq >> 1);
            const int pxb = pxa + 4;
            float* orow = obase + p * 27;
            const bool even = (gq & 1) == 0;
            const bool oka = even && (pxa < 27);
            const bool okb = even && (pxb < 27);
#pragma unroll
            for (int j = 0; j < 6; ++j) {
              float2 nx = make_float2(0.0f, 0.0f);
              if (gq == 6 && w < 3) nx = *reinterpret_cast<const float2*>(xb + w * 48 + 8 * j + 2 * q);
#pragma unroll
              for (int h = 0; h < 2; ++h) {
                const float a = mx[4 * j + h];
                const float b = mx[4 * j + 2 + h];
                const float a1 = __shfl_down_sync(0xffffffffu, a, 4);
                const float a2 = __shfl_sync(0xffffffffu, (gq < 2) ? b : a, (lane + 8) & 31);
                const float b1 = __shfl_down_sync(0xffffffffu, b, 4);
                float b2 = __shfl_down_sync(0xffffffffu, b, 8);
                if (gq == 6) b2 = h ? nx.y : nx.x;
                const float ha = fmaxf(a, fmaxf(a1, a2));
                const float hb = fmaxf(b, fmaxf(b1, b2));
                const int cl = 8 * j + h;                       // channel, less wg * 48 + 2 * q
                const float sw = swb[wg * 48 + 2 * q + cl];
                const float bi = swb[96 + wg * 48 + 2 * q + cl];
                if (oka) orow[cl * 729 + pxa] = fmaxf((ha * sx) * sw + bi, 0.0f);
                if (okb) orow[cl * 729 + pxb] = fmaxf((hb * sx) * sw + bi, 0.0f);
              }
            }
            buf ^= 1;
          }
        }
      }
      L0 += (unsigned)(R + 2);
      g += P;
    }
    if (wg == 0) named_sync(3, 256);   // takes up the last arrival of the other warpgroup
  }
}

// ---------------------------------------------------------------- any other shape
extern "C" __global__ void __launch_bounds__(256)
direct_conv_pool(const float* __restrict__ x, const float* __restrict__ wt, const float* __restrict__ bias,
                 float* __restrict__ out, long long total, int C, int H, int W, int CO, int K, int S, int PAD,
                 int HP, int WP, int PK, int PS) {
  const long long idx = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (idx >= total) return;
  const int px = (int)(idx % WP);
  long long t = idx / WP;
  const int py = (int)(t % HP);
  t /= HP;
  const int co = (int)(t % CO);
  const long long n = t / CO;

  const float* xn = x + n * C * (long long)H * W;
  const float* wc = wt + (long long)co * C * K * K;
  const float bi = bias[co];
  float best = 0.0f;                      // ReLU
  for (int i = 0; i < PK; ++i) {
    for (int j = 0; j < PK; ++j) {
      const int iy0 = (py * PS + i) * S - PAD;
      const int ix0 = (px * PS + j) * S - PAD;
      const int ylo = iy0 < 0 ? -iy0 : 0;
      const int yhi = (H - iy0) < K ? (H - iy0) : K;
      const int xlo = ix0 < 0 ? -ix0 : 0;
      const int xhi = (W - ix0) < K ? (W - ix0) : K;
      float acc = 0.0f;
      for (int c = 0; c < C; ++c) {
        float accc = 0.0f;
        for (int ky = ylo; ky < yhi; ++ky) {
          const float* xr = xn + ((long long)c * H + (iy0 + ky)) * W + ix0;
          const float* wr = wc + ((long long)c * K + ky) * K;
          float s = 0.0f;
          for (int kx = xlo; kx < xhi; ++kx) s = fmaf(__ldg(xr + kx), __ldg(wr + kx), s);
          accc += s;
        }
        acc += accc;
      }
      best = fmaxf(best, acc + bi);
    }
  }
  out[idx] = best;
}
""")

_SMEM = 230528


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, pool_size, pool_stride):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, stride=stride, padding=padding)
        self.kernel_size = int(kernel_size)
        self.stride = int(stride)
        self.padding = int(padding)
        self.pool_size = int(pool_size)
        self.pool_stride = int(pool_stride)
        self.fast = (in_channels == 3 and out_channels == 96 and self.kernel_size == 11 and self.stride == 4
                     and self.padding == 2 and self.pool_size == 3 and self.pool_stride == 2)
        self.packed = None
        self.winv = None
        self.sms = 0

    def prepare(self):
        if not self.fast:
            return
        w = self.conv.weight.detach().to(torch.float32)
        scales = []
        inverses = []
        for a in w.abs().amax(dim=(1, 2, 3)).tolist():
            ex = math.frexp(a)[1] if math.isfinite(a) else 0
            ex = max(-100, min(120, ex))
            scales.append(math.ldexp(1.0, 14 - ex))
            inverses.append(math.ldexp(1.0, ex - 14))
        scale = torch.tensor(scales, dtype=torch.float32, device=w.device)
        self.winv = torch.tensor(inverses, dtype=torch.float32, device=w.device)
        wp = torch.zeros((96, 3, 12, 12), dtype=torch.float32, device=w.device)
        wp[:, :, :11, :11] = w * scale.view(96, 1, 1, 1)
        hi = wp.to(torch.float16)
        lo = (wp - hi.to(torch.float32)).to(torch.float16)

        def order(t):
            # (half of channels, channel, ci, ty, r high, r low, tx, s) -> (half, ty, tx, ci, r high, channel, r low, s)
            return t.view(2, 48, 3, 3, 2, 2, 3, 4).permute(0, 3, 6, 2, 4, 1, 5, 7)

        self.packed = torch.stack([order(hi), order(lo)], dim=5).contiguous()
        self.sms = torch.cuda.get_device_properties(w.device).multi_processor_count

    def forward(self, x):
        x = x.contiguous()
        n, c, h, w = x.shape
        weight = self.conv.weight.detach()
        bias = self.conv.bias.detach()
        co = weight.shape[0]
        hc = (h + 2 * self.padding - self.kernel_size) // self.stride + 1
        wc = (w + 2 * self.padding - self.kernel_size) // self.stride + 1
        hp = (hc - self.pool_size) // self.pool_stride + 1
        wp = (wc - self.pool_size) // self.pool_stride + 1
        out = torch.empty((n, co, hp, wp), dtype=torch.float32, device=x.device)
        total = out.numel()
        if total == 0:
            return out
        if self.fast and h == 224 and w == 224:
            if self.packed is None:
                self.prepare()
            if x.data_ptr() % 16 != 0:
                x = x.clone()
            planes = torch.empty((n, 57, 2, 6, 64, 8), dtype=torch.float16, device=x.device)
            inv = torch.empty((n,), dtype=torch.float32, device=x.device)
            k.split_planes[n * 8, 512, 0](x, planes, inv)
            rows = n * 27
            k.conv_pool[min(self.sms, rows), 288, _SMEM](planes, self.packed, self.winv, bias, inv, out, rows)
            return out
        k.direct_conv_pool[(total + 255) // 256, 256, 0](
            x, weight.contiguous(), bias, out, total, c, h, w, co, self.kernel_size, self.stride, self.padding,
            hp, wp, self.pool_size, self.pool_stride)
        return out
