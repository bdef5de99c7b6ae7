/* test_base_file.c - tests functions on files and directories, in a temporary directory. */
#include "base/file.h"
#include "torture.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static osh_ctx *cx;
static char dir[] = "test_base_file.XXXXXX"; // in the working directory of ctest
static char buf[4][256];

static int setup(void **state)
{
    strcpy(dir, "test_base_file.XXXXXX");
    return !mkdtemp(dir) || osh_ctx_new(&cx, 1);
}

static int teardown(void **state)
{
    assert_ok(cx, osh_dir_remove(cx, dir));
    assert_false(osh_dir_exists(dir));
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
    return 0;
}

/* Returns the path of a name; four results are valid at the same time. */
static const char *in(int i, const char *name)
{
    snprintf(buf[i], sizeof buf[i], "%s/%s", dir, name);
    return buf[i];
}

/* In a process without standard descriptors, messages must not be written into a file. */
static void files_are_no_standard_descriptors(void **state)
{
    int status = -1;
    for (int open_ones = 0; open_ones < 8; open_ones++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (!child) {
            osh_file *f = NULL;
            for (int fd = 0; fd < 3; fd++)
                if (!(open_ones >> fd & 1)) close(fd);
            bool ok = !osh_log_file(cx, in(0, "log")) && !osh_file_create(cx, &f, in(1, "a"));
            osh_file_use_direct(f);
            for (int fd = 0; fd < 3; fd++)
                if (!(open_ones >> fd & 1)) ok &= write(fd, "said", 4) < 0;
            _exit(!ok || osh_file_bytes(f));
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
    }
}

static void reads_and_writes_at_offsets(void **state)
{
    osh_file *f;
    char got[8];
    assert_ok(cx, osh_file_create(cx, &f, in(0, "a")));
    assert_ok(cx, osh_file_pwrite(cx, f, "world", 5, 5));
    assert_ok(cx, osh_file_pwrite(cx, f, "hello", 5, 0));
    assert_int_equal(osh_file_bytes(f), 10);
    assert_string_equal(osh_file_path(f), buf[0]);
    assert_ok(cx, osh_file_pread(cx, f, got, 4, 3));
    assert_memory_equal(got, "lowo", 4);
    assert_ok(cx, osh_file_pread(cx, f, got, 0, 10));
    assert_fails(cx, OSH_E_FORMAT, osh_file_pread(cx, f, got, 4, 7),
                 "needs bytes [7, 11) but the file has 10");
    assert_fails(cx, OSH_E_FORMAT, osh_file_pread(cx, f, got, 1, 1000), "the file has 10");
    assert_ok(cx, osh_file_sync(cx, f));
    osh_file_close(cx, f);

    osh_io_counts c = osh_io_counted(cx);
    assert_int_equal(c.written_bytes, 10);
    assert_int_equal(c.read_bytes, 4 + 3);

    assert_ok(cx, osh_file_open_rw(cx, &f, buf[0])); // osh_file_open_rw does not truncate a file
    assert_int_equal(osh_file_bytes(f), 10);
    osh_file_close(cx, f);
    assert_ok(cx, osh_file_open(cx, &f, buf[0]));
    assert_fails(cx, OSH_E_IO, osh_file_pwrite(cx, f, "x", 1, 0), "cannot write");
    osh_file_close(cx, f);
    osh_file_close(cx, NULL);
}

/* Reads without the page cache (O_DIRECT) at any offset and size. The bytes must be right even if
 * the file system (for example tmpfs) has no O_DIRECT. */
static void reads_directly(void **state)
{
    enum { N = (5 << 19) + 777 };
    osh_file *f = NULL;
    uint32_t x = 1;
    char *want = osh_alloc(cx, N), *got = osh_alloc(cx, N);
    for (int i = 0; i < N; i++) want[i] = (char)((x = x * 1664525 + 1013904223) >> 24);
    assert_ok(cx, osh_file_create(cx, &f, in(0, "direct")));
    assert_ok(cx, osh_file_pwrite(cx, f, want, N, 0));
    static const int parts[][2] = {{0, N},
                                   {1, N - 1},
                                   {4095, 1 << 20},
                                   {4096, 1 << 20},
                                   {4097, (1 << 20) + 1},
                                   {N - (1 << 20), 1 << 20},
                                   {100, 50}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        int64_t before = osh_io_counted(cx).read_bytes;
        memset(got, 0, N);
        assert_ok(cx, osh_file_pread_direct(cx, f, got, (size_t)parts[i][1], parts[i][0]));
        assert_memory_equal(got, want + parts[i][0], (size_t)parts[i][1]);
        assert_int_equal(osh_io_counted(cx).read_bytes - before, parts[i][1]);
    }
    assert_fails(cx, OSH_E_FORMAT, osh_file_pread_direct(cx, f, got, N, 1), "but the file has");
    osh_file_close(cx, f);
    osh_free(cx, want), osh_free(cx, got);
}

/* Writes and reads with and without the page cache. Tests offsets and sizes near the ends of the
 * file's blocks. Bytes before and after the written bytes must not change. */
static void blocks(void **state)
{
    enum { B = OSH_BLOCK_BYTES, N = 5 * B };
    static const int at[] = {0, 1, B - 1, B, B + 7, 2 * B},
                     sizes[] = {0, 1, 100, B - 1, B, B + 1, 2 * B, 2 * B + 9};
    char *block = malloc(N + 2 * B), *room = osh_file_align(block), want[N], got[N];
    osh_file *f;
    for (int direct = 0; direct < 2; direct++) {
        assert_ok(cx, osh_file_create(cx, &f, in(0, "blocks")));
        for (int i = 0; i < N; i++) want[i] = (char)(i * 7 + i / 251);
        assert_ok(cx, osh_file_pwrite(cx, f, want, N, 0));
        if (direct) osh_file_use_direct(f);
        for (size_t a = 0; a < sizeof at / sizeof *at; a++)
            for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
                size_t n = (size_t)sizes[k];
                char *from = room + at[a] % B;
                assert_true(osh_file_room(n) >= (size_t)(at[a] % B) + n &&
                            osh_file_room(n) % B == 0);
                for (size_t i = 0; i < n; i++)
                    from[i] = want[(size_t)at[a] + i] = (char)(i * 13 + a * 5 + k);
                assert_ok(cx, osh_file_write_blocks(cx, f, from, n, at[a]));
                memset(room, 0x55, N);
                assert_ok(cx, osh_file_read_blocks(cx, f, room, n, at[a]));
                assert_memory_equal(from, want + at[a], n);
            }
        assert_ok(cx, osh_file_pread(cx, f, got, N, 0));
        assert_memory_equal(got, want, N);
        assert_int_equal(osh_file_bytes(f), N);
        /* Reads the last bytes of the file, then bytes past the end of the file. */
        assert_ok(cx, osh_file_read_blocks(cx, f, room, 10, N - 10));
        assert_fails(cx, OSH_E_FORMAT, osh_file_read_blocks(cx, f, room, 11, N - 10),
                     "but the file has");
        osh_file_close(cx, f);
    }
    free(block);
}

