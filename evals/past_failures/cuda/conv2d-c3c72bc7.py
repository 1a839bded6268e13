import torch
from torch import nn
from agentgen import jit

kern = jit.cuda(r"""
#include <cuda_bf16.h>

// shared memory: weights | ring | staging of two warpgroups | barriers
constexpr int W_BYTES = 27 * 3072;
constexpr int PLANE = 66 * 16;
constexpr int SLOT = 6 * PLANE;
constexpr int SLOTS = 8;
constexpr int STAGE_PITCH = 60;
constexpr int STAGE_FLOATS = 96 * STAGE_PITCH;
constexpr int RING_AT = W_BYTES;
constexpr int STAGE_AT = RING_AT + SLOTS * SLOT;
constexpr int BAR_AT = STAGE_AT + 2 * STAGE_FLOATS * 4;
constexpr int UNITS = 6 * 57;            // units of a block row that hold pixels

__device__ __forceinline__ void barrier_init(uint32_t b, int n) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(b), "r"(n) : "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t b, int n) {
  asm volatile("{\n.reg .b64 s;\nmbarrier.arrive.shared::cta.b64 s, [%0], %1;\n}" :: "r"(b), "r"(n) : "memory");
}

__device__ __forceinline__ void barrier_wait(uint32_t b, int parity) {
  int done;
  do {
    asm volatile("{\n.reg .pred q;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 q, [%1], %2;\n"
                 "selp.s32 %0, 1, 0, q;\n}"
                 : "=r"(done) : "r"(b), "r"(parity) : "memory");
  } while (!done);
}

__device__ __forceinline__ void proxy_fence() { asm volatile("fence.proxy.async;" ::: "memory"); }

__device__ __forceinline__ uint32_t two_bf16(float first, float second) {
  uint32_t v;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(second), "f"(first));
  return v;
}

__device__ __forceinline__ uint64_t descriptor(uint32_t addr, int leading, int stride) {
  return (uint64_t)((addr & 0x3FFFFu) >> 4) | ((uint64_t)(leading >> 4) << 16) | ((uint64_t)(stride >> 4) << 32);
}

__device__ __forceinline__ void mma_step(float (&c)[48], uint64_t da, uint64_t db) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
      "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
      "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, "
      "%48, %49, 1, 1, 1, 0, 0;"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]),
        "+f"(c[6]), "+f"(c[7]), "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]),
        "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), "+f"(c[16]), "+f"(c[17]),
        "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]),
        "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]),
        "+f"(c[30]), "+f"(c[31]), "+f"(c[32]), "+f"(c[33]), "+f"(c[34]), "+f"(c[35]),
        "+f"(c[36]), "+f"(c[37]), "+f"(c[38]), "+f"(c[39]), "+f"(c[40]), "+f"(c[41]),
        "+f"(c[42]), "+f"(c[43]), "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47])
      : "l"(da), "l"(db)
      : "memory");
}

// the pixels of this thread's three units of one block row
__device__ __forceinline__ void read_block_row(float2 (&v)[3][4], const float* __restrict__ x, int img, int br, int ptid) {
  const float* xi = x + (long long)img * (3 * 224 * 224);
#pragma unroll
  for (int i = 0; i < 3; i++) {
    const int id = ptid + i * 128;
    const int plane = id / 57;
    const int u = id - plane * 57;
    const int y = br * 4 - 2 + (plane & 1) * 2;
    const int col = u * 4 - 2;
#pragma unroll
    for (int j = 0; j < 4; j++) v[i][j] = make_float2(0.f, 0.f);
    if (id < UNITS && y >= 0 && y < 224) {
      const float* p = xi + ((plane >> 1) * 224 + y) * 224 + col;
      if (u > 0) {
        v[i][0] = __ldg((const float2*)p);
        v[i][2] = __ldg((const float2*)(p + 224));
      }
      if (u < 56) {
        v[i][1] = __ldg((const float2*)(p + 2));
        v[i][3] = __ldg((const float2*)(p + 226));
      }
    }
  }
}

__device__ __forceinline__ void write_block_row(const float2 (&v)[3][4], unsigned char* slot, int ptid) {
#pragma unroll
  for (int i = 0; i < 3; i++) {
    const int id = ptid + i * 128;
    if (id < UNITS) {
      const int plane = id / 57;
      const int u = id - plane * 57;
      uint4 w;
      w.x = two_bf16(v[i][0].x, v[i][0].y);
      w.y = two_bf16(v[i][1].x, v[i][1].y);
      w.z = two_bf16(v[i][2].x, v[i][2].y);
      w.w = two_bf16(v[i][3].x, v[i][3].y);
      *(uint4*)(slot + plane * PLANE + u * 16) = w;
    }
  }
}

extern "C" __global__ void __launch_bounds__(384, 1)
conv_ring(const float* __restrict__ x, const __nv_bfloat16* __restrict__ wp, const float* __restrict__ bias,
          float* __restrict__ out, int nrows) {
  extern __shared__ __align__(1024) unsigned char sm[];
  const uint32_t sm0 = (uint32_t)__cvta_generic_to_shared(sm);
  const uint32_t full = sm0 + BAR_AT;
  const uint32_t empty = full + SLOTS * 8;
  const uint32_t wbar = empty + SLOTS * 8;
  const int tid = threadIdx.x;
  const int lane = tid & 31;
  const int role = tid >> 7;                 // 0, 1: consumers; 2: producer

  const int row0 = (int)((long long)blockIdx.x * nrows / gridDim.x);
  const int row1 = (int)((long long)(blockIdx.x + 1) * nrows / gridDim.x);

  if (tid == 0) {
    for (int i = 0; i < SLOTS; i++) {
      barrier_init(full + i * 8, 4);         // four producer warps
      barrier_init(empty + i * 8, 12);       // three output rows, four warps each
    }
    barrier_init(wbar, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    proxy_fence();
    asm volatile("{\n.reg .b64 s;\nmbarrier.arrive.expect_tx.shared::cta.b64 s, [%0], %1;\n}"
                 :: "r"(wbar), "r"(W_BYTES) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :: "r"(sm0), "l"(wp), "r"(W_BYTES), "r"(wbar) : "memory");
  }
  // units 57..65 of every plane stay zero for good
  for (int i = tid; i < SLOTS * SLOT / 16; i += 384)
    ((uint4*)(sm + RING_AT))[i] = make_uint4(0u, 0u, 0u, 0u);
  proxy_fence();
  __syncthreads();

  if (role == 2) {
    const int ptid = tid - 256;
    if (row0 < row1) {
      int img = row0 / 55;
      int br = row0 - img * 55;              // block row being loaded
      const int img_last = (row1 - 1) / 55;
      const int br_last = (row1 - 1) - img_last * 55 + 2;
      float2 now[3][4], ahead[3][4];
      read_block_row(now, x, img, br, ptid);
#pragma unroll 1
      for (int q = 0; ; q++) {
        const bool last = (img == img_last) && (br == br_last);
        if (!last) {
          br++;
          if (br == 57) {
            br = 0;
            img++;
          }
          read_block_row(ahead, x, img, br, ptid);
        }
        const int s = q & (SLOTS - 1);
        if (q >= SLOTS) barrier_wait(empty + s * 8, ((q / SLOTS) - 1) & 1);
        write_block_row(now, sm + RING_AT + s * SLOT, ptid);
        proxy_fence();
        __syncwarp();
        if (lane == 0) barrier_arrive(full + s * 8, 1);
        if (last) break;
#pragma unroll
        for (int i = 0; i < 3; i++)
#pragma unroll
          for (int j = 0; j < 4; j++) now[i][j] = ahead[i][j];
      }
    }
    return;
  }

  const int warp = (tid >> 5) & 3;
  const int g = lane >> 2;
  const int t = lane & 3;
  const int px = warp * 16 + g;
  float* stage = (float*)(sm + STAGE_AT) + role * STAGE_FLOATS;
  const uint64_t dw = descriptor(sm0, 128, 256);
  const int img0 = row0 / 55;

  float bv[24];
#pragma unroll
  for (int j = 0; j < 12; j++) {
    bv[2 * j] = __ldg(bias + 8 * j + 2 * t);
    bv[2 * j + 1] = __ldg(bias + 8 * j + 2 * t + 1);
  }
  barrier_wait(wbar, 0);

#pragma unroll 1
  for (int row = row0 + role; row < row1; row += 2) {
    const int img = row / 55;
    const int oy = row - img * 55;
    const int q = row - row0 + 2 * (img - img0);       // first of its three block rows in the sequence
    const int s0 = q & (SLOTS - 1);
    const int s1 = (q + 1) & (SLOTS - 1);
    const int s2 = (q + 2) & (SLOTS - 1);

    float acc[48];
#pragma unroll
    for (int j = 0; j < 12; j++) {
      acc[4 * j + 0] = bv[2 * j];
      acc[4 * j + 1] = bv[2 * j + 1];
      acc[4 * j + 2] = bv[2 * j];
      acc[4 * j + 3] = bv[2 * j + 1];
    }

    barrier_wait(full + s0 * 8, (q / SLOTS) & 1);
    barrier_wait(full + s1 * 8, ((q + 1) / SLOTS) & 1);
    barrier_wait(full + s2 * 8, ((q + 2) / SLOTS) & 1);

    uint64_t da[3];
    da[0] = descriptor(sm0 + RING_AT + s0 * SLOT, PLANE, 128);
    da[1] = descriptor(sm0 + RING_AT + s1 * SLOT, PLANE, 128);
    da[2] = descriptor(sm0 + RING_AT + s2 * SLOT, PLANE, 128);

    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int step = 0; step < 27; step++) {
      const int dy = step / 9;
      const int dx = (step / 3) % 3;
      const int c = step % 3;
      mma_step(acc, da[dy] + (uint64_t)(dx + c * (2 * PLANE / 16)), dw + (uint64_t)(step * 192));
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");

    if (lane == 0) {
      // three rows release every slot; the rows at the ends of a segment stand in for missing neighbours
      const int head = (row == row0 || oy == 0) ? 1 : 0;
      const int tail = (row == row1 - 1 || oy == 54) ? 1 : 0;
      barrier_arrive(empty + s0 * 8, 1 + 2 * head);
      barrier_arrive(empty + s1 * 8, 1 + head + tail);
      barrier_arrive(empty + s2 * 8, 1 + 2 * tail);
    }
    __syncwarp();

    // the last row's staging has been read by everyone in this warpgroup
    asm volatile("bar.sync %0, 128;" :: "r"(role + 1) : "memory");
#pragma unroll
    for (int j = 0; j < 12; j++) {
      float* s = stage + (8 * j + 2 * t) * STAGE_PITCH + px;
      if (px < 55) {
        s[0] = acc[4 * j + 0];
        s[STAGE_PITCH] = acc[4 * j + 1];
      }
      if (px + 8 < 55) {
        s[8] = acc[4 * j + 2];
        s[STAGE_PITCH + 8] = acc[4 * j + 3];
      }
    }
    asm volatile("bar.sync %0, 128;" :: "r"(role + 1) : "memory");

    float* o = out + ((long long)img * 96 + warp) * 3025 + oy * 55 + lane;
    const float* s = stage + warp * STAGE_PITCH + lane;
#pragma unroll 8
    for (int i = 0; i < 24; i++) {
      o[i * 4 * 3025] = s[i * 4 * STAGE_PITCH];
      if (lane < 23) o[i * 4 * 3025 + 32] = s[i * 4 * STAGE_PITCH + 32];
    }
  }
}

extern "C" __global__ void __launch_bounds__(256)
conv_direct(const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ bias,
            float* __restrict__ out, long long total, int C, int H, int W, int OC, int OH, int OW,
            int KH, int KW, int SH, int SW, int PH, int PW) {
  const long long e = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (e >= total) return;
  long long rest = e;
  const int ox = (int)(rest % OW);
  rest /= OW;
  const int oy = (int)(rest % OH);
  rest /= OH;
  const int oc = (int)(rest % OC);
  const long long img = rest / OC;
  const int top = oy * SH - PH;
  const int left = ox * SW - PW;
  float sum = 0.f;
  for (int c = 0; c < C; c++) {
    const float* xc = x + (img * C + c) * ((long long)H * W);
    const float* wc = w + ((long long)oc * C + c) * ((long long)KH * KW);
    for (int i = 0; i < KH; i++) {
      const int y = top + i;
      if (y < 0 || y >= H) continue;
      for (int j = 0; j < KW; j++) {
        const int z = left + j;
        if (z >= 0 && z < W) sum = fmaf(__ldg(xc + (long long)y * W + z), __ldg(wc + i * KW + j), sum);
      }
    }
  }
  out[e] = sum + bias[oc];
}
""")

