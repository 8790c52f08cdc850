package chunk

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// line is a node that sends one block after the other to whoever asks.
type line struct {
	t   *testing.T
	u   Uploads
	now time.Time
}

func newLine(t *testing.T) *line { return &line{t: t, now: time.Unix(1e9, 0)} }

func (l *line) ask(from byte, block int, demand, whole bool) (*Upload, error) {
	r := &Upload{Object: ObjectID{1}, Block: block, From: NodeID{from}, Demand: demand, Whole: whole}
	return r, l.u.Ask(r, l.now)
}

func (l *line) full() (sending []*Upload) {
	for i := range firstUploads {
		r, err := l.ask(byte(i), i, false, true)
		require.NoError(l.t, err)
		require.True(l.t, r.Sending())
		sending = append(sending, r)
	}
	return sending
}

func TestAFewAreServedAFewWaitTheRestGoElsewhere(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	sending := l.full()
	var waiting []*Upload
	for i := range uploadQueue {
		r, err := l.ask(byte(50+i), 50+i, false, true)
		require.NoError(t, err)
		require.False(t, r.Sending())
		waiting = append(waiting, r)
	}
	_, err := l.ask(99, 99, false, true)
	var busy *Busy
	require.ErrorAs(t, err, &busy)
	require.ErrorIs(t, err, ErrBusy)
	require.False(t, busy.Sending)
	require.GreaterOrEqual(t, busy.Retry, minRetry)

	d, err := l.ask(100, 100, true, true)
	require.NoError(t, err, "demand has room of its own")
	l.now = l.now.Add(100 * time.Millisecond)
	require.Equal(t, []*Upload{d}, l.u.Done(sending[0], l.now), "and goes first")
	require.Equal(t, []*Upload{waiting[0]}, l.u.Done(sending[1], l.now))
	require.Empty(t, l.u.Done(waiting[1], l.now), "whoever waits may leave")
	require.Empty(t, l.u.Done(waiting[1], l.now), "once")
}

func TestABlockGoesToOneNodeAtATime(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	r, err := l.ask(1, 7, false, true)
	require.NoError(t, err)
	_, err = l.ask(2, 7, true, true)
	var busy *Busy
	require.ErrorAs(t, err, &busy)
	require.True(t, busy.Sending)
	_, err = l.ask(2, 8, false, true)
	require.NoError(t, err)
	_, err = l.ask(3, 8, false, false)
	require.NoError(t, err, "one that has little sends what it has")
	l.u.Done(r, l.now.Add(time.Second))
	_, err = l.ask(2, 7, true, true)
	require.NoError(t, err)
}

func TestNobodyIsServedTwiceBeforeOthersOnce(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	sending := l.full()
	_, err := l.ask(1, 50, false, true)
	require.NoError(t, err)
	other, err := l.ask(60, 51, false, true)
	require.NoError(t, err)
	require.Equal(t, []*Upload{other}, l.u.Done(sending[0], l.now.Add(time.Second)))
}

func TestMoreAtOnceWhereBlocksAreQuick(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		block time.Duration
		want  int
	}{
		{"150 Mbit/s", 220 * time.Millisecond, 3},
		{"1 Gbit/s", 33 * time.Millisecond, 4},
		{"10 Gbit/s", 4 * time.Millisecond, 12},
		{"100 Gbit/s", 400 * time.Microsecond, mostUploads},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := newLine(t)
			sending := l.full()
			for i := range 40 {
				l.now = l.now.Add(tt.block)
				l.u.Done(sending[0], l.now)
				r, err := l.ask(byte(i), 100+i, false, true)
				require.NoError(t, err)
				sending = append(sending[1:], r)
			}
			for _, r := range sending {
				l.u.Done(r, l.now)
			}
			begun := 0
			for i := range 2 * mostUploads {
				if r, err := l.ask(byte(100+i), 200+i, false, true); err == nil && r.Sending() {
					begun++
				}
			}
			require.InDelta(t, tt.want, begun, 1)
		})
	}
}

