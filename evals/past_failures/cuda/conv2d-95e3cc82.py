import torch
from torch import nn
from agentgen import jit

k = jit.cuda(r"""
// ---------------------------------------------------------------- helpers
__device__ __forceinline__ uint32_t smem_u32(const void* p) {
  return (uint32_t)__cvta_generic_to_shared(p);
}
__device__ __forceinline__ float to_tf32(float v) {
  uint32_t u;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(u) : "f"(v));
  return __uint_as_float(u);
}
__device__ __forceinline__ void mbar_init(uint32_t bar, uint32_t cnt) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(cnt) : "memory");
}
__device__ __forceinline__ void mbar_arrive(uint32_t bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(bar) : "memory");
}
__device__ __forceinline__ void mbar_expect(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(bytes) : "memory");
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
__device__ __forceinline__ void bulk_copy(uint32_t dst, const void* src, uint32_t bytes, uint32_t bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               :: "r"(dst), "l"(src), "r"(bytes), "r"(bar) : "memory");
}
__device__ __forceinline__ void fence_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void wg_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wg_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wg_wait1() { asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory"); }
__device__ __forceinline__ void wg_wait0() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }

__device__ __forceinline__ void wgmma96(float (&d)[48], uint64_t da, uint64_t db, int sd) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %50, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n96k8.f32.tf32.tf32 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, "
      "%40, %41, %42, %43, %44, %45, %46, %47}, "
      "%48, %49, p, 1, 1;\n"
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
    : "l"(da), "l"(db), "r"(sd));
}

// NS k8-steps over one staged group.  a: descriptor of the stage without its LBO field,
// b: descriptor of the packed weights.  Chunk i = r*3+q lies at 16-byte unit r*57+q.
template <int S0, int NS, int FIRST>
__device__ __forceinline__ void mma_group(float (&d)[48], uint64_t a, uint64_t b) {
#pragma unroll
  for (int s = 0; s < NS; ++s) {
    const int i = 2 * s;
    const uint64_t aoff = (uint64_t)((i / 3) * 57 + (i % 3)) |
                          ((uint64_t)(((i % 3) == 2) ? 55 : 1) << 16);
    const uint64_t boff = (uint64_t)((S0 + s) * 192);
    wgmma96(d, a + aoff, b + boff, (FIRST && s == 0) ? 0 : 1);
  }
}

// mean of the samples, kept to 8 explicit mantissa bits
__device__ __forceinline__ float pivot_of(const float* red, int which) {
  float s = 0.0f;
#pragma unroll
  for (int i = 0; i < 12; ++i) s += red[2 * i + which];
  s *= (1.0f / 768.0f);
  s = __uint_as_float((__float_as_uint(s) + 0x4000u) & 0xFFFF8000u);
  if (!(fabsf(s) < 1e30f)) s = 0.0f;
  return s;
}

__device__ __forceinline__ void load_group(float2 (&r)[12], const float* xi, int G, bool active) {
#pragma unroll
  for (int dh = 0; dh < 4; ++dh) {
    const int h = 4 * G - 2 + dh;
    const bool ok = active && ((unsigned)h < 224u);
#pragma unroll
    for (int c = 0; c < 3; ++c) {
      float2 v = make_float2(0.0f, 0.0f);
      if (ok) v = __ldg(reinterpret_cast<const float2*>(xi + c * 50176 + h * 224));
      r[dh * 3 + c] = v;
    }
  }
}

__device__ __forceinline__ void store_group(const float2 (&r)[12], unsigned char* dst, int G, float m, bool active) {
  if (active) {
#pragma unroll
    for (int dh = 0; dh < 4; ++dh) {
      const int h = 4 * G - 2 + dh;
      const bool ok = ((unsigned)h < 224u);
#pragma unroll
      for (int c = 0; c < 3; ++c) {
        float2 q;
        q.x = ok ? to_tf32(r[dh * 3 + c].x - m) : 0.0f;
        q.y = ok ? to_tf32(r[dh * 3 + c].y - m) : 0.0f;
        *reinterpret_cast<float2*>(dst + (dh * 3 + c) * 912) = q;
      }
    }
  }
}

// ---------------------------------------------------------------- weights
// packed: [50 steps][2 chunks][96 channels][4 taps], rounded to TF32
// tsum:   [3 row classes][3 column classes][96], sums of the fp32 weights over the valid taps
extern "C" __global__ void pack_weights(const float* __restrict__ w, float* __restrict__ packed, float* __restrict__ tsum) {
  const int idx = blockIdx.x * blockDim.x + threadIdx.x;
  if (idx < 38400) {
    const int e = idx & 3;
    const int n = (idx >> 2) % 96;
    const int sj = idx / 384;
    const int j = sj & 1;
    const int step = sj >> 1;
    const int bh = step < 18 ? 0 : (step < 36 ? 1 : 2);
    const int i = 2 * (step - 18 * bh) + j;
    const int r = i / 3;
    const int q = i - 3 * r;
    const int dh = r / 3;
    const int c = r - 3 * dh;
    const int kh = 4 * bh + dh;
    const int kw = 4 * q + e;
    float v = 0.0f;
    if (kh < 11 && kw < 11) v = to_tf32(w[((n * 3 + c) * 11 + kh) * 11 + kw]);
    packed[idx] = v;
  }
  if (idx < 864) {
    const int n = idx % 96;
    const int cls = idx / 96;
    const int hc = cls / 3;
    const int wc = cls - 3 * hc;
    const int kh0 = hc == 0 ? 2 : 0;
    const int kh1 = hc == 2 ? 10 : 11;
    const int kw0 = wc == 0 ? 2 : 0;
    const int kw1 = wc == 2 ? 10 : 11;
    double s = 0.0;
    for (int c = 0; c < 3; ++c)
      for (int kh = kh0; kh < kh1; ++kh)
        for (int kw = kw0; kw < kw1; ++kw)
          s += (double)w[((n * 3 + c) * 11 + kh) * 11 + kw];
    tsum[idx] = (float)s;
  }
}

// ---------------------------------------------------------------- main kernel
// shared memory (bytes from a 128-byte aligned base):
//      0  packed weights            153600
// 153600  6 stages of 10944          65664
// 219264  slack                        192
// 219456  addends [2][3][3][96]       6912
// 226368  partial sums                 128
// 226496  barriers: full 6, empty 6, weights 3
extern "C" __global__ void __launch_bounds__(512, 1) conv_alex(const float* __restrict__ x, const float* __restrict__ packed, const float* __restrict__ tsum, const float* __restrict__ bias, float* __restrict__ out, int nrows) {
  extern __shared__ unsigned char smem_raw[];
  const uint32_t raw = smem_u32(smem_raw);
  const uint32_t base = (raw + 127u) & ~127u;
  unsigned char* sp = smem_raw + (base - raw);

  const uint32_t sW = base;
  const uint32_t sStage = base + 153600u;
  float* sE = reinterpret_cast<float*>(sp + 219456);
  float* sRed = reinterpret_cast<float*>(sp + 226368);
  const uint32_t bFull = base + 226496u;
  const uint32_t bEmpty = bFull + 48u;
  const uint32_t bW = bFull + 96u;

  const int tid = threadIdx.x;
  const int lane = tid & 31;
  const int warp = __shfl_sync(0xffffffffu, tid >> 5, 0);

  const long long nb = (long long)gridDim.x;
  const int R0 = (int)((long long)blockIdx.x * nrows / nb);
  const int R1 = (int)(((long long)blockIdx.x + 1) * nrows / nb);
  const int L = R1 - R0;                       // 1..55 rows, at most two images
  const int n0 = R0 / 55;
  const int oh0 = R0 - n0 * 55;
  const int len0 = min(L, 55 - oh0);
  const int len1 = L - len0;
  const int cnt0 = len0 + 2;
  const int total = L + 2 + (len1 > 0 ? 2 : 0);
  const int n1 = len1 > 0 ? n0 + 1 : n0;

  if (tid == 0) {
    for (int i = 0; i < 6; ++i) {
      mbar_init(bFull + 8u * i, 4u);
      mbar_init(bEmpty + 8u * i, 12u);
    }
    for (int i = 0; i < 3; ++i) mbar_init(bW + 8u * i, 1u);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    fence_async();
    const unsigned char* src = reinterpret_cast<const unsigned char*>(packed);
    for (int i = 0; i < 3; ++i) {
      const uint32_t bytes = i < 2 ? 55296u : 43008u;
      mbar_expect(bW + 8u * i, bytes);
      bulk_copy(sW + 55296u * i, src + 55296 * i, bytes, bW + 8u * i);
    }
  }
  // the padding columns of every staged line stay zero for good
  if (tid < 144) {
    const int sg = tid / 24;
    const int rr = tid - 24 * sg;
    *reinterpret_cast<float2*>(sp + 153600 + sg * 10944 + (rr >> 1) * 912 + (rr & 1) * 904) = make_float2(0.0f, 0.0f);
  }
  fence_async();
  __syncthreads();

  if (warp >= 12) {
    // ------------------------------------------------------------ producer
    const int v = tid - 384;
    const bool active = v < 112;
    const float* xa = x + (long long)n0 * 150528 + 2 * v;
    const float* xb = x + (long long)n1 * 150528 + 2 * v;
    float2 ra[12];
    float2 rb[12];
    auto fetch = [&](float2 (&r)[12], int s) {
      const bool first = s < cnt0;
      load_group(r, first ? xa : xb, first ? oh0 + s : s - cnt0, active);
    };
    fetch(ra, 0);
    fetch(rb, 1);                              // total >= 3
    asm volatile("bar.sync 1, 512;" ::: "memory");
    const float m0 = pivot_of(sRed, 0);
    const float m1 = pivot_of(sRed, 1);
    int st = 0;
    uint32_t ph = 0;
    auto put = [&](const float2 (&r)[12], int s) {
      const bool first = s < cnt0;
      mbar_wait(bEmpty + 8u * st, ph ^ 1u);
      __syncwarp();
      store_group(r, sp + 153600 + st * 10944 + 8 + 8 * v, first ? oh0 + s : s - cnt0, first ? m0 : m1, active);
      fence_async();
      __syncwarp();
      if (lane == 0) mbar_arrive(bFull + 8u * st);
      if (++st == 6) { st = 0; ph ^= 1u; }
    };
    for (int s = 0; s < total; s += 2) {
      put(ra, s);
      if (s + 2 < total) fetch(ra, s + 2);
      if (s + 1 < total) {
        put(rb, s + 1);
        if (s + 3 < total) fetch(rb, s + 3);
      }
    }
  } else {
    // ------------------------------------------------------------ consumers
    {
      const float* x0 = x + (long long)n0 * 150528;
      const float* x1 = x + (long long)n1 * 150528;
      const int i0 = tid * 195 + 480;
      const int i1 = (tid + 384) * 195 + 480;  // at most 150045
      const float a0 = __ldg(x0 + i0);
      const float a1 = __ldg(x0 + i1);
      const float c0 = __ldg(x1 + i0);
      const float c1 = __ldg(x1 + i1);
      float a = a0 + a1;
      float c = c0 + c1;
#pragma unroll
      for (int o = 16; o > 0; o >>= 1) {
        a += __shfl_xor_sync(0xffffffffu, a, o);
        c += __shfl_xor_sync(0xffffffffu, c, o);
      }
      if (lane == 0) {
        sRed[2 * warp] = a;
        sRed[2 * warp + 1] = c;
      }
      asm volatile("bar.sync 1, 512;" ::: "memory");
      const float m0 = pivot_of(sRed, 0);
      const float m1 = pivot_of(sRed, 1);
      for (int idx = tid; idx < 1728; idx += 384) {
        const int sg = idx >= 864 ? 1 : 0;
        const int rem = idx - 864 * sg;
        sE[idx] = fmaf(sg ? m1 : m0, tsum[rem], bias[rem % 96]);
      }
      asm volatile("bar.sync 2, 384;" ::: "memory");
    }

    const int wg = warp >> 2;
    const int wq = warp & 3;
    const int g = lane >> 2;
    const int t = lane & 3;
    const bool odd = (t & 1) != 0;
    const int plo = wq * 16 + g;
    const int cw = plo == 0 ? 0 : (plo == 54 ? 2 : 1);
    const int px = plo + (odd ? 8 : 0);
    const bool okpx = px < 55;

    const uint64_t bdesc = (uint64_t)((sW >> 4) & 0x3FFFu) | (96ull << 16) | (8ull << 32);
    const uint64_t abase = (uint64_t)((sStage >> 4) & 0x3FFFu) | (8ull << 32);

    int s = 0;
    int st = 0;
    uint32_t ph = 0;
    for (int l = wg; l < L; l += 3) {
      const int seg = l >= len0 ? 1 : 0;
      const int f = l + 2 * seg;
      while (s < f) {                          // groups that this warpgroup does not use
        mbar_wait(bFull + 8u * st, ph);
        __syncwarp();
        if (lane == 0) mbar_arrive(bEmpty + 8u * st);
        ++s;
        if (++st == 6) { st = 0; ph ^= 1u; }
      }
      float d[48];
#pragma unroll
      for (int i = 0; i < 48; ++i) d[i] = 0.0f;

      // bh = 0
      const int st0 = st;
      mbar_wait(bFull + 8u * st, ph);
      mbar_wait(bW, 0u);
      __syncwarp();
      wg_fence();
      mma_group<0, 18, 1>(d, abase + (uint64_t)(st * 684), bdesc);
      wg_commit();
      if (++st == 6) { st = 0; ph ^= 1u; }

      // bh = 1
      const int st1 = st;
      mbar_wait(bFull + 8u * st, ph);
      mbar_wait(bW + 8u, 0u);
      __syncwarp();
      wg_fence();
      mma_group<18, 18, 0>(d, abase + (uint64_t)(st * 684), bdesc);
      wg_commit();
      wg_wait1();
      if (lane == 0) mbar_arrive(bEmpty + 8u * st0);
      __syncwarp();
      if (++st == 6) { st = 0; ph ^= 1u; }

      // bh = 2
      const int st2 = st;
      mbar_wait(bFull + 8u * st, ph);
      mbar_wait(bW + 16u, 0u);
      __syncwarp();
      wg_fence();
      mma_group<36, 14, 0>(d, abase + (uint64_t)(st * 684), bdesc);
      wg_commit();
      wg_wait1();
      if (lane == 0) mbar_arrive(bEmpty + 8u * st1);
      __syncwarp();
      wg_wait0();
      if (lane == 0) mbar_arrive(bEmpty + 8u * st2);
      __syncwarp();
      if (++st == 6) { st = 0; ph ^= 1u; }
      s += 3;

#pragma unroll
      for (int i = 0; i < 48; ++i) asm volatile("" : "+f"(d[i]) :: "memory");

      // epilogue: pairs of lanes swap, so that one store covers 16 pixels of 2 channels
      const int oh = seg ? (l - len0) : (oh0 + l);
      const int hc = oh == 0 ? 0 : (oh == 54 ? 2 : 1);
      const float* e1 = sE + seg * 864 + (hc * 3 + 1) * 96 + 2 * t;
      const float* e0 = sE + seg * 864 + (hc * 3 + cw) * 96 + 2 * t;
      float* o = out + ((long long)(n0 + seg) * 96 + 2 * (t & 2)) * 3025 + oh * 55 + px;
#pragma unroll
      for (int j = 0; j < 12; ++j) {
        const float2 v1 = *reinterpret_cast<const float2*>(e1 + 8 * j);
        float2 v0 = v1;
        if (cw != 1) v0 = *reinterpret_cast<const float2*>(e0 + 8 * j);
        const float lo0 = d[4 * j + 0] + v0.x;
        const float lo1 = d[4 * j + 1] + v0.y;
        const float hi0 = d[4 * j + 2] + v1.x;
        const float hi1 = d[4 * j + 3] + v1.y;
        const float r0 = __shfl_xor_sync(0xffffffffu, odd ? lo0 : hi0, 1);
        const float r1 = __shfl_xor_sync(0xffffffffu, odd ? lo1 : hi1, 1);
        if (okpx) {
          o[(8 * j + 0) * 3025] = odd ? r0 : lo0;
          o[(8 * j + 1) * 3025] = odd ? r1 : lo1;
          o[(8 * j + 2) * 3025] = odd ? hi0 : r0;
          o[(8 * j + 3) * 3025] = odd ? hi1 : r1;
        }
      }
      __syncwarp();
    }
    while (s < total) {
      mbar_wait(bFull + 8u * st, ph);
      __syncwarp();
      if (lane == 0) mbar_arrive(bEmpty + 8u * st);
      ++s;
      if (++st == 6) { st = 0; ph ^= 1u; }
    }
  }
}

// ---------------------------------------------------------------- any other shape
extern "C" __global__ void conv_direct(const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ bias, float* __restrict__ y, long long total, int C, int H, int W, int OC, int KH, int KW, int sh, int sw, int padh, int padw, int OH, int OW) {
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long idx = (long long)blockIdx.x * blockDim.x + threadIdx.x; idx < total; idx += step) {
    const int ow = (int)(idx % OW);
    long long rest = idx / OW;
    const int oh = (int)(rest % OH);
    rest /= OH;
    const int oc = (int)(rest % OC);
    const long long n = rest / OC;
    const int h0 = oh * sh - padh;
    const int w0 = ow * sw - padw;
    const int kh0 = h0 < 0 ? -h0 : 0;
    const int kh1 = min(KH, H - h0);
    const int kw0 = w0 < 0 ? -w0 : 0;
    const int kw1 = min(KW, W - w0);
    float acc = 0.0f;
    for (int c = 0; c < C; ++c) {
      const float* xc = x + (n * C + c) * (long long)H * W;
      const float* wc = w + ((long long)oc * C + c) * KH * KW;
      float part = 0.0f;
      for (int kh = kh0; kh < kh1; ++kh) {
        const float* xr = xc + (long long)(h0 + kh) * W + w0;
        const float* wr = wc + (long long)kh * KW;
        for (int kw = kw0; kw < kw1; ++kw) part = fmaf(__ldg(xr + kw), __ldg(wr + kw), part);
      }
      acc += part;
    }
    y[idx] = acc + bias[oc];
  }
}
""")

