package chunk

import "hash/crc32"

// castagnoli is the polynomial of CRC-32C (RFC 3720, appendix B.4).
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Sum returns the CRC-32C of a block.
func Sum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// AddSum extends sum by the bytes that follow: AddSum(Sum(a), b) is the sum
// of a and b joined.
func AddSum(sum uint32, b []byte) uint32 { return crc32.Update(sum, castagnoli, b) }
