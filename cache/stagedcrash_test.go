package cache

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// crashKinds is what is published under a crash, by name.
func crashKinds() map[string]crashKind {
	return map[string]crashKind{
		"small": {size: 3*bs + 5},
		"large": {size: publishAhead + 3*bs + 1},
		"copy":  {size: 30*bs + 9, base: true},
		"empty": {},
	}
}

type crashKind struct {
	size int64
	base bool
}

const (
	crashID   = 99
	crashNote = "what it is to be called"
)

// crashTo is the object that is published.
func crashTo(size int64) chunk.Object {
	o := chunk.Object{Size: size, ChunkSize: 4 * bs, BlockSize: bs}
	o.ID[0], o.Set[0] = 5, 6
	return o
}

// write makes the staged file, with its note. A copy has every third block of
// its own, the others of its base.
func (k crashKind) write(ctx context.Context, c *Cache) (*Staged, error) {
	var base *Base
	if k.base {
		base = &Base{Object: crashObject(1), Read: k.read}
		base.Object.Size = k.size
	}
	s, err := c.Stage(ctx, crashID, bs, base)
	if err != nil {
		return nil, err
	}
	if err := s.SetNote([]byte(crashNote), false); err != nil {
		return nil, err
	}
	o := crashTo(k.size)
	for b := range o.Blocks() {
		if k.base && b%3 > 0 {
			continue
		}
		if err := s.WriteAt(ctx, content(o, b), o.Block(b).Off); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (k crashKind) want() []byte {
	o := crashTo(k.size)
	if o.Size == 0 {
		return []byte{}
	}
	return wholeContent(o)
}

func (k crashKind) read(_ context.Context, off int64, p []byte) error {
	copy(p, k.want()[off:off+int64(len(p))])
	return nil
}

// check requires that a cache holds the staged file or the object, whole, with
// the note, and that the staged file can be published under the same object. Of
// one that was never synced only the note must be there. It returns whether it
// was the object.
func (k crashKind) check(t *testing.T, c *Cache, synced bool) bool {
	files, err := c.StagedFiles()
	require.NoError(t, err)
	require.Len(t, files, 1)
	f := files[0]
	require.Equal(t, crashNote, string(f.Note))
	require.Equal(t, uint64(crashID), f.ID)
	o := crashTo(k.size)
	info, ok := c.Stat(o.ID)
	published := f.Published
	if !published && !synced {
		require.False(t, ok, "staged and an object")
		require.NoError(t, c.DiscardStaged(crashID))
		return false
	}
	if !published {
		require.False(t, ok, "staged and an object")
		require.Equal(t, k.size, f.Size)
		s, err := c.OpenStaged(crashID, bs, k.read)
		require.NoError(t, err)
		require.True(t, bytes.Equal(k.want(), readStaged(t, s)))
		sealed, err := s.Publish(t.Context(), o)
		require.NoError(t, err)
		requireSealed(t, sealed, k.want())
		require.NoError(t, s.Close())
		info, ok = c.Stat(o.ID)
	}
	_, err = c.OpenStaged(crashID, bs, nil)
	require.ErrorIs(t, err, ErrSpent)
	if k.size > 0 {
		require.True(t, ok)
		require.True(t, info.Complete && info.Keeper)
		requireObject(t, c, o, k.want())
	}
	require.NoError(t, c.DiscardStaged(crashID))
	left, err := filepath.Glob(filepath.Join(c.roots[0].dir, stagingDir, "*"))
	require.NoError(t, err)
	require.LessOrEqual(t, len(left), 1, "only the mark") // none on tmpfs
	return published
}

// childPublish publishes and kills itself at a step.
func childPublish() error {
	k := crashKinds()[os.Getenv("KIND")]
	c, err := Open(Config{Roots: []string{os.Getenv("ROOT")}, FreeSpace: Reserve{Bytes: -1}})
	if err != nil {
		return err
	}
	s, err := k.write(context.Background(), c)
	if err != nil {
		return err
	}
	c.step = func(name string) {
		fmt.Println(name)
		if name == os.Getenv("STEP") {
			unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
	}
	_, err = s.Publish(context.Background(), crashTo(k.size))
	return err
}

// stepsOf returns the steps that a publish goes through.
func stepsOf(t *testing.T, kind, root string) []string {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=publish", "ROOT="+root, "KIND="+kind)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	return strings.Fields(string(out))
}

// C1, C2: a process killed between any two steps of a publish leaves the staged
// file or the object, and the note.
func TestPublishKilled(t *testing.T) {
	t.Parallel()
	for kind, k := range crashKinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			steps := stepsOf(t, kind, filepath.Join(t.TempDir(), "cache"))
			require.Greater(t, len(steps), 2)
			objects := 0
			for _, step := range steps {
				root := filepath.Join(t.TempDir(), "cache")
				cmd := exec.Command(os.Args[0])
				cmd.Env = append(os.Environ(), childEnv+"=publish", "ROOT="+root, "KIND="+kind, "STEP="+step)
				cmd.Stderr = os.Stderr
				require.ErrorContains(t, cmd.Run(), "killed", step)
				c, err := Open(Config{Roots: []string{root}, FreeSpace: Reserve{Bytes: -1}})
				require.NoError(t, err)
				published := k.check(t, c, true)
				require.Equal(t, step == "renamed" || step == "committed", published, step)
				if published {
					objects++
				}
				require.NoError(t, c.Close())
			}
			require.Equal(t, 2, objects)
		})
	}
}

