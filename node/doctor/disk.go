package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// littleRoom is less than a cache is of use with.
const littleRoom = 1 << 30

// fileSystems are names of the kernel's numbers.
var fileSystems = map[int64]string{
	unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs", unix.F2FS_SUPER_MAGIC: "f2fs",
	unix.TMPFS_MAGIC: "tmpfs", unix.OVERLAYFS_SUPER_MAGIC: "overlay", unix.HUGETLBFS_MAGIC: "hugetlbfs", 0x2fc12fc1: "zfs",
	unix.NFS_SUPER_MAGIC: "nfs", unix.FUSE_SUPER_MAGIC: "fuse", unix.V9FS_MAGIC: "9p", unix.SMB2_SUPER_MAGIC: "cifs",
	unix.CEPH_SUPER_MAGIC: "ceph", 0x0bd00bd0: "lustre", 0x47504653: "gpfs",
}

// far are those that are another machine's, or another program's.
var far = map[string]bool{"nfs": true, "fuse": true, "9p": true, "cifs": true, "ceph": true, "lustre": true, "gpfs": true}

// reflinks are those that can share bytes between two files.
var reflinks = map[string]bool{"xfs": true, "btrfs": true}

// lookAtDisk tells of the disk a directory lies on, or would if it were made.
func lookAtDisk(dir string) (Disk, []Problem) {
	d := Disk{Dir: dir}
	at, err := existing(dir)
	if err != nil {
		return d, []Problem{fault(BadCacheDir, dir, err.Error(), "give another --cache-dir")}
	}
	var st unix.Statfs_t
	if err := unix.Statfs(at, &st); err != nil {
		return d, []Problem{fault(BadCacheDir, dir, fmt.Sprintf("its file system does not answer (%v)", err), "give another --cache-dir")}
	}
	d.FileSystem = fileSystems[int64(uint32(st.Type))]
	if d.FileSystem == "" {
		d.FileSystem = fmt.Sprintf("%#x", uint32(st.Type))
	}
	d.Free, d.Total = int64(st.Bavail)*st.Bsize, int64(st.Blocks)*st.Bsize
	d.Reflink = reflinks[d.FileSystem]
	return d, diskProblems(d, at)
}

func diskProblems(d Disk, at string) (out []Problem) {
	if unix.Faccessat(unix.AT_FDCWD, at, unix.W_OK|unix.X_OK, unix.AT_EACCESS) != nil {
		out = append(out, fault(BadCacheDir, d.Dir, "this user may not write there", "give another --cache-dir, or make it the user's: chown USER "+at))
	}
	if far[d.FileSystem] {
		out = append(out, flaw(FarCacheDir, d.Dir, fmt.Sprintf("it lies on %s, where a cache is of little use", d.FileSystem), "give a --cache-dir on a local disk"))
	}
	if d.Free < littleRoom {
		out = append(out, flaw(LittleRoom, d.Dir, fmt.Sprintf("only %d MiB are free there", d.Free>>20), "make room, or give a --cache-dir on another disk"))
	}
	return out
}

// existing returns a directory, or the one above it that is there.
func existing(dir string) (string, error) {
	for {
		info, err := os.Stat(dir)
		switch {
		case err == nil && !info.IsDir():
			return "", fmt.Errorf("%s is not a directory", dir)
		case err == nil:
			return dir, nil
		case !errors.Is(err, fs.ErrNotExist):
			return "", err
		}
		dir = filepath.Dir(dir)
	}
}
