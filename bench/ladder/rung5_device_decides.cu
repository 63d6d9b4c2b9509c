// Rung 5: a thread of the GPU decides, so the host no longer waits; and the gradients are looked at as they are, times
// the inverse scale, so no pass of its own unscales them. The pass that clips does it on the way.

#include <fusegrad/bench/ladder/looks.cuh>

namespace fusegrad::ladder {

void device_decides(Problem& problem) {
  look_and_decide(problem);
  over_tiles(problem, UnscaleAndClip{problem.device()});
  over_tiles(problem, DecidedUpdate<false, false>{problem.device()});
  over_tiles(problem, CopyWeights{});
}

}  // namespace fusegrad::ladder
