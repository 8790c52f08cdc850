package oracle

import (
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
)

// Data is the content of a file. It is never changed once made.
type Data struct {
	Bytes []byte
	Sum   string // of SHA-256, hex
	Seed  uint64 // all of Bytes are those of this seed; 0: they are not
}

// NewData takes bytes over.
func NewData(b []byte) *Data {
	sum := sha256.Sum256(b)
	return &Data{Bytes: b, Sum: hex.EncodeToString(sum[:])}
}

// made is the data of one seed.
func made(s Step) *Data {
	d := NewData(s.Bytes())
	d.Seed = s.Seed
	return d
}

// Bytes returns size bytes that depend on the seed alone.
func Bytes(seed uint64, size int64) []byte {
	var key [32]byte
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	b := make([]byte, size)
	_, _ = rand.NewChaCha8(key).Read(b) // it never fails
	return b
}

// size is 0 for no data.
func (d *Data) size() int64 {
	if d == nil {
		return 0
	}
	return int64(len(d.Bytes))
}

// changed returns the data with b put at off, or at the end if off is
// negative. What lies between the end and off is zeros.
func (d *Data) changed(b []byte, off int64) *Data {
	if off < 0 {
		off = d.size()
	}
	out := make([]byte, max(d.size(), off+int64(len(b))))
	copy(out, d.Bytes)
	copy(out[off:], b)
	return NewData(out)
}

// cut returns the data with the size set; what is added is zeros.
func (d *Data) cut(size int64) *Data {
	out := make([]byte, size)
	copy(out, d.Bytes)
	return NewData(out)
}
