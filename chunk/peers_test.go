package chunk_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/chunk/chunktest"
)

var errStore = errors.New("store is down")

func TestTwoDeadPeersAndOneLive(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.net.Mirror("dead1").Down(true)
		r.net.Mirror("dead2").Down(true)
		r.net.Keeper("live")
		rd := r.open(r.net.Object(200 * block))
		start := time.Now()
		r.read(rd, 100*block, 10)
		require.Less(t, time.Since(start), time.Second)
		require.NoError(t, rd.FetchAll(t.Context(), nil))
		require.Less(t, time.Since(start), 2*time.Second)
	})
}

func TestFrozenPeersAreHedged(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.net.Mirror("frozen1").Break(chunktest.Frozen)
		r.net.Mirror("frozen2").Break(chunktest.Frozen)
		live := r.net.Keeper("live")
		live.Delay(time.Millisecond)
		o := r.net.Object(400 * block)
		rd := r.open(o)
		start := time.Now()
		r.read(rd, 100*block, 10)
		require.LessOrEqual(t, time.Since(start), 2500*time.Millisecond)
		require.NoError(t, rd.FetchAll(t.Context(), nil))
		require.LessOrEqual(t, time.Since(start), 12*time.Second)
		require.Positive(t, r.e.Stats().Hedges)
		r.read(rd, 0, o.Size)
	})
}

func TestSlowPeerGetsLess(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		slow := r.net.Mirror("slow")
		slow.Delay(400 * time.Millisecond)
		fast := r.net.Keeper("fast")
		fast.Delay(20 * time.Millisecond)
		rd := r.open(r.net.Object(1000 * block))
		start := time.Now()
		require.NoError(t, rd.FetchAll(t.Context(), nil))
		require.Less(t, len(slow.Fetched()), len(fast.Fetched())/5)
		require.Less(t, time.Since(start), 6500*time.Millisecond)
		require.Zero(t, r.e.Stats().Hedges)
	})
}

func TestPeersThatAnswerBadly(t *testing.T) {
	tests := []struct {
		name  string
		fault chunktest.Fault
	}{
		{"short", chunktest.Short},
		{"another block", chunktest.Other},
		{"corrupt", chunktest.Fails(chunk.ErrCorrupt)},
		{"refused", chunktest.Fails(chunk.ErrRefused)},
		{"another node", chunktest.Fails(chunk.ErrWrongNode)},
		{"resets", chunktest.Resets(3)},
		{"does not hold", chunktest.Fails(chunk.ErrNotHeld)},
		{"source changed", chunktest.Fails(chunk.ErrSourceChanged)},
		{"lies", chunktest.Lies},
		{"says zero", chunktest.SaysZero},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.net.BindAll()
				r.net.Mirror("bad").Break(tt.fault)
				r.net.Keeper("good").Delay(10 * time.Millisecond)
				o := r.net.Object(300 * block)
				rd := r.open(o)
				start := time.Now()
				require.NoError(t, rd.FetchAll(t.Context(), nil))
				require.Less(t, time.Since(start), 5*time.Second)
				r.read(rd, 0, o.Size)
			})
		})
	}
}

func TestLiarIsDemoted(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.net.BindAll()
		liar := r.net.Mirror("liar")
		liar.Break(chunktest.Lies)
		good := r.net.Keeper("good")
		good.Delay(50 * time.Millisecond) // the liar looks better
		o := r.net.Object(100 * block)
		rd := r.open(o)
		require.NoError(t, rd.FetchAll(t.Context(), nil))
		r.read(rd, 0, o.Size)
		require.Positive(t, r.e.Stats().Demoted)
		asked := len(liar.Fetched())
		require.LessOrEqual(t, asked, 8)
		other := r.open(r.net.Object(100 * block))
		require.NoError(t, other.FetchAll(t.Context(), nil))
		require.Len(t, liar.Fetched(), asked, "a liar is not asked for other objects either")
	})
}

func TestKeeperIsNotAskedAboutItself(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.net.BindAll()
		r.net.Keeper("a")
		rd := r.open(r.net.Object(50 * block))
		require.NoError(t, rd.FetchAll(t.Context(), nil))
		require.Zero(t, r.net.SumsAsked())
	})
}

