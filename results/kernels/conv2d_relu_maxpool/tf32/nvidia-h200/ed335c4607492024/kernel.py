import torch
from torch import nn
from agentgen import jit

_SRC = r"""
#include <cuda_fp16.h>

// ---------------------------------------------------------------------------
// Fast path: (N,3,224,224) -> conv 11x11 / 4, pad 2, 96 channels -> ReLU -> max 3x3 / 2
//
// Padded image 228x228x3 = 57x57 positions of 48 values (sy 4, c 3, sx 4).
// chunk = 8 halves (two quads (sy,c) of 4 sx), 6 chunks per position.
// Ring slot i of an image = position rows (2i-1, 2i); [chunk 6][114 positions][8 halves].
// pooled row p: conv rows 2p (carried), 2p+1 (odd), 2p+2 (even); the latter two read slots p+1 = (A0, A1)
// and p+2 = (B0, B1). Every slot has its own power-of-two scale, so slot-A taps gather in X, slot-B taps in Y:
//   odd:  X = A0*W0 + A1*W1, Y = B0*W2;   even:  X = A1*W0, Y = B0*W1 + B1*W2;   row = X*inv_A + Y*inv_B.
// ---------------------------------------------------------------------------
#define RING_OFF    79872      // 26 k-steps * 2 chunks * 96 channels * 16 bytes of weights before it
#define SLOT_BYTES  10944      // 6 * 114 * 16
#define STAGE_OFF   167424     // RING_OFF + 8 * SLOT_BYTES
#define STAGE_BYTES 23040      // 96 channels * 60 floats
#define STAGE_PITCH 60
#define BAR_OFF     213504     // STAGE_OFF + 2 * STAGE_BYTES
#define SC_OFF      213632
#define RED_OFF     213696
#define SB_OFF      213760     // + 96 * 8 = 214528

__device__ __forceinline__ void bar_sync(int id, int n) {
  asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(n) : "memory");
}
__device__ __forceinline__ void bar_arrive(int id, int n) {
  asm volatile("bar.arrive %0, %1;" :: "r"(id), "r"(n) : "memory");
}
__device__ __forceinline__ void mbar_init(uint32_t a, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(a), "r"(count) : "memory");
}
__device__ __forceinline__ void mbar_arrive(uint32_t a) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(a) : "memory");
}
__device__ __forceinline__ void mbar_wait(uint32_t a, uint32_t parity) {
  uint32_t done;
  do {
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p;\n"
                 "}\n" : "=r"(done) : "r"(a), "r"(parity) : "memory");
  } while (!done);
}
__device__ __forceinline__ void fence_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void wg_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wg_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wg_wait0() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }
__device__ __forceinline__ void wg_wait1() { asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory"); }

__device__ __forceinline__ void pin(float (&d)[48]) {
#pragma unroll
  for (int i = 0; i < 48; ++i) asm volatile("" : "+f"(d[i]) :: "memory");
}

#define F4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])

// D[64 x 96] (+)= A[64 x 16] * B[16 x 96], both K-major without swizzle, SBO = 128 bytes.
// alo / blo: low words of the descriptors (start address >> 4, LBO >> 4 in bits 16..29).
__device__ __forceinline__ void mma96(float (&d)[48], uint32_t alo, uint32_t blo, int keep) {
  const uint64_t da = (8ull << 32) | (uint64_t)alo;
  const uint64_t db = (8ull << 32) | (uint64_t)blo;
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
      : F4(0), F4(4), F4(8), F4(12), F4(16), F4(20), F4(24), F4(28), F4(32), F4(36), F4(40), F4(44)
      : "l"(da), "l"(db), "r"(keep));
}

// one kernel position row (dy = 0 or 1): 3 dx * 3 chunk pairs
__device__ __forceinline__ void taps_full(float (&d)[48], uint32_t a, uint32_t w, int keep_first) {
#pragma unroll
  for (int dx = 0; dx < 3; ++dx) {
#pragma unroll
    for (int j = 0; j < 3; ++j) {
      mma96(d, a + dx + j * 228, w + (dx * 3 + j) * 192, (dx == 0 && j == 0) ? keep_first : 1);
    }
  }
}
// dy = 2: chunk 5 has zero weights
__device__ __forceinline__ void taps_last(float (&d)[48], uint32_t a, uint32_t w, int keep_first) {
#pragma unroll
  for (int dx = 0; dx < 3; ++dx) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      mma96(d, a + dx + j * 228, w + (18 + dx * 2 + j) * 192, (dx == 0 && j == 0) ? keep_first : 1);
    }
  }
  mma96(d, a + 2 + 456, w + 24 * 192, 1);                    // dx 2: chunk 4 and chunk 5 (zero weights)
  mma96(d, a + 456 - (113u << 16), w + 25 * 192, 1);         // chunk 4 of dx 0 and of dx 1: LBO = 16 bytes
}

// conv row 2p+1: position rows A0, A1 into X, B0 into Y; two groups, nothing is waited for
__device__ __forceinline__ void issue_odd(float (&X)[48], float (&Y)[48], uint32_t a, uint32_t b, uint32_t w) {
  pin(X);
  pin(Y);
  wg_fence();
  taps_full(X, a, w, 0);
  taps_full(X, a + 57, w + 9 * 192, 1);
  wg_commit();
  wg_fence();
  taps_last(Y, b, w, 0);
  wg_commit();
}
// conv row 2p+2: position row A1 into X, B0 and B1 into Y
__device__ __forceinline__ void issue_even(float (&X)[48], float (&Y)[48], uint32_t a, uint32_t b, uint32_t w) {
  pin(X);
  pin(Y);
  wg_fence();
  taps_full(X, a + 57, w, 0);
  wg_commit();
  wg_fence();
  taps_full(Y, b, w + 9 * 192, 0);
  taps_last(Y, b + 57, w, 1);
  wg_commit();
}

// second half of the epilogue: 24 channels a warp, horizontal 3-max, bias, ReLU, 27 floats each
__device__ __forceinline__ void store_rows(const float* str, const float2* sb, float* o, int lane) {
#pragma unroll 4
  for (int k = 0; k < 24; ++k) {
    const float2 pr = *reinterpret_cast<const float2*>(str + k * STAGE_PITCH);
    const float nx = __shfl_down_sync(0xffffffffu, pr.x, 1);
    const float2 cb = sb[k];
    const float m = fmaxf(fmaxf(pr.x, pr.y), nx);
    const float res = fmaxf(fmaf(m, cb.x, cb.y), 0.f);
    if (lane < 27) o[k * 729] = res;
  }
}

__device__ __forceinline__ void load4(float& a, float& b, float& c, float& d, const float* p, int ok) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %5, 0;\n"
      "mov.f32 %0, 0f00000000;\n"
      "mov.f32 %1, 0f00000000;\n"
      "mov.f32 %2, 0f00000000;\n"
      "mov.f32 %3, 0f00000000;\n"
      "@p ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];\n"
      "}\n"
      : "=f"(a), "=f"(b), "=f"(c), "=f"(d)
      : "l"(p), "r"(ok));
}
__device__ __forceinline__ uint32_t pack2(float lo, float hi) {
  uint32_t r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}

extern "C" __global__ void __launch_bounds__(384, 1) conv_pool_main(
    const float* __restrict__ x, const __half* __restrict__ wpk, const float* __restrict__ wscale,
    const float* __restrict__ bias, float* __restrict__ out, int n_img) {
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t sbase = (uint32_t)__cvta_generic_to_shared(smem);
  const int lane = (int)(threadIdx.x & 31);
  const int warp = __shfl_sync(0xffffffffu, (int)(threadIdx.x >> 5), 0);

  if (threadIdx.x == 0) {
    for (int i = 0; i < 8; ++i) {
      mbar_init(sbase + BAR_OFF + i * 8, 64);        // full: every producer thread of the team
      mbar_init(sbase + BAR_OFF + 64 + i * 8, 4);    // empty: one lane of each consumer warp
    }
  }
  __syncthreads();

  // stream = contiguous range of pooled rows, two streams per block
  const int g = (warp < 8) ? (warp >> 2) : ((warp - 8) >> 1);
  const int total = n_img * 27;
  const int nstream = 2 * (int)gridDim.x;
  const int each = total / nstream;
  const int rem = total - each * nstream;
  const int sid = g * (int)gridDim.x + (int)blockIdx.x;
  int row = sid * each + min(sid, rem);
  int cnt = each + (sid < rem ? 1 : 0);

  const uint32_t full0 = sbase + BAR_OFF + g * 32;
  const uint32_t empty0 = sbase + BAR_OFF + 64 + g * 32;
  float2* sc = reinterpret_cast<float2*>(smem + SC_OFF) + g * 4;

  // registers: 384 * 168 at launch = 256 * 192 + 128 * 120
  if (warp >= 8) {
    // ------------------------------ producers: two warps per stream ------------------------------
    asm volatile("setmaxnreg.dec.sync.aligned.u32 120;");
    const int u = warp & 1;                            // which of the two position rows of a slot
    unsigned int* red = reinterpret_cast<unsigned int*>(smem + RED_OFF) + g * 4;
    int t = 0;
    while (cnt > 0) {
      const int img = row / 27;
      const int p0 = row - img * 27;
      const int n = min(cnt, 27 - p0);
      const float* xi = x + (long long)img * 150528 + 4 * lane;
      int ecap = 0;
#pragma unroll 1
      for (int i = p0; i <= p0 + n + 1; ++i, ++t) {
        const int h0 = 8 * i - 6 + 4 * u;
        float v[96];
#pragma unroll
        for (int q = 0; q < 12; ++q) {
          const int sy = q / 3;
          const int c = q - 3 * sy;
          const int h = h0 + sy;
          const int ok = ((unsigned)h < 224u) ? 1 : 0;
          const int ok2 = (ok && lane < 25) ? 1 : 0;
          const float* rp = xi + (c * 50176 + h * 224);
          load4(v[8 * q + 0], v[8 * q + 1], v[8 * q + 2], v[8 * q + 3], rp, ok);
          load4(v[8 * q + 4], v[8 * q + 5], v[8 * q + 6], v[8 * q + 7], rp + 124, ok2);
        }
        float m0 = 0.f, m1 = 0.f, m2 = 0.f, m3 = 0.f;
#pragma unroll
        for (int k = 0; k < 96; k += 4) {
          m0 = fmaxf(m0, fabsf(v[k + 0]));
          m1 = fmaxf(m1, fabsf(v[k + 1]));
          m2 = fmaxf(m2, fabsf(v[k + 2]));
          m3 = fmaxf(m3, fabsf(v[k + 3]));
        }
        unsigned int mb = __float_as_uint(fmaxf(fmaxf(m0, m1), fmaxf(m2, m3)));
#pragma unroll
        for (int o = 16; o > 0; o >>= 1) {
          const unsigned int other = __shfl_xor_sync(0xffffffffu, mb, o);
          mb = other > mb ? other : mb;
        }
        unsigned int* rd = red + (t & 1) * 2;
        if (lane == 0) rd[u] = mb;
        bar_sync(4 + g, 64);
        const unsigned int r0 = rd[0], r1 = rd[1];
        int e = (int)((r0 > r1 ? r0 : r1) >> 23);
        e = max(e, ecap - 30);
        ecap = e;
        int se = 268 - e;
        se = se < 1 ? 1 : (se > 253 ? 253 : se);
        const float s = __uint_as_float((unsigned)se << 23);
        const float inv = __uint_as_float((unsigned)(254 - se) << 23);

        const int r = t & 3;
        mbar_wait(empty0 + r * 8, (uint32_t)(((t >> 2) & 1) ^ 1));
        __syncwarp();

        unsigned char* dst = smem + RING_OFF + (g * 4 + r) * SLOT_BYTES + (u * 57 + lane) * 16;
#pragma unroll
        for (int j = 0; j < 6; ++j) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const int ia = 8 * (2 * j) + 4 * h;
            const int ib = 8 * (2 * j + 1) + 4 * h;
            const uint32_t la = pack2(v[ia] * s, v[ia + 1] * s);
            const uint32_t ha = pack2(v[ia + 2] * s, v[ia + 3] * s);
            const uint32_t lb = pack2(v[ib] * s, v[ib + 1] * s);
            const uint32_t hb = pack2(v[ib + 2] * s, v[ib + 3] * s);
            uint32_t pa = __shfl_up_sync(0xffffffffu, ha, 1);
            uint32_t pb = __shfl_up_sync(0xffffffffu, hb, 1);
            if (lane == 0) { pa = 0u; pb = 0u; }        // left padding (second half: not stored)
            const uint4 val = make_uint4(pa, la, pb, lb);
            if (h == 0) {
              *reinterpret_cast<uint4*>(dst + j * 1824) = val;
            } else if (lane >= 1 && lane <= 25) {
              *reinterpret_cast<uint4*>(dst + j * 1824 + 31 * 16) = val;
            }
          }
        }
        if (u == 0 && lane == 0) sc[r] = make_float2(s, inv);
        fence_async();
        mbar_arrive(full0 + r * 8);
      }
      row += n;
      cnt -= n;
    }
  } else {
    // ------------------------------ consumers: one warpgroup per stream ------------------------------
    asm volatile("setmaxnreg.inc.sync.aligned.u32 192;");
    const int wl = warp & 3;
    {
      const unsigned char* wsrc = reinterpret_cast<const unsigned char*>(wpk);
      for (int i = (int)threadIdx.x; i < 4992; i += 256) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                     :: "r"(sbase + (uint32_t)i * 16u), "l"(wsrc + (size_t)i * 16) : "memory");
      }
      float2* sbw = reinterpret_cast<float2*>(smem + SB_OFF);
      if (threadIdx.x < 96) sbw[threadIdx.x] = make_float2(wscale[threadIdx.x], bias[threadIdx.x]);
      asm volatile("cp.async.wait_all;" ::: "memory");
      fence_async();
      bar_sync(1, 256);
    }
    const float2* sb = reinterpret_cast<const float2*>(smem + SB_OFF) + wl * 24;
    float* stage = reinterpret_cast<float*>(smem + STAGE_OFF + g * STAGE_BYTES);
    float* stw = stage + (2 * (lane & 3)) * STAGE_PITCH + 16 * wl + (lane >> 2);
    const float* str = stage + wl * 24 * STAGE_PITCH + 2 * lane;
    const uint32_t wlo = ((sbase >> 4) & 0x3FFFu) | (96u << 16);
    const uint32_t ring = (((sbase + RING_OFF + g * 4 * SLOT_BYTES) >> 4) & 0x3FFFu) | (114u << 16);

    float X[48], Y[48], V[48];
#pragma unroll
    for (int k = 0; k < 48; ++k) { X[k] = 0.f; Y[k] = 0.f; V[k] = 0.f; }

    // start the second warpgroup one conv row late, so that the epilogues do not coincide
    bool owe = (g == 0);
    if (g == 1) bar_sync(6, 256);

    int t = 0;
    while (cnt > 0) {
      const int img = row / 27;
      const int p0 = row - img * 27;
      const int n = min(cnt, 27 - p0);
      float* oimg = out + (long long)img * 69984 + wl * 24 * 729 + lane;
      mbar_wait(full0 + (t & 3) * 8, (uint32_t)((t >> 2) & 1));
#pragma unroll 1
      for (int i = 0; i <= n; ++i) {
        const int ra = t & 3, rb = (t + 1) & 3;
        mbar_wait(full0 + rb * 8, (uint32_t)(((t + 1) >> 2) & 1));
        __syncwarp();
        const float inv_a = sc[ra].y;
        const float inv_b = sc[rb].y;
        const uint32_t a = ring + ra * (SLOT_BYTES / 16);
        const uint32_t b = ring + rb * (SLOT_BYTES / 16);
        if (i > 0) {
          issue_odd(X, Y, a, b, wlo);
          if (i > 1) {                                   // behind these chains: store the previous pooled row
            bar_sync(2 + g, 128);                        // the stage is written
            store_rows(str, sb, oimg + (p0 + i - 2) * 27, lane);
          }
          wg_wait1();
          pin(X);
#pragma unroll
          for (int k = 0; k < 48; ++k) X[k] *= inv_a;
          wg_wait0();
          pin(Y);
#pragma unroll
          for (int k = 0; k < 48; ++k) V[k] = fmaxf(V[k], fmaf(Y[k], inv_b, X[k]));
        }
        issue_even(X, Y, a, b, wlo);
        bar_sync(2 + g, 128);                            // earlier reads of the stage are over
        wg_wait1();
        pin(X);
        if (lane == 0) mbar_arrive(empty0 + ra * 8);     // slot A has had its last reader
#pragma unroll
        for (int k = 0; k < 48; ++k) X[k] *= inv_a;
        wg_wait0();
        pin(Y);
        if (owe) { bar_arrive(6, 256); owe = false; }
#pragma unroll
        for (int k = 0; k < 48; ++k) X[k] = fmaf(Y[k], inv_b, X[k]);
        if (i > 0) {
#pragma unroll
          for (int j = 0; j < 12; ++j) {
            stw[(8 * j) * STAGE_PITCH] = fmaxf(V[4 * j], X[4 * j]);
            stw[(8 * j + 1) * STAGE_PITCH] = fmaxf(V[4 * j + 1], X[4 * j + 1]);
            if (wl < 3) {
              stw[(8 * j) * STAGE_PITCH + 8] = fmaxf(V[4 * j + 2], X[4 * j + 2]);
              stw[(8 * j + 1) * STAGE_PITCH + 8] = fmaxf(V[4 * j + 3], X[4 * j + 3]);
            }
          }
        }
#pragma unroll
        for (int k = 0; k < 48; ++k) V[k] = X[k];
        ++t;
      }
      __syncwarp();
      if (lane == 0) mbar_arrive(empty0 + (t & 3) * 8);
      ++t;
      bar_sync(2 + g, 128);                              // last pooled row of the range or image (n >= 1)
      store_rows(str, sb, oimg + (p0 + n - 1) * 27, lane);
      row += n;
      cnt -= n;
    }
    if (owe) bar_arrive(6, 256);
  }
}

// ---------------------------------------------------------------------------
// Any other shape: fp32, one thread per pooled output.
// ---------------------------------------------------------------------------
extern "C" __global__ void conv_pool_any(
    const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ bias,
    float* __restrict__ out, long long total, int C, int H, int W, int OC, int K, int S, int P,
    int PH, int PW, int PK, int PS) {
  const long long idx = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (idx >= total) return;
  const int pw = (int)(idx % PW);
  long long r = idx / PW;
  const int ph = (int)(r % PH);
  r /= PH;
  const int oc = (int)(r % OC);
  const long long n = r / OC;
  const float* xn = x + n * (long long)C * H * W;
  const float* wo = w + (long long)oc * C * K * K;
  float best = -INFINITY;
  for (int wy = 0; wy < PK; ++wy) {
    for (int wx = 0; wx < PK; ++wx) {
      const int iy0 = (ph * PS + wy) * S - P;
      const int ix0 = (pw * PS + wx) * S - P;
      float sum = 0.f;
      for (int c = 0; c < C; ++c) {
        const float* xc = xn + (long long)c * H * W;
        const float* wc = wo + (long long)c * K * K;
        for (int ky = 0; ky < K; ++ky) {
          const int iy = iy0 + ky;
          if (iy < 0 || iy >= H) continue;
          for (int kx = 0; kx < K; ++kx) {
            const int ix = ix0 + kx;
            if (ix >= 0 && ix < W) sum = fmaf(xc[(long long)iy * W + ix], wc[ky * K + kx], sum);
          }
        }
      }
      best = fmaxf(best, sum);
    }
  }
  out[idx] = fmaxf(best + bias[oc], 0.f);
}
"""

