package fs

import (
	"bytes"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// xattrsOf returns the extended attributes of a path by name.
func xattrsOf(t *testing.T, path string) map[string]string {
	t.Helper()
	size, err := unix.Llistxattr(path, nil)
	require.NoError(t, err)
	list := make([]byte, size)
	n, err := unix.Llistxattr(path, list)
	require.NoError(t, err)
	require.Equal(t, size, n)
	out := map[string]string{}
	for name := range bytes.SplitSeq(bytes.TrimSuffix(list, []byte{0}), []byte{0}) {
		if len(name) == 0 {
			continue
		}
		size, err := unix.Lgetxattr(path, string(name), nil)
		require.NoError(t, err)
		value := make([]byte, size)
		n, err := unix.Lgetxattr(path, string(name), value)
		require.NoError(t, err)
		require.Equal(t, size, n)
		out[string(name)] = string(value)
	}
	return out
}

func TestXAttrs(t *testing.T) { // A6
	t.Parallel()
	d := mountFakes(t, writable, withXAttrs)
	require.NoError(t, os.WriteFile(d.at("f"), []byte("x"), 0o644))
	require.NoError(t, os.Mkdir(d.at("d"), 0o755))
	open := openFile(t, d.at("g"), os.O_CREATE|os.O_RDWR)
	write(t, open, []byte("y"))
	for _, name := range []string{"f", "d", "g"} {
		p := d.at(name)
		require.Empty(t, xattrsOf(t, p))
		require.NoError(t, unix.Setxattr(p, "user.b", []byte("\x00\xff"), 0))
		require.NoError(t, unix.Setxattr(p, "user.a", nil, unix.XATTR_CREATE))
		require.Equal(t, map[string]string{"user.a": "", "user.b": "\x00\xff"}, xattrsOf(t, p), name)
		require.ErrorIs(t, unix.Setxattr(p, "user.a", nil, unix.XATTR_CREATE), syscall.EEXIST)
		require.ErrorIs(t, unix.Setxattr(p, "user.c", nil, unix.XATTR_REPLACE), syscall.ENODATA)
		require.NoError(t, unix.Setxattr(p, "user.a", []byte("aa"), unix.XATTR_REPLACE))
		_, err := unix.Getxattr(p, "user.a", make([]byte, 1))
		require.ErrorIs(t, err, syscall.ERANGE)
		_, err = unix.Listxattr(p, make([]byte, 13))
		require.ErrorIs(t, err, syscall.ERANGE)
		_, err = unix.Getxattr(p, "user.c", nil)
		require.ErrorIs(t, err, syscall.ENODATA)
		require.ErrorIs(t, unix.Removexattr(p, "user.c"), syscall.ENODATA)
		require.NoError(t, unix.Removexattr(p, "user.b"))
		require.Equal(t, map[string]string{"user.a": "aa"}, xattrsOf(t, p), name)

		require.ErrorIs(t, unix.Setxattr(p, "user.", nil, 0), syscall.EINVAL)
		require.ErrorIs(t, unix.Setxattr(p, "user.big", make([]byte, 16<<10), 0), syscall.ENOSPC)
		require.ErrorIs(t, unix.Setxattr(p, "user.huge", make([]byte, 64<<10+1), 0), syscall.E2BIG)
		require.ErrorIs(t, unix.Setxattr(p, "user."+strings.Repeat("n", 251), nil, 0), syscall.ERANGE)
		for _, other := range []string{"trusted.a", "security.a", "system.posix_acl_access"} {
			require.ErrorIs(t, unix.Setxattr(p, other, make([]byte, 4), 0), syscall.ENOTSUP, other)
			_, err = unix.Getxattr(p, other, nil)
			require.ErrorIs(t, err, syscall.ENOTSUP, other)
		}
	}
	value, ok := d.seen("f").Entry.XAttrs.Get("user.a")
	require.True(t, ok)
	require.Equal(t, "aa", value)

	// By a descriptor, also when the name is gone.
	require.NoError(t, unix.Fsetxattr(int(open.Fd()), "user.fd", []byte("1"), 0))
	require.NoError(t, os.Rename(d.at("g"), d.at("d/g")))
	require.NoError(t, open.Close())
	require.Equal(t, map[string]string{"user.a": "aa", "user.fd": "1"}, xattrsOf(t, d.at("d/g")))
	value, ok = d.seen("d/g").Entry.XAttrs.Get("user.fd")
	require.True(t, ok, "published with the file")
	require.Equal(t, "1", value)
	open = openFile(t, d.at("d/g"), os.O_RDONLY)
	require.NoError(t, os.Remove(d.at("d/g")))
	require.NoError(t, unix.Fsetxattr(int(open.Fd()), "user.fd", []byte("2"), 0))
	n, err := unix.Fgetxattr(int(open.Fd()), "user.fd", make([]byte, 9))
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.NoError(t, open.Close())

	// The kernel lets nobody give user attributes to symlinks.
	require.NoError(t, os.Symlink("nowhere", d.at("l")))
	require.ErrorIs(t, unix.Lsetxattr(d.at("l"), "user.a", nil, 0), syscall.EPERM)
	require.Empty(t, xattrsOf(t, d.at("l")))
	require.Empty(t, xattrsOf(t, d.point))
	require.ErrorIs(t, unix.Setxattr(d.point, "user.a", nil, 0), syscall.ENOTSUP)

	_, err = asNobody(t, d.point, `python3 -c 'import os; os.setxattr("f", "user.a", b"")'`)
	require.Error(t, err, "it is not theirs")
	out, err := asNobody(t, d.point, `python3 -c 'import os; print(os.getxattr("f", "user.a"))'`)
	require.NoError(t, err, out)
	require.Equal(t, "b'aa'\n", out)
}

// A6
func TestXAttrsThatNobodyMayChange(t *testing.T) {
	t.Parallel()
	for name, how := range map[string][]func(*order){
		"without changes": {withXAttrs},
		"read-only":       {withXAttrs, func(o *order) { o.ReadOnly = true }},
	} {
		d := mountFakes(t, how...)
		d.file("f", 1, 1)
		require.ErrorIs(t, unix.Setxattr(d.at("f"), "user.a", nil, 0), syscall.EROFS, name)
		require.ErrorIs(t, unix.Removexattr(d.at("f"), "user.a"), syscall.EROFS, name)
		_, err := unix.Getxattr(d.at("f"), "user.a", nil)
		require.ErrorIs(t, err, syscall.ENODATA, name)
	}
}

// What the kernel and ls ask for of themselves is not looked up.
func TestXAttrsOfTheSystemCostNoLookup(t *testing.T) {
	t.Parallel()
	d := mountFakes(t, writable, withXAttrs)
	require.NoError(t, os.WriteFile(d.at("f"), []byte("x"), 0o644))
	f := openFile(t, d.at("f"), os.O_RDONLY) // paths are looked up again when that is due
	before := d.state()
	for range 100 {
		for _, name := range []string{"security.capability", "security.selinux", "system.posix_acl_access"} {
			_, err := unix.Fgetxattr(int(f.Fd()), name, nil)
			require.ErrorIs(t, err, syscall.ENOTSUP, name)
		}
	}
	after := d.state()
	require.LessOrEqual(t, after.Lookups+after.Confirms-before.Lookups-before.Confirms, int64(2))
}
