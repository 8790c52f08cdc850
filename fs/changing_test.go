package fs

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func statOf(t *testing.T, path string) (st unix.Stat_t) {
	t.Helper()
	require.NoError(t, unix.Lstat(path, &st))
	return st
}

func TestAttributes(t *testing.T) { // N1, A1
	t.Parallel()
	d := mountFakes(t, writable)
	require.NoError(t, os.WriteFile(d.at("f"), []byte("x"), 0o644))
	require.NoError(t, os.Mkdir(d.at("d"), 0o755))
	require.NoError(t, os.Symlink("nowhere", d.at("l"))) // N7
	open := openFile(t, d.at("g"), os.O_CREATE|os.O_RDWR)
	write(t, open, []byte("y"))
	when := time.Unix(1_234_567_890, 987_654_321)
	for _, name := range []string{"f", "d", "g"} {
		require.NoError(t, os.Chmod(d.at(name), 0o640))
		require.NoError(t, os.Chown(d.at(name), 12, 34))
		require.NoError(t, os.Chtimes(d.at(name), when, when))
		st := statOf(t, d.at(name))
		require.Equal(t, uint32(0o640), st.Mode&0o7777, name)
		require.Equal(t, [2]uint32{12, 34}, [2]uint32{st.Uid, st.Gid}, name)
		require.Equal(t, when.UnixNano(), unix.TimespecToNsec(st.Mtim), name)
		require.Equal(t, uint64(1), st.Nlink, name) // A3
	}
	require.NoError(t, open.Close())
	require.Equal(t, when.UnixNano(), unix.TimespecToNsec(statOf(t, d.at("g")).Mtim), "kept by the publish")
	require.Equal(t, when.UnixNano(), d.seen("g").Entry.MtimeNs)
	require.Equal(t, uint32(0o640), d.seen("f").Entry.Mode)
	require.Equal(t, "nowhere", func() string { s, _ := os.Readlink(d.at("l")); return s }())
	before := time.Unix(-1, 999_999_999)
	require.NoError(t, os.Chtimes(d.at("f"), before, before))
	require.Equal(t, before.UnixNano(), unix.TimespecToNsec(statOf(t, d.at("f")).Mtim))
	require.NoError(t, os.Chmod(d.point, 0o700))
	require.Equal(t, uint32(0o700), statOf(t, d.point).Mode&0o7777)
}

func TestTruncateByPath(t *testing.T) {
	t.Parallel()
	for kind, how := range map[string][]func(*order){"complete": {complete}, "incomplete": {}} {
		d := mountFakes(t, writable)
		want := contentOf(1, 50_000)
		d.file("f", 1, 50_000, how...)
		require.NoError(t, os.Truncate(d.at("f"), 20_000), kind)
		d.isElsewhere("f", want[:20_000]) // there is no close that would publish it
		reader := openFile(t, d.at("f"), os.O_RDONLY)
		require.NoError(t, os.Truncate(d.at("f"), 30_000), kind)
		want = append(want[:20_000], make([]byte, 10_000)...)
		d.isElsewhere("f", want)
		readBack(t, d.at("f"), want)
		info, err := reader.Stat()
		require.NoError(t, err)
		require.Equal(t, int64(20_000), info.Size()) // R2

		f := openFile(t, d.at("f"), os.O_RDWR)
		require.NoError(t, os.Truncate(d.at("f"), 5))
		require.Equal(t, int64(30_000), d.seen("f").Size, "a writer will publish it")
		require.NoError(t, f.Close())
		d.isElsewhere("f", want[:5])
		require.NoError(t, os.Truncate(d.at("f"), 0))
		eventually(t, func() bool { return d.seen("f").Size == 0 }, "cut") // by the writer's end, if that was not heard of yet
		d.isElsewhere("f", nil)
		require.ErrorIs(t, os.Truncate(d.point, 0), syscall.EISDIR)
		require.NoError(t, reader.Close())
		d.closed()
	}
}

