import torch
from torch import nn
from agentgen import jit

k = jit.cuda(r"""
typedef unsigned long long u64;

constexpr int NT  = 512;    // threads a block
constexpr int NR  = 16;     // rounds of 2048 floats a block holds at most
constexpr int NS  = 14;     // rounds whose weight and bias are in shared memory
constexpr int LAG = 8;      // statistics run this many rounds behind the loads
constexpr int PJ  = 5;      // partials a lane polls: at most 160 blocks
constexpr u64 EMPTY = 0xFFFFFFFFFFFFFFFFull;   // a partial that is not there yet

__device__ __forceinline__ float4 ldx(const float4* p, u64 pol) {
  float4 v;
  asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.f32 {%0, %1, %2, %3}, [%4], %5;"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(p), "l"(pol));
  return v;
}

__device__ __forceinline__ void cp16(float4* dst, const float4* src, u64 pol) {
  const unsigned d = (unsigned)__cvta_generic_to_shared(dst);
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;"
               :: "r"(d), "l"(src), "l"(pol) : "memory");
}

__device__ __forceinline__ void ld_pair(u64& a, u64& b, const double2* p) {
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(a), "=l"(b) : "l"(p) : "memory");
}

__device__ __forceinline__ void st_pair(double2* p, u64 a, u64 b) {
  asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};"
               :: "l"(p), "l"(a), "l"(b) : "memory");
}

__device__ __forceinline__ u64 to_bits(double v) {
  u64 a = (u64)__double_as_longlong(v);
  if (a == EMPTY) a = 0x7FF8000000000000ull;
  return a;
}

__device__ __forceinline__ double from_bits(u64 a) {
  return __longlong_as_double((long long)a);
}

// order in which the rounds are applied, reloaded and summed: 0..5, 15, 14, 6..13
__device__ __forceinline__ constexpr int ord(int t) {
  return t < 6 ? t : (t < 8 ? 21 - t : t - 2);
}

template <int LO>
__device__ __forceinline__ bool has(int kk, int n) {
  return kk < LO || kk < n;
}

__device__ __forceinline__ void acc4(const float4 v, double p, double& s0, double& s1,
                                     double& q0, double& q1) {
  const double a = (double)v.x - p;
  const double b = (double)v.y - p;
  const double c = (double)v.z - p;
  const double d = (double)v.w - p;
  s0 += a;
  s1 += b;
  q0 = fma(a, a, q0);
  q1 = fma(b, b, q1);
  s0 += c;
  s1 += d;
  q0 = fma(c, c, q0);
  q1 = fma(d, d, q1);
}

// m.x, m.y: mean as hi + lo; m.z: reciprocal standard deviation
__device__ __forceinline__ float4 apply4(const float4 v, const float4 m, const float4 w, const float4 b) {
  float4 o;
  o.x = fmaf(((v.x - m.x) - m.y) * m.z, w.x, b.x);
  o.y = fmaf(((v.y - m.x) - m.y) * m.z, w.y, b.y);
  o.z = fmaf(((v.z - m.x) - m.y) * m.z, w.z, b.z);
  o.w = fmaf(((v.w - m.x) - m.y) * m.z, w.w, b.w);
  return o;
}

__device__ __forceinline__ double warp_sum(double v) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
  return v;
}

// Write the row in v; with MORE, reload v from the next row and sum it.
template <int LO, bool MORE>
__device__ __forceinline__ void apply_row(float4 (&v)[NR], const float4* xn, float4* yp,
                                          const float4* wb, const float4* w4, const float4* b4,
                                          const float4 m, int n, double p, u64 pf, u64 pl,
                                          double& s0, double& s1, double& q0, double& q1) {
  float4 we[2], be[2];
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    we[e] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    be[e] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (has<LO>(NS + e, n)) {
      we[e] = ldx(w4 + (NS + e) * NT, pl);
      be[e] = ldx(b4 + (NS + e) * NT, pl);
    }
  }
  s0 = 0.0;
  s1 = 0.0;
  q0 = 0.0;
  q1 = 0.0;
#pragma unroll
  for (int t = 0; t < NR; ++t) {
    const int c = ord(t);
    if (has<LO>(c, n)) {
      float4 w, b;
      if (c < NS) {
        w = wb[c * (2 * NT)];
        b = wb[c * (2 * NT) + NT];
      } else {
        w = we[c & 1];
        b = be[c & 1];
      }
      __stcs(yp + c * NT, apply4(v[c], m, w, b));
      if (MORE) v[c] = ldx(xn + c * NT, pf);
    }
    if (MORE && t >= LAG) {
      const int d = ord(t - LAG);
      if (has<LO>(d, n)) acc4(v[d], p, s0, s1, q0, q1);
    }
  }
  if (MORE) {
#pragma unroll
    for (int t = NR - LAG; t < NR; ++t) {
      const int d = ord(t);
      if (has<LO>(d, n)) acc4(v[d], p, s0, s1, q0, q1);
    }
  }
}

// M rows of L floats, L a multiple of 2048. A block owns LO to 16 rounds of 2048 positions of every row.
template <int LO>
__device__ __forceinline__ void ln_body(const float* __restrict__ x, const float* __restrict__ wt,
                                        const float* __restrict__ bi, float* __restrict__ y,
                                        double* part, int* bar, int M, long long L,
                                        double inv_n, double eps, unsigned char* smem) {
  float4* swb = reinterpret_cast<float4*>(smem);                              // [NS][2][NT]
  double2* red = reinterpret_cast<double2*>(smem + NS * 2 * NT * 16);         // [16]
  float4* st = reinterpret_cast<float4*>(smem + NS * 2 * NT * 16 + 256);      // [1]

  const int tid = threadIdx.x;
  const int lane = tid & 31;
  const int wid = tid >> 5;
  const int nb = (int)gridDim.x;
  const int blk = (int)blockIdx.x;

  const long long U = L >> 11;
  const int u0 = (int)(U * blk / nb);
  const int u1 = (int)(U * (blk + 1) / nb);
  const int n = u1 - u0;                               // rounds of this block
  const int off = u0 * NT + tid;                       // in float4
  const long long L4 = L >> 2;

  u64 pf, pl;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(pf));
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(pl));

  const float4* w4 = reinterpret_cast<const float4*>(wt) + off;
  const float4* b4 = reinterpret_cast<const float4*>(bi) + off;
  float4* yp = reinterpret_cast<float4*>(y) + off;
  const float4* wb = swb + tid;

  // row 0 into registers
  float pv = __ldg(x);
  float4 v[NR];
  {
    const float4* x0 = reinterpret_cast<const float4*>(x) + off;
#pragma unroll
    for (int t = 0; t < NR; ++t) {
      const int c = ord(t);
      v[c] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (has<LO>(c, n)) v[c] = ldx(x0 + c * NT, pf);
    }
  }
  // weight and bias into shared memory; a thread reads back its own slots only
#pragma unroll
  for (int c = 0; c < NS; ++c) {
    if (has<LO>(c, n)) {
      cp16(swb + c * (2 * NT) + tid, w4 + c * NT, pf);
      cp16(swb + c * (2 * NT) + NT + tid, b4 + c * NT, pf);
    }
  }
  asm volatile("cp.async.commit_group;" ::: "memory");

  double s0 = 0.0, s1 = 0.0, q0 = 0.0, q1 = 0.0;
  {
    const double p = (double)pv;
#pragma unroll
    for (int t = 0; t < NR; ++t) {
      const int c = ord(t);
      if (has<LO>(c, n)) acc4(v[c], p, s0, s1, q0, q1);
    }
  }

  const float* xrow = x + L;                           // the next row
  double2* prow = reinterpret_cast<double2*>(part);    // this row's partials
  int old = -1;

#pragma unroll 1
  for (int r = 0; r < M; ++r) {
    const bool more = r + 1 < M;

    // the next row's slice into L2, a round of 8 KB by each warp, while the barrier settles
    if (more && lane == 0 && wid < n) {
      const float* a = xrow + (long long)(u0 + wid) * 2048;
      asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" :: "l"(a), "r"(8192) : "memory");
    }
    float pvn = 0.0f;
    if (more) pvn = __ldg(xrow);

    {
      const double s = warp_sum(s0 + s1);
      const double q = warp_sum(q0 + q1);
      if (lane == 0) red[wid] = make_double2(s, q);
    }
    __syncthreads();

    if (wid == 0) {
      const double2 t = red[lane & 15];
      double s = t.x;
      double q = t.y;
#pragma unroll
      for (int o = 8; o > 0; o >>= 1) {
        s += __shfl_xor_sync(0xffffffffu, s, o);
        q += __shfl_xor_sync(0xffffffffu, q, o);
      }
      if (lane == 0) st_pair(prow + blk, to_bits(s), to_bits(q));
      __syncwarp();

      u64 a[PJ], b[PJ];
      bool miss;
      do {
#pragma unroll
        for (int j = 0; j < PJ; ++j) {
          const int i = min(lane + 32 * j, nb - 1);
          ld_pair(a[j], b[j], prow + i);
        }
        miss = false;
#pragma unroll
        for (int j = 0; j < PJ; ++j) miss = miss || (a[j] == EMPTY) || (b[j] == EMPTY);
      } while (__any_sync(0xffffffffu, miss));

      s = 0.0;
      q = 0.0;
#pragma unroll
      for (int j = 0; j < PJ; ++j) {
        if (lane + 32 * j < nb) {
          s += from_bits(a[j]);
          q += from_bits(b[j]);
        }
      }
      s = warp_sum(s);
      q = warp_sum(q);
      if (lane == 0) {
        const double dm = s * inv_n;
        double var = q * inv_n - dm * dm;
        if (var < 0.0) var = 0.0;
        const double mean = (double)pv + dm;
        const float hi = (float)mean;
        const float lo = (float)(mean - (double)hi);
        const float rs = (float)rsqrt(var + eps);
        st[0] = make_float4(hi, lo, rs, 0.0f);
        if (!more) old = atomicAdd(bar, 1);            // this block has read all it will read
      }
    }
    asm volatile("cp.async.wait_all;" ::: "memory");   // weight and bias, in the first row
    __syncthreads();

    const float4 m = st[0];
    if (more) {
      apply_row<LO, true>(v, reinterpret_cast<const float4*>(xrow) + off, yp, wb, w4, b4, m, n,
                          (double)pvn, pf, pl, s0, s1, q0, q1);
    } else {
      apply_row<LO, false>(v, reinterpret_cast<const float4*>(x) + off, yp, wb, w4, b4, m, n,
                           0.0, pf, pl, s0, s1, q0, q1);
    }
    pv = pvn;
    xrow += L;
    yp += L4;
    prow += nb;
  }

  // the last block to leave sets the slots back
  if (wid == 0) {
    const int last = __shfl_sync(0xffffffffu, old, 0);
    if (last == nb - 1) {
      double2* pp = reinterpret_cast<double2*>(part);
      const long long total = (long long)M * nb;
      for (long long i = lane; i < total; i += 32) st_pair(pp + i, EMPTY, EMPTY);
      if (lane == 0) atomicExch(bar, 0);
    }
  }
}

extern "C" __global__ void __launch_bounds__(512, 1)
ln_rows15(const float* __restrict__ x, const float* __restrict__ wt, const float* __restrict__ bi,
          float* __restrict__ y, double* part, int* bar, int M, long long L, double inv_n, double eps) {
  extern __shared__ __align__(128) unsigned char smem_raw[];
  ln_body<15>(x, wt, bi, y, part, bar, M, L, inv_n, eps, smem_raw);
}

extern "C" __global__ void __launch_bounds__(512, 1)
ln_rows_any(const float* __restrict__ x, const float* __restrict__ wt, const float* __restrict__ bi,
            float* __restrict__ y, double* part, int* bar, int M, long long L, double inv_n, double eps) {
  extern __shared__ __align__(128) unsigned char smem_raw[];
  ln_body<0>(x, wt, bi, y, part, bar, M, L, inv_n, eps, smem_raw);
}

// ---------------- any shape ----------------
__device__ __forceinline__ float4 make_stats(double s, double q, double p, long long L, double eps) {
  const double n = (double)L;
  const double dm = s / n;
  double var = q / n - dm * dm;
  if (var < 0.0) var = 0.0;
  const double mean = p + dm;
  const float hi = (float)mean;
  const float lo = (float)(mean - (double)hi);
  const float rs = (float)(1.0 / sqrt(var + eps));
  return make_float4(hi, lo, rs, 0.0f);
}

extern "C" __global__ void __launch_bounds__(256)
gen_stats(const float* __restrict__ x, double* __restrict__ part, long long L, int C) {
  __shared__ double rs[8];
  __shared__ double rq[8];
  const int tid = threadIdx.x;
  const int bid = (int)blockIdx.x;
  const long long row = bid / C;
  const int c = bid % C;
  const long long i0 = L * c / C;
  const long long i1 = L * (c + 1) / C;
  const float* xr = x + row * L;
  const double p = (double)xr[0];
  double s = 0.0, q = 0.0;
#pragma unroll 4
  for (long long i = i0 + tid; i < i1; i += 256) {
    const double d = (double)xr[i] - p;
    s += d;
    q = fma(d, d, q);
  }
  s = warp_sum(s);
  q = warp_sum(q);
  if ((tid & 31) == 0) {
    rs[tid >> 5] = s;
    rq[tid >> 5] = q;
  }
  __syncthreads();
  if (tid == 0) {
    double a = 0.0, b = 0.0;
    for (int i = 0; i < 8; ++i) {
      a += rs[i];
      b += rq[i];
    }
    part[2LL * bid] = a;
    part[2LL * bid + 1] = b;
  }
}

extern "C" __global__ void __launch_bounds__(256)
gen_apply(const float* __restrict__ x, const float* __restrict__ wt, const float* __restrict__ bi,
          float* __restrict__ y, const double* __restrict__ part, long long L, int C, double eps) {
  __shared__ float4 sm;
  const int tid = threadIdx.x;
  const int bid = (int)blockIdx.x;
  const long long row = bid / C;
  const int c = bid % C;
  const long long i0 = L * c / C;
  const long long i1 = L * (c + 1) / C;
  const float* xr = x + row * L;
  float* yr = y + row * L;
  if (tid < 32) {
    double s = 0.0, q = 0.0;
    for (int i = tid; i < C; i += 32) {
      s += part[2LL * (row * C + i)];
      q += part[2LL * (row * C + i) + 1];
    }
    s = warp_sum(s);
    q = warp_sum(q);
    if (tid == 0) sm = make_stats(s, q, (double)xr[0], L, eps);
  }
  __syncthreads();
  const float4 m = sm;
#pragma unroll 4
  for (long long i = i0 + tid; i < i1; i += 256)
    yr[i] = fmaf(((xr[i] - m.x) - m.y) * m.z, wt[i], bi[i]);
}
""")

