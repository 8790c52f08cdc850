package staging

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
)

// W12: a rename that was to publish a private file and could not leaves it as it
// was, over a restart, whatever came after it.
func TestPrivateFileOutlivesARenameThatFailed(t *testing.T) {
	t.Parallel()
	mode := uint32(0o600)
	after := map[string]func(*rig) string{
		"nothing": func(*rig) string { return "f.incomplete" },
		"mode": func(r *rig) string {
			e, _ := r.shown("f.incomplete")
			_, err := r.area.SetAttr(r.t.Context(), meta.RootDir, e, meta.AttrChange{Mode: &mode})
			require.NoError(r.t, err)
			return "f.incomplete"
		},
		"another private name": func(r *rig) string {
			_, err := r.rename("f.incomplete", "g.incomplete")
			require.NoError(r.t, err)
			return "g.incomplete"
		},
		"written": func(r *rig) string {
			e, _ := r.shown("f.incomplete")
			w, ok := r.area.Find(meta.RootDir, e)
			require.True(r.t, ok)
			r.put(w, []byte("more"), 0)
			require.NoError(r.t, w.Publish(r.t.Context()))
			w.Close()
			return "f.incomplete"
		},
	}
	sizes := sizes()
	sizes["empty"] = 0
	for what, do := range after {
		for name, size := range sizes {
			t.Run(what+", "+name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				want := random(size, 1)
				if size > 0 {
					r.write("f.incomplete", want)
				} else {
					w := r.create("f.incomplete", false)
					require.NoError(t, w.Publish(t.Context()))
					w.Close()
				}
				if size == 100 { // the set of small files is announced
					r.write("first", []byte("x"))
				}
				r.faults.Fail("Apply")
				_, err := r.rename("f.incomplete", "f")
				require.ErrorIs(t, err, meta.ErrUnavailable)
				private := do(r)
				if what == "written" {
					want = append([]byte("more"), want[min(4, size):]...)
				}
				if size == 100 {
					r.crash()
				} else {
					r.stop()
				}
				r.start()
				r.faults.Fail("")
				e, ok := r.shown(private)
				require.True(t, ok)
				require.Equal(t, int64(len(want)), e.Size)
				if what == "mode" {
					require.Equal(t, mode, e.Mode)
				}
				w, ok := r.area.Find(meta.RootDir, e)
				require.True(t, ok)
				requireSame(t, want, r.content(w))
				w.Close()
				_, err = r.rename(private, "f")
				require.NoError(t, err)
				requireSame(t, want, r.stored("f"))
				e, _ = r.published("f")
				require.False(t, r.area.Holds(e.Object.ID))
				if size > 0 {
					ps, err := r.other.Providers(t.Context(), e.Object.Set)
					require.NoError(t, err)
					require.Len(t, ps, 1)
				}
				r.requireUsed()
				require.Empty(t, r.lost())
			})
		}
	}
}

// W12: what is written to it then is a copy.
func TestWriteToAPrivateFileThatWasSealed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	want := random(3*block, 1)
	r.write("f.incomplete", want)
	_, _ = r.shown("f")
	r.faults.Down()
	_, err := r.rename("f.incomplete", "f")
	require.Error(t, err)
	r.stop()
	r.start()
	r.faults.Up()
	e, _ := r.shown("f.incomplete")
	w, ok := r.area.Find(meta.RootDir, e)
	require.True(t, ok)
	r.put(w, []byte("more"), block)
	copy(want[block:], "more")
	requireSame(t, want, r.content(w))
	require.NoError(t, w.Publish(t.Context()))
	w.Close()
	_, err = r.rename("f.incomplete", "f")
	require.NoError(t, err)
	requireSame(t, want, r.stored("f"))
	require.Empty(t, r.lost())
	require.Equal(t, 1, r.cache.Stats().Objects, "what was sealed first is gone")
}

// W12
func TestUnlinkOfAPrivateFileThatWasSealed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.write("f.incomplete", random(3*block, 1))
	_, _ = r.shown("f")
	r.faults.Down()
	_, err := r.rename("f.incomplete", "f")
	require.Error(t, err)
	r.stop()
	r.start()
	require.NoError(t, r.area.Unlink(t.Context(), meta.RootDir, "f.incomplete"))
	r.faults.Up()
	require.Empty(t, r.list())
	require.Empty(t, r.lost())
	r.requireUsed()
	require.Zero(t, r.cache.Stats().Objects)
}

// W10: a recovery that failed can be tried again, also after a restart.
func TestRecoverAgainAfterOneThatFailed(t *testing.T) {
	t.Parallel()
	for name, size := range sizes() {
		for _, sealed := range []bool{false, true} {
			for _, restarted := range []bool{false, true} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					r := newRig(t)
					r.write("f", random(block, 1))
					before, _ := r.published("f")
					want := random(size, 2)
					w := r.change("f", true)
					r.put(w, want, 0)
					if sealed {
						r.faults.Down()
						require.Error(t, w.Publish(t.Context()))
						r.faults.Up()
						w.Close()
					} else {
						r.crash()
						r.start()
					}
					ls := r.lost()
					require.Len(t, ls, 1)
					r.faults.Fail("Apply")
					_, err := r.area.Recover(t.Context(), ls[0].ID, meta.Place{}, false)
					require.ErrorIs(t, err, meta.ErrUnavailable)
					r.faults.Fail("")
					if restarted {
						r.stop()
						r.start()
					}
					ls = r.lost()
					require.Len(t, ls, 1)
					require.Equal(t, LostClosed, ls[0].State)
					require.Equal(t, size, ls[0].Size)
					var out bytes.Buffer
					require.NoError(t, r.area.CopyOut(t.Context(), ls[0].ID, &out))
					requireSame(t, want, out.Bytes())
					_, err = r.area.Recover(t.Context(), ls[0].ID, meta.Place{}, false)
					require.NoError(t, err)
					requireSame(t, want, r.stored("f"))
					after, _ := r.published("f")
					require.Equal(t, before.Inode, after.Inode)
					require.Empty(t, r.lost())
					r.requireUsed()
				})
			}
		}
	}
}
