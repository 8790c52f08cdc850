package verbs

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// post is an outbox, and what it sent: the ids of each frame's messages.
type post struct {
	outbox
	moves int64
	mine  sync.Mutex
	sent  [][]uint32
}

func (p *post) frames() [][]uint32 {
	p.mine.Lock()
	defer p.mine.Unlock()
	return slices.Clone(p.sent)
}

func newPost(moving bool) *post {
	p := &post{outbox: outbox{enough: func() int { return 3 }, patience: 10 * time.Millisecond}}
	p.send = func(ms ...message) {
		p.mine.Lock()
		defer p.mine.Unlock()
		var ids []uint32
		for _, m := range ms {
			ids = append(ids, m.(verdict).id)
		}
		p.sent = append(p.sent, ids)
	}
	if moving {
		p.moved = func() int64 { p.moves++; return p.moves }
	}
	return p
}

func TestOutbox(t *testing.T) {
	t.Parallel()
	one := func(id uint32) message { return verdict{id: id} }
	for name, k := range map[string]struct {
		moving bool
		do     func(p *post)
		want   [][]uint32
		took   time.Duration
	}{
		"nobody is busy":  {do: func(p *post) { p.add(soon, one(1)); p.add(soon, one(2)) }, want: [][]uint32{{1}, {2}}},
		"at once":         {do: func(p *post) { p.begin(); p.add(soon, one(1)); p.add(atOnce, one(2)) }, want: [][]uint32{{1, 2}}},
		"several at once": {do: func(p *post) { p.add(atOnce, one(1), one(2)) }, want: [][]uint32{{1, 2}}},
		"the last one is done": {do: func(p *post) {
			p.begin()
			p.begin()
			p.add(soon, one(1))
			p.end()
			p.add(soon, one(2))
			p.end()
		}, want: [][]uint32{{1, 2}}},
		"enough":                    {do: func(p *post) { p.begin(); p.add(soon, one(1)); p.add(soon, one(2)); p.add(soon, one(3)) }, want: [][]uint32{{1, 2, 3}}},
		"nothing moves":             {do: func(p *post) { p.begin(); p.add(soon, one(1)) }, want: [][]uint32{{1}}, took: 10 * time.Millisecond},
		"it moves, but takes long":  {moving: true, do: func(p *post) { p.begin(); p.add(soon, one(1)) }, want: [][]uint32{{1}}, took: lazyWait},
		"whenever is late":          {do: func(p *post) { p.add(whenever, one(1)); p.add(whenever, one(2)) }, want: [][]uint32{{1, 2}}, took: lazyWait},
		"whenever rides along":      {do: func(p *post) { p.add(whenever, one(1)); p.add(soon, one(2)) }, want: [][]uint32{{1, 2}}},
		"soon hurries what is lazy": {do: func(p *post) { p.begin(); p.add(whenever, one(1)); p.add(soon, one(2)) }, want: [][]uint32{{1, 2}}, took: 10 * time.Millisecond},
		"closed":                    {do: func(p *post) { p.begin(); p.add(soon, one(1)); p.close(); p.add(atOnce, one(2)); p.end() }},
		"nobody is busy, and others may come": {do: func(p *post) {
			p.linger = func() time.Duration { return 5 * time.Millisecond }
			p.begin()
			p.add(soon, one(1))
			p.end()
		}, want: [][]uint32{{1}}, took: 5 * time.Millisecond},
		"others come": {do: func(p *post) {
			p.linger = func() time.Duration { return 5 * time.Millisecond }
			p.add(soon, one(1))
			time.Sleep(2 * time.Millisecond)
			p.begin()
			time.Sleep(5 * time.Millisecond)
			p.add(soon, one(2))
			p.add(soon, one(3))
		}, want: [][]uint32{{1, 2, 3}}, took: 7 * time.Millisecond},
		"nothing to say":          {do: func(p *post) { p.begin(); p.end() }},
		"the same box, once more": {do: func(p *post) { p.add(whenever, one(1)); time.Sleep(2 * lazyWait); p.add(whenever, one(2)) }, want: [][]uint32{{1}, {2}}, took: 3 * lazyWait},
		"many that are not in haste": {do: func(p *post) {
			for i := range mostWaiting {
				p.add(whenever, one(uint32(i)))
			}
		}, want: [][]uint32{upTo(mostWaiting)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPost(k.moving)
				start := time.Now()
				k.do(p)
				for len(p.frames()) < len(k.want) && time.Since(start) < time.Minute {
					time.Sleep(time.Millisecond)
				}
				require.Equal(t, k.want, p.frames())
				require.InDelta(t, k.took, time.Since(start), float64(2*time.Millisecond))
				p.close()
			})
		})
	}
}

func upTo(n int) (out []uint32) {
	for i := range n {
		out = append(out, uint32(i))
	}
	return out
}
