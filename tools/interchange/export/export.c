/* SPDX-License-Identifier: MIT */
#include "tools/interchange/export/export.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "tools/shared/open_file.h"

#define NO_MEMORY() tool_problem_set(problem, EO_ERR_NO_MEMORY, "--export %s: no memory", export->path)

enum { ROOM_LEAST = 1 << 18 };

/* --- what will be written ----------------------------------------------------------------------------------------- */

static bool is_llmc(const char *path)
{
    const size_t length = strlen(path);
    return length >= 4 && strcmp(path + length - 4, ".bin") == 0;
}

static eo_status describe_llmc(struct tool_export *export, const struct tool_export_settings *settings,
                               const struct tool_export_model *model, struct tool_problem *problem)
{
    char why[200];
    if (export->has_adapters)
        return tool_problem_set(problem, EO_ERR_UNSUPPORTED, "--export %s: .bin means llm.c's format, which has no adapters; name a "
                                "folder, or give --export-merged", export->path);
    if (!tool_llmc_describe(&export->llmc, &model->config, settings->dtype, why, sizeof(why)))
        return tool_problem_set(problem, EO_ERR_UNSUPPORTED,
                                "--export %s: .bin means llm.c's format, and this model has no place in it: %s; name a folder",
                                export->path, why);
    export->files = calloc(1, sizeof(*export->files));
    if (!export->files)
        return NO_MEMORY();
    export->file_count = 1;
    export->files[0].file = -1;
    export->bytes = tool_llmc_file_bytes(&export->llmc);
    for (uint32_t k = 0; k < export->tensor_count; k++) {
        eo_parameter_info info;
        EO_TRY(eo_model_parameter(model->model, k, &info));
        if (!tool_llmc_place(&export->llmc, info.name, &export->tensors[k].at))
            return tool_problem_set(problem, EO_ERR_UNSUPPORTED, "--export %s: llm.c has no '%s'", export->path, info.name);
    }
    return EO_OK;
}

static eo_status describe(struct tool_export *export, const struct tool_export_settings *settings,
                          const struct tool_export_model *model, struct tool_problem *problem)
{
    *export = (struct tool_export){.lock = -1,
                                   .has_adapters = model->lora && !model->merged,
                                   .is_folder = !is_llmc(settings->path),
                                   .tensor_count = eo_model_parameter_count(model->model),
                                   .element = settings->dtype == EO_DTYPE_BF16 ? TOOL_ELEMENT_BF16 : TOOL_ELEMENT_F32,
                                   .room_count = ROOM_LEAST};
    if (settings->path[0] == '\0' || strlen(settings->path) >= sizeof(export->path))
        return tool_problem_set(problem, EO_ERR_INVALID, "--export: %zu bytes are not a valid path", strlen(settings->path));
    if (settings->file_bytes != TOOL_EXPORT_FILE_BYTES && (!export->is_folder || export->has_adapters))
        return tool_problem_set(problem, EO_ERR_INVALID, "--export-file-bytes: %s one file; leave it out",
                                export->is_folder ? "adapters are" : "llm.c's format is");
    snprintf(export->path, sizeof(export->path), "%s", settings->path);
    for (size_t end = strlen(export->path); end > 1 && export->path[end - 1] == '/'; end--)
        export->path[end - 1] = '\0';
    if (tool_export_is_partial(export->path))
        return tool_problem_set(
            problem, EO_ERR_INVALID,
            "--export %s: unfinished exports have such names, and the next one removes them; choose another name",
            export->path);
    tool_export_name_partial(export);
    export->tensors = calloc(export->tensor_count + 1, sizeof(*export->tensors));
    if (!export->tensors)
        return NO_MEMORY();
    for (uint32_t k = 0; k < export->tensor_count; k++) {
        eo_parameter_info info;
        struct tool_export_tensor *tensor = &export->tensors[k];
        EO_TRY(eo_model_parameter(model->model, k, &info));
        tensor->dim_count = info.dim_count;
        tensor->element_count = info.element_count;
        tensor->rows = info.dim_count == 2 ? info.dims[0] : 1;
        tensor->columns = info.element_count / tensor->rows;
    }
    return export->is_folder ? tool_export_describe_folder(export, settings, model, problem)
                             : describe_llmc(export, settings, model, problem);
}

static void forget(struct tool_export *export)
{
    for (uint32_t f = 0; export->files && f < export->file_count; f++)
        if (export->files[f].file >= 0)
            close(export->files[f].file);
    if (export->lock >= 0)
        close(export->lock);
    export->lock = -1;
    free(export->files);
    free(export->tensors);
    free(export->config);
    free(export->room);
    export->files = NULL;
    export->tensors = NULL;
    export->config = NULL;
    export->room = NULL;
}