// A node whose receivers take less than it could give sends to more of them.
func TestMoreAtOnceWhereReceiversAreBusy(t *testing.T) {
	t.Parallel()
	const alone, looks = 200 * time.Millisecond, 100
	begun := func(took time.Duration) (n int) {
		l := newLine(t)
		sending := l.full()
		for i := range 8 { // without a pause, so that the link is known
			l.now = l.now.Add(alone)
			l.u.Done(sending[0], l.now)
			r, err := l.ask(byte(i), 10+i, false, true)
			require.NoError(t, err)
			sending = append(sending[1:], r)
		}
		for _, r := range sending {
			l.u.Done(r, l.now)
		}
		for i := range looks { // none of them ends meanwhile
			if r, err := l.ask(byte(100+i), 100+i, false, true); err == nil && r.Sending() {
				n++
			}
			l.now = l.now.Add(took / looks)
			n += len(l.u.Next(l.now))
		}
		return n
	}
	now, half, tenth := begun(0), begun(2*alone), begun(10*alone)
	require.Equal(t, 3, now, "the link is full, as far as one can tell")
	require.Greater(t, half, now)
	require.Greater(t, tenth, half)
	require.LessOrEqual(t, tenth, mostUploads)
}

func TestASlowReaderDoesNotHoldBackOthers(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	slow, err := l.ask(1, 1, false, true)
	require.NoError(t, err)
	for i := range 200 {
		r, err := l.ask(byte(2+i%100), 10+i, false, true)
		require.NoError(t, err)
		l.now = l.now.Add(200 * time.Millisecond)
		l.u.Done(r, l.now)
	}
	for i := range firstUploads {
		r, err := l.ask(byte(150+i), 500+i, false, true)
		require.NoError(t, err)
		require.True(t, r.Sending(), "%d beside the slow one", i)
	}
	require.True(t, slow.Sending())
}

func TestSendsAdmitInTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s Sends
		unfollow := s.Follow(ObjectID{1})
		var ends []func()
		for i := range firstUploads {
			done, err := s.Admit(t.Context(), Upload{Object: ObjectID{1}, Block: i, From: NodeID{byte(i + 1)}, Whole: true})
			require.NoError(t, err)
			ends = append(ends, done)
		}
		start := time.Now()
		got := make(chan error, 1)
		go func() {
			done, err := s.Admit(t.Context(), Upload{Object: ObjectID{1}, Block: 9, From: NodeID{9}})
			if err == nil {
				done()
				done()
			}
			got <- err
		}()
		time.Sleep(time.Second)
		ends[0]()
		require.NoError(t, <-got)
		require.Equal(t, time.Second, time.Since(start))

		ends[0], _ = func() (func(), error) {
			return s.Admit(t.Context(), Upload{Object: ObjectID{1}, Block: 10, From: NodeID{9}})
		}()
		for i := range usualUploads { // one more for each second that the first take
			done, err := s.Admit(t.Context(), Upload{Object: ObjectID{1}, Block: 20 + i, From: NodeID{byte(20 + i)}})
			require.NoError(t, err)
			ends = append(ends, done)
		}
		_, err := s.Admit(t.Context(), Upload{Object: ObjectID{1}, Block: 11, From: NodeID{10}})
		require.ErrorIs(t, err, ErrBusy, "nobody waits for ever")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = s.Admit(ctx, Upload{Object: ObjectID{1}, Block: 12, From: NodeID{10}})
		require.ErrorIs(t, err, context.Canceled)
		blocks, next := s.Sent(ObjectID{1}, 0)
		require.Equal(t, []int{0, 1, 9, 10, 20, 21, 22, 23, 11, 12}, blocks)
		blocks, _ = s.Sent(ObjectID{1}, next)
		require.Empty(t, blocks)
		unfollow()
		blocks, _ = s.Sent(ObjectID{1}, 0)
		require.Empty(t, blocks)
		for _, end := range ends {
			end()
		}
		require.False(t, s.uploads.Waiting())
	})
}

// TestTheFirstBlockGoesAlone: while nothing is known of the link, the second place
// is another node's, and more are begun as time passes: the first may be slow.
func TestTheFirstBlockGoesAlone(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	ask := func(from byte, block int, sent bool) *Upload {
		r, err := l.ask(from, block, false, true)
		require.NoError(t, err)
		require.Equal(t, sent, r.Sending(), "block %d to %d", block, from)
		return r
	}
	first := ask(1, 0, true)
	second := ask(1, 1, false)
	ask(2, 2, true)
	ask(3, 3, false)
	require.Empty(t, l.u.Next(l.now))
	l.now = l.now.Add(slowStart)
	next := l.u.Next(l.now)
	require.Len(t, next, 1)
	require.Equal(t, NodeID{3}, next[0].From, "not the slow one's second")
	require.Equal(t, []*Upload{second}, l.u.Done(first, l.now))
}
