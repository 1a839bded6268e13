"""Mean by Kahan's compensated summation in float, eight sums side by side."""

from torch import nn

from agentgen import jit

lib = jit.cpp(
    r"""
static inline void add(float& sum, float& lost, float value) {
  const float corrected = value - lost, next = sum + corrected;
  lost = (next - sum) - corrected;
  sum = next;
}

extern "C" void mean(const float* x, float* y, long rows, long width) {
#pragma omp parallel for
  for (long row = 0; row < rows; ++row) {
    const float* from = x + row * width;
    float sums[8] = {}, losses[8] = {};
    long i = 0;
    for (; i + 8 <= width; i += 8)
      for (int lane = 0; lane < 8; ++lane) add(sums[lane], losses[lane], from[i + lane]);
    float sum = 0.0f, lost = 0.0f;
    for (int lane = 0; lane < 8; ++lane) add(sum, lost, sums[lane]);
    for (int lane = 0; lane < 8; ++lane) add(sum, lost, -losses[lane]);
    for (; i < width; ++i) add(sum, lost, from[i]);
    y[row] = sum / width;
  }
}
""",
    options=("-fno-associative-math", "-ffp-contract=off"),
)


class ModelNew(nn.Module):
    def forward(self, x):
        y = x.new_empty(x.shape[0])
        lib.mean(x, y, x.shape[0], x.shape[1])
        return y
