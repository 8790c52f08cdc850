package cache

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/stretchr/testify/require"
)

// crashObject is one object of the storm: parent and child make the same.
func crashObject(n int) chunk.Object {
	o := chunk.Object{Size: 90*bs + 11, ChunkSize: 4 * bs, BlockSize: bs}
	o.ID[0], o.ID[1], o.ID[15] = byte(n), byte(n>>8), 1
	o.Set[0] = 1
	return o
}

// childPut puts the blocks of two objects in a random order, with a flusher
// beside it, and says each block it was told is present.
func childPut() error {
	seed, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64)
	if err != nil {
		return err
	}
	c, err := Open(Config{
		Roots: []string{os.Getenv("ROOT")}, FreeSpace: Reserve{Bytes: -1},
		SyncBytes: 20 * bs, SyncEvery: 10 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(seed, 1))
	o := crashObject(int(seed) / 3)
	f, err := c.Open(context.Background(), o)
	if err != nil {
		return err
	}
	go c.Run(context.Background())
	for _, b := range r.Perm(o.Blocks()) {
		data := content(o, b)
		if err := f.Put(b, data, chunk.Sum(data)); err != nil {
			return err
		}
		fmt.Println(b)
	}
	fmt.Println("done")
	select {} // until killed
}

// A process killed at any moment leaves nothing that is wrong, and loses
// nothing that it was told is present.
func TestKillStorm(t *testing.T) {
	t.Parallel()
	root := smallDisk(t, "size=64m") // what counts is the page cache
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	partial := 0
	for n := range 100 {
		said := killOnce(t, root, n, r.IntN(95), time.Duration(r.IntN(2000))*time.Microsecond)
		c, err := Open(Config{Roots: []string{root}, FreeSpace: Reserve{Bytes: -1}})
		require.NoError(t, err)
		o := crashObject(n / 3)
		f, err := c.Open(t.Context(), o)
		require.NoError(t, err)
		if have := checkHeld(t, f, o); have < o.Blocks() {
			partial++
		}
		for _, b := range said {
			require.True(t, f.Has(b), "run %d: block %d was acknowledged", n, b)
		}
		require.NoError(t, f.Close())
		require.NoError(t, c.Close())
	}
	t.Logf("%d of 100 kills left an object incomplete", partial)
	require.Positive(t, partial)
	all, err := filepath.Glob(filepath.Join(root, "*.tmp"))
	require.NoError(t, err)
	require.Empty(t, all)
}

// killOnce starts a child and kills it a while after it has said so many
// blocks. It returns the blocks.
func killOnce(t *testing.T, root string, n, after int, wait time.Duration) []int {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=put", "ROOT="+root, "SEED="+strconv.Itoa(n))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var said []int
	killed := false
	for s := bufio.NewScanner(out); s.Scan(); {
		b, err := strconv.Atoi(s.Text())
		if err == nil {
			said = append(said, b)
		}
		if !killed && (err != nil || len(said) > after) {
			killed = true
			time.AfterFunc(wait, func() { cmd.Process.Kill() })
		}
	}
	err = cmd.Wait()
	require.ErrorContains(t, err, "killed")
	return said
}
