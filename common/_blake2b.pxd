# Declarations of common/native/blake2b.h: keyed BLAKE2b, whose started state can be copied.

cdef extern from "blake2b.h" nogil:
    ctypedef struct penstock_blake2b:
        pass
    void penstock_blake2b_start(penstock_blake2b* state, const void* key, size_t key_size, size_t digest_size)
    void penstock_blake2b_update(penstock_blake2b* state, const void* data, size_t size)
    void penstock_blake2b_finish(penstock_blake2b* state, void* digest, size_t digest_size)