func TestKeeperThatContradictsItself(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.net.BindAll()
		liar := r.net.Mirror("liar")
		liar.Break(chunktest.Lies)
		o := r.net.Object(10 * block)
		rd := r.open(o)
		took, err := r.fails(rd, 0, 10)
		require.ErrorIs(t, err, chunk.ErrNoProvider)
		require.LessOrEqual(t, took, 6*time.Second)
		// The sum is bound now; the keeper that appears sends other bytes.
		k := r.net.Keeper("keeper")
		k.Break(chunktest.Lies)
		took, err = r.fails(rd, 0, 10)
		require.ErrorIs(t, err, chunk.ErrDamaged)
		require.LessOrEqual(t, took, 6*time.Second)
		k.Break(nil)
		r.read(rd, 0, 10)
	})
}

func TestChangedSource(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		a := r.net.Keeper("a")
		o := r.net.Object(1000 * block)
		rd := r.open(o)
		r.read(rd, 0, 10)
		r.settle()
		a.Break(chunktest.Fails(chunk.ErrSourceChanged))
		took, err := r.fails(rd, 500*block, 10)
		require.ErrorIs(t, err, chunk.ErrSourceChanged)
		require.Less(t, took, time.Second)
		require.Contains(t, err.Error(), o.ID.Short())
		r.read(rd, 0, 10)
		r.pass(2 * time.Second)
		a.Break(nil) // put back as it was
		r.read(rd, 500*block, 10)
	})
}

func TestNobodyHasIt(t *testing.T) {
	tests := []struct {
		name  string
		setup func(r *rig, o chunk.Object)
		kind  error
		least time.Duration
		most  time.Duration
	}{
		{"no provider at all", func(*rig, chunk.Object) {}, chunk.ErrNoProvider, 5 * time.Second, 5500 * time.Millisecond},
		{"all dead", func(r *rig, _ chunk.Object) {
			r.net.Keeper("a").Down(true)
			r.net.Mirror("b").Down(true)
		}, chunk.ErrNoProvider, 5 * time.Second, 5500 * time.Millisecond},
		{"registry down", func(r *rig, _ chunk.Object) { r.net.FailLocate(errStore) }, errStore, 0, 5500 * time.Millisecond},
		{"nobody has that block", func(r *rig, o chunk.Object) { r.net.Partial("a", o, 1, 2) }, chunk.ErrNoProvider, 5 * time.Second, 31 * time.Second},
		{"frozen before it ever answered", func(r *rig, _ chunk.Object) {
			a := r.net.Keeper("a")
			a.Break(chunktest.Frozen)
			a.Deaf()
		}, chunk.ErrNoProvider, 5 * time.Second, 5500 * time.Millisecond},
		{"frozen after it answered", func(r *rig, _ chunk.Object) {
			r.net.Keeper("a").Break(chunktest.Frozen)
		}, nil, 5 * time.Second, 31 * time.Second},
		{"only itself", func(r *rig, _ chunk.Object) {
			a := r.net.Keeper("a")
			r.net.Do(func() { a.Peer.Node = r.cfg.Self })
		}, chunk.ErrNoProvider, 5 * time.Second, 5500 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				o := r.net.Object(100 * block)
				tt.setup(r, o)
				rd := r.open(o)
				for range 2 { // the second read tries afresh, and as long
					r.pass(time.Second)
					took, err := r.fails(rd, 50*block, 10)
					if tt.kind != nil {
						require.ErrorIs(t, err, tt.kind)
					}
					require.GreaterOrEqual(t, took, tt.least)
					require.LessOrEqual(t, took, tt.most)
					require.Contains(t, err.Error(), fmt.Sprintf("block 50 of object %s", o.ID.Short()))
				}
				// The same again at once is the kernel's doing: it adds little.
				start := time.Now()
				for range 4 {
					took, _ := r.fails(rd, 50*block, 10)
					require.GreaterOrEqual(t, took, min(tt.least, time.Second))
				}
				require.LessOrEqual(t, time.Since(start), 8*time.Second)
				err := rd.FetchAll(t.Context(), nil)
				require.Error(t, err)
				d, err := rd.Read(t.Context(), 50*block, 10)
				require.Error(t, err)
				require.Zero(t, d.N)
			})
		})
	}
}

func TestAFailedReadDoesNotShortenTheNextForLong(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		a := r.net.Keeper("a")
		a.Down(true)
		o := r.net.Object(10 * block)
		rd := r.open(o)
		r.fails(rd, 0, 10)
		a.Down(false)
		r.read(rd, 0, 10) // at once: a peer is probed within the second chance
		a.Down(true)
		took, _ := r.fails(rd, 5*block, 10)
		require.GreaterOrEqual(t, took, 5*time.Second, "bytes came in between")
	})
}