# weights, ring, two staging buffers, 17 barriers (rounded up)
RING_SMEM = 27 * 3072 + 8 * 6336 + 2 * 96 * 60 * 4 + 192


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, stride=stride, padding=padding)
        self.w_plain = None
        self.b_plain = None
        self.w_ring = None
        self.blocks = 132

    def prepare(self):
        w = self.conv.weight.data
        self.w_plain = w.to(torch.float32).contiguous()
        if self.conv.bias is None:
            self.b_plain = torch.zeros(w.shape[0], dtype=torch.float32, device=w.device)
        else:
            self.b_plain = self.conv.bias.data.to(torch.float32).contiguous()
        self.w_ring = None
        if (tuple(w.shape) == (96, 3, 11, 11) and tuple(self.conv.stride) == (4, 4)
                and tuple(self.conv.padding) == (2, 2)):
            full = torch.zeros((96, 3, 12, 12), dtype=torch.bfloat16, device=w.device)
            full[:, :, :11, :11].copy_(w)
            # (n group, n, c, dy, row pair, row, dx, col) -> (dy, dx, c, n group, row pair, n, row, col)
            full = full.view(12, 8, 3, 3, 2, 2, 3, 4).permute(3, 6, 2, 0, 4, 1, 5, 7)
            self.w_ring = full.contiguous()
        if w.is_cuda:
            self.blocks = torch.cuda.get_device_properties(w.device).multi_processor_count

    def forward(self, x):
        if self.w_plain is None:
            self.prepare()
        dtype = x.dtype
        x = x.to(torch.float32).contiguous()
        n, c, h, w = x.shape
        oc, _, kh, kw = self.w_plain.shape
        sh, sw = self.conv.stride
        ph, pw = self.conv.padding
        oh = (h + 2 * ph - kh) // sh + 1
        ow = (w + 2 * pw - kw) // sw + 1
        out = torch.empty((n, oc, oh, ow), dtype=torch.float32, device=x.device)
        total = out.numel()
        if total > 0:
            if self.w_ring is not None and h == 224 and w == 224 and x.data_ptr() % 8 == 0:
                nrows = n * 55
                kern.conv_ring[min(nrows, self.blocks), 384, RING_SMEM](
                    x, self.w_ring, self.b_plain, out, nrows)
            else:
                kern.conv_direct[(total + 255) // 256, 256, 0](
                    x, self.w_plain, self.b_plain, out, total, c, h, w, oc, oh, ow,
                    kh, kw, sh, sw, ph, pw)
        return out if dtype == torch.float32 else out.to(dtype)
