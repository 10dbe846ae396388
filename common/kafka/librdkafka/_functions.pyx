# cython: language_level=3
"""The functions of librdkafka, found in the file of the library."""

cdef extern from "<dlfcn.h>" nogil:
    enum: RTLD_NOW
    void* dlopen(const char* path, int flags)
    void* dlsym(void* library, const char* name)
    char* dlerror()

cdef enum:
    VERSION_MIN = 0x01060000
    VERSION_END = 0x03000000          # its structs may be others

cdef list NAMES = [
    "version", "conf_new", "conf_destroy", "conf_set", "conf_set_events", "conf_set_log_cb", "new", "destroy",
    "queue_get_main", "queue_destroy", "queue_poll", "event_type", "event_message_count", "event_message_array",
    "event_error", "event_error_string", "event_destroy", "message_errstr", "fatal_error", "topic_new", "topic_destroy",
    "last_error", "headers_new", "header_add", "headers_destroy", "produceva", "error_code", "error_destroy", "flush",
    "purge", "metadata", "metadata_destroy", "clusterid", "mem_free",
]  # in the order of the struct


def load(str path):
    """Find the functions in the library of this path. Call it once. Raises OSError: they are not there."""
    cdef void* library = dlopen(path.encode(), RTLD_NOW)
    cdef void** functions = <void**>&lib
    if library == NULL:
        raise OSError(dlerror().decode("utf-8", "replace"))
    for number, name in enumerate(NAMES):
        functions[<int>number] = dlsym(library, b"rd_kafka_" + name.encode())
        if functions[<int>number] == NULL:
            raise OSError(f"{path}: it has no rd_kafka_{name}")
    if not VERSION_MIN <= lib.version() < VERSION_END:
        raise OSError(f"{path}: version {lib.version():x}")