_k = jit.cuda(_SRC)

_SMEM = 214528


def _k_index():
    """Flat indices into a (3, 12, 12) zero-padded filter, in the order of the 52 chunks of 8."""
    chunks = []
    for dy in (0, 1):
        for dx in range(3):
            for j in range(6):
                chunks.append((dy, dx, j))
    for dx in range(3):
        for j in range(4):
            chunks.append((2, dx, j))
    chunks += [(2, 2, 4), (2, 2, 5), (2, 0, 4), (2, 1, 4)]
    idx = []
    for dy, dx, j in chunks:
        for e in range(8):
            sy, c = divmod(2 * j + e // 4, 3)
            idx.append((c * 12 + 4 * dy + sy) * 12 + 4 * dx + e % 4)
    return idx


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, pool_size, pool_stride):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, stride=stride, padding=padding)
        self.geo = (in_channels, out_channels, kernel_size, stride, padding, pool_size, pool_stride)
        self.fast = self.geo == (3, 96, 11, 4, 2, 3, 2)
        self.wpk = None
        self.wscale = None
        self.sms = 0

    def prepare(self):
        if not self.fast:
            return
        with torch.no_grad():
            w = self.conv.weight.detach().float().contiguous()
            amax = w.abs().amax(dim=(1, 2, 3)).contiguous()
            e = amax.view(torch.int32) // 8388608                 # biased exponent
            k = (141 - e).clamp(-120, 120)                        # largest magnitude into [2^14, 2^15)
            up = ((k + 127) * 8388608).to(torch.int32).contiguous().view(torch.float32)
            down = ((127 - k) * 8388608).to(torch.int32).contiguous().view(torch.float32)
            wp = torch.zeros((96, 3, 12, 12), device=w.device, dtype=torch.float32)
            wp[:, :, :11, :11] = w * up.view(-1, 1, 1, 1)
            idx = torch.tensor(_k_index(), device=w.device, dtype=torch.int64)
            flat = wp.reshape(96, 432).index_select(1, idx).to(torch.float16)
            self.wpk = flat.reshape(96, 26, 2, 8).permute(1, 2, 0, 3).contiguous()
            self.wscale = down.contiguous()
            if w.is_cuda:
                self.sms = torch.cuda.get_device_properties(w.device).multi_processor_count

    def forward(self, x):
        x = x.contiguous()
        cin, cout, ks, st, pad, pk, ps = self.geo
        n, c, h, w = x.shape
        oh = (h + 2 * pad - ks) // st + 1
        ow = (w + 2 * pad - ks) // st + 1
        ph = (oh - pk) // ps + 1
        pw = (ow - pk) // ps + 1
        out = torch.empty((n, cout, ph, pw), device=x.device, dtype=torch.float32)
        total = out.numel()
        if total == 0:
            return out
        bias = self.conv.bias.detach()
        if self.fast and h == 224 and w == 224 and x.data_ptr() % 16 == 0:
            if self.wpk is None:
                self.prepare()
            grid = max(1, min(self.sms, n * 27))
            _k.conv_pool_main[grid, 384, _SMEM](x, self.wpk, self.wscale, bias, out, n)
        else:
            weight = self.conv.weight.detach()
            _k.conv_pool_any[(total + 127) // 128, 128, 0](
                x, weight, bias, out, total, c, h, w, cout, ks, st, pad, ph, pw, pk, ps)
        return out