static void names_the_reason(void **state)
{
    osh_file *f = (osh_file *)dir;
    char *p;
    size_t n;
    assert_fails(cx, OSH_E_IO, osh_file_open(cx, &f, in(0, "none")), "No such file");
    assert_null(f);
    assert_fails(cx, OSH_E_IO, osh_file_open_rw(cx, &f, in(0, "none")), in(1, "none"));
    assert_fails(cx, OSH_E_IO, osh_file_create(cx, &f, in(0, "no/such/dir")), "cannot create");
    assert_fails(cx, OSH_E_IO, osh_file_read_all(cx, &p, &n, dir, 0),
                 "it is a directory, want a regular file");
    assert_false(osh_file_exists(in(0, "none")) || osh_dir_exists(in(0, "none")));
}

static void whole_files(void **state)
{
    char *p;
    size_t n;
    assert_ok(cx, osh_file_write_all(cx, in(0, "x"), "ab\0cd", 5));
    assert_true(osh_file_exists(buf[0]));
    assert_false(osh_file_exists(in(1, "x.tmp")));
    assert_ok(cx, osh_file_read_all(cx, &p, &n, buf[0], 5));
    assert_int_equal(n, 5);
    assert_memory_equal(p, "ab\0cd\0", 6); // osh_file_read_all adds a NUL at the end
    osh_free(cx, p);
    assert_fails(cx, OSH_E_FORMAT, osh_file_read_all(cx, &p, &n, buf[0], 4), "5 bytes, at most 4");
    assert_null(p);
    assert_ok(cx, osh_file_write_all(cx, buf[0], "", 0)); // the new file is empty and replaces the
                                                          // old file
    assert_ok(cx, osh_file_read_all(cx, &p, &n, buf[0], 0));
    assert_int_equal(n, 0);
    assert_string_equal(p, "");
    osh_free(cx, p);
    // files in /proc have a size of 0 bytes in stat
    assert_ok(cx, osh_file_read_all(cx, &p, &n, "/proc/self/maps", 0));
    assert_true(n > 100 && p[n] == 0 && strlen(p) == n);
    osh_free(cx, p);
    assert_fails(cx, OSH_E_FORMAT, osh_file_read_all(cx, &p, &n, "/proc/self/maps", 100),
                 "more than 100");
}

