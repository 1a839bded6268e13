import torch
from torch import nn
from agentgen import jit

k = jit.cuda(r"""
#include <cuda_fp16.h>

// fast path: C 3, 224 x 224, 11 x 11, stride 4, padding 2, 96 channels
#define ROWB 464                 // bytes of a row of fp16 pixels
#define NROWS 94                 // 31 input rows x 3 channels + 1 spare
#define IMGB (NROWS * ROWB)      // 43616
#define WB 76800                 // filter: 25 steps x 3072 bytes
#define STPITCH 68
#define STB (96 * STPITCH * 4)   // 26112
#define OFF_IMG WB
#define OFF_ST (WB + 2 * IMGB)
#define OFF_BIAS (OFF_ST + 2 * STB)
#define OFF_BAR (OFF_BIAS + 384)
#define NPIX 3025
#define TILES 48
#define INFLIGHT 14

__device__ __forceinline__ uint32_t smem_addr(const void* p) {
  return (uint32_t)__cvta_generic_to_shared(p);
}
__device__ __forceinline__ void bar_init(uint32_t bar, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
__device__ __forceinline__ void bar_arrive(uint32_t bar) {
  asm volatile("{\n.reg .b64 st;\nmbarrier.arrive.shared::cta.b64 st, [%0];\n}" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void bar_wait(uint32_t bar, uint32_t parity) {
  uint32_t done = 0;
  while (!done) {
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done) : "r"(bar), "r"(parity) : "memory");
  }
}

// four values of the image as fp16
struct Quad { uint32_t r[4]; };

__device__ __forceinline__ void quad_load(Quad& q, const float* p) {
  asm volatile("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(q.r[0]), "=r"(q.r[1]), "=r"(q.r[2]), "=r"(q.r[3]) : "l"(p));
}
__device__ __forceinline__ void quad_load(Quad& q, const __half* p) {
  asm volatile("ld.global.nc.v2.u32 {%0,%1}, [%2];" : "=r"(q.r[0]), "=r"(q.r[1]) : "l"(p));
}
__device__ __forceinline__ void quad_store(const Quad& q, unsigned char* d, const float*) {
  *reinterpret_cast<__half2*>(d) = __floats2half2_rn(__uint_as_float(q.r[0]), __uint_as_float(q.r[1]));
  *reinterpret_cast<__half2*>(d + 4) = __floats2half2_rn(__uint_as_float(q.r[2]), __uint_as_float(q.r[3]));
}
__device__ __forceinline__ void quad_store(const Quad& q, unsigned char* d, const __half*) {
  *reinterpret_cast<uint32_t*>(d) = q.r[0];
  *reinterpret_cast<uint32_t*>(d + 4) = q.r[1];
}
__device__ __forceinline__ void put_out(float* p, float v) { *p = v; }
__device__ __forceinline__ void put_out(__half* p, float v) { *p = __float2half_rn(v); }
__device__ __forceinline__ float as_half_value(float v) { return __half2float(__float2half_rn(v)); }
__device__ __forceinline__ float as_half_value(__half v) { return __half2float(v); }

__device__ __forceinline__ void wg_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wg_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wg_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }

__device__ __forceinline__ void wgmma96(float (&d)[48], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                        uint64_t desc, int scale_d) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %53, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
      "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47}, "
      "{%48,%49,%50,%51}, %52, p, 1, 1, 0;\n"
      "}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(desc), "r"(scale_d));
}

template <int G>
__device__ __forceinline__ void load_group(uint32_t (&a)[20], const unsigned char* b0, const unsigned char* b1,
                                           const int (&off)[3]) {
#pragma unroll
  for (int i = 0; i < 5; i++) {
    const int s = G * 5 + i;
    const int o = off[s % 3];
    uint2 u = *reinterpret_cast<const uint2*>(b0 + o + (s / 3) * (4 * ROWB));
    uint2 v = *reinterpret_cast<const uint2*>(b1 + o + (s / 3) * (4 * ROWB));
    a[4 * i + 0] = u.x;
    a[4 * i + 1] = v.x;
    a[4 * i + 2] = u.y;
    a[4 * i + 3] = v.y;
  }
}

template <int G>
__device__ __forceinline__ void mma_group(float (&d)[48], const uint32_t (&a)[20], uint64_t desc) {
  wg_fence();
#pragma unroll
  for (int i = 0; i < 5; i++) {
    const int s = G * 5 + i;
    wgmma96(d, a[4 * i], a[4 * i + 1], a[4 * i + 2], a[4 * i + 3], desc + (uint64_t)(s * 192), s == 0 ? 0 : 1);
  }
  wg_commit();
}

// keeps the operands of a pending wgmma alive up to here
__device__ __forceinline__ void hold(uint32_t (&a)[20]) {
#pragma unroll
  for (int i = 0; i < 20; i++) asm volatile("" : "+r"(a[i])::"memory");
}

template <typename T>
__device__ __forceinline__ void conv_fast(const T* __restrict__ x, const __half* __restrict__ wp,
                                          const float* __restrict__ bias, T* __restrict__ y, int N) {
  extern __shared__ __align__(128) unsigned char smem[];
  const int tid = threadIdx.x;

  for (int i = tid; i < WB / 16; i += 384)
    reinterpret_cast<uint4*>(smem)[i] = reinterpret_cast<const uint4*>(wp)[i];
  for (int i = tid; i < 2 * IMGB / 16; i += 384)
    reinterpret_cast<uint4*>(smem + OFF_IMG)[i] = make_uint4(0u, 0u, 0u, 0u);
  float* sbias = reinterpret_cast<float*>(smem + OFF_BIAS);
  if (tid < 96) sbias[tid] = bias[tid];
  const uint32_t full = smem_addr(smem + OFF_BAR);
  const uint32_t empty = full + 16;
  if (tid == 0) {
    bar_init(full, 128);
    bar_init(full + 8, 128);
    bar_init(empty, 256);
    bar_init(empty + 8, 256);
  }
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();

  const long long total = (long long)N * TILES;
  int r = (int)(total * blockIdx.x / gridDim.x);
  const int rend = (int)(total * (blockIdx.x + 1) / gridDim.x);
  const int wg = tid >> 7;

  if (wg == 0) {
    // ---------------- loader ----------------
    for (int it = 0; r < rend; it++) {
      const int n = r / TILES;
      const int t0 = r - n * TILES;
      const int cnt = min(4, min(rend - r, TILES - t0));
      const int y0 = t0 * 64 / 55;
      const int y1 = (min((t0 + cnt) * 64, NPIX) - 1) / 55;
      const int nvec = (4 * (y1 - y0) + 11) * 168;
      const int iy0 = 4 * y0 - 2;
      const T* img = x + (long long)n * 150528;
      const int b = it & 1;
      unsigned char* buf = smem + OFF_IMG + b * IMGB;

      bar_wait(empty + 8 * b, ((it >> 1) & 1) ^ 1);
      for (int i0 = tid; i0 < nvec; i0 += 128 * INFLIGHT) {
        Quad q[INFLIGHT];
#pragma unroll
        for (int j = 0; j < INFLIGHT; j++) {
          const int i = i0 + 128 * j;
          q[j].r[0] = q[j].r[1] = q[j].r[2] = q[j].r[3] = 0u;
          if (i < nvec) {
            const int row = i / 56;
            const int col = i - row * 56;
            const int ry = row / 3;
            const int c = row - ry * 3;
            const int iy = iy0 + ry;
            if (iy >= 0 && iy < 224) quad_load(q[j], img + (c * 224 + iy) * 224 + col * 4);
          }
        }
#pragma unroll
        for (int j = 0; j < INFLIGHT; j++) {
          const int i = i0 + 128 * j;
          if (i < nvec) {
            const int row = i / 56;
            // row * 464 + (i - row * 56) * 8 + 4
            quad_store(q[j], buf + row * 16 + i * 8 + 4, x);
          }
        }
      }
      bar_arrive(full + 8 * b);
      r += cnt;
    }
  } else {
    // ---------------- consumers ----------------
    const int cw = wg - 1;
    const int lane = tid & 31;
    const int warp = (tid >> 5) & 3;
    const int g = lane >> 2;
    const int t = lane & 3;
    float* st = reinterpret_cast<float*>(smem + OFF_ST + cw * STB);
    const int barid = 1 + cw;

    int off[3];
#pragma unroll
    for (int m = 0; m < 3; m++) {
      const int u = 4 * m + t;
      off[m] = (u / 3) * ROWB + (u % 3) * 8;
    }
    // K-major, no swizzle: leading offset 1536 bytes (k halves), stride offset 128 bytes (8 channels)
    const uint64_t desc = (uint64_t)((smem_addr(smem) & 0x3FFFF) >> 4) | ((uint64_t)(1536 >> 4) << 16) |
                          ((uint64_t)(128 >> 4) << 32);

    for (int it = 0; r < rend; it++) {
      const int n = r / TILES;
      const int t0 = r - n * TILES;
      const int cnt = min(4, min(rend - r, TILES - t0));
      const int y0 = t0 * 64 / 55;
      const int b = it & 1;
      const unsigned char* buf = smem + OFF_IMG + b * IMGB;
      T* yn = y + (long long)n * (96 * NPIX);

      bar_wait(full + 8 * b, (it >> 1) & 1);
      int j = (r ^ cw) & 1;
      if (j >= cnt) bar_arrive(empty + 8 * b);
#pragma unroll 1
      for (; j < cnt; j += 2) {
        const int p0 = (t0 + j) * 64;
        const int pa = min(p0 + warp * 16 + g, NPIX - 1);
        const int pb = min(p0 + warp * 16 + g + 8, NPIX - 1);
        const int ya = pa / 55;
        const int yb = pb / 55;
        const unsigned char* b0 = buf + (ya - y0) * (12 * ROWB) + (pa - ya * 55) * 8;
        const unsigned char* b1 = buf + (yb - y0) * (12 * ROWB) + (pb - yb * 55) * 8;

        float d[48];
#pragma unroll
        for (int i = 0; i < 48; i++) d[i] = 0.f;
        uint32_t a0[20], a1[20];

        load_group<0>(a0, b0, b1, off);
        mma_group<0>(d, a0, desc);
        load_group<1>(a1, b0, b1, off);
        mma_group<1>(d, a1, desc);
        wg_wait<1>();
        hold(a0);
        load_group<2>(a0, b0, b1, off);
        mma_group<2>(d, a0, desc);
        wg_wait<1>();
        hold(a1);
        load_group<3>(a1, b0, b1, off);
        mma_group<3>(d, a1, desc);
        wg_wait<1>();
        hold(a0);
        load_group<4>(a0, b0, b1, off);
        mma_group<4>(d, a0, desc);
        wg_wait<0>();
        hold(a0);
        hold(a1);
#pragma unroll
        for (int i = 0; i < 48; i++) asm volatile("" : "+f"(d[i])::"memory");
        if (j + 2 >= cnt) bar_arrive(empty + 8 * b);

        // the staging tile may still be read by a slower warp
        asm volatile("bar.sync %0, 128;" ::"r"(barid) : "memory");
        float* sp = st + 2 * t * STPITCH + warp * 16 + g;
#pragma unroll
        for (int i = 0; i < 12; i++) {
          sp[(8 * i) * STPITCH] = d[4 * i];
          sp[(8 * i + 1) * STPITCH] = d[4 * i + 1];
          sp[(8 * i) * STPITCH + 8] = d[4 * i + 2];
          sp[(8 * i + 1) * STPITCH + 8] = d[4 * i + 3];
        }
        asm volatile("bar.sync %0, 128;" ::"r"(barid) : "memory");
        const int pix = p0 + lane;
        const bool ok0 = pix < NPIX;
        const bool ok1 = pix + 32 < NPIX;
#pragma unroll 8
        for (int q = 0; q < 24; q++) {
          const int ch = q * 4 + warp;
          const float bv = sbias[ch];
          const float v0 = st[ch * STPITCH + lane] + bv;
          const float v1 = st[ch * STPITCH + lane + 32] + bv;
          T* yp = yn + ch * NPIX + pix;
          if (ok0) put_out(yp, v0);
          if (ok1) put_out(yp + 32, v1);
        }
      }
      r += cnt;
    }
  }
}

template <typename T>
__device__ __forceinline__ void conv_plain(const T* __restrict__ x, const __half* __restrict__ w,
                                           const float* __restrict__ bias, T* __restrict__ y,
                                           long long total, int C, int H, int W, int CO, int OH, int OW,
                                           int KH, int KW, int SH, int SW, int PH, int PW) {
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < total;
       i += (long long)gridDim.x * blockDim.x) {
    const int ox = (int)(i % OW);
    const long long i1 = i / OW;
    const int oy = (int)(i1 % OH);
    const long long i2 = i1 / OH;
    const int co = (int)(i2 % CO);
    const long long n = i2 / CO;
    const int ys = oy * SH - PH;
    const int xs = ox * SW - PW;
    float sum = 0.f;
    for (int c = 0; c < C; c++) {
      for (int ky = max(0, -ys); ky < KH && ys + ky < H; ky++) {
        const T* xr = x + ((n * C + c) * H + ys + ky) * (long long)W;
        const __half* wr = w + (((long long)co * C + c) * KH + ky) * KW;
        for (int kx = max(0, -xs); kx < KW && xs + kx < W; kx++)
          sum = fmaf(as_half_value(xr[xs + kx]), __half2float(wr[kx]), sum);
      }
    }
    put_out(y + i, sum + bias[co]);
  }
}

extern "C" __global__ void __launch_bounds__(384, 1)
fast_f32(const float* __restrict__ x, const __half* __restrict__ wp, const float* __restrict__ bias,
         float* __restrict__ y, int N) {
  conv_fast<float>(x, wp, bias, y, N);
}

extern "C" __global__ void __launch_bounds__(384, 1)
fast_f16(const __half* __restrict__ x, const __half* __restrict__ wp, const float* __restrict__ bias,
         __half* __restrict__ y, int N) {
  conv_fast<__half>(x, wp, bias, y, N);
}

extern "C" __global__ void __launch_bounds__(128)
plain_f32(const float* __restrict__ x, const __half* __restrict__ w, const float* __restrict__ bias,
          float* __restrict__ y, long long total, int C, int H, int W, int CO, int OH, int OW,
          int KH, int KW, int SH, int SW, int PH, int PW) {
  conv_plain<float>(x, w, bias, y, total, C, H, W, CO, OH, OW, KH, KW, SH, SW, PH, PW);
}

extern "C" __global__ void __launch_bounds__(128)
plain_f16(const __half* __restrict__ x, const __half* __restrict__ w, const float* __restrict__ bias,
          __half* __restrict__ y, long long total, int C, int H, int W, int CO, int OH, int OW,
          int KH, int KW, int SH, int SW, int PH, int PW) {
  conv_plain<__half>(x, w, bias, y, total, C, H, W, CO, OH, OW, KH, KW, SH, SW, PH, PW);
}
""")

