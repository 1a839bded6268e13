import torch
from torch import nn
from agentgen import jit

k = jit.cuda(r"""
constexpr int SLOTS = 24;            // ring slots
constexpr int PIECES = 16;           // pieces per row slice
constexpr int PIECE = 2048;          // floats per piece
constexpr int PIECE_BYTES = 8192;
constexpr int THREADS = 256;
constexpr int BLOCKS = 128;
constexpr int SLICE = PIECES * PIECE; // 32768 floats of a row per block
constexpr int LEAD = 5;              // statistics run 16 + LEAD pieces ahead of the normalisation
constexpr int PF = 10;               // L2 prefetch runs this many pieces ahead of the refills
constexpr long long ROW = 4194304LL; // BLOCKS * SLICE
constexpr double EMPTY = -1e300;     // no mean and no M2 of floats can be this

// layout of the dynamic shared memory, in bytes
constexpr int OFF_BIAS  = SLOTS * PIECE_BYTES;          // 196608: 16 x 256 uint2, a third of the packed bias
constexpr int OFF_SCALE = OFF_BIAS + PIECES * THREADS * 8; // 229376: float2 [8 warps][16 pieces]
constexpr int OFF_FULL  = OFF_SCALE + 1024;             // 230400: 24 mbarriers
constexpr int OFF_REL   = OFF_FULL + 192;               // 230592: 24 release counters
constexpr int OFF_RCNT  = OFF_REL + 96;                 // 230688: counter of the block reduction
constexpr int OFF_MCNT  = OFF_RCNT + 4;                 // 230692: counter of the row merge
constexpr int OFF_STAT  = OFF_RCNT + 16;                // 230704: 2 uint4
constexpr int OFF_RED   = OFF_STAT + 32;                // 230736: 8 double2
constexpr int OFF_RED2  = OFF_RED + 128;                // 230864: 8 double2, end at 230992

constexpr unsigned long long EVICT_FIRST = 0x12F0000000000000ULL;

__device__ __forceinline__ void mbar_wait(uint32_t bar, uint32_t parity) {
  uint32_t ok = 0;
  do {
    asm volatile(
        "{\n\t"
        ".reg .pred p;\n\t"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
        "selp.u32 %0, 1, 0, p;\n\t"
        "}\n"
        : "=r"(ok) : "r"(bar), "r"(parity) : "memory");
  } while (ok == 0);
}

__device__ __forceinline__ uint32_t atom_add_shared(uint32_t addr, uint32_t v) {
  uint32_t old;
  asm volatile("atom.acq_rel.cta.shared.add.u32 %0, [%1], %2;"
               : "=r"(old) : "r"(addr), "r"(v) : "memory");
  return old;
}

__device__ __forceinline__ float4 ld_hint(const float* p, unsigned long long policy) {
  float4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.f32 {%0, %1, %2, %3}, [%4], %5;"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p), "l"(policy));
  return v;
}

__device__ __forceinline__ const float* piece_address(const float* xb, int m) {
  return xb + (long long)(m >> 4) * ROW + (m & 15) * PIECE;
}

// Copy piece m of this block's column slice into a slot; xb = x + block * SLICE.
__device__ __forceinline__ void issue_copy(const float* xb, int m, int slot, uint32_t sbase) {
  const float* src = piece_address(xb, m);
  const uint32_t bar = sbase + OFF_FULL + slot * 8;
  const uint32_t dst = sbase + slot * PIECE_BYTES;
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :: "r"(bar), "r"(PIECE_BYTES) : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
               :: "r"(dst), "l"(src), "r"(PIECE_BYTES), "r"(bar), "l"(EVICT_FIRST) : "memory");
}

__device__ __forceinline__ void prefetch_piece(const float* xb, int m) {
  const float* src = piece_address(xb, m);
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" :: "l"(src), "r"(PIECE_BYTES) : "memory");
}

// Chan's merge of two groups of equal size n; half = n / 2.
__device__ __forceinline__ void merge_equal(double& mean, double& m2, double mo, double qo, double half) {
  const double delta = mo - mean;
  m2 = (m2 + qo) + delta * delta * half;
  mean = 0.5 * (mean + mo);
}

// Statistics of one piece (8 values a thread), folded into the thread's (mean, M2).
// sc: number of the piece within its row, a constant after unrolling.
__device__ __forceinline__ void stat_piece(const unsigned char* smem, uint32_t sbase, int tid, int sc,
                                           int& slot, uint32_t& par, double& mean, double& m2) {
  mbar_wait(sbase + OFF_FULL + slot * 8, par);
  const float4* sp = reinterpret_cast<const float4*>(smem + slot * PIECE_BYTES) + tid;
  const float4 a = sp[0];
  const float4 b = sp[THREADS];
  if (++slot == SLOTS) { slot = 0; par ^= 1u; }
  const float m8 = (((a.x + a.y) + (a.z + a.w)) + ((b.x + b.y) + (b.z + b.w))) * 0.125f;
  const float d0 = a.x - m8, d1 = a.y - m8, d2 = a.z - m8, d3 = a.w - m8;
  const float d4 = b.x - m8, d5 = b.y - m8, d6 = b.z - m8, d7 = b.w - m8;
  const float s = ((d0 + d1) + (d2 + d3)) + ((d4 + d5) + (d6 + d7));
  float q0 = d0 * d0, q1 = d1 * d1;
  q0 = fmaf(d2, d2, q0);
  q1 = fmaf(d3, d3, q1);
  q0 = fmaf(d4, d4, q0);
  q1 = fmaf(d5, d5, q1);
  q0 = fmaf(d6, d6, q0);
  q1 = fmaf(d7, d7, q1);
  const float s8 = s * 0.125f;
  const double mb = (double)m8 + (double)s8;
  const double vb = (double)fmaf(-s, s8, q0 + q1);
  if (sc == 0) {
    mean = mb;
    m2 = vb;
  } else {
    const double delta = mb - mean;
    mean += delta * (1.0 / (double)(sc + 1));
    m2 += vb + delta * delta * (8.0 * (double)sc / (double)(sc + 1));
  }
}

// Merge the threads' (mean, M2) (128 values each) over the block; the last warp to arrive
// publishes the block's pair for the row. The pair itself says that it is there.
__device__ __forceinline__ void publish(double mean, double m2, unsigned char* smem, uint32_t sbase,
                                        double* ws, int row, int warp, int lane) {
  double half = 64.0;
  #pragma unroll
  for (int off = 16; off > 0; off >>= 1) {
    const double mo = __shfl_xor_sync(0xffffffffu, mean, off);
    const double qo = __shfl_xor_sync(0xffffffffu, m2, off);
    merge_equal(mean, m2, mo, qo, half);
    half *= 2.0;
  }
  double2* red = reinterpret_cast<double2*>(smem + OFF_RED);
  int last = 0;
  if (lane == 0) {
    red[warp] = make_double2(mean, m2);
    const uint32_t old = atom_add_shared(sbase + OFF_RCNT, 1u);
    last = ((old & 7u) == 7u) ? 1 : 0;
  }
  __syncwarp();
  last = __shfl_sync(0xffffffffu, last, 0);
  if (last) {
    __syncwarp();
    const double2 v = red[lane & 7];
    mean = v.x;
    m2 = v.y;
    half = 2048.0;                       // a warp has 4096 values
    #pragma unroll
    for (int off = 4; off > 0; off >>= 1) {
      const double mo = __shfl_xor_sync(0xffffffffu, mean, off);
      const double qo = __shfl_xor_sync(0xffffffffu, m2, off);
      merge_equal(mean, m2, mo, qo, half);
      half *= 2.0;
    }
    if (lane == 0) {
      double* dst = ws + ((long long)row * BLOCKS + blockIdx.x) * 2;
      asm volatile("st.relaxed.gpu.global.v2.f64 [%0], {%1, %2};" :: "l"(dst), "d"(mean), "d"(m2) : "memory");
    }
    __syncwarp();
  }
}

// Ask for one of the 16 entries of a row that this warp looks after (each half warp sees all 16).
__device__ __forceinline__ void fetch_entry(const double* ws, int row, int warp, int lane, double& pm, double& pq) {
  const double* p = ws + ((long long)row * BLOCKS + warp * 16 + (lane & 15)) * 2;
  asm volatile("ld.relaxed.gpu.global.v2.f64 {%0, %1}, [%2];"
               : "=d"(pm), "=d"(pq) : "l"(p) : "memory");
}

// Wait for the warp's 16 entries, merge them; the last of the 8 warps merges all and leaves
// the mean (two floats), 1/sigma and the unpacking mask in shared memory.
__device__ __forceinline__ void finish_row(double pm, double pq, unsigned char* smem, uint32_t sbase,
                                           const double* ws, int row, double eps, int warp, int lane) {
  while (!__all_sync(0xffffffffu, (pm != EMPTY) && (pq != EMPTY))) {
    fetch_entry(ws, row, warp, lane, pm, pq);
  }
  double half = 16384.0;                 // a block has 32768 values
  #pragma unroll
  for (int off = 8; off > 0; off >>= 1) {
    const double mo = __shfl_xor_sync(0xffffffffu, pm, off);
    const double qo = __shfl_xor_sync(0xffffffffu, pq, off);
    merge_equal(pm, pq, mo, qo, half);
    half *= 2.0;
  }
  double2* red = reinterpret_cast<double2*>(smem + OFF_RED2);
  int last = 0;
  if (lane == 0) {
    red[warp] = make_double2(pm, pq);
    const uint32_t old = atom_add_shared(sbase + OFF_MCNT, 1u);
    last = ((old & 7u) == 7u) ? 1 : 0;
  }
  __syncwarp();
  last = __shfl_sync(0xffffffffu, last, 0);
  if (last) {
    __syncwarp();
    const double2 v = red[lane & 7];
    pm = v.x;
    pq = v.y;
    half = 262144.0;                     // 16 blocks have 524288 values
    #pragma unroll
    for (int off = 4; off > 0; off >>= 1) {
      const double mo = __shfl_xor_sync(0xffffffffu, pm, off);
      const double qo = __shfl_xor_sync(0xffffffffu, pq, off);
      merge_equal(pm, pq, mo, qo, half);
      half *= 2.0;
    }
    if (lane == 0) {
      double var = pq * (1.0 / 4194304.0);
      var = var < 0.0 ? 0.0 : var;
      const float rs = (float)(1.0 / sqrt(var + eps));
      const float mh = (float)pm;
      const float ml = (float)(pm - (double)mh);
      reinterpret_cast<uint4*>(smem + OFF_STAT)[row & 1] =
          make_uint4(__float_as_uint(mh), __float_as_uint(ml), __float_as_uint(rs), 0xFFFFFF00u);
    }
    __syncwarp();
  }
}

// 24-bit block fixed point. The warp's 32 float4 are 128 neighbouring columns and share a power of two.
// Words: a = i0:byte 0 of i3, b = i1:byte 1 of i3, c = i2:byte 2 of i3. Returns the scale of (i << 8).
__device__ __forceinline__ int quant24(float v, float pre, float q) {
  int i = __float2int_rn((v * pre) * q);
  i = i > 8388607 ? 8388607 : i;
  i = i < -8388607 ? -8388607 : i;
  return i;
}

__device__ __forceinline__ float pack_bias(float4 v, uint32_t& a, uint32_t& b, uint32_t& c) {
  const uint32_t ax = __float_as_uint(v.x) & 0x7fffffffu;
  const uint32_t ay = __float_as_uint(v.y) & 0x7fffffffu;
  const uint32_t az = __float_as_uint(v.z) & 0x7fffffffu;
  const uint32_t aw = __float_as_uint(v.w) & 0x7fffffffu;
  const uint32_t m0 = ax > ay ? ax : ay;
  const uint32_t m1 = az > aw ? az : aw;
  const unsigned mx = __reduce_max_sync(0xffffffffu, (unsigned)(m0 > m1 ? m0 : m1));
  int e = (int)(mx >> 23);
  if (e < 8) e = 8;
  const bool tiny = e < 31;
  // S = 2^(e - 126) is above every magnitude; i = round(v * 2^23 / S) = round(v * 2^(149 - e)).
  const float pre = tiny ? __uint_as_float(227u << 23) : 1.0f;                 // 2^100
  const float q = __uint_as_float((uint32_t)(276 - (tiny ? e + 100 : e)) << 23);
  const uint32_t i0 = (uint32_t)quant24(v.x, pre, q);
  const uint32_t i1 = (uint32_t)quant24(v.y, pre, q);
  const uint32_t i2 = (uint32_t)quant24(v.z, pre, q);
  const uint32_t i3 = (uint32_t)quant24(v.w, pre, q);
  a = (i0 << 8) | (i3 & 0xffu);
  b = (i1 << 8) | ((i3 >> 8) & 0xffu);
  c = (i2 << 8) | ((i3 >> 16) & 0xffu);
  // scale = S * 2^-31 = 2^(e - 157), a denormal below e = 31; NaN shows a group that is not finite.
  uint32_t sb = tiny ? (1u << (tiny ? e - 8 : 0)) : ((uint32_t)(e - 30) << 23);
  if (mx >= 0x7f800000u) sb = 0x7fffffffu;
  return __uint_as_float(sb);
}

__device__ __forceinline__ float4 unpack_bias(uint32_t a, uint32_t b, uint32_t c, float scale, uint32_t mask) {
  const uint32_t t = __byte_perm(a, c, 0x0040);         // bytes a0, c0
  const uint32_t u = __byte_perm(t, b, 0x1400);         // bytes ?, a0, b0, c0
  float4 o;
  o.x = __int2float_rn((int)(a & mask)) * scale;
  o.y = __int2float_rn((int)(b & mask)) * scale;
  o.z = __int2float_rn((int)(c & mask)) * scale;
  o.w = __int2float_rn((int)(u & mask)) * scale;
  return o;
}

__device__ __forceinline__ float norm1(float x, float mh, float ml, float rs, float w, float b) {
  return fmaf(((x - mh) - ml) * rs, w, b);
}

__device__ __forceinline__ float4 norm4(float4 x, float mh, float ml, float rs, float4 w, float4 b) {
  float4 o;
  o.x = norm1(x.x, mh, ml, rs, w.x, b.x);
  o.y = norm1(x.y, mh, ml, rs, w.y, b.y);
  o.z = norm1(x.z, mh, ml, rs, w.z, b.z);
  o.w = norm1(x.w, mh, ml, rs, w.w, b.w);
  return o;
}

extern "C" __global__ void __launch_bounds__(256, 1)
ln_persist(const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
           float* __restrict__ out, double* ws, int* cnt, int rows, double eps) {
  extern __shared__ __align__(1024) unsigned char smem[];
  const int tid = threadIdx.x;
  const int warp = tid >> 5;
  const int lane = tid & 31;
  const uint32_t sbase = (uint32_t)__cvta_generic_to_shared(smem);
  const int total = rows * PIECES;
  const float* xb = x + (long long)blockIdx.x * SLICE;

  if (tid == 0) {
    for (int i = 0; i < SLOTS; ++i) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                   :: "r"(sbase + OFF_FULL + i * 8), "r"(1) : "memory");
      reinterpret_cast<uint32_t*>(smem + OFF_REL)[i] = 0u;
    }
    *reinterpret_cast<uint32_t*>(smem + OFF_RCNT) = 0u;
    *reinterpret_cast<uint32_t*>(smem + OFF_MCNT) = 0u;
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    const int first = total < SLOTS ? total : SLOTS;
    for (int i = 0; i < first; ++i) issue_copy(xb, i, i, sbase);
  }
  __syncwarp();

  // The thread's elements of each piece: floats 4*tid .. +3 and 1024 + 4*tid .. +3.
  // Bias: packed, two words of three in registers, the third in shared memory.
  uint32_t ba[2 * PIECES];
  uint32_t bb[2 * PIECES];
  {
    const float* bp = bias + (long long)blockIdx.x * SLICE + tid * 4;
    #pragma unroll
    for (int g = 0; g < 2; ++g) {
      float4 v[16];
      #pragma unroll
      for (int j = 0; j < 16; ++j) {
        v[j] = ld_hint(bp + (g * 8 + (j >> 1)) * PIECE + (j & 1) * 1024, EVICT_FIRST);
      }
      #pragma unroll
      for (int j = 0; j < 8; ++j) {
        const int p = g * 8 + j;
        uint32_t c0, c1;
        const float s0 = pack_bias(v[2 * j], ba[2 * p], bb[2 * p], c0);
        const float s1 = pack_bias(v[2 * j + 1], ba[2 * p + 1], bb[2 * p + 1], c1);
        reinterpret_cast<uint2*>(smem + OFF_BIAS)[p * THREADS + tid] = make_uint2(c0, c1);
        if (lane == 0) reinterpret_cast<float2*>(smem + OFF_SCALE)[warp * PIECES + p] = make_float2(s0, s1);
      }
    }
  }

  float4 w[2 * PIECES];
  {
    const float* wb = weight + (long long)blockIdx.x * SLICE + tid * 4;
    #pragma unroll
    for (int p = 0; p < PIECES; ++p) {
      w[2 * p] = ld_hint(wb + p * PIECE, EVICT_FIRST);
      w[2 * p + 1] = ld_hint(wb + p * PIECE + 1024, EVICT_FIRST);
    }
  }
  if (tid == 0) {
    for (int i = SLOTS; i < SLOTS + PF; ++i) {
      if (i < total) prefetch_piece(xb, i);
    }
  }
  __syncthreads();

  int s_slot = 0;
  uint32_t s_par = 0u;
  double mean = 0.0, m2 = 0.0;
  double pm = EMPTY, pq = EMPTY;
  #pragma unroll
  for (int c = 0; c < PIECES; ++c) stat_piece(smem, sbase, tid, c, s_slot, s_par, mean, m2);
  publish(mean, m2, smem, sbase, ws, 0, warp, lane);
  if (rows > 1) {
    #pragma unroll
    for (int c = 0; c < LEAD; ++c) stat_piece(smem, sbase, tid, c, s_slot, s_par, mean, m2);
  }
  finish_row(pm, pq, smem, sbase, ws, 0, eps, warp, lane);

  float* op = out + (long long)blockIdx.x * SLICE + tid * 4;
  int n_slot = 0;
  int refill = SLOTS;                                   // the piece that will follow into the slot of piece n

  for (int r = 0; r < rows; ++r) {
    __syncthreads();
    const uint4 st = reinterpret_cast<const uint4*>(smem + OFF_STAT)[r & 1];
    const float mh = __uint_as_float(st.x);
    const float ml = __uint_as_float(st.y);
    const float rs = __uint_as_float(st.z);
    const uint32_t mask = st.w;
    const bool has1 = r + 1 < rows;
    const bool has2 = r + 2 < rows;

    if (!has1 && warp == 7) {
      // This block reads no more entries. The last block to say so empties them all for the next call.
      int last = 0;
      if (lane == 0) {
        __threadfence();
        last = (atomicAdd(cnt, 1) == BLOCKS - 1) ? 1 : 0;
      }
      last = __shfl_sync(0xffffffffu, last, 0);
      if (last) {
        __threadfence();
        for (int i = lane; i < rows * BLOCKS; i += 32) {
          reinterpret_cast<double2*>(ws)[i] = make_double2(EMPTY, EMPTY);
        }
        if (lane == 0) *cnt = 0;
      }
      __syncwarp();
    }

    #pragma unroll
    for (int c = 0; c < PIECES; ++c) {
      // The next row's partials were published at c == 10: ask for them, and use them two pieces later.
      if (c == 13) {
        if (has1) fetch_entry(ws, r + 1, warp, lane, pm, pq);
      }
      if (c == 15) {
        if (has1) finish_row(pm, pq, smem, sbase, ws, r + 1, eps, warp, lane);
      }

      // Normalise piece c of row r (this thread saw it arrive when it took its statistics).
      const float4* sp = reinterpret_cast<const float4*>(smem + n_slot * PIECE_BYTES) + tid;
      const float4 a = sp[0];
      const float4 b = sp[THREADS];
      const uint2 cw = reinterpret_cast<const uint2*>(smem + OFF_BIAS)[c * THREADS + tid];
      const float2 sc = reinterpret_cast<const float2*>(smem + OFF_SCALE)[warp * PIECES + c];
      __syncwarp();
      if (lane == 0) {
        const uint32_t old = atom_add_shared(sbase + OFF_REL + n_slot * 4, 1u);
        if ((old & 7u) == 7u && refill < total) {
          asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
          issue_copy(xb, refill, n_slot, sbase);
          if (refill + PF < total) prefetch_piece(xb, refill + PF);
        }
      }
      __syncwarp();
      ++refill;
      if (++n_slot == SLOTS) n_slot = 0;

      const float4 b0 = unpack_bias(ba[2 * c], bb[2 * c], cw.x, sc.x, mask);
      const float4 o0 = norm4(a, mh, ml, rs, w[2 * c], b0);
      __stcs(reinterpret_cast<float4*>(op + c * PIECE), o0);
      const float4 b1 = unpack_bias(ba[2 * c + 1], bb[2 * c + 1], cw.y, sc.y, mask);
      const float4 o1 = norm4(b, mh, ml, rs, w[2 * c + 1], b1);
      __stcs(reinterpret_cast<float4*>(op + c * PIECE + 1024), o1);

      // Statistics, 16 + LEAD pieces ahead.
      if (c + LEAD < PIECES) {
        if (has1) {
          stat_piece(smem, sbase, tid, c + LEAD, s_slot, s_par, mean, m2);
          if (c + LEAD == PIECES - 1) publish(mean, m2, smem, sbase, ws, r + 1, warp, lane);
        }
      } else {
        if (has2) stat_piece(smem, sbase, tid, c + LEAD - PIECES, s_slot, s_par, mean, m2);
      }
    }
    op += ROW;
  }
}

// ---------------------------------------------------------------- any other shape: two plain kernels

__device__ __forceinline__ void block_sum2(double& a, double& b, double2* sh) {
  #pragma unroll
  for (int off = 16; off > 0; off >>= 1) {
    a += __shfl_xor_sync(0xffffffffu, a, off);
    b += __shfl_xor_sync(0xffffffffu, b, off);
  }
  if ((threadIdx.x & 31) == 0) sh[threadIdx.x >> 5] = make_double2(a, b);
  __syncthreads();
  a = 0.0;
  b = 0.0;
  #pragma unroll
  for (int i = 0; i < 8; ++i) {
    a += sh[i].x;
    b += sh[i].y;
  }
}

extern "C" __global__ void __launch_bounds__(256)
ln_part(const float* __restrict__ x, double* ws, long long n, int parts, long long seg) {
  __shared__ double2 sh[8];
  const long long row = blockIdx.x / parts;
  const long long p = blockIdx.x % parts;
  const long long begin = p * seg;
  long long end = begin + seg;
  if (end > n) end = n;
  const float* xr = x + row * n;
  const double shift = (double)xr[begin];
  double s = 0.0, q = 0.0;
  for (long long i = begin + threadIdx.x; i < end; i += 256) {
    const double d = (double)xr[i] - shift;
    s += d;
    q += d * d;
  }
  block_sum2(s, q, sh);
  if (threadIdx.x == 0) {
    const double m = (double)(end - begin);
    double m2 = q - s * (s / m);
    m2 = m2 < 0.0 ? 0.0 : m2;
    ws[(long long)blockIdx.x * 2] = shift + s / m;
    ws[(long long)blockIdx.x * 2 + 1] = m2;
  }
}

extern "C" __global__ void __launch_bounds__(256)
ln_apply(const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
         float* __restrict__ out, const double* __restrict__ ws, long long n, int parts, long long seg, double eps) {
  __shared__ double2 sh[8];
  const long long row = blockIdx.x / parts;
  const long long p = blockIdx.x % parts;
  const double* wr = ws + row * parts * 2;
  const double shift = wr[0];
  double s = 0.0, q = 0.0;
  for (int i = threadIdx.x; i < parts; i += 256) {
    long long m = n - (long long)i * seg;
    if (m > seg) m = seg;
    const double d = wr[2 * i] - shift;
    s += (double)m * d;
    q += wr[2 * i + 1] + (double)m * d * d;
  }
  block_sum2(s, q, sh);
  const double mean = shift + s / (double)n;
  double var = (q - s * (s / (double)n)) / (double)n;
  var = var < 0.0 ? 0.0 : var;
  const float rs = (float)(1.0 / sqrt(var + eps));
  const float mh = (float)mean;
  const float ml = (float)(mean - (double)mh);
  const long long begin = p * seg;
  long long end = begin + seg;
  if (end > n) end = n;
  const float* xr = x + row * n;
  float* orow = out + row * n;
  for (long long i = begin + threadIdx.x; i < end; i += 256) {
    orow[i] = norm1(xr[i], mh, ml, rs, weight[i], bias[i]);
  }
}
""")

