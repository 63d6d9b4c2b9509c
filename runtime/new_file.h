#pragma once
// A file that takes its name only when all of it is on disk, so that a crash or a full disk leaves the old file whole.

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include <fusegrad/runtime/error.h>

namespace fusegrad {

/// Writes to a temporary file in the folder of `path`; `commit` syncs it and renames it to `path`. Destroyed without a
/// `commit`, it removes the temporary file and leaves `path` as it was. Every function throws `IOError` in the name of
/// `op` when the system refuses.
///
///     NewFile out("log.csv", "write_log");
///     out.write(std::as_bytes(std::span(text)));
///     out.commit();
class NewFile {
 public:
  NewFile(const std::filesystem::path& path, std::string_view op) : path_(path), op_(op) {
    static std::atomic<unsigned> count{0};
    do {  // an interrupted run may have left a file of this name
      temporary_ = path_;
      temporary_ += cat(".tmp-", ::getpid(), "-", count++);
      descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (descriptor_ < 0 && errno == EEXIST);
    if (descriptor_ < 0) fail("open");
  }
  ~NewFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!committed_) ::unlink(temporary_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  /// Appends `bytes`.
  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail("write");
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
  }

  /// Makes what was written the file at `path`.
  void commit() {
    if (::fsync(descriptor_) != 0) fail("fsync");
    if (::close(std::exchange(descriptor_, -1)) != 0) fail("close");
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("rename");
    committed_ = true;
    sync_folder();
  }

 private:
  // The new name itself reaches the disk with the folder. Where a file system cannot sync folders, nothing is lost but
  // the promise that the new file, rather than the old one, is there after a power cut.
  void sync_folder() const {
    const std::filesystem::path folder = path_.has_parent_path() ? path_.parent_path() : std::filesystem::path(".");
    const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return;
    (void)::fsync(descriptor);
    ::close(descriptor);
  }

  [[noreturn]] void fail(std::string_view call) const {
    const std::string reason = std::generic_category().message(errno);
    throw IOError({.op = op_,
                   .got = cat(path_.string(), ": ", call, " failed: ", reason),
                   .want = "a place that can be written to",
                   .way_out = "What stood there before is unchanged"});
  }

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  std::string op_;
  int descriptor_ = -1;
  bool committed_ = false;
};

}  // namespace fusegrad