// A disk of our own, whose bytes can be looked at as a power failure would leave
// them: what the file system has not written is not in the image.
type image struct {
	t    *testing.T
	path string
	dir  string
}

func newImage(t *testing.T) *image {
	t.Helper()
	im := &image{t: t, path: filepath.Join(t.TempDir(), "disk.img")}
	f, err := os.Create(im.path)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(64<<20))
	require.NoError(t, f.Close())
	im.run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", im.path)
	im.dir = im.mount(im.path)
	return im
}

func (im *image) run(args ...string) {
	im.t.Helper()
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	require.NoError(im.t, err, "%s", out)
}

// mount mounts an image. The file system writes nothing by itself for minutes.
func (im *image) mount(path string) string {
	im.t.Helper()
	dir := im.t.TempDir()
	im.run("mount", "-o", "loop,commit=600", path, dir)
	im.t.Cleanup(func() { im.run("umount", "-l", dir) })
	return dir
}

// lost returns a directory with what a power failure at this moment leaves.
func (im *image) lost(name string) string {
	im.t.Helper()
	path := im.path + "." + name
	im.run("cp", "--sparse=always", im.path, path)
	return im.mount(path)
}

// C1: a machine that loses its power between any two steps of a publish has the
// staged file or the object, and the note; after Publish the object.
func TestPublishPowerLost(t *testing.T) {
	t.Parallel()
	for kind, k := range crashKinds() {
		for i := range 4 {
			ordered, synced := i&1 == 0, i&2 == 0
			t.Run(fmt.Sprintf("%s ordered %v synced %v", kind, ordered, synced), func(t *testing.T) {
				t.Parallel()
				im := newImage(t)
				cfg := Config{Roots: []string{filepath.Join(im.dir, "cache")}, FreeSpace: Reserve{Bytes: -1}, BootID: "before"}
				c := openCache(t, cfg)
				require.True(t, c.roots[0].journal.ordered, "the journal was not found")
				c.roots[0].journal.ordered = ordered
				s, err := k.write(t.Context(), c)
				require.NoError(t, err)
				if synced {
					require.NoError(t, s.Sync(t.Context()))
				} else {
					require.NoError(t, s.SetNote([]byte(crashNote), true))
				}
				lost := map[string]string{"before": im.lost("before")}
				c.step = func(step string) { lost[step] = im.lost(step) }
				_, err = s.Publish(t.Context(), crashTo(k.size))
				require.NoError(t, err)
				require.NoError(t, s.Close())
				published := map[string]bool{}
				for step, dir := range lost {
					c, err := Open(Config{Roots: []string{filepath.Join(dir, "cache")}, FreeSpace: Reserve{Bytes: -1}, BootID: "after"})
					require.NoError(t, err, step)
					published[step] = k.check(t, c, synced)
					require.NoError(t, c.Close())
				}
				require.False(t, published["before"])
				require.True(t, published["committed"])
			})
		}
	}
}

// C1: where nothing of the file was promised to be durable, a machine that loses
// its power during a publish has what has reached the disk, and no block that is
// not as it was written; after Publish the object. One without a journal may
// have renamed the file before its bytes are there.
func TestPublishPowerLostBeforeAnythingWasPromised(t *testing.T) {
	t.Parallel()
	for kind, k := range crashKinds() {
		for _, ordered := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s ordered %v", kind, ordered), func(t *testing.T) {
				t.Parallel()
				im := newImage(t)
				cfg := Config{Roots: []string{filepath.Join(im.dir, "cache")}, FreeSpace: Reserve{Bytes: -1}, BootID: "before"}
				c := openCache(t, cfg)
				c.roots[0].journal.ordered = ordered
				s, err := k.write(t.Context(), c)
				require.NoError(t, err)
				lost := map[string]string{}
				c.step = func(step string) { lost[step] = im.lost(step) }
				_, err = s.Publish(t.Context(), crashTo(k.size))
				require.NoError(t, err)
				require.NoError(t, s.Close())
				if k.size > 0 {
					require.NotContains(t, lost, "flushed", "it waited for the disk twice")
					// Names alone have reached the disk.
					im.run("sync", "-f", im.dir)
					lost["torn"] = im.lost("torn")
					tear(t, filepath.Join(lost["torn"], "cache"), crashTo(k.size))
				}
				for step, dir := range lost {
					c, err := Open(Config{Roots: []string{filepath.Join(dir, "cache")}, FreeSpace: Reserve{Bytes: -1}, BootID: "after"})
					require.NoError(t, err, step)
					if step == "committed" {
						require.True(t, k.check(t, c, true))
					} else {
						k.checkLoose(t, c, step)
					}
					require.NoError(t, c.Close())
				}
			})
		}
	}
}

