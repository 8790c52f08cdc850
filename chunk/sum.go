package chunk

import "hash/crc32"

// castagnoli is the polynomial of CRC-32C (RFC 3720, appendix B.4).
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Sum returns the CRC-32C of a block.
func Sum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// AddSum extends sum by the bytes that follow: AddSum(Sum(a), b) is the sum
// of a and b joined.
func AddSum(sum uint32, b []byte) uint32 { return crc32.Update(sum, castagnoli, b) }

// JoinSums returns the sum of two runs of bytes joined, from the sum of each and
// the length of the second. To append n bytes multiplies the first sum by
// x^(8n), modulo the polynomial, as crc32_combine of zlib does.
func JoinSums(first, second uint32, n int64) uint32 {
	const x8 = 1 << (31 - 8) // bit 31 is x^0
	for sq := uint32(x8); n > 0; n >>= 1 {
		if n&1 != 0 {
			first = mulSum(first, sq)
		}
		sq = mulSum(sq, sq)
	}
	return first ^ second
}

// mulSum multiplies two polynomials, whose highest power is bit 0.
func mulSum(a, b uint32) (p uint32) {
	for ; a != 0; a <<= 1 {
		if a&(1<<31) != 0 {
			p ^= b
		}
		odd := b & 1
		b >>= 1
		if odd != 0 {
			b ^= crc32.Castagnoli
		}
	}
	return p
}
