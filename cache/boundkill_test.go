package cache

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/stretchr/testify/require"
)

func serveForever(root, object string) error {
	id, err := chunk.ParseObjectID(object)
	if err != nil {
		return err
	}
	c, err := Open(Config{Roots: []string{root}})
	if err != nil {
		return err
	}
	for n := 0; ; n++ {
		b := n % 64
		blk, err := c.Block(context.Background(), id, b)
		if err != nil {
			return err
		}
		fmt.Println(b)
		if err := blk.Release(); err != nil {
			return err
		}
	}
}

// killAfter runs a child and kills it once it has said so many numbers.
func killAfter(t *testing.T, cmd *exec.Cmd, n int) []int {
	t.Helper()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var said []int
	for s := bufio.NewScanner(out); s.Scan(); {
		b, err := strconv.Atoi(s.Text())
		require.NoError(t, err)
		if said = append(said, b); len(said) == n {
			require.NoError(t, cmd.Process.Kill())
		}
	}
	require.ErrorContains(t, cmd.Wait(), "killed")
	return said
}

// childServe serves blocks of a registered file until it is killed, saying each
// after it was bound.
func childServe() error {
	return serveForever(os.Getenv("ROOT"), os.Getenv("OBJECT"))
}

// A sum handed out by a process that was killed right after still binds.
func TestBoundSumsOutliveKill(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	o := object(64 * bs)
	c, _ := registered(t, cfg, o)
	require.NoError(t, c.Close())
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=serve", "ROOT="+cfg.Roots[0], "OBJECT="+o.ID.String())
	cmd.Stderr = os.Stderr
	said := killAfter(t, cmd, 20)
	c = openCache(t, cfg)
	_, held, ok := c.Peek(o.ID)
	require.True(t, ok)
	for _, b := range said {
		sum, ok := held.Sum(b)
		require.True(t, ok, "block %d", b)
		require.Equal(t, chunk.Sum(content(o, b)), sum)
	}
}