static void copies(void **state)
{
    size_t n = (1 << 20) + 77, m;
    char *p = osh_alloc(cx, n), *q;
    for (size_t i = 0; i < n; i++) p[i] = (char)(i * 31 >> 3);
    assert_ok(cx, osh_file_write_all(cx, in(0, "from"), p, n));
    assert_ok(cx, osh_file_copy(cx, in(1, "to"), buf[0]));
    assert_ok(cx, osh_file_read_all(cx, &q, &m, buf[1], 0));
    assert_int_equal(m, n);
    assert_memory_equal(p, q, n);
    osh_free(cx, p);
    osh_free(cx, q);
    assert_int_equal(symlink("from", in(2, "link")), 0);
    assert_fails(cx, OSH_E_IO, osh_file_copy(cx, buf[2], buf[0]), "to itself");
    assert_fails(cx, OSH_E_IO, osh_file_copy(cx, in(3, "x"), in(2, "none")), "No such file");
    assert_false(osh_file_exists(in(3, "x")));
}

/* Simulates a full disk by a limit on the size of files: a write that exceeds the limit fails, like
 * a write to a full disk. */
static void full_disk(void **state)
{
    struct rlimit old, small;
    osh_file *f;
    static char block[64 << 10];
    assert_ok(cx, osh_file_write_all(cx, in(0, "keep"), "old", 3));
    assert_ok(cx, osh_file_write_all(cx, in(2, "src"), block, sizeof block));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 10000;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_fails(cx, OSH_E_IO, osh_file_write_all(cx, buf[0], block, sizeof block), "cannot write");
    assert_ok(cx, osh_file_create(cx, &f, in(1, "reserved")));
    assert_fails(cx, OSH_E_IO, osh_file_reserve(cx, f, 20000), "cannot reserve 20000 bytes for");
    assert_ok(cx, osh_file_reserve(cx, f, 9000));
    assert_int_equal(osh_file_bytes(f), 9000);
    assert_ok(cx, osh_file_reserve(cx, f, 0));
    assert_ok(cx, osh_file_reserve(cx, f, 100)); // reserving fewer bytes does not shrink a file
    assert_int_equal(osh_file_bytes(f), 9000);
    osh_file_close(cx, f);
    assert_fails(cx, OSH_E_IO, osh_file_copy(cx, in(3, "dst"), buf[2]), "cannot write");
    assert_false(osh_file_exists(buf[3]));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);

    char *p;
    size_t n;
    assert_false(osh_file_exists(in(1, "keep.tmp")));
    assert_ok(cx, osh_file_read_all(cx, &p, &n, buf[0], 0)); // the failed writes have not changed
                                                             // the old file
    assert_string_equal(p, "old");
    osh_free(cx, p);
}

