package cache

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/stretchr/testify/require"
)

func TestIdentityLasts(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	c := openCache(t, cfg)
	node, cluster := c.Identity()
	require.False(t, node.IsZero())
	require.True(t, cluster.IsZero())
	mine := chunk.NewClusterID()
	require.NoError(t, c.Bind(mine))
	require.NoError(t, c.Bind(mine))
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())

	c = openCache(t, cfg)
	again, cluster := c.Identity()
	require.Equal(t, node, again)
	require.Equal(t, mine, cluster)
	err := c.Bind(chunk.NewClusterID())
	require.ErrorIs(t, err, ErrOtherCluster)
	require.ErrorContains(t, err, cfg.Roots[0])
	require.ErrorContains(t, err, mine.String())
	require.Error(t, c.Bind(chunk.ClusterID{}))
}

func TestSeveralRoots(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	dir := t.TempDir()
	one, two, three := filepath.Join(dir, "1"), filepath.Join(dir, "2"), filepath.Join(dir, "3")
	cfg.Roots = []string{one, two}
	c := openCache(t, cfg)
	node, _ := c.Identity()
	require.NoError(t, c.Bind(chunk.NewClusterID()))
	o := object(3 * bs)
	fill(t, c, o)
	require.NoError(t, c.Close())

	// In another order, and with a new one: the object and the registered
	// files are found where they are.
	cfg.Roots = []string{three, two, one}
	c = openCache(t, cfg)
	again, cluster := c.Identity()
	require.Equal(t, node, again)
	require.False(t, cluster.IsZero())
	require.Equal(t, one, c.places.root.dir)
	f := openFile(t, c, o)
	require.Equal(t, 3, checkHeld(t, f, o))
	require.Len(t, c.Stats().Roots, 3)
	require.NoError(t, c.Close())
	for _, root := range cfg.Roots {
		r, ok, err := readRoot(root)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, rootFile{node: node, cluster: cluster, layout: layoutVersion}, r)
	}

	// A root of another node is not ours.
	cfg.Roots = []string{filepath.Join(dir, "other")}
	require.NoError(t, openCache(t, cfg).Close())
	cfg.Roots = []string{one, filepath.Join(dir, "other")}
	_, err := Open(cfg)
	require.ErrorIs(t, err, ErrLayout)
	cfg.Roots = []string{one, one}
	_, err = Open(cfg)
	require.ErrorIs(t, err, ErrInUse)
	cfg.Roots = []string{one}
	require.NoError(t, openCache(t, cfg).Close(), "a refusal leaves no lock behind")
}

func TestUnusableRoots(t *testing.T) {
	t.Parallel()
	node := chunk.NewNodeID().String()
	for _, tc := range []struct{ name, text, want string }{
		{"newer", `{"layout":3,"node":"` + node + `","new":true}`, "version 3"},
		{"garbage", "\x00\x01\x02", "not JSON"},
		{"empty", "", "not JSON"},
		{"cut", `{"layout":1,"node":"` + node[:7], "not JSON"},
		{"two", `{"layout":1,"node":"` + node + `"}{}`, "after"},
		{"no node", `{"layout":1}`, "node id"},
		{"zero node", `{"layout":1,"node":"` + strings.Repeat("0", 32) + `"}`, "zero"},
		{"no layout", `{"node":"` + node + `"}`, "version 0"},
		{"bad cluster", `{"layout":1,"node":"` + node + `","cluster":"x"}`, "cluster id"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t)
			require.NoError(t, os.MkdirAll(cfg.Roots[0], 0o700))
			path := filepath.Join(cfg.Roots[0], rootFileName)
			require.NoError(t, os.WriteFile(path, []byte(tc.text), 0o600))
			_, err := Open(cfg)
			require.ErrorIs(t, err, ErrLayout)
			require.ErrorContains(t, err, tc.want)
			require.ErrorContains(t, err, path)
		})
	}
	t.Run("objects of nobody", func(t *testing.T) {
		t.Parallel()
		cfg := config(t)
		require.NoError(t, os.MkdirAll(filepath.Join(cfg.Roots[0], "objects"), 0o700))
		_, err := Open(cfg)
		require.ErrorIs(t, err, ErrLayout)
	})
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		_, err := Open(Config{})
		require.Error(t, err)
	})
	t.Run("a file", func(t *testing.T) {
		t.Parallel()
		cfg := config(t)
		require.NoError(t, os.WriteFile(cfg.Roots[0], nil, 0o600))
		_, err := Open(cfg)
		require.Error(t, err)
	})
}

// childHold opens a cache and keeps it until its input ends.
func childHold() error {
	c, err := Open(Config{Roots: []string{os.Getenv("ROOT")}})
	if err != nil {
		return err
	}
	fmt.Println("open")
	bufio.NewReader(os.Stdin).ReadByte()
	return c.Close()
}

func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=hold", "ROOT="+cfg.Roots[0])
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "open\n", line)

	_, err = Open(cfg)
	require.ErrorIs(t, err, ErrInUse)
	require.ErrorContains(t, err, strconv.Itoa(cmd.Process.Pid))
	require.ErrorContains(t, err, cfg.Roots[0])
	in.Close()
	require.NoError(t, cmd.Wait())
	openCache(t, cfg)
}

func FuzzRoot(f *testing.F) {
	f.Add(rootFile{node: chunk.NewNodeID()}.encode())
	f.Add(rootFile{node: chunk.NewNodeID(), cluster: chunk.NewClusterID()}.encode())
	f.Add([]byte(`{"layout":9}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRoot(b)
		if err != nil {
			require.ErrorIs(t, err, ErrLayout)
			return
		}
		again, err := decodeRoot(r.encode())
		require.NoError(t, err)
		require.Equal(t, layoutVersion, again.layout)
		r.layout = layoutVersion
		require.Equal(t, r, again)
	})
}
