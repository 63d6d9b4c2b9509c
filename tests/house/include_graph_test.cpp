// The rules of the source tree that no compiler checks: which folder may include which, how an include is spelled, and
// how long a file may grow. The checker works on text, so that planted violations show that it sees them.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <fusegrad/runtime/error.h>

namespace fusegrad {
namespace {

constexpr int kMostLines = 500;

/// Who may include whom, besides itself: the table of docs/architecture.md.
const std::map<std::string, std::set<std::string>, std::less<>>& allowed() {
  static const auto table = [] {
    const std::set<std::string> all{"runtime", "kernels", "autograd", "nn",    "optim",
                                    "amp",     "trainer", "tests",    "bench", "examples"};
    const std::set<std::string> library{"runtime", "kernels", "autograd", "nn", "optim", "amp"};
    return std::map<std::string, std::set<std::string>, std::less<>>{
        {"runtime", {}},
        {"kernels", {"runtime"}},
        {"autograd", {"kernels", "runtime"}},
        {"nn", {"autograd", "kernels", "runtime"}},
        {"optim", {"autograd", "kernels", "runtime"}},
        {"amp", {"optim", "autograd", "kernels", "runtime"}},
        {"trainer", library},
        {"tests", all},
        {"bench", all},
        {"examples", all},
    };
  }();
  return table;
}

std::string_view trimmed_left(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  return first == std::string_view::npos ? std::string_view() : text.substr(first);
}

/// What stands between the delimiters of an include line, delimiters included; empty for any other line.
std::string_view included(std::string_view line) {
  line = trimmed_left(line);
  if (!line.starts_with('#')) return {};
  line = trimmed_left(line.substr(1));
  if (!line.starts_with("include")) return {};
  line = trimmed_left(line.substr(std::string_view("include").size()));
  if (line.empty()) return {};
  const char close = line.front() == '<' ? '>' : line.front() == '"' ? '"' : '\0';
  const std::size_t end = close == '\0' ? std::string_view::npos : line.find(close, 1);
  return end == std::string_view::npos ? std::string_view() : line.substr(0, end + 1);
}

std::string first_part(std::string_view path) { return std::string(path.substr(0, path.find('/'))); }

/// What is wrong with one file, a line each. `path` is relative to the root of the tree, with slashes.
std::vector<std::string> violations(std::string_view path, std::string_view text) {
  std::vector<std::string> found;
  const std::string folder = first_part(path);
  const auto rule = allowed().find(folder);
  const auto report = [&](int line, std::string_view what) { found.push_back(cat(path, ":", line, ": ", what)); };
  int lines = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view target = included(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++lines;
    if (target.empty()) continue;
    const std::string_view name = target.substr(1, target.size() - 2);
    constexpr std::string_view kOurs = "fusegrad/";
    if (target.front() == '"' || (!name.starts_with(kOurs) && allowed().contains(first_part(name)))) {
      report(lines, cat("include ", target, " is not spelled <fusegrad/...>"));
    } else if (name.starts_with(kOurs)) {
      const std::string other = first_part(name.substr(kOurs.size()));
      if (name.find("..") != std::string_view::npos || !allowed().contains(other)) {
        report(lines, cat("include ", target, " names no folder of the project"));
      } else if (rule != allowed().end() && other != folder && !rule->second.contains(other)) {
        report(lines, cat(folder, " may not include ", other));
      }
    }
  }
  if (lines > kMostLines) report(lines, cat("more than ", kMostLines, " lines"));
  return found;
}

bool is_source(const std::filesystem::path& path) {
  static const std::set<std::string> kEndings{".h", ".cpp", ".cu", ".cuh"};
  return kEndings.contains(path.extension().string());
}

/// All source files of the project's folders, relative to the root.
std::vector<std::filesystem::path> sources(const std::filesystem::path& root) {
  std::vector<std::filesystem::path> files;
  for (const auto& [folder, others] : allowed()) {
    if (!std::filesystem::is_directory(root / folder)) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
      if (entry.is_regular_file() && is_source(entry.path())) files.push_back(entry.path().lexically_relative(root));
    }
  }
  std::ranges::sort(files);
  return files;
}

TEST(House, EveryFolderIncludesOnlyWhatItMayAndNoFileIsTooLong) {
  const std::filesystem::path root = FUSEGRAD_SOURCE_DIR;
  const std::vector<std::filesystem::path> files = sources(root);
  // The scan finds this very file and the runtime; a tree read as empty would pass everything.
  EXPECT_TRUE(std::ranges::count(files, "tests/house/include_graph_test.cpp") == 1);
  EXPECT_TRUE(std::ranges::count(files, "runtime/tensor.h") == 1);
  for (const std::filesystem::path& file : files) {
    std::ifstream in(root / file, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    for (const std::string& violation : violations(file.generic_string(), text)) ADD_FAILURE() << violation;
  }
}

TEST(House, TheFoldersFormADag) {
  // Taking away, again and again, the folders that include nothing that is left must empty the table.
  std::map<std::string, std::set<std::string>, std::less<>> left = allowed();
  for (const char* top : {"tests", "bench", "examples"}) left.erase(top);  // nobody below includes them
  while (!left.empty()) {
    const auto leaf = std::ranges::find_if(left, [](const auto& folder) { return folder.second.empty(); });
    ASSERT_NE(leaf, left.end()) << "a cycle among " << left.size() << " folders";
    const std::string name = leaf->first;
    left.erase(leaf);
    for (auto& [folder, others] : left) others.erase(name);
  }
  for (const auto& [folder, others] : allowed()) {
    if (folder == "tests" || folder == "bench" || folder == "examples") continue;
    for (const char* top : {"tests", "bench", "examples"}) EXPECT_FALSE(others.contains(top)) << folder;
  }
}

TEST(HouseChecker, SeesAPlantedUpwardInclude) {
  EXPECT_EQ(violations("runtime/tensor.h", "#pragma once\n#include <fusegrad/kernels/fill.h>\n"),
            std::vector<std::string>{"runtime/tensor.h:2: runtime may not include kernels"});
  EXPECT_EQ(violations("kernels/cuda/adam.cu", "#include <fusegrad/autograd/ops.h>").size(), 1u);
  EXPECT_EQ(violations("nn/linear.cpp", "#include <fusegrad/optim/adam.h>").size(), 1u);
  EXPECT_EQ(violations("optim/adam.cpp", "#include <fusegrad/nn/module.h>").size(), 1u);
  EXPECT_EQ(violations("amp/autocast.cpp", "#include <fusegrad/nn/module.h>").size(), 1u);
  EXPECT_EQ(violations("trainer/trainer.h", "#include <fusegrad/tests/device_test.h>").size(), 1u);
}

TEST(HouseChecker, SeesIncludesWithSpacesAndInEveryKindOfFile) {
  for (const char* line :
       {"  #include <fusegrad/nn/a.h>", "# include <fusegrad/nn/a.h>", "#\tinclude\t<fusegrad/nn/a.h>",
        "#include<fusegrad/nn/a.h>", "#include <fusegrad/nn/a.h>  // why"}) {
    EXPECT_EQ(violations("runtime/x.cuh", line).size(), 1u) << line;
  }
}

TEST(HouseChecker, SeesOtherSpellings) {
  EXPECT_EQ(violations("nn/x.cpp", "#include \"linear.h\"").size(), 1u);
  EXPECT_EQ(violations("nn/x.cpp", "#include \"fusegrad/nn/linear.h\"").size(), 1u);
  EXPECT_EQ(violations("nn/x.cpp", "#include <runtime/tensor.h>").size(), 1u);
  EXPECT_EQ(violations("nn/x.cpp", "#include <fusegrad/nn/../trainer/trainer.h>").size(), 1u);
  EXPECT_EQ(violations("nn/x.cpp", "#include <fusegrad/build/x.h>").size(), 1u);
}

TEST(HouseChecker, SeesLongFiles) {
  std::string text;
  for (int i = 0; i < kMostLines; ++i) text += "x\n";
  EXPECT_TRUE(violations("runtime/x.cpp", text).empty());
  EXPECT_EQ(violations("runtime/x.cpp", text + "x").size(), 1u);
}

TEST(HouseChecker, PassesWhatIsAllowed) {
  for (const auto& [path, line] :
       std::vector<std::pair<const char*, const char*>>{{"runtime/a.cpp", "#include <vector>"},
                                                        {"runtime/a.cpp", "#include <nlohmann/json.hpp>"},
                                                        {"runtime/a.cpp", "#include <fusegrad/runtime/b.h>"},
                                                        {"runtime/a.cpp", "// #include <fusegrad/nn/b.h>"},
                                                        {"runtime/a.cpp", "#define X 1"},
                                                        {"autograd/a.cpp", "#include <fusegrad/runtime/b.h>"},
                                                        {"amp/a.cpp", "#include <fusegrad/optim/b.h>"},
                                                        {"trainer/a.cpp", "#include <fusegrad/nn/b.h>"},
                                                        {"tests/a_test.cpp", "#include <fusegrad/trainer/b.h>"}}) {
    EXPECT_TRUE(violations(path, line).empty()) << path << ' ' << line;
  }
}

}  // namespace
}  // namespace fusegrad
