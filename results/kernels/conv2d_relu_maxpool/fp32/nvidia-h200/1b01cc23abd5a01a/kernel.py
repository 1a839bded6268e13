import torch
from torch import nn
from agentgen import jit

k = jit.cuda(r"""
#include <cuda_fp16.h>

// ---- constants of the specialised path -------------------------------------------------
// image 3x224x224, conv 96 x 3 x 11 x 11, stride 4, padding 2 -> 55x55, pool 3/2 -> 27x27
// cells: 57 x 57 of 4x4x3; six planes of 8 halfs per cell row, for hi and for lo
// shared memory:
//   0       weights  [27 steps][2 chunks][192 rows: 96 hi, 96 lo][8 halfs]   165888 bytes
//   165888  rings    [2 warpgroups][3 slots][hi/lo][6 planes][57 cells][8]    65664 bytes
//   231552  winv     96 floats
//   231936  bias     96 floats
//   232320  barriers 13 x 8 bytes
#define W_BYTES 165888
#define ROW_BYTES 10944
#define LO_OFF 5472
#define PLANE 912
#define OFF_RING 165888
#define OFF_WINV 231552
#define OFF_BIAS 231936
#define OFF_BAR 232320

__device__ __forceinline__ uint32_t smem_u32(const void* p) {
  return (uint32_t)__cvta_generic_to_shared(p);
}

__device__ __forceinline__ void mbar_init(uint32_t bar, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(count) : "memory");
}

__device__ __forceinline__ void mbar_arrive(uint32_t bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(bar) : "memory");
}

__device__ __forceinline__ void mbar_expect_tx(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(bytes) : "memory");
}

__device__ __forceinline__ void mbar_wait(uint32_t bar, uint32_t parity) {
  uint32_t done;
  do {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.b32 %0, 1, 0, p;\n"
        "}\n"
        : "=r"(done) : "r"(bar), "r"(parity) : "memory");
  } while (done == 0u);
}

__device__ __forceinline__ void bulk_copy(uint32_t dst, const void* src, uint32_t bytes, uint32_t bar) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
      :: "r"(dst), "l"(src), "r"(bytes), "r"(bar) : "memory");
}

__device__ __forceinline__ void ldsm4(uint32_t (&a)[4], uint32_t addr) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(addr) : "memory");
}

__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int N>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory");
}

__device__ __forceinline__ void wgmma96(float (&d)[48], const uint32_t (&a)[4], uint64_t desc) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %53, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, "
      "%40, %41, %42, %43, %44, %45, %46, %47}, "
      "{%48, %49, %50, %51}, %52, p, 1, 1, 0;\n"
      "}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(desc), "r"(1));
}

// exponent e such that the image's maximum lies in [2^e, 2^(e+1)); 14 (scale 1) for an all-zero image
__device__ __forceinline__ int image_exponent(const int* __restrict__ part, int n) {
  const int4* q = reinterpret_cast<const int4*>(part + (long long)n * 16);
  int m = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    int4 v = __ldg(q + i);
    m = max(m, max(max(v.x, v.y), max(v.z, v.w)));
  }
  if (m == 0) return 14;
  int e = (m >> 23) - 127;
  return min(max(e, -112), 127);
}

// ---- pre-kernel: 16 partial maxima of the bits of |x| per image ------------------------
extern "C" __global__ void __launch_bounds__(256) absmax_main(const float* __restrict__ x, int* __restrict__ part) {
  __shared__ int red[8];
  const int n = blockIdx.x >> 4;
  const int chunk = blockIdx.x & 15;
  const float4* src = reinterpret_cast<const float4*>(x + (long long)n * 150528) + chunk * 2352;
  int m = 0;
#pragma unroll
  for (int i = 0; i < 10; ++i) {
    const int idx = (int)threadIdx.x + i * 256;
    if (idx < 2352) {
      float4 v = __ldg(src + idx);
      int a = __float_as_int(v.x) & 0x7fffffff;
      int b = __float_as_int(v.y) & 0x7fffffff;
      int c = __float_as_int(v.z) & 0x7fffffff;
      int d = __float_as_int(v.w) & 0x7fffffff;
      m = max(m, max(max(a, b), max(c, d)));
    }
  }
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) m = max(m, __shfl_xor_sync(0xffffffffu, m, o));
  if ((threadIdx.x & 31) == 0) red[threadIdx.x >> 5] = m;
  __syncthreads();
  if (threadIdx.x == 0) {
    int t = red[0];
#pragma unroll
    for (int i = 1; i < 8; ++i) t = max(t, red[i]);
    part[blockIdx.x] = t;
  }
}

// ---- main kernel -----------------------------------------------------------------------
extern "C" __global__ void __launch_bounds__(384, 1) conv_main(
    const float* __restrict__ x, const __half* __restrict__ wpack, const float* __restrict__ winv,
    const float* __restrict__ bias, const int* __restrict__ part, float* __restrict__ out, int batch) {
  extern __shared__ __align__(1024) unsigned char sm[];
  const int tid = threadIdx.x;
  const int wg = tid >> 7;
  const uint32_t sbase = smem_u32(sm);
  const uint32_t bars = sbase + OFF_BAR;
  // full[wg][slot] = bars + (wg*3+slot)*8, empty = bars + 48 + ..., weights = bars + 96
  if (tid == 0) {
    for (int i = 0; i < 6; ++i) {
      mbar_init(bars + i * 8, 64);
      mbar_init(bars + 48 + i * 8, 4);
    }
    mbar_init(bars + 96, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
  }
  if (tid < 96) {
    reinterpret_cast<float*>(sm + OFF_WINV)[tid] = winv[tid];
    reinterpret_cast<float*>(sm + OFF_BIAS)[tid] = bias[tid];
  }
  __syncthreads();

  const long long total = (long long)batch * 27;
  const long long groups = (long long)gridDim.x * 2;

  if (wg == 2) {
    // ------------------------------ producer ------------------------------
    asm volatile("setmaxnreg.dec.sync.aligned.u32 88;");
    const int pt = tid - 256;
    const int ring = pt >> 6;
    const int t = pt & 63;
    const long long g = (long long)blockIdx.x * 2 + ring;
    int pos = (int)(total * g / groups);
    const int pend = (int)(total * (g + 1) / groups);
    unsigned char* ringp = sm + OFF_RING + ring * (3 * ROW_BYTES);
    const uint32_t full = bars + ring * 24;
    const uint32_t empty = bars + 48 + ring * 24;
    int slot = 0;
    uint32_t ph = 0;
    while (pos < pend) {
      const int n = pos / 27;
      const int p0 = pos - n * 27;
      const int p1 = min(27, p0 + (pend - pos));
      const int e = image_exponent(part, n);
      const float scale = __int_as_float((141 - e) << 23);
      const float* xi = x + (long long)n * 150528;
      const int ilast = 2 * p1 + 2;
      for (int i = 2 * p0; i <= ilast; ++i) {
        float2 v[6][4];
#pragma unroll
        for (int it = 0; it < 6; ++it) {
          const int item = t + it * 64;
          const int p = item / 57;
          const int j = item - p * 57;
          const int y = 4 * i - 2 + 2 * (p & 1);
          const bool ok = (item < 342) && (y >= 0) && (y < 224);
          const float* src = xi + ((p >> 1) * 50176 + y * 224 + 4 * j - 2);
          const float2 z = make_float2(0.0f, 0.0f);
          v[it][0] = z;
          v[it][1] = z;
          v[it][2] = z;
          v[it][3] = z;
          if (ok && j > 0) {
            v[it][0] = __ldg(reinterpret_cast<const float2*>(src));
            v[it][2] = __ldg(reinterpret_cast<const float2*>(src + 224));
          }
          if (ok && j < 56) {
            v[it][1] = __ldg(reinterpret_cast<const float2*>(src + 2));
            v[it][3] = __ldg(reinterpret_cast<const float2*>(src + 226));
          }
        }
        mbar_wait(empty + slot * 8, ph ^ 1u);
        unsigned char* dst = ringp + slot * ROW_BYTES;
#pragma unroll
        for (int it = 0; it < 6; ++it) {
          const int item = t + it * 64;
          if (item < 342) {
            uint32_t hw[4], lw[4];
#pragma unroll
            for (int q = 0; q < 4; ++q) {
              const float a = v[it][q].x * scale;
              const float b = v[it][q].y * scale;
              const __half ha = __float2half_rn(a);
              const __half hb = __float2half_rn(b);
              const __half la = __float2half_rn(a - __half2float(ha));
              const __half lb = __float2half_rn(b - __half2float(hb));
              hw[q] = (uint32_t)__half_as_ushort(ha) | ((uint32_t)__half_as_ushort(hb) << 16);
              lw[q] = (uint32_t)__half_as_ushort(la) | ((uint32_t)__half_as_ushort(lb) << 16);
            }
            // plane p, cell j: p * 912 + j * 16 = item * 16
            *reinterpret_cast<uint4*>(dst + item * 16) = make_uint4(hw[0], hw[1], hw[2], hw[3]);
            *reinterpret_cast<uint4*>(dst + LO_OFF + item * 16) = make_uint4(lw[0], lw[1], lw[2], lw[3]);
          }
        }
        mbar_arrive(full + slot * 8);
        ++slot;
        if (slot == 3) {
          slot = 0;
          ph ^= 1u;
        }
      }
      pos += p1 - p0;
    }
  } else {
    // ------------------------------ consumers ------------------------------
    asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");
    if (tid == 0) {
      mbar_expect_tx(bars + 96, W_BYTES);
      const unsigned char* wsrc = reinterpret_cast<const unsigned char*>(wpack);
      for (int s = 0; s < 27; ++s) bulk_copy(sbase + s * 6144, wsrc + s * 6144, 6144, bars + 96);
    }
    __syncwarp();
    mbar_wait(bars + 96, 0);
    __syncwarp();

    const int lane = tid & 31;
    const int warp = (tid >> 5) & 3;
    const int gq = lane >> 2;
    const bool odd = (gq & 1) != 0;
    const int src2 = gq < 6 ? lane + 8 : (gq == 6 ? (lane & 3) + 4 : lane);
    const int ql = odd ? 4 + (gq >> 1) : (gq >> 1);
    const int col = 7 * warp + ql;
    const bool store = (ql < 7) && (col < 27);
    const int pix = min(14 * warp + (lane & 15), 54);
    const uint32_t ringbase = sbase + OFF_RING + wg * (3 * ROW_BYTES);
    const uint32_t laneoff = (uint32_t)((lane >> 4) * PLANE + pix * 16);
    const uint32_t full = bars + wg * 24;
    const uint32_t empty = bars + 48 + wg * 24;
    const float* swinv = reinterpret_cast<const float*>(sm + OFF_WINV) + 2 * (lane & 3);
    const float* sbias = reinterpret_cast<const float*>(sm + OFF_BIAS) + 2 * (lane & 3);
    // K-major, no swizzle: LBO (next 8 of K) = 3072 bytes, SBO (next 8 rows of N) = 128 bytes
    const uint64_t bdesc = (uint64_t)((sbase & 0x3FFFFu) >> 4) | ((uint64_t)(3072 >> 4) << 16) |
                           ((uint64_t)(128 >> 4) << 32);

    const long long g = (long long)blockIdx.x * 2 + wg;
    int pos = (int)(total * g / groups);
    const int pend = (int)(total * (g + 1) / groups);
    int s0 = 0;
    uint32_t ph0 = 0;
    float run[48];
#pragma unroll
    for (int i = 0; i < 48; ++i) run[i] = 0.0f;

    while (pos < pend) {
      const int n = pos / 27;
      const int p0 = pos - n * 27;
      const int p1 = min(27, p0 + (pend - pos));
      const int rows = 2 * (p1 - p0) + 1;
      const int e = image_exponent(part, n);
      const float xinv = __int_as_float((113 + e) << 23);
      float* obase = out + ((long long)n * 96 + 2 * (lane & 3)) * 729 + p0 * 27 + col;

#pragma unroll 1
      for (int r = 0; r < rows; ++r) {
        float dh[48], dl[48];
#pragma unroll
        for (int i = 0; i < 48; ++i) {
          dh[i] = 0.0f;
          dl[i] = 0.0f;
        }
        uint32_t ah[2][4], al[2][4];
#pragma unroll
        for (int ty = 0; ty < 3; ++ty) {
          int s = s0 + ty;
          uint32_t ph = ph0;
          if (s >= 3) {
            s -= 3;
            ph ^= 1u;
          }
          mbar_wait(full + s * 8, ph);
          __syncwarp();
          const uint32_t abase = ringbase + s * ROW_BYTES + laneoff;
#pragma unroll
          for (int q = 0; q < 9; ++q) {
            const int tx = q / 3;
            const int c = q % 3;
            const int st = ty * 9 + q;
            const int b = st & 1;
            ldsm4(ah[b], abase + c * (2 * PLANE) + tx * 16);
            ldsm4(al[b], abase + LO_OFF + c * (2 * PLANE) + tx * 16);
            const uint64_t d = bdesc + (uint64_t)(st * 384);
            wgmma_fence();
            wgmma96(dh, ah[b], d);
            wgmma96(dl, ah[b], d + 96);
            wgmma96(dl, al[b], d);
            wgmma_commit();
            wgmma_wait<1>();
          }
          if (ty == 0) {
            // last use of this cell row by this warp
            __syncwarp();
            if (lane == 0) mbar_arrive(empty + s * 8);
          }
        }
        wgmma_wait<0>();
#pragma unroll
        for (int i = 0; i < 48; ++i) {
          asm volatile("" : "+f"(dh[i]) :: "memory");
          asm volatile("" : "+f"(dl[i]) :: "memory");
        }
        // ring bookkeeping
        if (r == rows - 1) {
          __syncwarp();
          if (lane == 0) {
            const int s1 = s0 + 1 >= 3 ? s0 - 2 : s0 + 1;
            const int s2 = s0 + 2 >= 3 ? s0 - 1 : s0 + 2;
            mbar_arrive(empty + s1 * 8);
            mbar_arrive(empty + s2 * 8);
          }
          ph0 ^= 1u;
        } else {
          ++s0;
          if (s0 == 3) {
            s0 = 0;
            ph0 ^= 1u;
          }
        }
        __syncwarp();

#pragma unroll
        for (int i = 0; i < 48; ++i) dh[i] += dl[i];

        if (r & 1) {
#pragma unroll
          for (int i = 0; i < 48; ++i) run[i] = fmaxf(run[i], dh[i]);
        } else {
          if (r > 0) {
            float* o = obase + ((r >> 1) - 1) * 27;
#pragma unroll
            for (int nt = 0; nt < 12; ++nt) {
              const float2 wi = *reinterpret_cast<const float2*>(swinv + nt * 8);
              const float2 bi = *reinterpret_cast<const float2*>(sbias + nt * 8);
#pragma unroll
              for (int j = 0; j < 2; ++j) {
                const float v0 = fmaxf(run[nt * 4 + j], dh[nt * 4 + j]);
                const float v1 = fmaxf(run[nt * 4 + 2 + j], dh[nt * 4 + 2 + j]);
                // even g: pixels g, g+1; odd g: pixels g+7, g+8
                const float recv = __shfl_xor_sync(0xffffffffu, odd ? v0 : v1, 4);
                float u = fmaxf(odd ? v1 : v0, recv);
                // third pixel: g+2 for even g, g+9 for odd g
                const float third = __shfl_sync(0xffffffffu, odd ? recv : v0, src2);
                u = fmaxf(u, third);
                const float res = (u * xinv) * (j == 0 ? wi.x : wi.y) + (j == 0 ? bi.x : bi.y);
                if (store) o[nt * 8 * 729 + j * 729] = fmaxf(res, 0.0f);
              }
            }
          }
#pragma unroll
          for (int i = 0; i < 48; ++i) run[i] = dh[i];
        }
      }
      pos += p1 - p0;
    }
  }
}

// ---- any other shape: direct fp32 ------------------------------------------------------
extern "C" __global__ void generic_kernel(
    const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ bias,
    float* __restrict__ out, int C, int H, int W, int OC, int KH, int KW, int S, int P,
    int PK, int PS, int OH, int OW, long long total) {
  long long idx = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  const long long step = (long long)gridDim.x * blockDim.x;
  for (; idx < total; idx += step) {
    long long rest = idx;
    const int ox = (int)(rest % OW);
    rest /= OW;
    const int oy = (int)(rest % OH);
    rest /= OH;
    const int oc = (int)(rest % OC);
    const long long n = rest / OC;
    const float* xn = x + n * C * (long long)H * W;
    const float* wo = w + (long long)oc * C * KH * KW;
    const float b = bias[oc];
    float best = 0.0f;   // ReLU: the maximum with zero
    for (int py = 0; py < PK; ++py) {
      for (int px = 0; px < PK; ++px) {
        const int y0 = (oy * PS + py) * S - P;
        const int x0 = (ox * PS + px) * S - P;
        const int klo = max(0, -x0);
        const int khi = min(KW, W - x0);
        float sum = 0.0f;
        for (int c = 0; c < C; ++c) {
          const float* xc = xn + (long long)c * H * W;
          const float* wc = wo + (long long)c * KH * KW;
          float plane = 0.0f;
          for (int ky = 0; ky < KH; ++ky) {
            const int y = y0 + ky;
            if (y < 0 || y >= H) continue;
            const float* xr = xc + (long long)y * W + x0;
            const float* wr = wc + ky * KW;
            float row = 0.0f;
            for (int kx = klo; kx < khi; ++kx) row = fmaf(xr[kx], wr[kx], row);
            plane += row;
          }
          sum += plane;
        }
        best = fmaxf(best, sum + b);
      }
    }
    out[idx] = best;
  }
}
""")

