package running

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPublishListClose(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(EnvDir, filepath.Join(dir, "run"))
	cache := filepath.Join(dir, "cache")
	require.NoError(t, os.Mkdir(cache, 0o755))
	sock, err := SocketPath(CacheKey(cache))
	require.NoError(t, err)
	want := Info{
		Node: strings.Repeat("ab", 16), Name: "n\xff", Mountpoint: "/mnt/\xfe\n", CacheDirs: []string{cache}, Socket: sock,
		Started: time.Now().Round(0), MetaURL: "etcd://h/p", Version: "v1",
	}
	p, err := Publish(want)
	require.NoError(t, err)

	all, err := List()
	require.NoError(t, err)
	require.Len(t, all, 1)
	got := all[0]
	require.True(t, got.Started.Equal(want.Started))
	require.Equal(t, os.Getpid(), got.PID)
	want.PID, want.process, want.Started, got.Started = got.PID, got.process, time.Time{}, time.Time{}
	require.Equal(t, want, got)

	fi, err := os.Stat(filepath.Join(cache, linkName))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o644), fi.Mode().Perm())

	require.NoError(t, p.Close())
	require.NoError(t, p.Close())
	all, err = List()
	require.NoError(t, err)
	require.Empty(t, all)
	_, err = os.Lstat(filepath.Join(cache, linkName))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestCloseLeavesTheSuccessorAlone(t *testing.T) {
	t.Setenv(EnvDir, t.TempDir())
	i := Info{Node: "a1", Socket: "/x/s", Mountpoint: "/m"}
	old, err := Publish(i)
	require.NoError(t, err)
	i.Mountpoint = "/m2"
	next, err := Publish(i)
	require.NoError(t, err)
	require.NoError(t, old.Close())
	all, err := List()
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, "/m2", all[0].Mountpoint)
	require.NoError(t, next.Close())
}

func TestPublishRefuses(t *testing.T) {
	t.Setenv(EnvDir, t.TempDir())
	for _, c := range []struct {
		name string
		i    Info
	}{
		{"no node", Info{Socket: "/s"}},
		{"a path as node", Info{Node: "../x", Socket: "/s"}},
		{"relative socket", Info{Node: "a", Socket: "s"}},
		{"relative mountpoint", Info{Node: "a", Socket: "/s", Mountpoint: "m"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Publish(c.i)
			require.Error(t, err)
		})
	}
}

// deadProcess returns the pid and identity of a process that has ended.
func deadProcess(t *testing.T) (int, process) {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	require.NoError(t, cmd.Start())
	p, err := here()
	require.NoError(t, err)
	st, err := statOf(cmd.Process.Pid)
	require.NoError(t, err)
	p.Start = st.start
	require.True(t, Info{PID: cmd.Process.Pid, process: p}.Alive())
	require.NoError(t, cmd.Process.Kill())
	cmd.Wait()
	return cmd.Process.Pid, p
}

// plant writes a published file as another process would have.
func plant(t *testing.T, i Info) string {
	t.Helper()
	b, err := encode(i)
	require.NoError(t, err)
	path := filepath.Join(Dir(), i.Node+".json")
	require.NoError(t, os.WriteFile(path, b, 0o644))
	return path
}

func TestStaleIsIgnoredAndRemoved(t *testing.T) {
	pid, proc := deadProcess(t)
	me, err := thisProcess()
	require.NoError(t, err)
	recycled := me
	recycled.Start++
	reboot := me
	reboot.Boot = "another"
	elsewhere := me
	elsewhere.Namespace = "pid:[1]"
	for _, c := range []struct {
		name string
		pid  int
		proc process
	}{
		{"ended", pid, proc},
		{"pid taken by another process", os.Getpid(), recycled},
		{"before a reboot", os.Getpid(), reboot},
		{"container that is gone", os.Getpid(), elsewhere},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv(EnvDir, dir)
			cache := t.TempDir()
			sock := filepath.Join(dir, "x.sock")
			lis, err := net.ListenUnix("unix", &net.UnixAddr{Name: sock})
			require.NoError(t, err)
			lis.SetUnlinkOnClose(false)
			lis.Close()
			path := plant(t, Info{Node: "aa", Mountpoint: "/m", Socket: sock, CacheDirs: []string{cache}, PID: c.pid, process: c.proc})
			require.NoError(t, os.Symlink(path, filepath.Join(cache, linkName)))

			_, err = Find(Query{Node: cache})
			require.ErrorIs(t, err, ErrNoNode)
			all, err := List()
			require.NoError(t, err)
			require.Empty(t, all)
			for _, p := range []string{path, sock, filepath.Join(cache, linkName)} {
				_, err := os.Lstat(p)
				require.ErrorIs(t, err, os.ErrNotExist, p)
			}
		})
	}
}