static void directories(void **state)
{
    char **names;
    size_t n;
    assert_ok(cx, osh_dir_make(cx, in(0, "a/b//c/")));
    assert_ok(cx, osh_dir_make(cx, buf[0]));
    assert_true(osh_dir_exists(in(0, "a/b/c")) && !osh_file_exists(buf[0]));
    assert_ok(cx, osh_file_write_all(cx, in(0, "a/z"), "1", 1));
    assert_ok(cx, osh_file_write_all(cx, in(0, "a/.hidden"), "1", 1));
    for (int i = 0; i < 40; i++) {
        char name[16];
        snprintf(name, sizeof name, "a/f%02d", 39 - i);
        assert_ok(cx, osh_file_write_all(cx, in(0, name), "", 0));
    }
    assert_ok(cx, osh_dir_list(cx, &names, &n, in(0, "a")));
    assert_int_equal(n, 43);
    assert_string_equal(names[0], ".hidden");
    assert_string_equal(names[1], "b");
    assert_string_equal(names[2], "f00");
    assert_string_equal(names[42], "z");
    osh_strings_free(cx, names, n);
    osh_strings_free(cx, NULL, 0);
    assert_fails(cx, OSH_E_IO, osh_dir_list(cx, &names, &n, in(0, "none")), "cannot list");
    assert_null(names);
    assert_fails(cx, OSH_E_IO, osh_dir_make(cx, in(0, "a/z/deeper")), "cannot make directory");
    assert_fails(cx, OSH_E_IO, osh_dir_make(cx, in(0, "a/z")), "File exists");

    assert_ok(cx, osh_rename(cx, in(0, "a"), in(1, "moved")));
    assert_true(osh_file_exists(in(0, "moved/z")) && !osh_dir_exists(in(0, "a")));
    assert_fails(cx, OSH_E_IO, osh_rename(cx, in(0, "none"), in(1, "x")), "cannot rename");
}

static void removal_does_not_follow_links(void **state)
{
    assert_ok(cx, osh_dir_make(cx, in(0, "keep")));
    assert_ok(cx, osh_file_write_all(cx, in(1, "keep/file"), "1", 1));
    assert_ok(cx, osh_dir_make(cx, in(2, "gone/deep")));
    assert_int_equal(symlink("../../keep", in(3, "gone/deep/link")), 0);
    assert_ok(cx, osh_dir_remove(cx, in(2, "gone")));
    assert_false(osh_dir_exists(buf[2]));
    assert_true(osh_file_exists(buf[1]));
    assert_ok(cx, osh_dir_remove(cx, in(2, "gone"))); // a missing directory is no error
}

