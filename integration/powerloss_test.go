package integration

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// disk is an ext4 on an image file that a node keeps its cache on. When the
// power fails, what the file system has not yet sent to the image is lost.
type disk struct {
	t     *testing.T
	dir   string // where it is mounted
	image string
	boots int
	id    string // of the node
}

const diskSize = 128 << 20

// onDisk puts the cache of a node that is not started yet on a disk, and its
// mountpoint where a daemon in a mount namespace of its own can reach ours.
func onDisk(t *testing.T, n *node) *disk {
	t.Helper()
	d := &disk{t: t, dir: filepath.Join(n.dir, "disk"), image: filepath.Join(n.dir, "image0")}
	require.NoError(t, os.Mkdir(d.dir, 0o755))
	f, err := os.Create(d.image)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(diskSize))
	require.NoError(t, f.Close())
	must(t, "mkfs.ext4", "-q", "-E", "lazy_itable_init=1,lazy_journal_init=1", d.image)
	d.mount()
	must(t, "mount", "--bind", n.mnt, n.mnt)
	must(t, "mount", "--make-shared", n.mnt)
	point, cache := filepath.Join(n.mnt, "p2pfs"), filepath.Join(d.dir, "cache")
	require.NoError(t, os.Mkdir(point, 0o755))
	for i, arg := range n.args {
		switch arg {
		case n.mnt:
			n.args[i] = point
		case n.cache:
			n.args[i] = cache
		}
	}
	n.mnt, n.cache, n.apart = point, cache, true
	return d
}

func (d *disk) mount() { must(d.t, "mount", "-o", "loop", d.image, d.dir) }

// start starts a node as after a boot: with another boot id.
func (d *disk) start(n *node) {
	t := d.t
	t.Helper()
	d.boots++
	id := make([]byte, 16)
	_, _ = rand.Read(id) // it never fails
	boot := filepath.Join(n.dir, fmt.Sprintf("boot%d", d.boots))
	uuid := fmt.Sprintf("%x-%x-%x-%x-%x\n", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
	require.NoError(t, os.WriteFile(boot, []byte(uuid), 0o644))
	log, err := os.OpenFile(n.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	require.NoError(t, err)
	defer log.Close()
	// The mounts of other tests are not held in its namespace: an umount is their end.
	script := `
awk '$7 == "-" && $8 == "fuse.p2pfs" { print $5 }' /proc/self/mountinfo | while read -r m; do umount -l "$(printf '%b' "$m")"; done
mount --bind "$1" /proc/sys/kernel/random/boot_id && shift && exec "$@"`
	cmd := exec.Command("unshare", append([]string{"--mount", "--propagation", "unchanged", "sh", "-c", script, "sh", boot, world.binary}, n.args...)...)
	cmd.Env = n.env()
	cmd.Stdout, cmd.Stderr = log, log
	n.proc, err = spawn(cmd)
	require.NoError(t, err)
	n.waitReady(readyBound)
	d.id = n.status().Node.ID
	eventually(t, commandLimit, "node "+n.name+" has a record", func() bool {
		found := false
		d.record(n, func(store *clientv3.Client, key string) {
			r, err := store.Get(t.Context(), key, clientv3.WithPrefix(), clientv3.WithCountOnly())
			require.NoError(t, err)
			found = r.Count != 0
		})
		return found
	})
}

// record does something with the key of the record that says that a node is alive.
func (d *disk) record(n *node, do func(store *clientv3.Client, key string)) {
	d.t.Helper()
	address, prefix, _ := strings.Cut(strings.TrimPrefix(n.c.url, "etcd://"), "/")
	store, err := clientv3.New(clientv3.Config{Endpoints: []string{address}})
	require.NoError(d.t, err)
	defer store.Close()
	do(store, prefix+"/n/"+d.id)
}

// fail takes the power away from a node whose daemon was killed a moment ago,
// and gives it back: the node starts from what had reached the disk.
func (d *disk) fail(n *node) {
	d.t.Helper()
	next := d.snapshot(n)
	n.kill()
	d.replace(next)
	d.expire(n)
	d.start(n)
}

// snapshot copies what has reached the disk.
func (d *disk) snapshot(n *node) string {
	d.t.Helper()
	next := filepath.Join(n.dir, fmt.Sprintf("image%d", d.boots+1))
	must(d.t, "cp", "--sparse=always", d.image, next)
	return next
}

func (d *disk) replace(image string) {
	d.t.Helper()
	// The kernel lets go of what a daemon had lent it some time after its end.
	eventually(d.t, commandLimit, "the disk is not in use", func() bool { return syscall.Unmount(d.dir, 0) == nil })
	require.NoError(d.t, os.Remove(d.image))
	d.image = image
	d.mount()
}

// The control: what was not made durable is lost when the power fails here. The
// kernel may write it out by itself at any time: then it is tried again.
func TestThePowerTakesWhatWasNotSynced(t *testing.T) {
	t.Parallel()
	n := newCluster(t).node("a")
	d := onDisk(t, n)
	synced, lost := filepath.Join(d.dir, "synced"), filepath.Join(d.dir, "lost")
	eventually(t, commandLimit, "what was not synced is lost", func() bool {
		must(t, "dd", "if=/dev/urandom", "of="+synced, "bs=64k", "count=5", "conv=fsync", "status=none")
		must(t, "dd", "if=/dev/urandom", "of="+lost, "bs=64k", "count=5", "status=none")
		before := content(t, synced)
		d.replace(d.snapshot(n))
		d.boots++ // another image the next time
		require.Equal(t, before, content(t, synced))
		info, err := os.Stat(lost)
		gone := err != nil || info.Size() == 0
		require.NoError(t, os.RemoveAll(lost))
		return gone
	})
}

// expire takes away the record that says that a node is alive: booting takes
// longer than it lasts. On a busy machine that is over already.
func (d *disk) expire(n *node) {
	d.t.Helper()
	d.record(n, func(store *clientv3.Client, key string) {
		_, err := store.Delete(d.t.Context(), key, clientv3.WithPrefix())
		require.NoError(d.t, err)
	})
}

// W2 W4 C1
func TestThePowerFailsAtEveryStepOfAPublish(t *testing.T) {
	t.Parallel()
	for _, p := range publishings {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			a, b := c.node("a"), c.start("b")
			d := onDisk(t, a)
			d.start(a)
			whole := writeFile(t, c.src("whole"), 2*smallChunk+9, 7)
			must(t, "cp", c.src("whole"), a.path("whole"))
			m := &killMatrix{t: t, p: p, victim: victimDaemon, a: a, b: b}
			m.again = func() {
				d.fail(a)
				require.Equal(t, whole, digest(t, a.path("whole")), "what was closed long ago")
				require.Equal(t, whole, hexOf([]byte(readBack(t, b.path("whole")))))
				b.must("drop", b.path("whole"))
			}
			m.run(powerStride)
		})
	}
}
