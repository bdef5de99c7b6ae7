/* shared_memory.cc - finds the static shared memory of all kernels, so that each block finds NaN in it: `__shared__` is
 * played by `static`, and the names of variables that are static inside C++ functions begin with _ZZ. */
#include "block.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

struct range { char *at; size_t n; };

static int base_of_program(struct dl_phdr_info *info, size_t, void *user)
{
    *(ElfW(Addr) *)user = info->dlpi_addr; // the first one is the program
    return 1;
}

/* Writable and zero at the start (.bss): what is constant or set lies elsewhere. */
static void collect(std::vector<range> &out, const char *file, ElfW(Addr) base)
{
    const ElfW(Ehdr) *head = (const ElfW(Ehdr) *)file;
    const ElfW(Shdr) *sections = (const ElfW(Shdr) *)(file + head->e_shoff);
    for (int i = 0; i < head->e_shnum; i++) {
        if (sections[i].sh_type != SHT_SYMTAB) continue;
        const ElfW(Sym) *symbols = (const ElfW(Sym) *)(file + sections[i].sh_offset);
        const char *names = file + sections[sections[i].sh_link].sh_offset;
        for (size_t k = 0; k < sections[i].sh_size / sizeof *symbols; k++) {
            const ElfW(Sym) *s = &symbols[k];
            if (ELF64_ST_TYPE(s->st_info) != STT_OBJECT || strncmp(names + s->st_name, "_ZZ", 3) != 0) continue;
            if (s->st_shndx >= head->e_shnum || sections[s->st_shndx].sh_type != SHT_NOBITS) continue;
            out.push_back({(char *)(base + s->st_value), s->st_size});
        }
    }
}

static std::vector<range> find_shared(void)
{
    std::vector<range> out;
    ElfW(Addr) base = 0;
    struct stat st;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st)) osh_play_die("cannot read the program's symbols");
    void *file = mmap(nullptr, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (file == MAP_FAILED) osh_play_die("cannot map the program");
    dl_iterate_phdr(base_of_program, &base);
    collect(out, (const char *)file, base);
    munmap(file, (size_t)st.st_size);
    return out;
}

static std::vector<range> shared; // static inside a function it would be one of them
static bool known;

void osh_play_poison_shared(void)
{
    if (!known) shared = find_shared(), known = true;
    for (const range &r : shared) memset(r.at, 0xff, r.n);
}