static void parent_of(const char *path, char *parent, size_t bytes)
{
    const char *slash = strrchr(path, '/');
    snprintf(parent, bytes, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    if (parent[0] == '\0')
        snprintf(parent, bytes, "/");
}

static bool is_empty_folder(const char *path)
{
    DIR *folder = opendir(path);
    bool empty = folder != NULL;
    for (const struct dirent *entry; empty && (entry = readdir(folder));)
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    if (folder)
        closedir(folder);
    return empty;
}

static eo_status check_place(const struct tool_export *export, struct tool_problem *problem)
{
    char parent[sizeof(export->path)];
    struct stat info, above;
    struct statvfs disk;
    parent_of(export->path, parent, sizeof(parent));
    /* It gets its name by a rename, which takes a folder's place, and no mount's. */
    if (stat(export->path, &info) == 0 && stat(parent, &above) == 0 && info.st_dev != above.st_dev)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "--export %s: is a mount point, and an export takes the place of its "
                                "folder; name one in it",
                                export->path);
    /* An empty folder is taken, and a model that is there is not overwritten. */
    if (lstat(export->path, &info) == 0 && !(export->is_folder && is_empty_folder(export->path)))
        return tool_problem_set(problem, EO_ERR_INVALID, "--export %s: already exists; name another one, or remove it",
                                export->path);
    if (stat(parent, &info) != 0 || !S_ISDIR(info.st_mode))
        return tool_problem_set(problem, EO_ERR_IO, "--export %s: no folder %s; create it", export->path, parent);
    if (access(parent, W_OK | X_OK) != 0)
        return tool_problem_set(problem, EO_ERR_IO, "--export %s: cannot create anything in %s: %s", export->path, parent,
                                strerror(errno));
    if (lstat(export->partial, &info) != 0 && errno == ENAMETOOLONG)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "--export %s: too long, with the end that it has until it is whole; choose "
                                "a shorter name",
                                export->path);
    tool_export_remove_left(parent, export->path);
    /* Some file systems, of networks and in memory, do not know their size. */
    if (statvfs(parent, &disk) == 0 && disk.f_blocks > 0 && (uint64_t)disk.f_bavail * disk.f_frsize < export->bytes)
        return tool_problem_set(problem, EO_ERR_IO,
                                "--export %s: needs %.1f MiB, but %.1f MiB are free there; make room, or name another disk",
                                export->path, (double)export->bytes / (1 << 20),
                                (double)disk.f_bavail * (double)disk.f_frsize / (1 << 20));
    return EO_OK;
}

