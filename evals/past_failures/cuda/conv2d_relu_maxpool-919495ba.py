import torch
from torch import nn
from agentgen import jit

k = jit.cuda(r"""
__device__ __forceinline__ uint32_t smem_u32(const void* p) {
  return (uint32_t)__cvta_generic_to_shared(p);
}
__device__ __forceinline__ void mbar_init(uint32_t bar, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(count) : "memory");
}
__device__ __forceinline__ void mbar_expect(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(bytes) : "memory");
}
__device__ __forceinline__ void mbar_arrive(uint32_t bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(bar) : "memory");
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
__device__ __forceinline__ void bulk_copy(uint32_t dst, const void* src, uint32_t bytes, uint32_t bar) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
      :: "r"(dst), "l"(src), "r"(bytes), "r"(bar) : "memory");
}
__device__ __forceinline__ void split_tf32(float x, uint32_t& hi, uint32_t& lo) {
  asm volatile("cvt.rna.tf32.f32 %0, %1;" : "=r"(hi) : "f"(x));
  const float r = x - __uint_as_float(hi);
  asm volatile("cvt.rna.tf32.f32 %0, %1;" : "=r"(lo) : "f"(r));
}

__device__ __forceinline__ void mma96(float (&d)[48], const uint32_t (&a)[4], uint64_t db, int acc) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %53, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n96k8.f32.tf32.tf32 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, "
      "%40, %41, %42, %43, %44, %45, %46, %47}, "
      "{%48, %49, %50, %51}, %52, p, 1, 1;\n"
      "}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(db), "r"(acc));
}
__device__ __forceinline__ void mma48(float (&d)[24], const uint32_t (&a)[4], uint64_t db, int acc) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %29, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n48k8.f32.tf32.tf32 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23}, "
      "{%24, %25, %26, %27}, %28, p, 1, 1;\n"
      "}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(db), "r"(acc));
}

// word offset, within a group of 4 image rows, of k-chunk q (4 words); chunk 99 has zero weights
__device__ __forceinline__ constexpr int chunk_group(int q) {
  return ((q > 98 ? 98 : q) / 9) / 4;
}
__device__ __forceinline__ constexpr int chunk_off(int q0) {
  const int q = q0 > 98 ? 98 : q0;
  const int ky = q / 9;
  return ((ky % 4) * 3 + (q % 9) / 3) * 232 + (q % 3) * 4;
}

// 3-max along the row; lane holds row g (a) and row g + 8 (b) of its warp's 16 pixels;
// even g gets pooled column g/2 of the warp, odd g gets 4 + g/2
__device__ __forceinline__ float hpool(float a, float b, int lane, bool odd) {
  const float x = __shfl_sync(0xffffffffu, odd ? a : b, (lane + 4) & 31);
  const float y = __shfl_sync(0xffffffffu, lane < 4 ? b : a, (lane + 8) & 31);
  const float z = __shfl_sync(0xffffffffu, b, (lane - 4) & 31);
  return fmaxf(odd ? b : a, fmaxf(x, odd ? z : y));
}

// shared memory (from a base aligned to 128)
//   0       weights [chunk 100][hi 48, lo 48][4] floats      153600
//   153600  ring of 6 groups of image rows [4][3][232]        66816
//   220416  slack                                                64
//   220480  row exchange [warp 4][12][28] floats               5376
//   225856  mbarriers: full 6, empty 6, hfull, hempty, weights
extern "C" __global__ void __launch_bounds__(288, 1)
conv_pool(const float* __restrict__ x, const float* __restrict__ wpk, const float* __restrict__ bias,
          const float* __restrict__ zeros, float* __restrict__ out, int total) {
  extern __shared__ __align__(128) unsigned char smem_raw[];
  const uint32_t raw = smem_u32(smem_raw);
  const uint32_t pad = ((raw + 127u) & ~127u) - raw;
  unsigned char* sm = smem_raw + pad;
  const uint32_t sb = raw + pad;
  const uint32_t full = sb + 225856u;
  const uint32_t empty = full + 48u;
  const uint32_t hfull = full + 96u;
  const uint32_t hempty = full + 104u;
  const uint32_t wbar = full + 112u;
  float* ring = reinterpret_cast<float*>(sm + 153600);

  const int tid = threadIdx.x;
  const int lane = tid & 31;
  const int wg = tid >> 7;
  const int half = blockIdx.x & 1;
  const int pair = blockIdx.x >> 1;
  const int npair = gridDim.x >> 1;

  // pads of the staged rows: words 0-3 and 228-231; the copies never touch them
  for (int i = tid; i < 72 * 8; i += 288) {
    const int r = i >> 3;
    const int e = i & 7;
    ring[r * 232 + (e < 4 ? e : 224 + e)] = 0.0f;
  }
  if (tid < 16) ring[72 * 232 + tid] = 0.0f;
  if (tid == 0) {
    #pragma unroll
    for (int i = 0; i < 6; ++i) {
      mbar_init(full + 8 * i, 1);
      mbar_init(empty + 8 * i, 8);
    }
    mbar_init(hfull, 128);
    mbar_init(hempty, 128);
    mbar_init(wbar, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
  }
  __syncthreads();

  int r0 = (int)((long long)total * pair / npair);
  const int r1 = (int)((long long)total * (pair + 1) / npair);

  if (wg == 2) {
    // ---------------------------------------------------------- producer
    if (lane == 0) {
      const float* wp = wpk + half * 38400;
      mbar_expect(wbar, 153600u);
      bulk_copy(sb, wp, 76800u, wbar);
      bulk_copy(sb + 76800u, wp + 19200, 76800u, wbar);
      int slot = 0;
      uint32_t ph = 1;
      while (r0 < r1) {
        const int img = r0 / 27;
        const int p0 = r0 - img * 27;
        const int n = min(27 - p0, r1 - r0);
        const float* xb = x + (long long)img * 150528;
        const int rows = 2 * n + 3;
        for (int j = 0; j < rows; ++j) {
          const int iy0 = 4 * (2 * p0 + j) - 2;
          mbar_wait(empty + 8 * slot, ph);
          const uint32_t fb = full + 8 * slot;
          mbar_expect(fb, 10752u);
          const uint32_t dst = sb + 153600u + (uint32_t)slot * 11136u + 16u;
          #pragma unroll
          for (int dy = 0; dy < 4; ++dy) {
            const int iy = iy0 + dy;
            const bool ok = iy >= 0 && iy < 224;
            #pragma unroll
            for (int c = 0; c < 3; ++c) {
              const float* src = ok ? xb + (c * 224 + iy) * 224 : zeros;
              bulk_copy(dst + (uint32_t)(dy * 3 + c) * 928u, src, 896u, fb);
            }
          }
          if (++slot == 6) { slot = 0; ph ^= 1; }
        }
        r0 += n;
      }
    }
  } else {
    // ---------------------------------------------------------- consumers
    // warpgroup 0: even conv rows of the segment, 1: odd ones
    const int wq = (tid >> 5) & 3;
    const int g = lane >> 2;
    const int cp = lane & 3;
    const bool odd = (g & 1) != 0;
    const int q = 7 * wq + (g >> 1) + (g & 1) * 4;
    const bool live = lane < 28;
    float* hb = reinterpret_cast<float*>(sm + 220480) + wq * 336 + lane;
    const float* abase = ring + 2 + 56 * wq + lane;
    const uint64_t b_desc = ((uint64_t)(1536 >> 4) << 16) | ((uint64_t)(128 >> 4) << 32) | (uint64_t)(sb >> 4);

    float d[48], c[24], tot[24], m[24];
    #pragma unroll
    for (int i = 0; i < 48; ++i) d[i] = 0.0f;
    #pragma unroll
    for (int i = 0; i < 24; ++i) { c[i] = 0.0f; tot[i] = 0.0f; m[i] = 0.0f; }

    mbar_wait(wbar, 0);

    int it = 0;        // row groups before this segment
    uint32_t hc = 0;   // pooled rows before this one
    while (r0 < r1) {
      const int img = r0 / 27;
      const int p0 = r0 - img * 27;
      const int n = min(27 - p0, r1 - r0);
      const int rows = 2 * n + 1;
      if (wg == 1) {
        // the first group is not read here, but its release is counted
        mbar_wait(full + 8 * (it % 6), (it / 6) & 1);
        __syncwarp();
        if (lane == 0) mbar_arrive(empty + 8 * (it % 6));
      }
      #pragma unroll 1
      for (int j = wg; j < rows; j += 2) {
        const int c0 = it + j;
        mbar_wait(full + 8 * (c0 % 6), (c0 / 6) & 1);
        mbar_wait(full + 8 * ((c0 + 1) % 6), ((c0 + 1) / 6) & 1);
        mbar_wait(full + 8 * ((c0 + 2) % 6), ((c0 + 2) / 6) & 1);
        __syncwarp();
        const float* base[3];
        #pragma unroll
        for (int ty = 0; ty < 3; ++ty) base[ty] = abase + ((c0 + ty) % 6) * 2784;

        uint32_t fh[2][2][4], fl[2][2][4];
        float rawv[2][4];
        #pragma unroll
        for (int kk = 0; kk < 2; ++kk) {
          const float* q0 = base[chunk_group(2 * kk)] + chunk_off(2 * kk);
          const float* q1 = base[chunk_group(2 * kk + 1)] + chunk_off(2 * kk + 1);
          rawv[kk][0] = q0[0];
          rawv[kk][1] = q0[32];
          rawv[kk][2] = q1[0];
          rawv[kk][3] = q1[32];
        }
        #pragma unroll
        for (int kk = 0; kk < 2; ++kk)
          #pragma unroll
          for (int e = 0; e < 4; ++e) split_tf32(rawv[kk][e], fh[0][kk][e], fl[0][kk][e]);

        #pragma unroll
        for (int s = 0; s < 25; ++s) {
          const bool first = s == 0 || s == 9 || s == 17;
          const bool fold = s == 8 || s == 16 || s == 24;
          if (first) {
            #pragma unroll
            for (int i = 0; i < 48; ++i) asm volatile("" : "+f"(d[i]) :: "memory");
            #pragma unroll
            for (int i = 0; i < 24; ++i) asm volatile("" : "+f"(c[i]) :: "memory");
          }
          asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
          #pragma unroll
          for (int kk = 0; kk < 2; ++kk) {
            const uint64_t bd = b_desc + (uint64_t)((2 * s + kk) * 192);
            const int acc = (first && kk == 0) ? 0 : 1;
            mma96(d, fh[s & 1][kk], bd, acc);
            mma48(c, fl[s & 1][kk], bd, acc);
          }
          asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
          if (s < 24) {
            #pragma unroll
            for (int kk = 0; kk < 2; ++kk) {
              const int qa = 4 * (s + 1) + 2 * kk;
              const float* q0 = base[chunk_group(qa)] + chunk_off(qa);
              const float* q1 = base[chunk_group(qa + 1)] + chunk_off(qa + 1);
              rawv[kk][0] = q0[0];
              rawv[kk][1] = q0[32];
              rawv[kk][2] = q1[0];
              rawv[kk][3] = q1[32];
            }
            asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
            #pragma unroll
            for (int kk = 0; kk < 2; ++kk)
              #pragma unroll
              for (int e = 0; e < 4; ++e)
                split_tf32(rawv[kk][e], fh[(s + 1) & 1][kk][e], fl[(s + 1) & 1][kk][e]);
          }
          if (fold) {
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            #pragma unroll
            for (int i = 0; i < 48; ++i) asm volatile("" : "+f"(d[i]) :: "memory");
            #pragma unroll
            for (int i = 0; i < 24; ++i) asm volatile("" : "+f"(c[i]) :: "memory");
            #pragma unroll
            for (int i = 0; i < 24; ++i) {
              const float v = d[i] + (d[i + 24] + c[i]);
              tot[i] = s == 8 ? v : tot[i] + v;
            }
          }
        }

        const bool last = j + 2 >= rows;
        if (wg == 1 && last) mbar_wait(full + 8 * ((c0 + 3) % 6), ((c0 + 3) / 6) & 1);
        __syncwarp();
        if (lane == 0) {
          mbar_arrive(empty + 8 * (c0 % 6));
          mbar_arrive(empty + 8 * ((c0 + 1) % 6));
          if (last) {
            mbar_arrive(empty + 8 * ((c0 + 2) % 6));
            if (wg == 1) mbar_arrive(empty + 8 * ((c0 + 3) % 6));
          }
        }

        if (wg == 1) {
          mbar_wait(hempty, (hc & 1) ^ 1);
          __syncwarp();
          #pragma unroll
          for (int t = 0; t < 6; ++t) {
            #pragma unroll
            for (int e = 0; e < 2; ++e) {
              const float h = hpool(tot[t * 4 + e], tot[t * 4 + 2 + e], lane, odd);
              if (live) hb[(t * 2 + e) * 28] = h;
            }
          }
          mbar_arrive(hfull);
          ++hc;
        } else {
          if (j > 0) {
            const int p = p0 + (j >> 1) - 1;
            float* o = out + (((long long)img * 96 + half * 48 + cp * 2) * 27 + p) * 27 + q;
            const bool st = live && q < 27;
            mbar_wait(hfull, hc & 1);
            __syncwarp();
            #pragma unroll
            for (int t = 0; t < 6; ++t) {
              #pragma unroll
              for (int e = 0; e < 2; ++e) {
                const int ia = t * 4 + e, ib = t * 4 + 2 + e;
                float h = hpool(fmaxf(m[ia], tot[ia]), fmaxf(m[ib], tot[ib]), lane, odd);
                if (st) {
                  h = fmaxf(h, hb[(t * 2 + e) * 28]);
                  const float b = __ldg(bias + half * 48 + t * 8 + cp * 2 + e);
                  o[(t * 8 + e) * 729] = fmaxf(h + b, 0.0f);
                }
              }
            }
            mbar_arrive(hempty);
            ++hc;
          }
          #pragma unroll
          for (int i = 0; i < 24; ++i) m[i] = tot[i];
        }
      }
      it += rows + 2;
      r0 += n;
    }
  }
}

// any other shape
extern "C" __global__ void __launch_bounds__(256)
generic_block(const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ bias,
              float* __restrict__ y, int C, int H, int W, int O, int KH, int KW, int S, int P,
              int PK, int PS, int PH, int PW, long long total) {
  long long idx = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (idx >= total) return;
  int pw = (int)(idx % PW);
  long long r = idx / PW;
  int ph = (int)(r % PH);
  r /= PH;
  int oc = (int)(r % O);
  long long b = r / O;
  const float* xb = x + b * C * (long long)H * W;
  const float* wo = w + (long long)oc * C * KH * KW;
  float best = -INFINITY;
  for (int i = 0; i < PK; ++i) {
    for (int j = 0; j < PK; ++j) {
      int iy0 = (ph * PS + i) * S - P;
      int ix0 = (pw * PS + j) * S - P;
      int kx0 = ix0 < 0 ? -ix0 : 0;
      int kx1 = min(KW, W - ix0);
      float sum = 0.0f;
      for (int ch = 0; ch < C; ++ch) {
        float csum = 0.0f;
        for (int ky = 0; ky < KH; ++ky) {
          int iy = iy0 + ky;
          if (iy < 0 || iy >= H) continue;
          const float* xr = xb + ((long long)ch * H + iy) * W;
          const float* wr = wo + ((long long)ch * KH + ky) * KW;
          float part = 0.0f;
          for (int kx = kx0; kx < kx1; ++kx) part = fmaf(__ldg(xr + ix0 + kx), __ldg(wr + kx), part);
          csum += part;
        }
        sum += csum;
      }
      best = fmaxf(best, sum);
    }
  }
  y[idx] = fmaxf(best + bias[oc], 0.0f);
}
""")


