/* SPDX-License-Identifier: MIT
 *
 * Goal: libraries are found where the loader looks, in the folder given, or in the program, as asked; and a failure names the
 *       library, the places and the remedy.
 * Method: the C library's mathematics in the place of a library; in a folder of the test's own it has another name.
 */
#include "base/library.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

static const char *const functions_of_math[] = {"cos", "hypot"};

static struct {
    double (*cos)(double);
    double (*hypot)(double, double);
} math;

#define LIBRARY(...)                                                                                                  \
    {                                                                                                                 \
        .title = "Mathematics", .functions = functions_of_math, .function_count = 2, .remedy = "Learn it",            \
        .lock = PTHREAD_MUTEX_INITIALIZER, __VA_ARGS__                                                                \
    }

Test(library, functions_come_in_the_order_of_their_names)
{
    char text[1000] = "";
    struct eo_library library = LIBRARY(.file = "libm.so.6");
    cr_assert(eo_library_load(&library, &math, text, sizeof(text)), "%s", text);
    cr_expect(math.cos(0) == 1 && math.hypot(3, 4) == 5);
    cr_expect(eo_library_load(&library, NULL, NULL, 0), "it is loaded once");
}

Test(library, one_that_is_nowhere_is_named_with_the_places_and_the_remedy)
{
    char text[1000] = "";
    struct eo_library library = LIBRARY(.file = "libeo_nowhere.so.7", .folder = "/nonexistent/folder");
    cr_assert(!eo_library_load(&library, &math, text, sizeof(text)));
    cr_expect_null(math.cos);
    cr_expect(strstr(text, "Mathematics cannot be loaded: libeo_nowhere.so.7: ") == text, "%s", text);
    cr_expect(strstr(text, "; /nonexistent/folder/libeo_nowhere.so.7: "), "%s", text);
    cr_expect(strstr(text, ". Learn it"), "%s", text);
}

Test(library, one_of_another_version_is_told_by_what_it_lacks)
{
    static const char *const functions[] = {"cos", "cos_of_next_year"};
    char text[1000] = "";
    struct eo_library library = LIBRARY(.file = "libm.so.6");
    library.functions = functions;
    cr_assert(!eo_library_load(&library, &math, text, sizeof(text)));
    cr_expect_null(math.cos, "nothing is written");
    cr_expect(strstr(text, "Mathematics: the library has no cos_of_next_year. Learn it"), "%s", text);
}

Test(library, functions_that_it_may_lack_are_null_and_keep_no_other_away)
{
    static const char *const functions[] = {"cos", "cos_of_next_year"};
    char text[1000] = "";
    struct eo_library library = LIBRARY(.file = "libm.so.6", .optional_count = 1);
    library.functions = functions;
    math.hypot = hypot;
    cr_assert(eo_library_load(&library, &math, text, sizeof(text)), "%s", text);
    cr_expect(math.cos(0) == 1 && !math.hypot);
}

Test(library, the_folder_is_tried_after_the_loader)
{
    char folder[] = "/tmp/eo_library_XXXXXX", path[100], text[1000] = "";
    double (*const function)(double) = cos;
    void *address;
    Dl_info info;
    memcpy(&address, &function, sizeof(address));
    cr_assert(dladdr(address, &info) && mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/libeo_elsewhere.so.7", folder);
    cr_assert_eq(symlink(info.dli_fname, path), 0);
    struct eo_library library = LIBRARY(.file = "libeo_elsewhere.so.7");
    const bool without = eo_library_load(&library, &math, text, sizeof(text));
    library.folder = folder;
    const bool with = eo_library_load(&library, &math, text, sizeof(text));
    unlink(path);
    rmdir(folder);
    cr_expect(!without && with && math.hypot(3, 4) == 5, "%s", text);
}

Test(library, one_of_the_program_is_taken_where_it_is_shared_alone)
{
    char text[1000] = "";
    struct eo_library library = LIBRARY(.file = "libeo_nowhere.so.7");
    cr_expect(!eo_library_load(&library, &math, text, sizeof(text)));
    library.is_shared = true;
    cr_expect(eo_library_load(&library, &math, text, sizeof(text)) && math.hypot(3, 4) == 5, "%s", text);
}

Test(library, a_program_with_a_loader_says_so)
{
    cr_expect(eo_library_has_loader());
}