eo_status tool_export_check(const struct tool_export_settings *settings, const struct tool_export_model *model,
                            struct tool_problem *problem)
{
    struct tool_export export;
    eo_status status = describe(&export, settings, model, problem);
    if (status >= 0)
        status = check_place(&export, problem);
    forget(&export);
    return status;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static eo_status begin_llmc(struct tool_export *export, struct tool_problem *problem)
{
    int32_t header[TOOL_LLMC_HEADER_INTS];
    struct tool_export_file *file = &export->files[0];
    file->file = open(export->partial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file->file < 0)
        return tool_problem_set(problem, EO_ERR_IO, "%s: cannot be created: %s", export->partial, strerror(errno));
    export->is_made = true;
    EO_TRY(tool_export_lock(export, problem));
    tool_llmc_header(&export->llmc, header);
    EO_TRY(tool_write_at(file->file, export->partial, header, sizeof(header), 0, problem));
    /* The words that pad the vocabulary are zeros: what nobody writes. */
    if (ftruncate(file->file, (off_t)export->bytes) != 0)
        return tool_problem_set(problem, EO_ERR_IO, "%s: cannot reserve %llu bytes: %s", export->partial,
                                (unsigned long long)export->bytes, strerror(errno));
    return EO_OK;
}

static eo_status begin_folder(struct tool_export *export, const struct tool_export_model *model, struct tool_problem *problem)
{
    if (mkdir(export->partial, 0777) != 0)
        return tool_problem_set(problem, EO_ERR_IO, "%s: cannot be created: %s", export->partial, strerror(errno));
    export->is_made = true;
    EO_TRY(tool_export_lock(export, problem));
    return tool_export_write_headers(export, model, problem);
}

eo_status tool_export_begin(struct tool_export *export, const struct tool_export_settings *settings,
                            const struct tool_export_model *model, struct tool_problem *problem)
{
    eo_status status = describe(export, settings, model, problem);
    if (status < 0) {
        forget(export);
        return status;
    }
    for (uint32_t k = 0; k < export->tensor_count; k++) { /* a row of the file at least */
        const struct tool_export_tensor *tensor = &export->tensors[k];
        const uint64_t row = tensor->transposed ? tensor->rows : tensor->parts ? tensor->columns : 0;
        export->room_count = row > export->room_count ? row : export->room_count;
    }
    export->room = malloc(2 * export->room_count * sizeof(*export->room));
    status = !export->room ? NO_MEMORY()
                           : export->is_folder ? begin_folder(export, model, problem) : begin_llmc(export, problem);
    if (status < 0)
        tool_export_drop(export);
    return status;
}

static eo_status write_values(struct tool_export *export, const struct tool_export_tensor *tensor, const float *values,
                              uint64_t first, uint64_t count)
{
    const uint32_t element_bytes = tool_element_bytes(export->element);
    float *bytes = export->room + export->room_count;
    tool_elements_encode(bytes, values, count, export->element);
    return tool_write_at(export->files[tensor->file].file, export->partial, bytes, count * element_bytes,
                         tensor->at + first * element_bytes, &export->problem);
}

/* Some of the file's rows at a time, which are our columns. */
static eo_status write_transposed(struct tool_export *export, const struct tool_export_tensor *tensor, const float *values)
{
    const uint64_t rows = tensor->rows, columns = tensor->columns, together = export->room_count / rows;
    for (uint64_t column = 0; column < columns; column += together) {
        const uint64_t count = columns - column < together ? columns - column : together;
        for (uint64_t row = 0; row < rows; row++)
            for (uint64_t k = 0; k < count; k++)
                export->room[k * rows + row] = values[row * columns + column + k];
        EO_TRY(write_values(export, tensor, export->room, column * rows, count * rows));
    }
    return EO_OK;
}

/* Rows of the file, with zeros beside what is the parameter's. */
static eo_status write_part(struct tool_export *export, const struct tool_export_tensor *tensor, const float *values)
{
    const uint64_t columns = tensor->columns, own = columns / tensor->parts, together = export->room_count / columns;
    for (uint64_t row = 0; row < tensor->rows; row += together) {
        const uint64_t count = tensor->rows - row < together ? tensor->rows - row : together;
        memset(export->room, 0, count * columns * sizeof(*export->room));
        for (uint64_t k = 0; k < count; k++)
            memcpy(export->room + k * columns + tensor->part * own, values + (row + k) * own, own * sizeof(*values));
        EO_TRY(write_values(export, tensor, export->room, row * columns, count * columns));
    }
    return EO_OK;
}

void tool_export_put(struct tool_export *export, uint32_t parameter, const float *values)
{
    if (export->status < 0)
        return;
    const struct tool_export_tensor *tensor = &export->tensors[parameter];
    if (tensor->transposed || tensor->parts) {
        export->status = tensor->parts ? write_part(export, tensor, values) : write_transposed(export, tensor, values);
        return;
    }
    for (uint64_t done = 0; export->status >= 0 && done < tensor->element_count; done += export->room_count) {
        const uint64_t left = tensor->element_count - done;
        export->status = write_values(export, tensor, values + done, done,
                                      left < export->room_count ? left : export->room_count);
    }
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

/* Some folders let nobody list them. */
static eo_status sync_folder(const char *path, struct tool_problem *problem)
{
    const int file = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool synced = file >= 0 ? tool_sync(file) : errno == EACCES;
    const int error = errno;
    if (file >= 0)
        close(file);
    return synced ? EO_OK
                  : tool_problem_set(problem, EO_ERR_IO, "%s: cannot be synced to disk: %s", path, strerror(error));
}

static eo_status sync_files(struct tool_export *export, struct tool_problem *problem)
{
    for (uint32_t f = 0; f < export->file_count; f++) {
        struct tool_export_file *file = &export->files[f];
        const bool synced = tool_sync(file->file);
        const int error = errno, descriptor = file->file;
        file->file = -1;
        if (close(descriptor) != 0 || !synced)
            return tool_problem_set(problem, EO_ERR_IO, "%s: cannot be synced to disk: %s", export->partial,
                                    strerror(synced ? errno : error));
    }
    return export->is_folder ? sync_folder(export->partial, problem) : EO_OK;
}

void tool_export_drop(struct tool_export *export)
{
    char path[sizeof(export->partial) + 64];
    if (export->is_folder && export->is_made) {
        for (uint32_t f = 0; f < export->file_count; f++) {
            snprintf(path, sizeof(path), "%s/%s", export->partial, export->files[f].name);
            unlink(path);
        }
        for (const char *const *other = tool_export_other_names(); *other; other++) {
            snprintf(path, sizeof(path), "%s/%s", export->partial, *other);
            unlink(path);
        }
        rmdir(export->partial);
    } else if (export->is_made) {
        unlink(export->partial);
    }
    forget(export);
}

/* What is whole is not thrown away because its name was taken meanwhile, now or by the next export. */
static eo_status give_name(struct tool_export *export, struct tool_problem *problem)
{
    char parent[sizeof(export->path)], whole[sizeof(export->partial)];
    parent_of(export->path, parent, sizeof(parent));
    struct stat info;
    if (!export->is_folder && lstat(export->path, &info) == 0)
        errno = EEXIST;
    else if (rename(export->partial, export->path) == 0)
        return sync_folder(parent, problem);
    const int error = errno;
    snprintf(whole, sizeof(whole), "%s.whole-%ld", export->path, (long)getpid());
    return tool_problem_set(problem, EO_ERR_IO, "--export %s: cannot be given its name: %s; all of it is in %s", export->path,
                            strerror(error), rename(export->partial, whole) == 0 ? whole : export->partial);
}

eo_status tool_export_end(struct tool_export *export, struct tool_problem *problem)
{
    eo_status status = export->status;
    if (status < 0)
        *problem = export->problem;
    else
        status = sync_files(export, problem);
    if (status < 0) {
        tool_export_drop(export);
        return status;
    }
    status = give_name(export, problem);
    forget(export);
    return status;
}
