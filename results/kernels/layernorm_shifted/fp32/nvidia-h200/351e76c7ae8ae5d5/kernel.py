# Change: bulk L2 prefetches run 8 chunks ahead of the shared-memory ring so DRAM keeps streaming through grid-exchange waits and refills come at L2 latency, and samples are walked alternately forwards and backwards so the four bias chunks in registers are reused at each turn (a quarter less bias traffic), still with 512 threads.
import torch
from torch import nn
from agentgen import jit

k = jit.cuda(r"""
#define THREADS 512
#define RING 28
#define CHUNKS 16
#define PF_THREAD 256

typedef unsigned long long u64;

__device__ __forceinline__ void cp16(unsigned dst, const float4* src, u64 pol) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;"
               :: "r"(dst), "l"(src), "l"(pol) : "memory");
}
__device__ __forceinline__ void cp_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int N>
__device__ __forceinline__ void cp_wait() {
  asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory");
}
__device__ __forceinline__ float4 ld_keep(const float4* p, u64 pol) {
  float4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.f32 {%0,%1,%2,%3}, [%4], %5;"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p), "l"(pol));
  return v;
}
// Whole chunk c of a block's slice into L2, asked for by one thread.
__device__ __forceinline__ void prefetch_chunk(const float4* slice, int c, int len) {
  const int rem = len - c * THREADS;
  if (rem > 0) {
    const unsigned bytes = (unsigned)(rem < THREADS ? rem : THREADS) * 16u;
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;"
                 :: "l"(slice + c * THREADS), "r"(bytes) : "memory");
  }
}
__device__ __forceinline__ void mbar_init(unsigned a, unsigned n) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(a), "r"(n) : "memory");
}
__device__ __forceinline__ void mbar_arrive(unsigned a) {
  asm volatile("{\n\t.reg .b64 tok;\n\tmbarrier.arrive.shared.b64 tok, [%0];\n\t}"
               :: "r"(a) : "memory");
}
__device__ __forceinline__ void mbar_wait(unsigned a, unsigned parity) {
  unsigned ok;
  do {
    asm volatile("{\n\t.reg .pred p;\n\t"
                 "mbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n\t"
                 "selp.u32 %0, 1, 0, p;\n\t}"
                 : "=r"(ok) : "r"(a), "r"(parity) : "memory");
  } while (!ok);
}
__device__ __forceinline__ double warp_sum(double v) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
  return v;
}

// Adds chunks J0 .. J0+3 of one sample (this thread's own columns; backwards in the
// ring if REV) to the sums: fp32 about the
// group's first value, so no large value is squared in fp32, then exact formulas in double.
template <int J0, int PEND, bool REV>
__device__ __forceinline__ void stats4(const float4* ring, int base, int t, int len,
                                       double& s, double& q) {
  cp_wait<PEND>();
  if (J0 * THREADS + t < len) {
    float p = 0.f, sa = 0.f, sb = 0.f, ma = 0.f, mb = 0.f;
    int cnt = 0;
#pragma unroll
    for (int jj = 0; jj < 4; ++jj) {
      const int j = J0 + jj;
      int slot = base + (REV ? CHUNKS - 1 - j : j);
      if (slot >= RING) slot -= RING;
      if (j * THREADS + t < len) {
        const float4 v = ring[slot * THREADS + t];
        if (jj == 0) p = v.x;
        const float d0 = v.x - p, d1 = v.y - p, d2 = v.z - p, d3 = v.w - p;
        sa += d0; ma = fmaf(d0, d0, ma);
        sb += d1; mb = fmaf(d1, d1, mb);
        sa += d2; ma = fmaf(d2, d2, ma);
        sb += d3; mb = fmaf(d3, d3, mb);
        cnt += 4;
      }
    }
    const double P = (double)p, D = (double)(sa + sb), M = (double)(ma + mb);
    const double NP = (double)cnt * P;
    s += NP + D;
    q += fma(P, NP + 2.0 * D, M);
  }
}

// Each warp hands its sums over; warp 15 adds them and publishes the block's, every 64-bit word
// carrying 32 bits of payload and the tag of this launch.
__device__ __forceinline__ void publish(double s, double q, int smp, int warp, int lane,
                                        double* red, unsigned red_bar, u64* part,
                                        int G, int g, unsigned tag) {
  double* r = red + (smp & 1) * 32;
  const double ws = warp_sum(s);
  const double wq = warp_sum(q);
  if (lane == 0) {
    r[warp] = ws;
    r[16 + warp] = wq;
    mbar_arrive(red_bar);
  }
  __syncwarp();
  if (warp == 15) {
    mbar_wait(red_bar, (unsigned)(smp & 1));
    __syncwarp();
    double a = lane < 16 ? r[lane] : 0.0;
    double c = lane < 16 ? r[16 + lane] : 0.0;
    a = warp_sum(a);
    c = warp_sum(c);
    if (lane == 0) {
      const u64 hi = (u64)tag << 32;
      const u64 ab = (u64)__double_as_longlong(a), cb = (u64)__double_as_longlong(c);
      u64* p = part + 4 * ((long long)smp * G + g);
      asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};"
                   :: "l"(p), "l"(hi | (ab & 0xffffffffull)), "l"(hi | (ab >> 32)) : "memory");
      asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};"
                   :: "l"(p + 2), "l"(hi | (cb & 0xffffffffull)), "l"(hi | (cb >> 32)) : "memory");
    }
    __syncwarp();
  }
}

// Warps 0 .. (G-1)/32 collect the blocks' sums, one block a lane.
__device__ __forceinline__ void collect(int smp, int warp, int lane, double* sp, unsigned st_bar,
                                        const u64* part, int G, unsigned tag) {
  if (warp * 32 < G) {
    double a = 0.0, c = 0.0;
    const int i = warp * 32 + lane;
    if (i < G) {
      const u64* p = part + 4 * ((long long)smp * G + i);
      u64 w0, w1, w2, w3;
      bool ok;
      do {
        asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
                     : "=l"(w0), "=l"(w1) : "l"(p) : "memory");
        asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
                     : "=l"(w2), "=l"(w3) : "l"(p + 2) : "memory");
        ok = (unsigned)(w0 >> 32) == tag && (unsigned)(w1 >> 32) == tag &&
             (unsigned)(w2 >> 32) == tag && (unsigned)(w3 >> 32) == tag;
      } while (!ok);
      a = __longlong_as_double((long long)((w1 << 32) | (w0 & 0xffffffffull)));
      c = __longlong_as_double((long long)((w3 << 32) | (w2 & 0xffffffffull)));
    }
    __syncwarp();
    a = warp_sum(a);
    c = warp_sum(c);
    if (lane == 0) {
      double* d = sp + (smp & 1) * 32;
      d[warp] = a;
      d[16 + warp] = c;
      mbar_arrive(st_bar);
    }
    __syncwarp();
  }
}

__device__ __forceinline__ void moments(int smp, const double* sp, unsigned st_bar, int NP,
                                        double inv_n, double eps,
                                        float& mh, float& ml, float& rs) {
  mbar_wait(st_bar, (unsigned)(smp & 1));
  __syncwarp();
  const double* d = sp + (smp & 1) * 32;
  double a = 0.0, c = 0.0;
  for (int i = 0; i < NP; ++i) { a += d[i]; c += d[16 + i]; }
  const double mean = a * inv_n;
  double var = c * inv_n - mean * mean;
  if (var < 0.0) var = 0.0;
  mh = (float)mean;
  ml = (float)(mean - (double)mh);
  rs = 1.0f / sqrtf((float)(var + eps));
}

// Normalise sample s from shared memory and refill each slot as it becomes free; between these
// steps sum up sample s+1, publish, and collect. REV: this sample lies in the ring (and is walked)
// from its last chunk to its first; its neighbours lie the other way round. bq holds the four
// bias chunks that come next, and at the end those that the next sample begins with.
template <bool REV>
__device__ __forceinline__ void one_sample(
    int s, int batch, int nvec, int len, int t, int lane, int warp,
    const float4* ring, unsigned ring_a, int& base,
    const float4*& x1, const float4* bp, float4*& os,
    const float4 (&wr)[CHUNKS], float4 (&bq)[4],
    float& mh, float& ml, float& rs,
    double* red, unsigned red_bar, double* sp, unsigned st_bar,
    u64* part, int G, int g, int NP, unsigned tag, double inv_n, double eps,
    u64 pol_first, u64 pol_last) {
  constexpr bool NR = !REV;
  const bool more = s + 1 < batch;
  int nbase = base + CHUNKS;
  if (nbase >= RING) nbase -= RING;
  double sum = 0.0, sq = 0.0;
  const float4* x2 = x1 + nvec;

#pragma unroll
  for (int j = 0; j < CHUNKS; ++j) {
    const int c = REV ? CHUNKS - 1 - j : j;
    int slot = base + j;
    if (slot >= RING) slot -= RING;
    if (c * THREADS + t < len) {
      const float4 v = ring[slot * THREADS + t];
      const float4 bb = bq[c & 3];
      float4 y;
      y.x = fmaf(((v.x - mh) - ml) * rs, wr[c].x, bb.x);
      y.y = fmaf(((v.y - mh) - ml) * rs, wr[c].y, bb.y);
      y.z = fmaf(((v.z - mh) - ml) * rs, wr[c].z, bb.z);
      y.w = fmaf(((v.w - mh) - ml) * rs, wr[c].w, bb.w);
      __stcs(os + c * THREADS, y);
    }
    // The bias four steps on; the last four chunks stay for the next sample.
    if (j < CHUNKS - 4) {
      const int cb = REV ? c - 4 : c + 4;
      if (cb * THREADS + t < len) bq[c & 3] = ld_keep(bp + cb * THREADS, pol_last);
    }
    // 28 chunks on: place j+12 of the next sample, or j-4 of the one after.
    if (j < 4) {
      const int cn = NR ? 3 - j : j + 12;
      if (more && cn * THREADS + t < len)
        cp16(ring_a + slot * (THREADS * 16), x1 + cn * THREADS, pol_first);
    } else {
      const int cn = REV ? CHUNKS - 1 - (j - 4) : j - 4;
      if (s + 2 < batch && cn * THREADS + t < len)
        cp16(ring_a + slot * (THREADS * 16), x2 + cn * THREADS, pol_first);
    }
    cp_commit();
    // 36 chunks on, into L2: place j+4 of sample s+2, or j-12 of sample s+3.
    if (t == PF_THREAD) {
      if (j < 12) {
        if (s + 2 < batch)
          prefetch_chunk(x2 - PF_THREAD, REV ? 11 - j : j + 4, len);
      } else {
        if (s + 3 < batch)
          prefetch_chunk(x2 + nvec - PF_THREAD, NR ? CHUNKS - 1 - (j - 12) : j - 12, len);
      }
    }

    // After step j, j + 9 - 4*group copies may be pending.
    if (more) {
      if (j == 1) stats4<(NR ? 12 : 0), 10, NR>(ring, nbase, t, len, sum, sq);
      if (j == 3) stats4<(NR ? 8 : 4), 8, NR>(ring, nbase, t, len, sum, sq);
      if (j == 5) stats4<(NR ? 4 : 8), 6, NR>(ring, nbase, t, len, sum, sq);
      if (j == 7) {
        stats4<(NR ? 0 : 12), 4, NR>(ring, nbase, t, len, sum, sq);
        publish(sum, sq, s + 1, warp, lane, red, red_bar, part, G, g, tag);
      }
      if (j == 13) collect(s + 1, warp, lane, sp, st_bar, part, G, tag);
    }
  }
  if (more) moments(s + 1, sp, st_bar, NP, inv_n, eps, mh, ml, rs);
  base = nbase;
  x1 = x2;
  os += nvec;
}

// Whole grid resident, one block per multiprocessor, at most 512 blocks. Block g owns float4s
// [g*per, g*per+len) of every sample, len <= 8192. Each thread copies, reads and writes only its
// own columns of the ring.
extern "C" __global__ void __launch_bounds__(512, 1) ln_fused(
    const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ b,
    float* __restrict__ out, double* part_d, int* ctl,
    int batch, int nvec, int per, double eps) {
  extern __shared__ float4 ring[];
  __shared__ double red[64];
  __shared__ double sp[64];
  __shared__ u64 bars[2];

  const int t = threadIdx.x;
  const int lane = t & 31, warp = t >> 5;
  const int G = gridDim.x, g = blockIdx.x;
  const int NP = (G + 31) >> 5;
  const long long first = (long long)g * per;
  const long long left = (long long)nvec - first;
  const int len = left <= 0 ? 0 : (left < per ? (int)left : per);
  u64* part = reinterpret_cast<u64*>(part_d);

  const float4* xp = reinterpret_cast<const float4*>(x) + first + t;
  const float4* wp = reinterpret_cast<const float4*>(w) + first + t;
  const float4* bp = reinterpret_cast<const float4*>(b) + first + t;
  float4* op = reinterpret_cast<float4*>(out) + first + t;
  const unsigned ring_a = (unsigned)__cvta_generic_to_shared(ring) + (unsigned)t * 16u;
  const unsigned red_bar = (unsigned)__cvta_generic_to_shared(&bars[0]);
  const unsigned st_bar = (unsigned)__cvta_generic_to_shared(&bars[1]);

  u64 pol_first, pol_last;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(pol_first));
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(pol_last));

  // Sample 0 first, then the weights, then the last 12 chunks of sample 1, which goes backwards.
#pragma unroll
  for (int j = 0; j < CHUNKS; ++j) {
    if (j * THREADS + t < len)
      cp16(ring_a + j * (THREADS * 16), xp + j * THREADS, pol_first);
    cp_commit();
  }

  const unsigned tag = (unsigned)__ldcg(ctl + 1) + 1u;
  if (t == 0) {
    mbar_init(red_bar, 16u);
    mbar_init(st_bar, (unsigned)NP);
  }

  float4 wr[CHUNKS];
  float4 bq[4];
#pragma unroll
  for (int j = 0; j < CHUNKS; ++j) {
    wr[j] = make_float4(0.f, 0.f, 0.f, 0.f);
    if (j * THREADS + t < len) wr[j] = ld_keep(wp + j * THREADS, pol_first);
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    bq[j] = make_float4(0.f, 0.f, 0.f, 0.f);
    if (j * THREADS + t < len) bq[j] = ld_keep(bp + j * THREADS, pol_last);
  }
#pragma unroll
  for (int i = CHUNKS; i < RING; ++i) {
    const int j = CHUNKS - 1 - (i - CHUNKS);
    if (1 < batch && j * THREADS + t < len)
      cp16(ring_a + i * (THREADS * 16), xp + (long long)nvec + j * THREADS, pol_first);
    cp_commit();
  }
  __syncthreads();  // the mbarriers are ready

  const double inv_n = 1.0 / (4.0 * (double)nvec);
  int base = 0;
  float mh, ml, rs;
  double sum = 0.0, sq = 0.0;
  stats4<0, 24, false>(ring, 0, t, len, sum, sq);
  stats4<4, 20, false>(ring, 0, t, len, sum, sq);
  stats4<8, 16, false>(ring, 0, t, len, sum, sq);
  stats4<12, 12, false>(ring, 0, t, len, sum, sq);
  publish(sum, sq, 0, warp, lane, red, red_bar, part, G, g, tag);
  // While the blocks exchange their sums: the bias, and the next 8 chunks of input, into L2.
  if (t == PF_THREAD) {
    for (int c = 4; c < CHUNKS; ++c) prefetch_chunk(bp - PF_THREAD, c, len);
    if (1 < batch)
      for (int c = 3; c >= 0; --c) prefetch_chunk(xp + nvec - PF_THREAD, c, len);
    if (2 < batch)
      for (int c = 0; c < 4; ++c)
        prefetch_chunk(xp + 2 * (long long)nvec - PF_THREAD, c, len);
  }
  __syncwarp();
  collect(0, warp, lane, sp, st_bar, part, G, tag);
  moments(0, sp, st_bar, NP, inv_n, eps, mh, ml, rs);

  const float4* x1 = xp + nvec;
  for (int s = 0; s < batch; s += 2) {
    one_sample<false>(s, batch, nvec, len, t, lane, warp, ring, ring_a, base, x1, bp, op, wr, bq,
                      mh, ml, rs, red, red_bar, sp, st_bar, part, G, g, NP, tag, inv_n, eps,
                      pol_first, pol_last);
    if (s + 1 < batch)
      one_sample<true>(s + 1, batch, nvec, len, t, lane, warp, ring, ring_a, base, x1, bp, op, wr,
                       bq, mh, ml, rs, red, red_bar, sp, st_bar, part, G, g, NP, tag, inv_n, eps,
                       pol_first, pol_last);
  }

  // The last block to leave moves the tag on; every block has read it long before.
  if (t == 0) {
    __threadfence();
    if (atomicAdd(ctl, 1) == G - 1) {
      ctl[0] = 0;
      ctl[1] = (int)tag;
      __threadfence();
    }
  }
}

// Any shape: P blocks a sample write partial sums.
extern "C" __global__ void __launch_bounds__(256) ln_stats(
    const float* __restrict__ x, double* __restrict__ part, long long n, int P) {
  __shared__ double red[16];
  const int t = threadIdx.x, lane = t & 31, warp = t >> 5;
  const int s = blockIdx.x / P, p = blockIdx.x % P;
  const float* xs = x + (long long)s * n;
  double a = 0.0, c = 0.0;
  for (long long i = (long long)p * 256 + t; i < n; i += (long long)P * 256) {
    const double v = xs[i];
    a += v;
    c = fma(v, v, c);
  }
  a = warp_sum(a);
  c = warp_sum(c);
  if (lane == 0) { red[warp] = a; red[8 + warp] = c; }
  __syncthreads();
  if (t == 0) {
    double sa = 0.0, sc = 0.0;
    for (int i = 0; i < 8; ++i) { sa += red[i]; sc += red[8 + i]; }
    part[2 * (long long)blockIdx.x] = sa;
    part[2 * (long long)blockIdx.x + 1] = sc;
  }
}

extern "C" __global__ void __launch_bounds__(256) ln_apply(
    const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ b,
    float* __restrict__ out, const double* __restrict__ part, long long n, int P, double eps) {
  __shared__ float st[4];
  const int t = threadIdx.x;
  const int s = blockIdx.x / P, p = blockIdx.x % P;
  if (t < 32) {
    double a = 0.0, c = 0.0;
    const double* ps = part + 2 * (long long)s * P;
    for (int i = t; i < P; i += 32) { a += ps[2 * i]; c += ps[2 * i + 1]; }
    a = warp_sum(a);
    c = warp_sum(c);
    if (t == 0) {
      const double mean = a / (double)n;
      double var = c / (double)n - mean * mean;
      if (var < 0.0) var = 0.0;
      const float mh = (float)mean;
      st[0] = mh;
      st[1] = (float)(mean - (double)mh);
      st[2] = (float)(1.0 / sqrt(var + eps));
    }
  }
  __syncthreads();
  const float mh = st[0], ml = st[1], rs = st[2];
  const float* xs = x + (long long)s * n;
  float* os = out + (long long)s * n;
  for (long long i = (long long)p * 256 + t; i < n; i += (long long)P * 256)
    os[i] = fmaf(((xs[i] - mh) - ml) * rs, w[i], b[i]);
}
""")