func TestErrorNamesThePeersTried(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.net.Keeper("gone").Down(true)
		rd := r.open(r.net.Object(block))
		_, err := r.fails(rd, 0, 1)
		require.Contains(t, err.Error(), "gone (")
		require.Contains(t, err.Error(), chunktest.ErrDown.Error())
	})
}

func TestProviderComesBack(t *testing.T) {
	tests := []struct {
		name    string
		restart bool
	}{{"the same run", false}, {"another run", true}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				a := r.net.Keeper("a")
				o := r.net.Object(1000 * block)
				rd := r.open(o)
				r.read(rd, 0, 10)
				a.Down(true)
				for range 6 { // long enough for the longest back-off
					took, _ := r.fails(rd, 500*block, 10)
					require.LessOrEqual(t, took, 6*time.Second)
					r.pass(5 * time.Second)
				}
				if tt.restart {
					a.Restart()
				}
				a.Down(false)
				start := time.Now()
				r.read(rd, 500*block, 10)
				require.LessOrEqual(t, time.Since(start), 3*time.Second)
			})
		})
	}
}

func TestProviderAppearsWhileWaiting(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		rd := r.open(r.net.Object(10 * block))
		go func() {
			time.Sleep(3 * time.Second)
			r.net.Keeper("late")
		}()
		r.read(rd, 0, 10)
	})
}

func TestPartialPeersTellWhatTheyGet(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		o := r.net.Object(40 * block)
		a := r.net.Partial("a", o, 0, 1, 2)
		r.net.Partial("b", o, 10, 11)
		rd := r.open(o)
		r.read(rd, 11*block, block)
		r.read(rd, 2*block, block)
		go func() {
			time.Sleep(2 * time.Second)
			a.Gain(20)
		}()
		start := time.Now()
		r.read(rd, 20*block, block)
		require.InDelta(t, 2, time.Since(start).Seconds(), 0.2, "news, not the registry, brings it")
	})
}

func TestHintSavesARoundTrip(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		a := r.net.Keeper("a")
		a.Deaf()
		rd := r.open(r.net.Object(30 * block))
		start := time.Now()
		r.read(rd, 20*block, block)
		require.Less(t, time.Since(start), 100*time.Millisecond)
		require.NoError(t, rd.FetchAll(t.Context(), nil), "without following too")
	})
}

func TestStoreDownWhilePeersAreKnown(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.net.Keeper("a").Delay(200 * time.Millisecond)
		o := r.net.Object(1000 * block)
		rd := r.open(o)
		r.read(rd, 0, 10)
		r.net.FailLocate(errStore)
		require.NoError(t, rd.FetchAll(t.Context(), nil))
		r.read(rd, 0, o.Size)
	})
}

func TestVanishedRecordDoesNotStopAPeer(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		a := r.net.Keeper("a")
		a.Delay(200 * time.Millisecond)
		o := r.net.Object(1000 * block)
		rd := r.open(o)
		r.read(rd, 0, 10)
		a.Unlist(true)
		require.NoError(t, rd.FetchAll(t.Context(), nil))
	})
}

func TestAtMostSixteenPeersWithAKeeper(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var all []*chunktest.Node
		for i := range 32 {
			all = append(all, r.net.Mirror(fmt.Sprint("m", i)))
		}
		k := r.net.Keeper("k")
		for _, p := range append(all, k) {
			p.Delay(50 * time.Millisecond)
		}
		rd := r.open(r.net.Object(1000 * block))
		require.NoError(t, rd.FetchAll(t.Context(), nil))
		used := 0
		for _, p := range append(all, k) {
			if len(p.Fetched()) > 0 {
				used++
			}
		}
		require.Equal(t, 16, used)
		require.NotEmpty(t, k.Fetched())
		require.Less(t, len(k.Fetched()), 1000/4, "spread over the peers")
	})
}

func TestSlowestLinkDeliversInTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		a := r.net.Keeper("a")
		a.Delay(25 * time.Second) // more than the first patience with one fetch
		rd := r.open(r.net.Object(1 * block))
		ok := false
		for range 8 {
			if _, err := fetch(t.Context(), rd, 0, 1); err == nil {
				ok = true
				break
			}
		}
		require.True(t, ok)
	})
}
