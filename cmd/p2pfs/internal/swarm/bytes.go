package swarm

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"os"
)

// piece is what is written, read and summed at once.
const piece = 1 << 20

// writeRandom writes a file none of whose blocks is like another, and returns
// its digest.
func writeRandom(ctx context.Context, path string, size int64, seed uint64) (string, error) {
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	sum := sha256.New()
	err = copyPieces(ctx, io.MultiWriter(f, sum), io.LimitReader(rand.NewChaCha8(key), size))
	if err = errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("write the file: %w", err)
	}
	return hexSum(sum), nil
}

// digest reads a file to its end.
func digest(ctx context.Context, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if err := copyPieces(ctx, sum, f); err != nil {
		return "", err
	}
	return hexSum(sum), nil
}

func copyPieces(ctx context.Context, w io.Writer, r io.Reader) error {
	buf := make([]byte, piece)
	for ctx.Err() == nil {
		n, err := io.ReadFull(r, buf)
		if _, err := w.Write(buf[:n]); err != nil {
			return err
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return err
		}
	}
	return context.Cause(ctx)
}

func hexSum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }
