package running

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeInfo is a daemon that is this very process.
func fakeInfo(t *testing.T, dir, name string) Info {
	t.Helper()
	cache := filepath.Join(dir, "cache-"+name)
	require.NoError(t, os.MkdirAll(cache, 0o755))
	return Info{
		Node: fmt.Sprintf("%032x", name), Name: name, Mountpoint: filepath.Join(dir, "mnt-"+name),
		CacheDirs: []string{cache}, Socket: filepath.Join(dir, name+".sock"), PID: os.Getpid(),
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	a, b := fakeInfo(t, dir, "a"), fakeInfo(t, dir, "b")
	require.NoError(t, os.Symlink(a.Mountpoint, filepath.Join(dir, "link")))
	require.NoError(t, os.Symlink(filepath.Join(dir, "mnt-a", "x"), filepath.Join(dir, "deep")))
	require.NoError(t, os.Symlink(a.CacheDirs[0], filepath.Join(dir, "cachelink")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "plain"), nil, 0o644))
	bind := filepath.Join(dir, "bind")
	dead := filepath.Join(dir, "dead")
	mounts := []Mount{
		{Point: a.Mountpoint, Root: "/", Device: "0:50"},
		{Point: bind, Root: "/sub dir", Device: "0:50"},
		{Point: dead, Root: "/", Device: "0:60"},
	}
	both := []Info{a, b}
	for _, c := range []struct {
		name   string
		q      Query
		infos  []Info
		want   string // node's name
		inside string
		err    []string
	}{
		{name: "mountpoint", q: Query{Path: a.Mountpoint}, infos: both, want: "a"},
		{name: "trailing slash", q: Query{Path: a.Mountpoint + "/x/"}, infos: both, want: "a", inside: "x"},
		{name: "below", q: Query{Path: b.Mountpoint + "/x/./y//z"}, infos: both, want: "b", inside: "x/y/z"},
		{name: "dots stay inside", q: Query{Path: a.Mountpoint + "/x/../y"}, infos: both, want: "a", inside: "y"},
		{name: "dots lead out and in", q: Query{Path: a.Mountpoint + "/../mnt-b/y"}, infos: both, want: "b", inside: "y"},
		{name: "any bytes", q: Query{Path: a.Mountpoint + "/\xff\n%#"}, infos: both, want: "a", inside: "\xff\n%#"},
		{name: "symlink to the mount", q: Query{Path: dir + "/link/m"}, infos: both, want: "a", inside: "m"},
		{name: "symlink into the mount", q: Query{Path: dir + "/deep/m"}, infos: both, want: "a", inside: "x/m"},
		{name: "dots after a symlink", q: Query{Path: dir + "/deep/../m"}, infos: both, want: "a", inside: "m"},
		{name: "a longer name is not below", q: Query{Path: a.Mountpoint + "x/y"}, infos: both, err: []string{"not under a p2pfs mount", "mnt-a", "mnt-b"}},
		{name: "bind mount", q: Query{Path: bind + "/f"}, infos: both, want: "a", inside: "sub dir/f"},
		{name: "dead mount", q: Query{Path: dead + "/f"}, infos: both, err: []string{"no running node", "p2pfs umount " + dead}},
		{name: "path beats environment", q: Query{Path: a.Mountpoint, Env: b.CacheDirs[0]}, infos: both, want: "a"},
		{name: "path beats a wrong environment", q: Query{Path: a.Mountpoint, Env: "/nowhere"}, infos: both, want: "a"},
		{name: "path and flag agree", q: Query{Path: a.Mountpoint, Node: a.CacheDirs[0]}, infos: both, want: "a"},
		{name: "path and flag differ", q: Query{Path: a.Mountpoint, Node: b.CacheDirs[0]}, infos: both, err: []string{"--node names node b"}},
		{name: "flag by cache", q: Query{Node: b.CacheDirs[0]}, infos: both, want: "b"},
		{name: "flag by cache with a slash", q: Query{Node: b.CacheDirs[0] + "/"}, infos: both, want: "b"},
		{name: "flag by linked cache", q: Query{Node: dir + "/cachelink"}, infos: both, want: "a"},
		{name: "flag by socket", q: Query{Node: b.Socket}, infos: both, want: "b"},
		{name: "flag beats environment", q: Query{Node: a.CacheDirs[0], Env: b.CacheDirs[0]}, infos: both, want: "a"},
		{name: "flag names nothing", q: Query{Node: dir + "/none"}, infos: both, err: []string{"--node", "neither a cache directory nor a control socket", "running here:", "mnt-a"}},
		{name: "flag names a file", q: Query{Node: dir + "/plain"}, infos: both, err: []string{"neither a directory nor a socket"}},
		{name: "flag names another directory", q: Query{Node: dir}, infos: both, err: []string{"no node runs with that cache directory"}},
		{name: "environment", q: Query{Env: b.Socket}, infos: both, want: "b"},
		{name: "wrong environment", q: Query{Env: dir + "/none"}, infos: both, err: []string{EnvNode}},
		{name: "only one", infos: []Info{b}, want: "b"},
		{name: "two", infos: both, err: []string{"more than one node", "mnt-a", "mnt-b", "--node"}},
		{name: "none", err: []string{"no p2pfs node runs here", "p2pfs mount"}},
		{name: "none and a path", q: Query{Path: "/etc"}, err: []string{"not under a p2pfs mount", "no p2pfs node runs here"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := find(c.q, c.infos, mounts)
			if c.err != nil {
				require.ErrorIs(t, err, ErrNoNode)
				for _, s := range c.err {
					require.ErrorContains(t, err, s)
				}
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got.Name)
			require.Equal(t, c.inside, got.Inside)
		})
	}
}

