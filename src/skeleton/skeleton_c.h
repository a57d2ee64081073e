/* Prompt skeletons from C: the library of skeleton.h behind a handle.
 *
 * Threads: one handle per thread. A result's pointers are valid until the handle's next call or its
 * end. Nothing fails; bad input is counted in error_count. docs/formats/skeleton.md is the format.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zh_skeleton zh_skeleton;

enum { ZH_SKELETON_STRICT = 1, ZH_SKELETON_TEMPLATE = 2 };
enum { ZH_ROLE_SYSTEM = 0, ZH_ROLE_USER = 1, ZH_ROLE_ASSISTANT = 2 };
enum { ZH_BLOCK_TEXT = 0, ZH_BLOCK_TOOL_USE = 1, ZH_BLOCK_TOOL_RESULT = 2, ZH_BLOCK_IMAGE = 3 };

typedef struct {
    int role; /* blocks in a row with the same role and message number form one message */
    unsigned message;
    int kind;
    const char* text;
    size_t text_size;
    const char* name; /* tool_use: the tool's name; else NULL */
    size_t name_size;
} zh_skeleton_block;

typedef struct {
    const char* canonical; /* the hashed form; not terminated */
    size_t canonical_size;
    uint64_t key_high, key_low;
    uint64_t last_turn_high, last_turn_low;
    uint64_t system_tools_high, system_tools_low;
    int complexity;
    uint64_t volatile_count;
    uint64_t error_count;
} zh_skeleton_result;

__attribute__((visibility("default"))) zh_skeleton* zh_skeleton_new(void); /* NULL: out of memory */
__attribute__((visibility("default"))) void zh_skeleton_free(zh_skeleton* skeleton);
/* One user message of text. */
__attribute__((visibility("default"))) void zh_skeleton_text(zh_skeleton* skeleton,
                                                             const char* text, size_t size,
                                                             int flags, zh_skeleton_result* out);
__attribute__((visibility("default"))) void zh_skeleton_messages(zh_skeleton* skeleton,
                                                                 unsigned tools,
                                                                 const zh_skeleton_block* blocks,
                                                                 size_t count, int flags,
                                                                 zh_skeleton_result* out);

#ifdef __cplusplus
}
#endif