static void paths_and_room(void **state)
{
    static const char *const rows[][3] = {
        {"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"", "b", "b"}, {"/", "b", "/b"}};
    for (int i = 0; i < 4; i++) {
        char *p = osh_path_join(cx, rows[i][0], rows[i][1]);
        assert_string_equal(p, rows[i][2]);
        osh_free(cx, p);
    }
    assert_true(osh_disk_free(dir) > 0);
    // for a path that does not exist, the result is the free space of the disk on which the path
    // would be created
    assert_true(osh_disk_free(in(0, "not/yet/there")) > 0);
    assert_true(osh_disk_free("relative-and-absent") > 0);
}

static osh_status use_everything(osh_ctx *c, void *user)
{
    osh_status rc = OSH_OK;
    char *p = NULL, **names = NULL, *joined = NULL; // own
    size_t n = 0, n_names = 0;
    OSH_TRY(osh_dir_make(c, in(0, "t/u")));
    OSH_TRY(osh_file_write_all(c, in(1, "t/u/f"), "abc", 3));
    OSH_TRY(osh_file_copy(c, in(2, "t/u/g"), buf[1]));
    OSH_TRY(osh_file_read_all(c, &p, &n, buf[2], 0));
    OSH_TRY(osh_dir_list(c, &names, &n_names, in(3, "t/u")));
    if (!(joined = osh_path_join(c, "a", "b"))) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_dir_remove(c, in(0, "t")));
done:
    osh_free(c, joined);
    osh_strings_free(c, names, n_names);
    osh_free(c, p);
    return rc;
}

static void torture_files(void **state)
{
    assert_true(torture(use_everything, NULL) > 20);
}

/* A path that is not a regular file is refused at once. For example, opening a pipe would block
 * until another process opens its other end. */
static void only_regular_files(void **state)
{
    osh_file *f = NULL;
    char *text = NULL;
    size_t n = 0;
    assert_int_equal(mkfifo(in(0, "pipe"), 0600), 0);
    assert_int_equal(symlink("pipe", in(1, "link")), 0);
    const struct {
        const char *path, *want;
    } rows[] = {{in(0, "pipe"), "it is a pipe, want a regular file"},
                {in(1, "link"), "it is a pipe, want a regular file"},
                {"/dev/zero", "it is a character device, want a regular file"},
                {dir, "it is a directory, want a regular file"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_fails(cx, OSH_E_IO, osh_file_open(cx, &f, rows[i].path), rows[i].want);
        assert_fails(cx, OSH_E_IO, osh_file_read_all(cx, &text, &n, rows[i].path, 0), rows[i].want);
        assert_fails(cx, OSH_E_IO, osh_file_create(cx, &f, rows[i].path), rows[i].want);
        assert_fails(cx, OSH_E_IO, osh_file_open_or_create(cx, &f, rows[i].path), rows[i].want);
    }
    /* No process reads the pipe. */
    assert_fails(cx, OSH_E_IO, osh_log_file(cx, in(0, "pipe")), "No such device or address");
    int reader = open(in(0, "pipe"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    int writer = osh_fd_open(in(0, "pipe"), O_WRONLY);
    /* The pipe has a reader. A write to the pipe must wait while the pipe is full. */
    assert_true(reader >= 0 && writer >= 0 && !(fcntl(writer, F_GETFL) & O_NONBLOCK));
    close(writer), close(reader);
}

/* A temporary file must not overwrite a link, or a file of another process. A file of a killed
 * process is removed. */
static void temporary_files(void **state)
{
    osh_file *f = NULL, *again = NULL;
    char *text = NULL;
    size_t n = 0;
    assert_ok(cx, osh_file_write_all(cx, in(0, "user"), "user's", 6));
    assert_int_equal(symlink("user", in(1, "a.tmp")), 0);
    assert_int_equal(link(in(0, "user"), in(2, "b.tmp")), 0);
    assert_fails(cx, OSH_E_IO, osh_file_create_exclusive(cx, &f, buf[1]),
                 "found a symbolic link, want no file");
    assert_fails(cx, OSH_E_IO, osh_file_write_all(cx, in(3, "a"), "x", 1),
                 "found a symbolic link, want no file");
    assert_fails(cx, OSH_E_IO, osh_file_create_exclusive(cx, &f, buf[2]), "a second name");
    assert_fails(cx, OSH_E_IO, osh_file_create_exclusive(cx, &f, dir),
                 "found a directory, want no file");
    assert_null(f);
    assert_ok(cx, osh_file_read_all(cx, &text, &n, buf[0], 0));
    assert_string_equal(text, "user's");
    osh_free(cx, text);

    assert_ok(cx, osh_file_create_exclusive(cx, &f, in(1, "c.tmp")));
    assert_ok(cx, osh_file_pwrite(cx, f, "whole", 5, 0));
    assert_fails(cx, OSH_E_IO, osh_file_create_exclusive(cx, &again, buf[1]),
                 "another process is writing it");
    assert_int_equal(osh_file_bytes(f), 5);
    osh_file_close(cx, f);
    // the file of a killed process is replaced
    assert_ok(cx, osh_file_create_exclusive(cx, &f, buf[1]));
    assert_int_equal(osh_file_bytes(f), 0);
    osh_file_close(cx, f);
}

/* Locks of files end when the parent closes the file or exits, even if a forked child is still
 * running. */
static void forked_children_have_no_locks(void **state)
{
    osh_file *f = NULL, *again = NULL;
    bool taken = false;
    int ends[2], status = -1;
    char byte = 0;
    assert_int_equal(pipe(ends), 0);
    assert_ok(cx, osh_file_open_or_create(cx, &f, in(0, "lock")));
    assert_ok(cx, osh_file_lock(cx, f, &taken));
    assert_true(taken);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) { // the child runs until the parent has checked the lock
        bool shut = osh_file_bytes(f) < 0;
        close(ends[1]);
        while (read(ends[0], &byte, 1) > 0) {}
        osh_file_close(cx, f);
        _exit(!shut);
    }
    close(ends[0]);
    assert_ok(cx, osh_file_open_or_create(cx, &again, buf[0]));
    assert_ok(cx, osh_file_lock(cx, again, &taken));
    assert_false(taken); // the parent still has the lock, so no other process can get the lock
    osh_file_close(cx, f);
    assert_ok(cx, osh_file_lock(cx, again, &taken));
    bool free_again = taken;
    close(ends[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(free_again);
    assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
    osh_file_close(cx, again);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(files_are_no_standard_descriptors),
        TEST(only_regular_files),
        TEST(reads_and_writes_at_offsets),
        TEST(reads_directly),
        TEST(blocks),
        TEST(names_the_reason),
        TEST(whole_files),
        TEST(copies),
        TEST(full_disk),
        TEST(directories),
        TEST(removal_does_not_follow_links),
        TEST(paths_and_room),
        TEST(torture_files),
        TEST(temporary_files),
        TEST(forked_children_have_no_locks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
