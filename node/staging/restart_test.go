package staging

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
)

// C3
func TestAFileThatWasNotClosedIsListed(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"crash", "stop"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			old := random(5*block, 1)
			r.write("f", old)
			w := r.change("f", false)
			r.put(w, []byte("half"), 2*block)
			n := r.create("n", false)
			r.put(n, []byte("half"), 0)
			if how == "crash" {
				r.crash()
			} else {
				r.stop()
			}
			r.start()
			requireSame(t, old, r.stored("f"))
			require.Equal(t, []string{"f"}, r.list())
			ls := r.lost()
			require.Len(t, ls, 2)
			for _, l := range ls {
				require.Equal(t, LostOpen, l.State)
			}
			want := append([]byte{}, old...)
			copy(want[2*block:], "half")
			for _, l := range ls {
				_, err := r.area.Recover(t.Context(), l.ID, meta.Place{}, false)
				require.NoError(t, err)
			}
			requireSame(t, want, r.stored("f"))
			require.Equal(t, "half", string(r.stored("n")))
			require.Empty(t, r.lost())
		})
	}
}

// C1, C2
func TestACrashAtEachStepOfAPublish(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{0, 10, 7 * block} {
		for step := range 6 {
			r := newRig(t)
			r.write("f", random(block, 1))
			w := r.change("f", true)
			want := random(size, 2)
			if size > 0 {
				r.put(w, want, 0)
			}
			// The store stops answering from the step-th request on, and the
			// node dies before it is told so.
			ctx, cancel := context.WithCancel(t.Context())
			n := 0
			r.faults.Gate(func(context.Context, string) {
				if n++; n > step {
					cancel()
				}
			})
			err := w.Publish(ctx)
			r.faults.Gate(nil)
			cancel()
			r.crash()
			r.start()
			ls := r.lost()
			e, _ := r.published("f")
			switch {
			case err == nil:
				requireSame(t, want, r.stored("f"))
				require.Empty(t, ls, "step %d of %d bytes", step, size)
			case len(ls) == 0: // the last request was made and not answered
				requireSame(t, want, r.stored("f"))
			default:
				require.Len(t, ls, 1)
				require.Equal(t, int64(block), e.Size, "the old one, whole")
				_, err := r.area.Recover(t.Context(), ls[0].ID, meta.Place{}, false)
				require.NoError(t, err)
				requireSame(t, want, r.stored("f"))
				require.Empty(t, r.lost())
			}
			require.Equal(t, []string{"f"}, r.list())
		}
	}
}

func TestDiscard(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.create("f", false)
	r.put(w, random(5*block, 1), 0)
	r.faults.Down()
	require.Error(t, w.Publish(t.Context()))
	w.Close()
	r.faults.Up()
	ls := r.lost()
	require.Len(t, ls, 1)
	require.NoError(t, r.area.Discard(t.Context(), ls[0].ID))
	require.ErrorIs(t, r.area.Discard(t.Context(), ls[0].ID), meta.ErrNotFound)
	require.Empty(t, r.lost())
	require.Zero(t, r.cache.Stats().Objects)
	infos, err := r.cache.StagedFiles()
	require.NoError(t, err)
	require.Empty(t, infos)
}

func TestRecoverLeavesANewerFileAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.write("f", []byte("first"))
	w := r.change("f", false)
	r.put(w, []byte("mine!"), 0)
	r.faults.Down()
	require.Error(t, w.Publish(t.Context()))
	w.Close()
	r.faults.Up()
	e, _ := r.published("f")
	r.elsewhere("f", []byte("newer"), meta.PublishIf{Over: &e, Known: true})
	ls := r.lost()
	require.Len(t, ls, 1)
	_, err := r.area.Recover(t.Context(), ls[0].ID, meta.Place{}, false)
	require.ErrorIs(t, err, meta.ErrExist)
	_, err = r.area.Recover(t.Context(), ls[0].ID, meta.Place{}, true)
	require.NoError(t, err)
	require.Equal(t, "mine!", string(r.stored("f")))
}
