// Rung 3: a table of all parameters in the GPU's memory, and with it one launch a pass, however many parameters there
// are.

#include <fusegrad/bench/ladder/looks.cuh>

namespace fusegrad::ladder {

void table(Problem& problem) {
  forget_found_inf(problem);
  over_chunks(problem, Unscale{problem.host.scaler.inverse, problem.found_inf.data<float>()});
  start(problem, problem.chunks.size(), norm_of_chunks, problem.rows.data(), problem.chunks.data(), problem.scratch);
  start(problem, 1, clip_coefficient_of, problem.scratch, problem.chunks.size(), problem.clip.data<double>());
  over_chunks(problem, Clip{problem.clip.data<double>()});
  if (!host_decides(problem)) return;
  over_chunks(problem, Update{problem.host.coefficients});
  over_chunks(problem, CopyWeights{});
}

}  // namespace fusegrad::ladder