SMEM_BYTES = 226496 + 128 + 128


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, stride=stride, padding=padding)
        self.packed = None
        self.tsum = None
        self.sms = 132
        self.special = (
            tuple(self.conv.weight.shape) == (96, 3, 11, 11)
            and tuple(self.conv.stride) == (4, 4)
            and tuple(self.conv.padding) == (2, 2)
        )

    def prepare(self):
        w = self.conv.weight
        if not self.special or not w.is_cuda:
            return
        packed = torch.empty(38400, device=w.device, dtype=torch.float32)
        tsum = torch.empty(864, device=w.device, dtype=torch.float32)
        k.pack_weights[150, 256, 0](w.detach(), packed, tsum)
        self.packed = packed
        self.tsum = tsum
        self.sms = torch.cuda.get_device_properties(w.device).multi_processor_count

    def forward(self, x):
        conv = self.conv
        n, c, h, w = x.shape
        oc, _, kh, kw = conv.weight.shape
        sh, sw = conv.stride
        ph, pw = conv.padding
        oh = (h + 2 * ph - kh) // sh + 1
        ow = (w + 2 * pw - kw) // sw + 1
        y = torch.empty((n, oc, oh, ow), device=x.device, dtype=x.dtype)
        total = n * oc * oh * ow
        if total == 0:
            return y
        if self.special and c == 3 and h == 224 and w == 224 and n <= 1000000 and x.data_ptr() % 16 == 0:
            if self.packed is None:
                self.prepare()
            rows = n * 55
            # at most 55 rows a block, so that a run never touches more than two images
            grid = min(rows, max(self.sms, n))
            k.conv_alex[grid, 512, SMEM_BYTES](x, self.packed, self.tsum, conv.bias.detach(), y, rows)
        else:
            grid = min((total + 127) // 128, 1 << 20)
            k.conv_direct[grid, 128, 0](
                x, conv.weight.detach(), conv.bias.detach(), y, total,
                c, h, w, oc, kh, kw, sh, sw, ph, pw, oh, ow,
            )
        return y
