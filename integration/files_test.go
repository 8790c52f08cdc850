package integration

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// randomBytes is an endless stream that depends on the seed alone.
func randomBytes(seed uint64) io.Reader {
	var key [32]byte
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	return rand.NewChaCha8(key)
}

// writeFile makes a file of random bytes and returns its digest.
func writeFile(t testing.TB, path string, size int64, seed uint64) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	f, err := os.Create(path)
	require.NoError(t, err)
	h := sha256.New()
	_, err = io.CopyBuffer(io.MultiWriter(f, h), io.LimitReader(randomBytes(seed), size), make([]byte, 1<<20))
	require.NoError(t, err)
	require.NoError(t, f.Close())
	return hex.EncodeToString(h.Sum(nil))
}

// registered makes a file of random bytes, registers it on n and returns its
// digest.
func registered(t testing.TB, n *node, dest string, size int64, seed uint64) string {
	t.Helper()
	src := n.c.src(dest)
	sum := writeFile(t, src, size, seed)
	n.register(src, dest)
	return sum
}

// digest reads a whole file in a child process.
func digest(t testing.TB, path string) string {
	t.Helper()
	r := runCmd(t, commandLimit, digestCmd(path))
	require.Zero(t, r.code, "read %q: %s", path, r)
	return digestOf(t, r)
}

func digestCmd(path string) *exec.Cmd {
	return exec.Command("sh", "-c", `sha256sum <"$1"`, "sh", path)
}

func digestOf(t testing.TB, r result) string {
	t.Helper()
	sum, _, _ := strings.Cut(string(r.out), " ")
	require.Len(t, sum, 64, "sha256sum: %s", r)
	return sum
}

// readAt reads a range in a child process. result.out holds the bytes.
func readAt(t testing.TB, path string, off, n int64) result {
	t.Helper()
	return run(t, "dd", "if="+path, "iflag=skip_bytes,count_bytes", "bs=1M", "status=none", "skip="+itoa(off), "count="+itoa(n))
}

// sameAt requires that a range reads as the same bytes through both paths.
func sameAt(t testing.TB, want, got string, off, n int64) {
	t.Helper()
	w, g := readAt(t, want, off, n), readAt(t, got, off, n)
	require.Zero(t, g.code, "read %s at %d: %s", got, off, g.err)
	require.Equal(t, sha256.Sum256(w.out), sha256.Sum256(g.out), "%s differs at [%d, +%d)", got, off, n)
}

// requireEIO requires a failure with "Input/output error": an outage is never
// shown as a missing file, and never as an end of file or zeros.
func requireEIO(t testing.TB, r result, prefixOf []byte) {
	t.Helper()
	require.NotZero(t, r.code, "the read succeeded with %d bytes", len(r.out))
	require.Contains(t, r.err, "Input/output error")
	require.LessOrEqual(t, len(r.out), len(prefixOf))
	require.Equal(t, sha256.Sum256(prefixOf[:len(r.out)]), sha256.Sum256(r.out), "what was read before the error is wrong")
}

func content(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data
}