_RING_BYTES = 28 * 512 * 16
_SLICE = 16 * 512  # float4s of a sample that one block can hold


class ModelNew(nn.Module):
    def __init__(self, normalized_shape):
        super().__init__()
        self.norm = nn.LayerNorm(normalized_shape)
        self._sms = None
        self._part = None
        self._ctl = None

    def forward(self, x):
        if not x.is_contiguous():
            x = x.contiguous()
        w = self.norm.weight
        b = self.norm.bias
        eps = float(self.norm.eps)
        n = w.numel()
        out = torch.empty_like(x)
        if x.numel() == 0:
            return out
        batch = x.numel() // n

        if self._sms is None:
            self._sms = torch.cuda.get_device_properties(x.device).multi_processor_count
        grid = self._sms

        nvec = n // 4
        per = ((nvec + grid - 1) // grid + 7) // 8 * 8
        aligned = (x.data_ptr() | w.data_ptr() | b.data_ptr() | out.data_ptr()) % 16 == 0
        if n % 4 == 0 and aligned and n >= (1 << 20) and per <= _SLICE and grid <= 512:
            # Exchange words (32 bits of payload and 32 of tag each) and {leave count, last tag}:
            # each call has a tag of its own, so nothing of an earlier call is ever taken.
            need = 4 * batch * grid
            if self._part is None or self._part.numel() < need or self._part.device != x.device:
                self._part = torch.zeros(need, dtype=torch.float64, device=x.device)
                self._ctl = torch.zeros(2, dtype=torch.int32, device=x.device)
            k.ln_fused.cooperative[grid, 512, _RING_BYTES](
                x, w, b, out, self._part, self._ctl, batch, nvec, per, eps)
            return out

        P = max(1, min(256, (n + 4095) // 4096))
        part = torch.empty(2 * batch * P, dtype=torch.float64, device=x.device)
        k.ln_stats[batch * P, 256, 0](x, part, n, P)
        k.ln_apply[batch * P, 256, 0](x, w, b, out, part, n, P, eps)
        return out
