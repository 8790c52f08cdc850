package integration

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// headerOf returns the value of the request header whose name holds word.
func headerOf(t testing.TB, request []byte, word string) string {
	t.Helper()
	for _, line := range bytes.Split(request, []byte("\r\n")) {
		if name, value, ok := strings.Cut(string(line), ":"); ok && strings.Contains(strings.ToLower(name), word) {
			return strings.TrimSpace(value)
		}
	}
	require.Fail(t, "no such header", "%s in:\n%s", word, request)
	return ""
}

// together runs the commands at once and returns what they gave.
func together(t *testing.T, cmds ...*exec.Cmd) []result {
	t.Helper()
	var all []*running
	for _, cmd := range cmds {
		all = append(all, launch(t, cmd))
	}
	results := make([]result, len(all))
	for i, r := range all {
		results[i] = r.finish(t, commandLimit)
	}
	return results
}

// receivedAtMost requires that no more than so many bytes came to a node. What a
// request brought that was given up, since nothing more came for seconds, or that
// was made of another node besides counts extra: a block each at most.
func (n *node) receivedAtMost(limit float64, block int64, args ...any) {
	n.t.Helper()
	c := n.status().Counters
	extra := block * (c["fetch_errors"] + c["blocks_duplicate"] + c["blocks_hedged"])
	require.LessOrEqual(n.t, float64(c["received_bytes"]), limit+float64(extra), args...)
}

// bigBlock is the size of the blocks of bigBlocks.
const bigBlock = 4 << 20

func TestEightReadersOfAColdFileFetchItOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t, bigBlocks)
	a, b := c.start("a"), c.start("b")
	const size = 200<<20 + 1
	sum := registered(t, a, "f", size, 1)
	var cmds []*exec.Cmd
	for range 8 {
		cmds = append(cmds, digestCmd(b.path("f")))
	}
	for _, r := range together(t, cmds...) {
		require.Zero(t, r.code, r.String())
		require.Equal(t, sum, digestOf(t, r))
	}
	b.receivedAtMost(1.02*size, bigBlock)
}

func TestHeadersOfThirtyFilesFetchFewBlocks(t *testing.T) {
	t.Parallel()
	c := newCluster(t, bigBlocks)
	a, b := c.start("a"), c.start("b")
	const files, size = 30, 80 << 20
	for i := range files {
		path := c.src(fmt.Sprintf("d/model-%05d.safetensors", i))
		writeFile(t, path, 1<<20, uint64(i)) // a header, then a hole of zeros is not enough:
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		require.NoError(t, err)
		for off := int64(4 << 20); off < size; off += 4 << 20 { // a byte in every block
			_, err = f.WriteAt([]byte{1}, off)
			require.NoError(t, err)
		}
		require.NoError(t, f.Truncate(size))
		require.NoError(t, f.Close())
	}
	a.register(c.src("d"), "d")
	for i := range files {
		name := fmt.Sprintf("d/model-%05d.safetensors", i)
		sameAt(t, c.src(name), b.path(name), 0, 8)
		sameAt(t, c.src(name), b.path(name), 8, 30_000)
	}
	b.receivedAtMost(60*bigBlock, bigBlock)
}

func TestAGoReaderUnderPressureIsNotInterrupted(t *testing.T) {
	t.Parallel()
	for _, mode := range passthroughModes {
		t.Run("passthrough="+mode, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, "--passthrough="+mode)
			a, b := c.start("a"), c.start("b")
			const size = 100 * smallChunk
			sum := registered(t, a, "f", size, 1)
			r := runCmd(t, commandLimit, child("pressed", b.path("f")))
			require.Zero(t, r.code, r.String())
			require.Equal(t, sum+" 0", strings.TrimSpace(string(r.out)), "digest and number of EINTR")
			b.receivedAtMost(1.02*size, smallBlock)
		})
	}
}

func TestThirtyTwoThreadsFaultOneColdMapping(t *testing.T) {
	t.Parallel()
	for _, advice := range []string{"normal", "random"} {
		for _, mode := range passthroughModes {
			t.Run(advice+", passthrough="+mode, func(t *testing.T) {
				t.Parallel()
				c := newCluster(t, "--passthrough="+mode)
				a, b := c.start("a"), c.start("b")
				const size = 60*smallChunk + 5
				sum := registered(t, a, "f", size, 1)
				for range 2 {
					r := runCmd(t, commandLimit, child("fault", b.path("f"), "32", advice))
					require.Zero(t, r.code, r.String())
					require.Equal(t, sum, strings.TrimSpace(string(r.out)))
				}
				b.receivedAtMost(1.02*size, smallBlock)
			})
		}
	}
}

func TestForkedReadersShareOneDescriptor(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	const size = 64 * smallBlock
	registered(t, a, "f", size, 1)
	const forked = `
import hashlib, mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY); size = os.fstat(fd).st_size; m = mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ)
pids = []
for k in range(4):
    pid = os.fork()
    if pid == 0:
        ok = all(os.pread(fd, 8192, off) == m[off:off + 8192] for off in range(k * 8192, size, 4 * 8192))
        os._exit(0 if ok else 1)
    pids.append(pid)
bad = [os.waitpid(p, 0)[1] for p in pids]
print(hashlib.sha256(m).hexdigest(), bad)`
	got := must(t, world.python, "-c", forked, b.path("f"))
	require.Equal(t, hexOf(content(t, c.src("f")))+" [0, 0, 0, 0]", strings.TrimSpace(got))
	b.receivedAtMost(1.02*size, smallBlock)
}

func TestSafetensorsLoadsInRandomOrder(t *testing.T) {
	t.Parallel()
	c := newCluster(t, bigBlocks)
	a, b := c.start("a"), c.start("b")
	src := c.src("model.safetensors")
	must(t, world.python, "testdata/reader.py", "make", src, "100", "3")
	a.register(src, "model.safetensors")
	want := must(t, world.python, "testdata/reader.py", "tensors", src, "0")
	for seed := range 3 {
		got := must(t, world.python, "testdata/reader.py", "tensors", b.path("model.safetensors"), itoa(seed))
		require.Equal(t, want, got, "seed %d", seed)
		if seed == 1 {
			b.must("drop", b.path("model.safetensors"))
		}
	}
}

func TestDirectIOReads(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	registered(t, a, "f", 10*smallChunk, 1)
	for range 2 {
		r := run(t, "dd", "if="+b.path("f"), "iflag=direct", "bs=65536", "status=none")
		require.Zero(t, r.code, r.String())
		require.Equal(t, hexOf(content(t, c.src("f"))), hexOf(r.out))
		b.waitLocal("f")
	}
}
