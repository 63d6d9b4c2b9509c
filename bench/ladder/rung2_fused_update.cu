// Rung 2: the formula in one kernel a parameter. p, m, v and g are fetched once; what lies between two operations stays
// in registers.

#include <fusegrad/bench/ladder/looks.cuh>

namespace fusegrad::ladder {

void fused_update(Problem& problem) {
  forget_found_inf(problem);
  over_each_row(problem, Unscale{problem.host.scaler.inverse, problem.found_inf.data<float>()});
  for (const Row& row : problem.rows.host()) {
    start(problem, (row.numel + math::kChunk - 1) / math::kChunk, norm_of_row, row, problem.scratch);
  }
  start(problem, 1, clip_coefficient_of, problem.scratch, problem.chunks.size(), problem.clip.data<double>());
  over_each_row(problem, Clip{problem.clip.data<double>()});
  if (!host_decides(problem)) return;
  over_each_row(problem, Update{problem.host.coefficients});
  over_each_row(problem, CopyWeights{});
}

}  // namespace fusegrad::ladder
