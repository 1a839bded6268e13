import torch
from torch import nn
from agentgen import jit

k = jit.cuda(r"""
#include <cuda_bf16.h>

#define CH 64

__device__ __forceinline__ uint32_t load_stream(const uint32_t* p) {
  uint32_t v;
  asm volatile("ld.global.nc.L1::no_allocate.b32 %0, [%1];" : "=r"(v) : "l"(p));
  return v;
}

// 64 channels, an even number of pixels; words = pixels of an image / 2
extern "C" __global__ void __launch_bounds__(256, 2)
rms64(const __nv_bfloat16* __restrict__ x, __nv_bfloat16* __restrict__ y,
      int words, int blocks_per_image, float eps) {
  const int image = blockIdx.x / blocks_per_image;
  const int w = (blockIdx.x - image * blocks_per_image) * 256 + threadIdx.x;
  if (w >= words) return;
  const long long base = (long long)image * CH * words + w;
  const uint32_t* src = reinterpret_cast<const uint32_t*>(x) + base;
  uint32_t* dst = reinterpret_cast<uint32_t*>(y) + base;

  uint32_t v[CH];
#pragma unroll
  for (int c = 0; c < CH; ++c) v[c] = load_stream(src + (long long)c * words);

  float a[4] = {0.f, 0.f, 0.f, 0.f};
  float b[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
  for (int c = 0; c < CH; ++c) {
    const float lo = __uint_as_float(v[c] << 16);
    const float hi = __uint_as_float(v[c] & 0xffff0000u);
    a[c & 3] = fmaf(lo, lo, a[c & 3]);
    b[c & 3] = fmaf(hi, hi, b[c & 3]);
  }
  const float sa = (a[0] + a[1]) + (a[2] + a[3]);
  const float sb = (b[0] + b[1]) + (b[2] + b[3]);
  const float ra = rsqrtf(sa * (1.0f / CH) + eps);
  const float rb = rsqrtf(sb * (1.0f / CH) + eps);

#pragma unroll
  for (int c = 0; c < CH; ++c) {
    const float lo = __uint_as_float(v[c] << 16) * ra;
    const float hi = __uint_as_float(v[c] & 0xffff0000u) * rb;
    __nv_bfloat162 o = __floats2bfloat162_rn(lo, hi);
    __stcs(reinterpret_cast<unsigned int*>(dst + (long long)c * words), *reinterpret_cast<unsigned int*>(&o));
  }
}

// any shape: one thread per pixel
extern "C" __global__ void __launch_bounds__(256)
rms_any(const __nv_bfloat16* __restrict__ x, __nv_bfloat16* __restrict__ y,
        long long pixels, int channels, long long hw, float eps) {
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < pixels; i += step) {
    const long long image = i / hw;
    const long long base = image * channels * hw + (i - image * hw);
    const __nv_bfloat16* src = x + base;
    __nv_bfloat16* dst = y + base;
    float s[4] = {0.f, 0.f, 0.f, 0.f};
    int c = 0;
    for (; c + 4 <= channels; c += 4) {
      float v[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) v[j] = __bfloat162float(src[(long long)(c + j) * hw]);
#pragma unroll
      for (int j = 0; j < 4; ++j) s[j] = fmaf(v[j], v[j], s[j]);
    }
    for (; c < channels; ++c) {
      const float v = __bfloat162float(src[(long long)c * hw]);
      s[0] = fmaf(v, v, s[0]);
    }
    const float r = rsqrtf(((s[0] + s[1]) + (s[2] + s[3])) / (float)channels + eps);
#pragma unroll 4
    for (c = 0; c < channels; ++c) {
      dst[(long long)c * hw] = __float2bfloat16(__bfloat162float(src[(long long)c * hw]) * r);
    }
  }
}
""")


class ModelNew(nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        total = x.numel()
        if total == 0:
            return y
        n, c = x.shape[0], x.shape[1]
        hw = total // (n * c)
        words = hw // 2
        blocks_per_image = (words + 255) // 256
        grid = n * blocks_per_image
        if (c == 64 and hw % 2 == 0 and hw < 2 ** 30 and grid < 2 ** 31
                and x.data_ptr() % 4 == 0 and y.data_ptr() % 4 == 0):
            k.rms64[grid, 256, 0](x, y, words, blocks_per_image, float(self.eps))
        else:
            pixels = n * hw
            grid = min((pixels + 255) // 256, 1 << 20)
            k.rms_any[grid, 256, 0](x, y, pixels, c, hw, float(self.eps))
        return y
