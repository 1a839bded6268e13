import torch
from torch import nn
from agentgen import jit

k = jit.cuda(r"""
#define LOG2E 1.4426950408889634f
#define LOWEST (-3.402823466e+38f)
#define FULL 0xffffffffu

__device__ __forceinline__ float exp_diff(float d) {          // e^d for d <= 0
  float r;
  const float t = d * LOG2E;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(t));
  return r;
}

__device__ __forceinline__ float max4(const float4 a) {
  return fmaxf(fmaxf(a.x, a.y), fmaxf(a.z, a.w));
}

__device__ __forceinline__ float warp_max(float m) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) m = fmaxf(m, __shfl_xor_sync(FULL, m, o));
  return m;
}

__device__ __forceinline__ float warp_sum(float s) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) s += __shfl_xor_sync(FULL, s, o);
  return s;
}

// ------------------------------------------------------------------ rows of 65536, clusters

#define ROW_FLOATS 65536
#define SLICE_FLOATS 16384          // a block's part of a row
#define WARP_FLOATS 2048            // a warp's part of a slice, 8 KiB, 4 pieces
#define PIECE_FLOATS 512
#define PIECE_BYTES 2048
#define SLOT_OFF 65536              // two halves of 512 bytes: 32 pairs, then the row drawn
#define MBAR_OFF 66560              // 32 landing mbarriers, one for each piece of each warp
#define EXCH_OFF 66816              // two exchange mbarriers
#define FIRST_OFF 66832             // the first row drawn for this cluster (rank 0 only)
#define EXCH_BYTES 264              // 32 pairs and one row number, 8 bytes each

__device__ __forceinline__ void stg_stream(float* p, const float4 v) {
  asm volatile("st.global.cs.v4.f32 [%0], {%1, %2, %3, %4};"
               :: "l"(p), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
}

__device__ __forceinline__ float4 lds16(unsigned addr) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(addr) : "memory");
  return v;
}

__device__ __forceinline__ float2 lds8(unsigned addr) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(addr) : "memory");
  return v;
}

__device__ __forceinline__ int lds4(unsigned addr) {
  int v;
  asm volatile("ld.shared.s32 %0, [%1];" : "=r"(v) : "r"(addr) : "memory");
  return v;
}

__device__ __forceinline__ unsigned map_to(unsigned addr, unsigned rank) {
  unsigned r;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(addr), "r"(rank));
  return r;
}

__device__ __forceinline__ void mbar_init(unsigned bar) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(1) : "memory");
}

__device__ __forceinline__ void mbar_expect(unsigned bar, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :: "r"(bar), "r"(bytes) : "memory");
}

__device__ __forceinline__ void wait_landing(unsigned bar, unsigned parity) {
  unsigned ok;
  do {
    asm volatile(
        "{\n\t"
        ".reg .pred p;\n\t"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
        "selp.u32 %0, 1, 0, p;\n\t"
        "}"
        : "=r"(ok) : "r"(bar), "r"(parity) : "memory");
  } while (ok == 0u);
}

__device__ __forceinline__ void wait_exchange(unsigned bar, unsigned parity) {
  unsigned ok;
  do {
    asm volatile(
        "{\n\t"
        ".reg .pred p;\n\t"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n\t"
        "selp.u32 %0, 1, 0, p;\n\t"
        "}"
        : "=r"(ok) : "r"(bar), "r"(parity) : "memory");
  } while (ok == 0u);
}

// One piece of a row to shared memory; evict-first, as nobody reads it again.
__device__ __forceinline__ void fetch_piece(unsigned dst, const float* src, unsigned bar) {
  mbar_expect(bar, PIECE_BYTES);
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;"
      :: "r"(dst), "l"(src), "r"(PIECE_BYTES), "r"(bar), "l"(0x12F0000000000000ULL) : "memory");
}

__device__ __forceinline__ void send8(unsigned addr, unsigned long long v, unsigned bar) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];"
               :: "r"(addr), "l"(v), "r"(bar) : "memory");
}

__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

// state[0]: next row to hand out, state[1]: clusters that have left. Both are 0 before and after.
extern "C" __global__ void __cluster_dims__(4, 1, 1) __launch_bounds__(256, 3) softmax_clusters(const float* __restrict__ x, float* __restrict__ y, int* state, int rows) {
  extern __shared__ __align__(128) unsigned char smem_raw[];
  const unsigned base = (unsigned)__cvta_generic_to_shared(smem_raw);
  const int tid = threadIdx.x;
  const int lane = tid & 31;
  const int warp = __shfl_sync(FULL, tid >> 5, 0);
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));

  if (tid == 0) {
    for (int i = 0; i < 32; ++i) mbar_init(base + MBAR_OFF + i * 8);
    mbar_init(base + EXCH_OFF);
    mbar_init(base + EXCH_OFF + 8);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
    mbar_expect(base + EXCH_OFF, EXCH_BYTES);
    mbar_expect(base + EXCH_OFF + 8, EXCH_BYTES);
    if (rank == 0) {
      const int t = atomicAdd(state, 2);           // this row and the one after it
      asm volatile("st.shared.s32 [%0], %1;" :: "r"(base + FIRST_OFF), "r"(t) : "memory");
    }
  }
  cluster_barrier();

  int row;
  asm volatile("ld.shared::cluster.s32 %0, [%1];"
               : "=r"(row) : "r"(map_to(base + FIRST_OFF, 0u)) : "memory");
  int nxt = row + 1;

  const unsigned land = base + (unsigned)warp * (WARP_FLOATS * 4);
  const unsigned bars = base + MBAR_OFF + (unsigned)warp * 32u;
  const int offset = (int)rank * SLICE_FLOATS + warp * WARP_FLOATS;
  const bool draws = rank == 0 && warp == 0;

  if (lane == 0 && row < rows) {
    const float* src = x + (long long)row * ROW_FLOATS + offset;
#pragma unroll
    for (int p = 0; p < 4; ++p)
      fetch_piece(land + p * PIECE_BYTES, src + p * PIECE_FLOATS, bars + p * 8);
  }
  __syncwarp();

  unsigned it = 0;
  while (row < rows) {
    // The row after the next one; its number travels with the exchange below.
    int drawn = 0;
    if (draws && lane == 0) drawn = atomicAdd(state, 1);

    // Landing buffer to registers; each piece is refilled for the next row at once.
    float4 v[16];
    {
      const bool refill = lane == 0 && nxt < rows;
      const float* src = x + (long long)nxt * ROW_FLOATS + offset;
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        wait_landing(bars + p * 8, it & 1u);
#pragma unroll
        for (int j = 0; j < 4; ++j)
          v[4 * p + j] = lds16(land + p * PIECE_BYTES + j * 512 + lane * 16);
        __syncwarp();
        if (refill) fetch_piece(land + p * PIECE_BYTES, src + p * PIECE_FLOATS, bars + p * 8);
      }
    }

    // Warp maximum, exponentials in place, warp sum.
    float m = max4(v[0]);
#pragma unroll
    for (int j = 1; j < 16; ++j) m = fmaxf(m, max4(v[j]));
    m = warp_max(m);
    const float mu = (m == -INFINITY) ? 0.0f : m;
    float s0 = 0.0f, s1 = 0.0f, s2 = 0.0f, s3 = 0.0f;
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      v[j].x = exp_diff(v[j].x - mu);
      v[j].y = exp_diff(v[j].y - mu);
      v[j].z = exp_diff(v[j].z - mu);
      v[j].w = exp_diff(v[j].w - mu);
      s0 += v[j].x;
      s1 += v[j].y;
      s2 += v[j].z;
      s3 += v[j].w;
    }
    const float s = warp_sum((s0 + s1) + (s2 + s3));

    // Publish to the four blocks. Double-buffered by parity: nobody publishes row r + 2 before
    // all 32 warps have published r + 1, hence read r.
    const unsigned q = it & 1u;
    const unsigned slots = base + SLOT_OFF + q * 512u;
    const unsigned exch = base + EXCH_OFF + q * 8u;
    if (lane < 4) {
      const unsigned long long pair =
          ((unsigned long long)__float_as_uint(s) << 32) | (unsigned long long)__float_as_uint(m);
      send8(map_to(slots + (rank * 8u + (unsigned)warp) * 8u, (unsigned)lane), pair,
            map_to(exch, (unsigned)lane));
    }
    if (draws) {
      const int t = __shfl_sync(FULL, drawn, 0);
      if (lane < 4)
        send8(map_to(slots + 256u, (unsigned)lane), (unsigned long long)(unsigned)t,
              map_to(exch, (unsigned)lane));
    }
    __syncwarp();

    wait_exchange(exch, (it >> 1) & 1u);
    const float2 pr = lds8(slots + (unsigned)lane * 8u);
    const int after = lds4(slots + 256u);
    if (tid == 0) mbar_expect(exch, EXCH_BYTES);   // for row r + 2
    __syncwarp();

    const float big = warp_max(pr.x);
    const float total = warp_sum(pr.y * exp_diff(pr.x - big));
    float inv;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inv) : "f"(total));
    const float factor = exp_diff(m - big) * inv;

    float* dst = y + (long long)row * ROW_FLOATS + offset + lane * 4;
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      float4 o;
      o.x = v[j].x * factor;
      o.y = v[j].y * factor;
      o.z = v[j].z * factor;
      o.w = v[j].w * factor;
      stg_stream(dst + j * 128, o);
    }

    row = nxt;
    nxt = after;
    ++it;
  }

  // The last cluster to leave sets the counters back: all others have drawn their last row.
  if (draws && lane == 0) {
    __threadfence();
    const int left = atomicAdd(state + 1, 1);
    if (left == (int)(gridDim.x >> 2) - 1) {
      __threadfence();
      atomicExch(state, 0);
      atomicExch(state + 1, 0);
    }
  }
  __syncwarp();
  cluster_barrier();
}

// ------------------------------------------------------------------ any other shape

// Online pair (m, s): s = sum of e^(x - m). m starts at LOWEST (finite), so that
// -inf gives e^(-inf) = 0 and never inf - inf.
__device__ __forceinline__ void fold2(const float4 a, const float4 b, float& m, float& s) {
  const float mn = fmaxf(m, fmaxf(max4(a), max4(b)));
  const float e0 = exp_diff(a.x - mn) + exp_diff(b.x - mn);
  const float e1 = exp_diff(a.y - mn) + exp_diff(b.y - mn);
  const float e2 = exp_diff(a.z - mn) + exp_diff(b.z - mn);
  const float e3 = exp_diff(a.w - mn) + exp_diff(b.w - mn);
  s = s * exp_diff(m - mn) + ((e0 + e1) + (e2 + e3));
  m = mn;
}

__device__ __forceinline__ float4 normalised(const float4 v, const float M, const float inv) {
  float4 o;
  o.x = exp_diff(v.x - M) * inv;
  o.y = exp_diff(v.y - M) * inv;
  o.z = exp_diff(v.z - M) * inv;
  o.w = exp_diff(v.w - M) * inv;
  return o;
}

__device__ __forceinline__ void warp_combine(float& m, float& s) {
  const float mw = warp_max(m);
  s = warp_sum(s * exp_diff(m - mw));
  m = mw;
}

__device__ __forceinline__ void block_combine(float& m, float& s, float2* red, const int warps) {
  const int lane = threadIdx.x & 31;
  const int warp = threadIdx.x >> 5;
  warp_combine(m, s);
  if (lane == 0) red[warp] = make_float2(m, s);
  __syncthreads();
  float2 p = make_float2(LOWEST, 0.0f);
  if (lane < warps) p = red[lane];
  m = p.x;
  s = p.y;
  warp_combine(m, s);
}

template <bool VEC>
__device__ __forceinline__ void softmax_row(const float* __restrict__ x, float* __restrict__ y,
                                            const long long dim) {
  __shared__ float2 red[32];
  const int tid = threadIdx.x;
  const int T = blockDim.x;
  const float* src = x + (long long)blockIdx.x * dim;
  float* dst = y + (long long)blockIdx.x * dim;
  float m = LOWEST;
  float s = 0.0f;

  if constexpr (VEC) {
    const float4* src4 = reinterpret_cast<const float4*>(src);
    const long long n4 = dim >> 2;
    for (long long i = tid; i < n4; i += 2 * T) {
      const float4 a = src4[i];
      float4 b = make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
      if (i + T < n4) b = src4[i + T];
      fold2(a, b, m, s);
    }
  } else {
    for (long long i = tid; i < dim; i += 8 * T) {
      float v[8];
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const long long q = i + (long long)j * T;
        v[j] = -INFINITY;
        if (q < dim) v[j] = src[q];
      }
      fold2(make_float4(v[0], v[1], v[2], v[3]), make_float4(v[4], v[5], v[6], v[7]), m, s);
    }
  }

  block_combine(m, s, red, T >> 5);
  const float inv = 1.0f / s;

  if constexpr (VEC) {
    const float4* src4 = reinterpret_cast<const float4*>(src);
    float4* dst4 = reinterpret_cast<float4*>(dst);
    const long long n4 = dim >> 2;
    for (long long i = tid; i < n4; i += T) dst4[i] = normalised(src4[i], m, inv);
  } else {
    for (long long i = tid; i < dim; i += T) dst[i] = exp_diff(src[i] - m) * inv;
  }
}

extern "C" __global__ void __launch_bounds__(1024) softmax_rows_vec(const float* __restrict__ x, float* __restrict__ y, long long dim) {
  softmax_row<true>(x, y, dim);
}

extern "C" __global__ void __launch_bounds__(1024) softmax_rows_any(const float* __restrict__ x, float* __restrict__ y, long long dim) {
  softmax_row<false>(x, y, dim);
}
""")

SHARED_BYTES = 66944


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self._sms = 0
        self._state = {}

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, dim = x.shape
        if rows == 0 or dim == 0:
            return y
        aligned = x.data_ptr() % 16 == 0 and y.data_ptr() % 16 == 0

        if aligned and dim == 65536:
            if self._sms == 0:
                self._sms = torch.cuda.get_device_properties(x.device).multi_processor_count
            # Row counter and leave counter, 0 between calls; one pair for each stream.
            key = (x.device.index, torch.cuda.current_stream(x.device).cuda_stream)
            state = self._state.get(key)
            if state is None:
                state = torch.zeros(2, dtype=torch.int32, device=x.device)
                self._state[key] = state
            clusters = max(1, min(rows, self._sms * 3 // 4))
            k.softmax_clusters[4 * clusters, 256, SHARED_BYTES](x, y, state, rows)
            return y

        threads = 128 if dim <= 512 else (256 if dim < 8192 else 1024)
        if aligned and dim % 4 == 0:
            k.softmax_rows_vec[rows, threads, 0](x, y, dim)
        else:
            k.softmax_rows_any[rows, threads, 0](x, y, dim)
        return y
