/* CRC-32 as zlib computes it (polynomial 0xEDB88320, reflected): the checksum of a message's body. */

#ifndef TURBOPUMP_CRC32_H
#define TURBOPUMP_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Fills the tables and detects the processor; call it before the first `crc32`. */
void crc32_prepare(void);

uint32_t crc32(const uint8_t *data, size_t size);

#endif