def _rna_tf32(t):
    """Round to TF32, to nearest, ties away from zero, on the bits."""
    return ((t.contiguous().view(torch.int32) + 0x1000) & -8192).contiguous().view(torch.float32)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, pool_size, pool_stride):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, stride=stride, padding=padding)
        self.stride = int(stride)
        self.padding = int(padding)
        self.pool_size = int(pool_size)
        self.pool_stride = int(pool_stride)
        self.special = (in_channels == 3 and out_channels == 96 and kernel_size == 11 and stride == 4
                        and padding == 2 and pool_size == 3 and pool_stride == 2)
        self.packed = None
        self.zero_row = None
        self.sms = 132

    def prepare(self):
        if not self.special:
            return
        with torch.no_grad():
            w = self.conv.weight.detach().float()
            if w.is_cuda:
                self.sms = torch.cuda.get_device_properties(w.device).multi_processor_count
            wp = torch.zeros(96, 3, 11, 12, device=w.device, dtype=torch.float32)
            wp[:, :, :, :11] = w
            wk = torch.zeros(96, 400, device=w.device, dtype=torch.float32)
            wk[:, :396] = wp.permute(0, 2, 1, 3).reshape(96, 396)   # k = (ky, c, kx of 12)
            hi = _rna_tf32(wk)
            lo = _rna_tf32(wk - hi)
            t = torch.stack([hi, lo], 0).view(2, 2, 48, 100, 4)     # part, half, n, chunk, 4
            self.packed = t.permute(1, 3, 0, 2, 4).contiguous()     # half, chunk, part, n, 4
            self.zero_row = torch.zeros(224, device=w.device, dtype=torch.float32)

    def forward(self, x):
        x = x.contiguous()
        B, C, H, W = x.shape
        weight = self.conv.weight
        bias = self.conv.bias
        O, _, KH, KW = weight.shape
        CH = (H + 2 * self.padding - KH) // self.stride + 1
        CW = (W + 2 * self.padding - KW) // self.stride + 1
        PH = (CH - self.pool_size) // self.pool_stride + 1
        PW = (CW - self.pool_size) // self.pool_stride + 1
        out = torch.empty((B, O, PH, PW), device=x.device, dtype=torch.float32)
        total = out.numel()
        if total == 0:
            return out
        if self.special and H == 224 and W == 224 and x.data_ptr() % 16 == 0:
            if self.packed is None:
                self.prepare()
            rows = B * 27
            pairs = max(1, min(self.sms // 2, rows))
            k.conv_pool[2 * pairs, 288, 226104](x, self.packed, bias, self.zero_row, out, rows)
            return out
        k.generic_block[(total + 255) // 256, 256, 0](
            x, weight, bias, out, C, H, W, O, KH, KW, self.stride, self.padding,
            self.pool_size, self.pool_stride, PH, PW, total)
        return out
