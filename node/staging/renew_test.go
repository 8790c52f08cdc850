package staging

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
)

// keepers returns how many keepers a set has by the store.
func (r *rig) keepers(set chunk.SetID) int {
	r.t.Helper()
	ps, err := r.other.Providers(r.t.Context(), set)
	require.NoError(r.t, err)
	return len(ps)
}

// A store that lost its records gets the keepers of what is being published
// again, and what is published then has one, too.
func TestPublishesAcrossALossOfTheStore(t *testing.T) { // N6
	t.Parallel()
	r := newRig(t)
	r.write("before", []byte("1"))
	w := r.create("across", false)
	r.put(w, []byte("22"), 0)
	r.area.sets.mu.Lock()
	set := r.area.sets.set
	r.area.sets.mu.Unlock()
	r.faults.Down()
	require.Error(t, w.Publish(t.Context()), "sealed, in the set that there is")
	r.faults.Up()

	require.NoError(t, r.other.Withdraw(t.Context(), set, r.id)) // as if it were lost
	require.Zero(t, r.keepers(set))
	r.faults.Down()
	require.Error(t, r.area.Renew(t.Context()))
	r.faults.Up()
	require.NoError(t, r.area.Renew(t.Context()))
	require.Equal(t, 1, r.keepers(set))
	require.True(t, r.area.Keeps(set), "a publish is under way in it")
	require.NoError(t, w.Publish(t.Context()))
	w.Close()
	e, _ := r.published("across")
	require.Equal(t, set, e.Object.Set)
	require.False(t, r.area.Keeps(set), "nothing goes into it any more")

	require.NoError(t, r.other.Withdraw(t.Context(), set, r.id))
	r.write("after", []byte("333"))
	e, _ = r.published("after")
	require.NotEqual(t, set, e.Object.Set)
	require.Equal(t, 1, r.keepers(e.Object.Set))
}

// A set that is being announced while the store is renewed is announced before
// or after that, and never used without.
func TestASetThatIsAnnouncedMeanwhile(t *testing.T) {
	t.Parallel()
	began, goOn := make(chan struct{}), make(chan error)
	s := &rollingSet{announce: func(context.Context, chunk.SetID) error {
		began <- struct{}{}
		return <-goOn
	}}
	type taken struct {
		set  chunk.SetID
		done func()
		err  error
	}
	take := func() chan taken {
		out := make(chan taken, 1)
		go func() {
			set, done, err := s.take(t.Context())
			out <- taken{set, done, err}
		}()
		<-began
		return out
	}
	first := take()
	renewed := make(chan []chunk.SetID, 1)
	go func() { renewed <- s.renew() }()
	goOn <- nil
	got := <-first
	require.NoError(t, got.err)
	require.Equal(t, []chunk.SetID{got.set}, <-renewed)
	require.True(t, s.uses(got.set))
	got.done()
	require.False(t, s.uses(got.set))

	second := take()
	goOn <- errors.New("down")
	require.Error(t, (<-second).err)
	third := take()
	goOn <- nil
	next := <-third
	require.NoError(t, next.err)
	require.NotEqual(t, got.set, next.set)
	next.done()
	require.True(t, s.uses(next.set), "the next go into it")
}
