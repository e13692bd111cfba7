// `libnvrtc.so` of the stand-in: the machine's C++ compiler.

#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <vector>

#ifndef KERNEL_HEADER
#error "KERNEL_HEADER is the path of kernel.h"
#endif
#ifndef KERNELS
#error "KERNELS is the folder in which compiled kernels are kept"
#endif

namespace {

struct Program {
    std::string source, log, code;
};

enum { SUCCESS = 0, INVALID_INPUT = 3, INVALID_PROGRAM = 4, INVALID_OPTION = 5, COMPILATION = 6 };

std::string content(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

// What the host calls for each kernel.
std::string entries(const std::string &source) {
    std::string made;
    std::regex kernel("extern \"C\" __global__ void (\\w+)\\(");
    auto found = std::sregex_iterator(source.begin(), source.end(), kernel);
    for (; found != std::sregex_iterator(); ++found) {
        std::string name = (*found)[1];
        made += "extern \"C\" void launch_" + name +
                "(const unsigned *g, const unsigned *b, void **a) { standin::launch(" + name +
                ", g, b, a); }\n";
        made += "extern \"C\" size_t sizes_" + name + "(size_t *s) { return standin::sizes(" + name +
                ", s); }\n";
    }
    return made;
}

// Where the library made of this source by this command is kept: the same in all processes.
std::string kept_at(const std::vector<std::string> &words, const std::string &source) {
    uint64_t hash = 0xcbf29ce484222325;
    auto add = [&](const std::string &text) {
        for (unsigned char byte : text) hash = (hash ^ byte) * 0x100000001b3;
        hash = (hash ^ 0x100) * 0x100000001b3;
    };
    for (auto &word : words) add(word);
    add(content(KERNEL_HEADER));
    add(source);
    return std::string(KERNELS) + "/" + std::to_string(hash) + ".so";
}

// Keeps a file there, for who looks meanwhile whole or not at all.
void keep(const std::string &code, const std::string &path) {
    std::string part = path + "." + std::to_string(getpid()) + "." + std::to_string((uintptr_t)&code);
    { std::ofstream(part, std::ios::binary) << code; }
    if (rename(part.c_str(), path.c_str()) != 0) unlink(part.c_str());
}

// Runs a program, and gives what it prints.
int run(const std::vector<std::string> &words, std::string &output) {
    int pipe_[2];
    if (pipe(pipe_) != 0) return -1;
    pid_t child = fork();
    if (child == 0) {
        dup2(pipe_[1], 1);
        dup2(pipe_[1], 2);
        close(pipe_[0]);
        std::vector<char *> arguments;
        for (auto &word : words) arguments.push_back(const_cast<char *>(word.c_str()));
        arguments.push_back(nullptr);
        execvp(arguments[0], arguments.data());
        _exit(127);
    }
    close(pipe_[1]);
    char part[4096];
    for (ssize_t bytes; (bytes = read(pipe_[0], part, sizeof part)) > 0;) output.append(part, bytes);
    close(pipe_[0]);
    int status = -1;
    if (child > 0) waitpid(child, &status, 0);
    return status;
}

}  // namespace

extern "C" {

int nvrtcVersion(int *major, int *minor) {
    *major = 13;
    *minor = 0;
    return SUCCESS;
}

int nvrtcCreateProgram(Program **program, const char *source, const char *, int headers,
                       const char *const *, const char *const *) {
    if (!program || !source || headers != 0) return INVALID_INPUT;
    *program = new Program{source, {}, {}};
    return SUCCESS;
}

int nvrtcDestroyProgram(Program **program) {
    if (!program || !*program) return INVALID_PROGRAM;
    delete *program;
    *program = nullptr;
    return SUCCESS;
}

int nvrtcCompileProgram(Program *program, int count, const char *const *options) {
    char folder[] = "/tmp/spmd-standin-XXXXXX";
    if (!program || !mkdtemp(folder)) return INVALID_PROGRAM;
    std::string path = folder, source = path + "/kernel.cpp";
    std::string object = path + "/kernel.o", library = path + "/kernel.so";
    // As xtask compiles the header for them, but for macros (`OF_KERNELS`).
    std::vector<std::string> words = {"c++", "-O1", "-c", "-fPIC", "-std=c++17", "-w",
                                      // As on a card: a sum and a product stay two steps.
                                      "-ffp-contract=off", "-include", KERNEL_HEADER};
#ifdef SANITIZE
    words.push_back(SANITIZE);
#endif
    bool known = true;
    std::string definitions;
    for (int at = 0; at < count; at++) {
        std::string option = options[at];
        bool ours = option.rfind("--gpu-architecture=sm_", 0) == 0 || option == "--std=c++17" ||
                    option == "--fmad=false" || option == "--device-int128";
        if (option.rfind("-D", 0) == 0) {
            definitions += "#define " + std::regex_replace(option.substr(2), std::regex("="), " ") + "\n";
        } else if (!ours) {
            program->log = "unrecognized option " + option;
            known = false;
        }
    }
    if (program->source.find("__syncthreads") != std::string::npos) words.push_back("-DSYNCHRONIZES");
    std::string kept_path = kept_at(words, definitions + program->source);
    if (known) program->code = content(kept_path);
    if (!program->code.empty()) {
        rmdir(folder);
        return SUCCESS;
    }
    // What the conditions leave is found by the preprocessor.
    { std::ofstream(source) << definitions << program->source; }
    std::string kept;
    std::vector<std::string> reduce = {"c++", "-E", "-P", "-D__global__=__global__", source};
    int status = known ? run(reduce, kept) : -1;
    if (status == 0) {
        { std::ofstream(source) << definitions << program->source << "\n" << entries(kept); }
        words.insert(words.end(), {source, "-o", object});
        program->log.clear();
        status = run(words, program->log);
        // Without the flags of a sanitizer, whose runtime the program has.
        if (status == 0) status = run({"c++", "-shared", "-Wl,-Bsymbolic", object, "-o", library}, program->log);
    }
    if (status == 0) keep(program->code = content(library), kept_path);
    for (auto &file : {source, object, library}) unlink(file.c_str());
    rmdir(folder);
    if (!known) return INVALID_OPTION;
    return status == 0 && !program->code.empty() ? SUCCESS : COMPILATION;
}

int nvrtcGetProgramLogSize(Program *program, size_t *bytes) {
    *bytes = program->log.size() + 1;
    return SUCCESS;
}

int nvrtcGetProgramLog(Program *program, char *log) {
    std::memcpy(log, program->log.c_str(), program->log.size() + 1);
    return SUCCESS;
}

int nvrtcGetCUBINSize(Program *program, size_t *bytes) {
    *bytes = program->code.size();
    return SUCCESS;
}

int nvrtcGetCUBIN(Program *program, char *code) {
    std::memcpy(code, program->code.data(), program->code.size());
    return SUCCESS;
}
}
