// Rung 7: the f16 weight copies are written where the parameters are at hand anyway. 34 bytes a parameter, the fewest
// there can be with f32 gradients: 4 to look, 28 to update, 2 for the copy.

#include <fusegrad/bench/ladder/looks.cuh>

namespace fusegrad::ladder {

void copy_inside(Problem& problem) {
  look_and_decide(problem);
  over_tiles(problem, DecidedUpdate<true, true>{problem.device()});
}

}  // namespace fusegrad::ladder