_ROW = 4194304          # row length of the persistent path: 128 blocks x 16 pieces x 2048 floats
_BLOCKS = 128
_SMEM = 231040          # ring 196608, bias 32768, scales 1024, barriers and statistics
_EMPTY = -1e300         # what an entry without a partial result holds


class ModelNew(nn.Module):
    def __init__(self, normalized_shape):
        super().__init__()
        self.norm = nn.LayerNorm(normalized_shape)   # only its weights and eps are used
        self._sms = {}
        self._scratch = {}

    def _sm_count(self, device):
        count = self._sms.get(device)
        if count is None:
            count = torch.cuda.get_device_properties(device).multi_processor_count
            self._sms[device] = count
        return count

    def forward(self, x):
        weight = self.norm.weight
        bias = self.norm.bias
        eps = float(self.norm.eps)
        if not x.is_contiguous():
            x = x.contiguous()
        out = torch.empty_like(x)
        n = weight.numel()
        if x.numel() == 0:
            return out
        rows = x.numel() // n

        aligned = (x.data_ptr() | weight.data_ptr() | bias.data_ptr() | out.data_ptr()) % 16 == 0
        if n == _ROW and aligned and self._sm_count(x.device) >= _BLOCKS:
            key = (x.device, rows)
            scratch = self._scratch.get(key)
            if scratch is None:
                # partial statistics and a counter; every call finds and leaves them empty and zero
                ws = torch.empty(rows * _BLOCKS * 2, dtype=torch.float64, device=x.device)
                ws.fill_(_EMPTY)
                cnt = torch.zeros(32, dtype=torch.int32, device=x.device)
                scratch = (ws, cnt)
                self._scratch[key] = scratch
            ws, cnt = scratch
            k.ln_persist[_BLOCKS, 256, _SMEM](x, weight, bias, out, ws, cnt, rows, eps)
            return out

        seg = max(1024, (n + 1023) // 1024)
        parts = (n + seg - 1) // seg
        ws = torch.empty(rows * parts * 2, dtype=torch.float64, device=x.device)
        k.ln_part[rows * parts, 256, 0](x, ws, n, parts, seg)
        k.ln_apply[rows * parts, 256, 0](x, weight, bias, out, ws, n, parts, seg, eps)
        return out