_SMEM = 14 * 2 * 512 * 16 + 512
_ROUND = 2048
_MAX_ROUNDS = 16
_MAX_BLOCKS = 160


class ModelNew(nn.Module):
    def __init__(self, normalized_shape):
        super().__init__()
        self.norm = nn.LayerNorm(normalized_shape)
        self._sms = {}
        self._scratch = {}

    def _get_sms(self, device):
        nb = self._sms.get(device)
        if nb is None:
            nb = torch.cuda.get_device_properties(device).multi_processor_count
            self._sms[device] = nb
        return nb

    def _get_scratch(self, device, slots):
        s = self._scratch.get(device)
        if s is None or s[0] < slots:
            # all bits one: "not there yet"; the kernel leaves the slots so
            part = torch.full((2 * slots,), -1, dtype=torch.int64, device=device).view(torch.float64)
            bar = torch.zeros(1, dtype=torch.int32, device=device)
            s = (slots, part, bar)
            self._scratch[device] = s
        return s[1], s[2]

    def forward(self, x):
        x = x.contiguous()
        w = self.norm.weight
        b = self.norm.bias
        eps = float(self.norm.eps)
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        L = w.numel()
        M = x.numel() // L
        if M == 0:
            return y
        nb = self._get_sms(x.device)
        g = min(nb, _MAX_BLOCKS)
        U = L // _ROUND
        aligned = (x.data_ptr() | y.data_ptr() | w.data_ptr() | b.data_ptr()) % 16 == 0
        if L % _ROUND == 0 and U // g >= 6 and (U + g - 1) // g <= _MAX_ROUNDS and aligned:
            part, bar = self._get_scratch(x.device, max(M, 16) * g)
            if U // g >= 15:
                k.ln_rows15.cooperative[g, 512, _SMEM](x, w, b, y, part, bar, M, L, 1.0 / L, eps)
            else:
                k.ln_rows_any.cooperative[g, 512, _SMEM](x, w, b, y, part, bar, M, L, 1.0 / L, eps)
        else:
            C = max(1, min((L + 4095) // 4096, (8 * nb + M - 1) // M))
            pg = torch.empty(2 * M * C, dtype=torch.float64, device=x.device)
            k.gen_stats[M * C, 256, 0](x, pg, L, C)
            k.gen_apply[M * C, 256, 0](x, w, b, y, pg, L, C, eps)
        return y
