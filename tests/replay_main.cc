// Runs a fuzz target over its corpus without libFuzzer: every file of the folders and files named,
// the empty input, and a few mutations of each file (truncations and single flipped bits), so that
// the corpus guards against regressions under any compiler and sanitizer.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

void run(const std::string& bytes) {
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
}

void run_with_mutations(const std::string& bytes) {
    run(bytes);
    for (std::size_t eighth = 1; eighth < 8; ++eighth)
        run(bytes.substr(0, bytes.size() * eighth / 8));
    for (std::size_t i = 0; i < 16 && !bytes.empty(); ++i) {
        std::string flipped = bytes;
        const std::size_t at = (i * 2654435761U) % bytes.size();
        flipped[at] = static_cast<char>(flipped[at] ^ (1 << (i % 8)));
        run(flipped);
    }
}

}  // namespace

int main(int argc, char** argv) {
    namespace fs = std::filesystem;
    std::size_t files = 0;
    run("");
    for (int i = 1; i < argc; ++i) {
        std::vector<fs::path> paths;
        if (fs::is_directory(argv[i])) {
            for (const auto& entry : fs::recursive_directory_iterator(argv[i]))
                if (entry.is_regular_file()) paths.push_back(entry.path());
        } else {
            paths.emplace_back(argv[i]);
        }
        for (const fs::path& path : paths) {
            std::ifstream in(path, std::ios::binary);
            run_with_mutations(std::string(std::istreambuf_iterator<char>(in), {}));
            ++files;
        }
    }
    if (files == 0) {
        std::fprintf(stderr, "no corpus files found: a fuzz target needs seeds in tests/corpus\n");
        return 1;
    }
    std::printf("%zu corpus files replayed\n", files);
    return 0;
}