// asNobody runs a command as a user without rights.
func asNobody(t *testing.T, dir, script string) (string, error) {
	t.Helper()
	cmd := exec.Command("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "sh", "-euc", script)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestOwnersAndModes(t *testing.T) {
	t.Parallel()
	d := startDaemonBy(t, publicDir(t), t.TempDir(), "/proc/self/exe")
	d.mount(writable)
	require.NoError(t, unix.Chmod(d.point, 0o1777))
	out, err := asNobody(t, d.point, "umask 027; echo x > f; mkdir d; stat -c '%u %g %a' f d; chmod 4755 f; echo y > f; stat -c %a f")
	require.NoError(t, err, out)
	require.Equal(t, "65534 65534 640\n65534 65534 750\n755\n", out, "writing clears setuid")

	require.NoError(t, os.Mkdir(d.at("shared"), 0o777))
	require.NoError(t, os.Chown(d.at("shared"), 0, 77))
	require.NoError(t, unix.Chmod(d.at("shared"), 0o2777))
	out, err = asNobody(t, d.at("shared"), "umask 022; echo x > f; mkdir d; ln -s f l; stat -c '%u %g %a' f d l")
	require.NoError(t, err, out)
	require.Equal(t, "65534 77 644\n65534 77 2755\n65534 77 777\n", out)

	require.NoError(t, os.WriteFile(d.at("mine"), []byte("x"), 0o600))
	for _, script := range []string{"cat mine", "echo > mine", "rm mine", "mv mine other", "chmod 666 mine", "touch -d yesterday mine"} {
		_, err := asNobody(t, d.point, script)
		require.Error(t, err, script)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	d := mountFakes(t, writable)
	require.NoError(t, os.MkdirAll(d.at("a/b"), 0o755))
	require.NoError(t, os.WriteFile(d.at("a/b/f"), []byte("f"), 0o644))
	require.ErrorIs(t, os.Mkdir(d.at("a"), 0o755), syscall.EEXIST)
	require.ErrorIs(t, unix.Rmdir(d.at("a")), syscall.ENOTEMPTY) // N2
	require.ErrorIs(t, unix.Unlink(d.at("a")), syscall.EISDIR)
	require.ErrorIs(t, unix.Rmdir(d.at("a/b/f")), syscall.ENOTDIR)
	require.ErrorIs(t, unix.Link(d.at("a/b/f"), d.at("g")), syscall.ENOTSUP)
	require.ErrorIs(t, unix.Mkfifo(d.at("p"), 0o644), syscall.ENOTSUP)
	require.ErrorIs(t, unix.Mknod(d.at("p"), unix.S_IFSOCK|0o644, 0), syscall.ENOTSUP)
	require.ErrorIs(t, unix.Setxattr(d.at("a/b/f"), "user.x", nil, 0), syscall.ENOTSUP)
	_, err := unix.Open(d.at("a"), unix.O_TMPFILE|unix.O_RDWR, 0o600)
	require.ErrorIs(t, err, syscall.EOPNOTSUPP)
	require.NoError(t, unix.Mknod(d.at("reg"), unix.S_IFREG|0o640, 0))
	require.True(t, d.seen("reg").Exists)
	require.Equal(t, uint32(0o640), statOf(t, d.at("reg")).Mode&0o777)
	long := d.at(strings.Repeat("n", 256))
	require.ErrorIs(t, os.WriteFile(long, nil, 0o644), syscall.ENAMETOOLONG)
	require.NoError(t, os.WriteFile(d.at(strings.Repeat("n", 255)), nil, 0o644))
	_, err = os.OpenFile(d.at("reg"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644) // W8
	require.ErrorIs(t, err, syscall.EEXIST)

	fs := statOf(t, d.at("a/b/f"))
	require.NoError(t, os.Rename(d.at("a"), d.at("moved"))) // N4
	require.Equal(t, fs.Ino, statOf(t, d.at("moved/b/f")).Ino)
	require.NoError(t, os.WriteFile(d.at("moved/b/g"), []byte("g"), 0o644))
	readBack(t, d.at("moved/b/g"), []byte("g"))
	require.ErrorIs(t, os.Rename(d.at("moved"), d.at("moved/b/x")), syscall.EINVAL)
	require.NoError(t, os.RemoveAll(d.at("moved")))
	_, err = os.Stat(d.at("moved"))
	require.ErrorIs(t, err, syscall.ENOENT)
}

func TestRename(t *testing.T) { // N3
	t.Parallel()
	d := mountFakes(t, writable)
	mk := func(name string) { require.NoError(t, os.WriteFile(d.at(name), []byte(name), 0o644)) }
	rename := func(from, to string, flags uint) error {
		return unix.Renameat2(unix.AT_FDCWD, d.at(from), unix.AT_FDCWD, d.at(to), flags)
	}
	mk("a")
	mk("b")
	require.ErrorIs(t, rename("a", "b", unix.RENAME_NOREPLACE), syscall.EEXIST)
	require.ErrorIs(t, rename("a", "b", unix.RENAME_EXCHANGE), syscall.EINVAL)
	require.ErrorIs(t, rename("a", "b", unix.RENAME_WHITEOUT), syscall.EINVAL)
	old := openFile(t, d.at("b"), os.O_RDONLY)
	require.NoError(t, rename("a", "b", 0))
	readBack(t, d.at("b"), []byte("a"))
	got := make([]byte, 1)
	_, err := old.ReadAt(got, 0)
	require.NoError(t, err)
	require.Equal(t, "b", string(got)) // R2
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(int(old.Fd()), &st))
	require.Zero(t, st.Nlink)
	require.NoError(t, old.Close())
	require.NoError(t, rename("b", "c", unix.RENAME_NOREPLACE))
	d.isElsewhere("c", []byte("a"))
	require.False(t, d.seen("b").Exists)

	// What is being written is published under its new name.
	f := openFile(t, d.at("w"), os.O_CREATE|os.O_RDWR)
	write(t, f, []byte("one"))
	require.NoError(t, rename("w", "c", 0))
	write(t, f, []byte("two"))
	readBack(t, d.at("c"), []byte("onetwo"))
	require.NoError(t, f.Close())
	d.isElsewhere("c", []byte("onetwo"))
	d.closed()
	readBack(t, d.at("c"), []byte("onetwo"))
	require.False(t, d.seen("w").Exists)

	require.NoError(t, os.Mkdir(d.at("d1"), 0o755))
	require.NoError(t, os.Mkdir(d.at("d2"), 0o755))
	require.ErrorIs(t, rename("d1", "c", 0), syscall.ENOTDIR)
	require.ErrorIs(t, rename("c", "d1", 0), syscall.EISDIR)
	require.NoError(t, rename("c", "d1/c", 0))
	require.ErrorIs(t, rename("d2", "d1", 0), syscall.ENOTEMPTY)
	require.NoError(t, rename("d1", "d2", 0))
	readBack(t, d.at("d2/c"), []byte("onetwo"))
	d.quiet()
	readBack(t, d.at("d2/c"), []byte("onetwo"))
}

// A process keeps its working directory through renames here.
func TestRenameKeepsWorkingDirectories(t *testing.T) {
	t.Parallel()
	d := mountFakes(t, writable)
	require.NoError(t, os.Mkdir(d.at("a"), 0o755))
	u := newUser(t, d)
	u.do(wish{Op: "chdir", Path: u.path("a")})
	for _, name := range []string{"b", "c", "d"} {
		prev := string(name[0] - 1)
		require.NoError(t, os.Rename(d.at(prev), d.at(name)))
		time.Sleep(5 * time.Millisecond) // the late event
		d.quiet()
		require.Equal(t, d.at(name), string(u.do(wish{Op: "getcwd"}).Target))
	}
}

func TestDirectoryTimes(t *testing.T) { // A2
	t.Parallel()
	d := mountFakes(t, writable)
	require.NoError(t, os.Mkdir(d.at("d"), 0o755))
	mtime := func() int64 { st := statOf(t, d.at("d")); return unix.TimespecToNsec(st.Mtim) }
	moved := func(what string, op func() error) {
		t.Helper()
		before := mtime()
		require.NoError(t, op())
		require.Greater(t, mtime(), before, what)
	}
	moved("create", func() error { return os.WriteFile(d.at("d/f"), nil, 0o644) })
	moved("mkdir", func() error { return os.Mkdir(d.at("d/e"), 0o755) })
	moved("symlink", func() error { return os.Symlink("x", d.at("d/l")) })
	moved("rename", func() error { return os.Rename(d.at("d/f"), d.at("d/g")) })
	moved("rename away", func() error { return os.Rename(d.at("d/g"), d.at("g")) })
	moved("rename into", func() error { return os.Rename(d.at("g"), d.at("d/g")) })
	moved("unlink", func() error { return os.Remove(d.at("d/g")) })
	moved("rmdir", func() error { return os.Remove(d.at("d/e")) })

	// What an archiver sets last stays, though the word of its own changes
	// comes late.
	when := time.Unix(1_000_000_000, 5)
	require.NoError(t, os.WriteFile(d.at("d/last"), nil, 0o644))
	require.NoError(t, os.Remove(d.at("d/l")))
	require.NoError(t, os.Chtimes(d.at("d"), when, when))
	time.Sleep(10 * time.Millisecond) // the late events
	d.quiet()
	require.Equal(t, when.UnixNano(), mtime())
	moved("elsewhere", func() error { d.file("d/new", 1, 10); d.on("changed", "d/new"); d.quiet(); return nil })
}

func TestTools(t *testing.T) {
	t.Parallel()
	src := t.TempDir()
	sh(t, src, `
		mkdir -p tree/sub/empty
		seq 1 5000 > tree/numbers; printf x > tree/sub/one; : > tree/none
		truncate -s 3M tree/sparse; printf end >> tree/sparse
		ln -s ../numbers tree/sub/link; ln -s nowhere tree/dangling
		chmod 600 tree/numbers; chmod 750 tree/sub
		find tree -exec touch -h -d '2001-02-03 04:05:06.789012345' {} +`)
	for name, script := range map[string]string{
		"cp":    `cp -a "$src/tree" .`,
		"tar":   `tar -C "$src" --format=posix -cf - tree | tar -xf -`,
		"mv":    `cp -a "$src/tree" "$src/copy-$$" && mv "$src/copy-$$" tree`,
		"rsync": `rsync -a "$src/tree" .; rsync -a "$src/tree" . --itemize-changes | grep -q . && exit 1 || true`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "rsync" {
				if _, err := exec.LookPath("rsync"); err != nil {
					script = `cp -a "$src/tree" .; cp -a -u "$src/tree" .`
				}
			}
			d := mountFakes(t, writable)
			sh(t, d.point, "src="+src+"\n"+script+`
				list() { (cd "$1" && find . -printf '%p %y %m %s %T@ %l\n' | sed -E 's/^(\S+ d \S+) [0-9]+/\1/' | sort); }
				diff <(list "$src/tree") <(list tree)
				diff -r --no-dereference "$src/tree" tree`)
			time.Sleep(10 * time.Millisecond)
			d.quiet()
			sh(t, d.point, "src="+src+`
				diff <(cd $src/tree && find . -printf '%p %T@\n' | sort) <(cd tree && find . -printf '%p %T@\n' | sort)`)
			d.closed()
		})
	}
}

func TestLocksExcludeAcrossAPublish(t *testing.T) { // A4
	t.Parallel()
	d := mountFakes(t, writable)
	u, v := newUser(t, d), newUser(t, d)
	require.NoError(t, os.WriteFile(d.at("lock"), nil, 0o644))
	fd, other := u.open("lock", unix.O_RDWR), v.open("lock", unix.O_RDWR)
	u.do(wish{Op: "flock", FD: fd, Flags: unix.LOCK_EX | unix.LOCK_NB})
	v.fails(syscall.EWOULDBLOCK, wish{Op: "flock", FD: other, Flags: unix.LOCK_EX | unix.LOCK_NB})
	u.close(fd)
	v.do(wish{Op: "flock", FD: other, Flags: unix.LOCK_EX | unix.LOCK_NB})
}