// tear makes an object what a power failure may leave of one whose map does not
// say that it is durable: a block of zeros.
func tear(t *testing.T, root string, o chunk.Object) {
	t.Helper()
	base := filepath.Join(root, "objects", o.ID.String()[:2], o.ID.String())
	raw, err := os.ReadFile(base + ".map")
	require.NoError(t, err)
	h, tab, err := decodeMap(kindObject, raw[:mapSize(o)], &zeroSums{})
	require.NoError(t, err)
	p := &publication{Staged: &Staged{c: &Cache{boot: h.boot}}, obj: h.obj, table: tab}
	f, err := os.OpenFile(base+".map", os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(p.encodeMap(false), 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.NoError(t, os.Chmod(base+".data", 0o600))
	f, err = os.OpenFile(base+".data", os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(make([]byte, bs), bs)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// checkLoose requires that every block a cache says it has is as it was written.
func (k crashKind) checkLoose(t *testing.T, c *Cache, step string) {
	t.Helper()
	o := crashTo(k.size)
	if k.size > 0 {
		if _, here := c.Stat(o.ID); here {
			f, err := c.Open(t.Context(), o)
			require.NoError(t, err, step)
			have := f.Have()
			for b := range o.Blocks() {
				if have.Has(b) {
					span := o.Block(b)
					got := make([]byte, span.Len)
					_, err := f.Reader().ReadAt(got, span.Off)
					require.NoError(t, err, step)
					require.True(t, bytes.Equal(k.want()[span.Off:span.End()], got), "%s: block %d", step, b)
				}
			}
			if step == "torn" {
				require.False(t, have.Has(1), "a block that was lost counts as here")
				require.Equal(t, o.Blocks()-1, have.Count())
			}
			require.NoError(t, f.Close())
		}
	}
	files, err := c.StagedFiles()
	require.NoError(t, err)
	for _, f := range files {
		require.NoError(t, c.DiscardStaged(f.ID), step)
	}
}

// What was synced is there when the power was lost, whatever came after.
func TestSyncPowerLost(t *testing.T) {
	t.Parallel()
	im := newImage(t)
	c := openCache(t, Config{Roots: []string{filepath.Join(im.dir, "cache")}, FreeSpace: Reserve{Bytes: -1}, BootID: "before"})
	k := crashKinds()["copy"]
	s, err := k.write(t.Context(), c)
	require.NoError(t, err)
	require.NoError(t, s.Sync(t.Context())) // W11
	r := rand.New(rand.NewPCG(1, 1))
	require.NoError(t, s.Truncate(t.Context(), k.size+100*bs))
	for range 100 {
		require.NoError(t, s.WriteAt(t.Context(), []byte("later"), k.size+r.Int64N(100*bs)))
	}
	dir := im.lost("later")
	require.NoError(t, s.Close())
	d := openCache(t, Config{Roots: []string{filepath.Join(dir, "cache")}, FreeSpace: Reserve{Bytes: -1}, BootID: "after"})
	files, err := d.StagedFiles()
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.True(t, files[0].Doubtful)
	g, err := d.OpenStaged(crashID, bs, k.read)
	require.NoError(t, err)
	got := make([]byte, k.size)
	_, err = g.ReadAt(t.Context(), got, 0)
	require.NoError(t, err)
	require.True(t, bytes.Equal(k.want(), got))
	require.NoError(t, g.Close())
}

// A durable note is there when the power was lost, and so is the file's name;
// one that took its place and was not durable is the old or the new.
func TestNotePowerLost(t *testing.T) {
	t.Parallel()
	im := newImage(t)
	c := openCache(t, Config{Roots: []string{filepath.Join(im.dir, "cache")}, FreeSpace: Reserve{Bytes: -1}})
	s := staged(t, c, 3, nil)
	require.NoError(t, s.SetNote([]byte("one"), true))
	one := im.lost("one")
	require.NoError(t, s.SetNote([]byte("two"), false))
	two := im.lost("two")
	for _, dir := range []string{one, two} {
		d := openCache(t, Config{Roots: []string{filepath.Join(dir, "cache")}, FreeSpace: Reserve{Bytes: -1}})
		files, err := d.StagedFiles()
		require.NoError(t, err)
		require.Len(t, files, 1)
		require.Contains(t, []string{"one", "two"}, string(files[0].Note))
	}
}
