/* shared_memory.cc - finds the static shared memory of a kernel, so that it can be filled with NaN
 * before each block. `static` emulates `__shared__`. A variable v that is static in the C++
 * function _Z<f> has the symbol _ZZ<f>E<v>. Shared memory of a function that the kernel calls is
 * not found. */
#include "block.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <map>
#include <string>
#include <vector>

struct range { char *at; size_t n; };

static int base_of_program(struct dl_phdr_info *info, size_t, void *user)
{
    /* the first call is for the program; 1 prevents further calls */
    *(ElfW(Addr) *)user = info->dlpi_addr;
    return 1;
}

static std::map<const void *, std::string> functions;      // maps the address of a function to the
                                                           // function's name
static std::vector<std::pair<std::string, range>> statics; // static variables of functions: name,
                                                           // address range
static std::map<const void *, std::vector<range>> shared;  // maps a kernel to the address ranges of
                                                           // its shared memory; filled when they
                                                           // are first needed

/* Collects static variables that are writable and zero at the start (.bss). Constants and
 * initialized variables are in other sections and are not shared memory. */
static void collect(const char *file, ElfW(Addr) base)
{
    const ElfW(Ehdr) *head = (const ElfW(Ehdr) *)file;
    const ElfW(Shdr) *sections = (const ElfW(Shdr) *)(file + head->e_shoff);
    for (int i = 0; i < head->e_shnum; i++) {
        if (sections[i].sh_type != SHT_SYMTAB) continue;
        const ElfW(Sym) *symbols = (const ElfW(Sym) *)(file + sections[i].sh_offset);
        const char *names = file + sections[sections[i].sh_link].sh_offset;
        for (size_t k = 0; k < sections[i].sh_size / sizeof *symbols; k++) {
            const ElfW(Sym) *s = &symbols[k];
            const char *name = names + s->st_name;
            char *at = (char *)(base + s->st_value);
            if (strncmp(name, "_Z", 2) != 0 || s->st_shndx >= head->e_shnum) continue;
            if (ELF64_ST_TYPE(s->st_info) == STT_FUNC) functions[at] = name;
            else if (name[2] == 'Z' && sections[s->st_shndx].sh_type == SHT_NOBITS)
                statics.push_back({name, {at, s->st_size}});
        }
    }
}

static void read_symbols(void)
{
    ElfW(Addr) base = 0;
    struct stat st;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st)) osh_play_die("cannot read the program's symbols");
    void *file = mmap(nullptr, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (file == MAP_FAILED) osh_play_die("cannot map the program");
    dl_iterate_phdr(base_of_program, &base);
    collect((const char *)file, base);
    munmap(file, (size_t)st.st_size);
}

void osh_play_poison_shared(const void *entry)
{
    auto found = shared.find(entry);
    if (found == shared.end()) {
        if (functions.empty()) read_symbols();
        if (!functions.count(entry))
            osh_play_die("the program's symbols lack the kernel: is it stripped?");
        std::string owner = "_ZZ" + functions[entry].substr(2) + "E";
        found = shared.insert({entry, {}}).first;
        for (auto &s : statics)
            if (!s.first.compare(0, owner.size(), owner)) found->second.push_back(s.second);
    }
    for (const range &r : found->second) memset(r.at, 0xff, r.n);
}