func TestFindByLinkAcrossRuntimeDirs(t *testing.T) {
	dir := t.TempDir()
	cache := filepath.Join(dir, "cache")
	require.NoError(t, os.Mkdir(cache, 0o755))
	t.Setenv(EnvDir, filepath.Join(dir, "one"))
	p, err := Publish(Info{Node: "abc", Name: "n", Mountpoint: "/mnt/nowhere", CacheDirs: []string{cache}, Socket: filepath.Join(dir, "s")})
	require.NoError(t, err)
	defer p.Close()

	t.Setenv(EnvDir, filepath.Join(dir, "two"))
	got, err := Find(Query{Node: cache})
	require.NoError(t, err)
	require.Equal(t, "n", got.Name)

	got, err = Find(Query{Path: "/mnt/nowhere/a", Env: cache})
	require.NoError(t, err)
	require.Equal(t, "a", got.Inside)
}

func TestResolveSymlinkLoop(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.Symlink("loop", filepath.Join(dir, "loop")))
	_, err := resolve(filepath.Join(dir, "loop"), nil)
	require.ErrorContains(t, err, "too many levels")
	_, err = resolve("", nil)
	require.Error(t, err)
}

func TestResolveNeverLooksIntoAMount(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	mount := filepath.Join(dir, "m")
	require.NoError(t, os.Mkdir(mount, 0o755))
	// If it were followed, the path would leave the mount.
	require.NoError(t, os.Symlink("/etc", filepath.Join(mount, "l")))
	got, err := resolve(mount+"/l/passwd", []string{mount})
	require.NoError(t, err)
	require.Equal(t, mount+"/l/passwd", got)
}

func TestResolveRelative(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	t.Chdir(dir)
	got, err := resolve("a/../b", nil)
	require.NoError(t, err)
	require.Equal(t, dir+"/b", got)
}

func TestParseMounts(t *testing.T) {
	t.Parallel()
	const text = `22 27 0:21 / /proc rw,relatime - proc proc rw
40 27 0:50 / /mnt/with\040blank\134x rw,nosuid,nodev shared:7 master:2 - fuse.p2pfs models rw,user_id=0
41 27 0:51 /sub /mnt/b rw - fuse.p2pfs mo\043dels rw
42 27 0:52 / /mnt/c rw - fuse.sshfs x rw
broken line
43 27 0:53 / /mnt/d rw - fuse.p2pfs
`
	m, err := parseMounts(strings.NewReader(text))
	require.NoError(t, err)
	require.Equal(t, []Mount{
		{Point: `/mnt/with blank\x`, Root: "/", Device: "0:50", Source: "models"},
		{Point: "/mnt/b", Root: "/sub", Device: "0:51", Source: "mo#dels"},
	}, m)
}