SMEM = 76800 + 2 * 43616 + 2 * 26112 + 384 + 64


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, stride=stride, padding=padding)
        self.wh = None
        self.wp = None
        self.bf = None
        self.sm_count = 1

    def prepare(self):
        w = self.conv.weight.detach()
        dev = w.device
        self.wh = w.to(torch.float16).contiguous()
        if self.conv.bias is None:
            self.bf = torch.zeros(w.shape[0], dtype=torch.float32, device=dev)
        else:
            self.bf = self.conv.bias.detach().to(torch.float32).clone()
        self.sm_count = torch.cuda.get_device_properties(dev).multi_processor_count
        self.wp = None
        if (tuple(w.shape) == (96, 3, 11, 11) and tuple(self.conv.stride) == (4, 4)
                and tuple(self.conv.padding) == (2, 2)):
            full = torch.zeros((96, 400), dtype=torch.float16, device=dev)
            # rows in the order (ky, c), each of 11 taps and one zero
            full[:, :396].view(96, 33, 12)[:, :, :11] = self.wh.permute(0, 2, 1, 3).reshape(96, 33, 11)
            # (channel, step, unit t, k half, element) -> (step, k half, channel, t, element)
            self.wp = full.view(96, 25, 4, 2, 2).permute(1, 3, 0, 2, 4).contiguous()

    def forward(self, x):
        if self.wh is None:
            self.prepare()
        x = x.contiguous()
        n, c, h, w = x.shape
        co, _, kh, kw = self.wh.shape
        sh, sw = self.conv.stride
        ph, pw = self.conv.padding
        oh = (h + 2 * ph - kh) // sh + 1
        ow = (w + 2 * pw - kw) // sw + 1
        y = torch.empty((n, co, oh, ow), dtype=x.dtype, device=x.device)
        total = y.numel()
        if total == 0:
            return y
        is_half = x.dtype == torch.float16
        if self.wp is not None and c == 3 and h == 224 and w == 224 and x.data_ptr() % 16 == 0:
            grid = min(self.sm_count, n * 48)
            if is_half:
                k.fast_f16[grid, 384, SMEM](x, self.wp, self.bf, y, n)
            else:
                k.fast_f32[grid, 384, SMEM](x, self.wp, self.bf, y, n)
        else:
            grid = min((total + 127) // 128, 1 << 20)
            if is_half:
                k.plain_f16[grid, 128, 0](x, self.wh, self.bf, y, total, c, h, w, co, oh, ow,
                                          kh, kw, sh, sw, ph, pw)
            else:
                k.plain_f32[grid, 128, 0](x, self.wh, self.bf, y, total, c, h, w, co, oh, ow,
                                          kh, kw, sh, sw, ph, pw)
        return y