_SMEM = 232424
_SMS = {}


def _sm_count(device):
    key = device.index
    if key not in _SMS:
        _SMS[key] = torch.cuda.get_device_properties(device).multi_processor_count
    return _SMS[key]


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, pool_size, pool_stride):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, stride=stride, padding=padding)
        self.stride = int(stride)
        self.padding = int(padding)
        self.pool_size = int(pool_size)
        self.pool_stride = int(pool_stride)
        self.special = (
            in_channels == 3 and out_channels == 96 and kernel_size == 11 and stride == 4
            and padding == 2 and pool_size == 3 and pool_stride == 2
        )
        self.packed = None
        self.winv = None

    def prepare(self):
        if not self.special:
            return
        with torch.no_grad():
            w = self.conv.weight.detach().to(torch.float32).contiguous()
            # exact power-of-two scale per filter: its maximum comes to [2^14, 2^15)
            amax = w.abs().amax(dim=(1, 2, 3)).contiguous()
            bits = amax.view(torch.int32)
            e = ((bits >> 23) - 127).clamp(-112, 127)
            e = torch.where(bits == 0, torch.full_like(e, 14), e).to(torch.int32)
            scale = ((141 - e) << 23).to(torch.int32).contiguous().view(torch.float32)
            winv = ((113 + e) << 23).to(torch.int32).contiguous().view(torch.float32)
            wp = torch.zeros((96, 3, 12, 12), dtype=torch.float32, device=w.device)
            wp[:, :, :11, :11] = w * scale.view(96, 1, 1, 1)
            hi = wp.to(torch.float16)
            lo = (wp - hi.to(torch.float32)).to(torch.float16)

            def order(t):
                # oc, c, ty, dyh, dyl, tx, dx -> (ty, tx, c), dyh, oc, (dyl, dx)
                t = t.reshape(96, 3, 3, 2, 2, 3, 4).permute(2, 5, 1, 3, 0, 4, 6)
                return t.reshape(27, 2, 96, 8)

            self.packed = torch.cat([order(hi), order(lo)], dim=2).contiguous()
            self.winv = winv.clone()

    def forward(self, x):
        w = self.conv.weight
        b = self.conv.bias
        n, c, h, wd = x.shape
        oc, _, kh, kw = w.shape
        s, p = self.stride, self.padding
        oh = (h + 2 * p - kh) // s + 1
        ow = (wd + 2 * p - kw) // s + 1
        ph = (oh - self.pool_size) // self.pool_stride + 1
        pw = (ow - self.pool_size) // self.pool_stride + 1
        out = torch.empty((n, oc, ph, pw), dtype=torch.float32, device=x.device)
        total = out.numel()
        if total == 0:
            return out
        if self.special and c == 3 and h == 224 and wd == 224 and n <= 1000000 and x.data_ptr() % 16 == 0:
            if self.packed is None:
                self.prepare()
            part = torch.empty((n * 16,), dtype=torch.int32, device=x.device)
            k.absmax_main[n * 16, 256, 0](x, part)
            grid = min(_sm_count(x.device), (n * 27 + 1) // 2)
            k.conv_main[grid, 384, _SMEM](x, self.packed, self.winv, b, part, out, n)
            return out
        blocks = min((total + 127) // 128, 1 << 20)
        k.generic_kernel[blocks, 128, 0](
            x, w, b, out, c, h, wd, oc, kh, kw, s, p,
            self.pool_size, self.pool_stride, ph, pw, total)
        return out