func TestContainerIsAliveWhileItListens(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(EnvDir, dir)
	me, err := thisProcess()
	require.NoError(t, err)
	me.Namespace = "pid:[1]"
	sock := filepath.Join(dir, "x.sock")
	lis, err := Listen(sock)
	require.NoError(t, err)
	plant(t, Info{Node: "aa", Mountpoint: "/m", Socket: sock, PID: 1 << 22, process: me})
	all, err := List()
	require.NoError(t, err)
	require.Len(t, all, 1)
	lis.Close()
	all, err = List()
	require.NoError(t, err)
	require.Empty(t, all)
}

func TestForeignFilesAreLeftAlone(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(EnvDir, dir)
	for name, text := range map[string]string{
		"a.json": "{", "b.json": `{"format": 99, "node": "b", "pid": 1, "socket": "/s"}`, "c.txt": "x", "d.json": "",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "e.json"), 0o755))
	all, err := List()
	require.NoError(t, err)
	require.Empty(t, all)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 5)
}

func TestListenReplacesTheDeadOnly(t *testing.T) {
	dir := t.TempDir()
	sock := filepath.Join(dir, "s")
	lis, err := Listen(sock)
	require.NoError(t, err)
	fi, err := os.Stat(sock)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), fi.Mode().Perm())
	_, err = Listen(sock)
	require.ErrorContains(t, err, "another process listens")
	lis.(*net.UnixListener).SetUnlinkOnClose(false)
	lis.Close()
	lis, err = Listen(sock)
	require.NoError(t, err)
	lis.Close()
}

func TestRuntimeDirRefusals(t *testing.T) {
	dir := t.TempDir()
	open := filepath.Join(dir, "open")
	require.NoError(t, os.Mkdir(open, 0o777))
	require.NoError(t, os.Chmod(open, 0o777))
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	for _, c := range []struct{ name, dir, err string }{
		{"anybody can write it", open, "written by everybody"},
		{"a file", file, "not a directory"},
		{"too deep for a socket", filepath.Join(dir, strings.Repeat("d", 100)), "shorter directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(EnvDir, c.dir)
			_, err := SocketPath("key")
			require.ErrorContains(t, err, c.err)
		})
	}
	t.Run("read", func(t *testing.T) {
		t.Setenv(EnvDir, open)
		_, err := List()
		require.ErrorContains(t, err, "written by everybody")
	})
	t.Run("bad key", func(t *testing.T) {
		t.Setenv(EnvDir, dir)
		_, err := SocketPath("a/b")
		require.Error(t, err)
	})
}

func TestParseStat(t *testing.T) {
	t.Parallel()
	st, err := parseStat([]byte("12 (a) b (c)) T 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 19"))
	require.NoError(t, err)
	require.Equal(t, procStat{start: 4711, state: 'T', threads: 17}, st)
	require.False(t, procStat{state: 'Z', threads: 2}.ended(), "its other threads still hold the cache")
	require.True(t, procStat{state: 'Z', threads: 1}.ended())
	for _, bad := range []string{"", "1 (x", "1 (x) S 1 2", "1 (x) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 x"} {
		_, err := parseStat([]byte(bad))
		require.Error(t, err, bad)
	}
}

func FuzzDecode(f *testing.F) {
	b, err := encode(Info{Node: "ab", Name: "n\xff", Socket: "/s", PID: 7, CacheDirs: []string{"/c"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"format":1,"node":"a","pid":1,"socket":"/s","name":"base64:!"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		i, err := decode(b)
		if err != nil {
			return
		}
		again, err := encode(i)
		require.NoError(t, err)
		j, err := decode(again)
		require.NoError(t, err)
		require.True(t, i.Started.Equal(j.Started))
		i.Started, j.Started = time.Time{}, time.Time{}
		require.Equal(t, i, j)
	})
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("1 (x) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 19"))
	f.Fuzz(func(t *testing.T, b []byte) { _, _ = parseStat(b) })
}

func FuzzParseMounts(f *testing.F) {
	f.Add(`40 27 0:50 / /mnt/\040 rw - fuse.p2pfs x rw`)
	f.Fuzz(func(t *testing.T, s string) {
		_, err := parseMounts(strings.NewReader(s))
		require.True(t, err == nil || errors.Is(err, errTooLong()))
	})
}
