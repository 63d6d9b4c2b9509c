// Rung 4: 16 bytes an access, and tiles so small that a thread has one vector and no loop.

#include <fusegrad/bench/ladder/looks.cuh>

namespace fusegrad::ladder {

void vectors(Problem& problem) {
  forget_found_inf(problem);
  over_tiles(problem, Unscale{problem.host.scaler.inverse, problem.found_inf.data<float>()});
  start(problem, problem.chunks.size(), norm_of_chunks, problem.rows.data(), problem.chunks.data(), problem.scratch);
  start(problem, 1, clip_coefficient_of, problem.scratch, problem.chunks.size(), problem.clip.data<double>());
  over_tiles(problem, Clip{problem.clip.data<double>()});
  if (!host_decides(problem)) return;
  over_tiles(problem, Update{problem.host.coefficients});
  over_tiles(problem, CopyWeights{});
}

}  // namespace fusegrad::ladder
