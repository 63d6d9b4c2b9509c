#include <fusegrad/autograd/grad_mode.h>

namespace fusegrad {
namespace {

thread_local bool recording_now = true;

}  // namespace

bool grad_enabled() { return recording_now; }

GradMode::GradMode(Recording recording) : previous_(recording_now) { recording_now = recording == Recording::on; }

GradMode::~GradMode() { recording_now = previous_; }

}  // namespace fusegrad
