// Rung 6: unscaling and clipping happen in the registers of the update. Gradients are only read.

#include <fusegrad/bench/ladder/looks.cuh>

namespace fusegrad::ladder {

void clip_inside(Problem& problem) {
  look_and_decide(problem);
  over_tiles(problem, DecidedUpdate<true, false>{problem.device()});
  over_tiles(problem, CopyWeights{});
}

}  // namespace fusegrad::ladder
