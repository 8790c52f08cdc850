package node

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/node/nodepb"
)

// eventPauseMax is the longest wait between two tries to follow a store that is
// out of reach.
const eventPauseMax = 2 * time.Second

// followersBound is how long a node that ends waits for what is being answered.
const followersBound = 500 * time.Millisecond

// followers answers commands that follow what happens.
type followers struct {
	nodepb.UnimplementedEventsServer
	node  *Node
	ended <-chan struct{} // closed when the node ends
}

// Follow implements the events service. It ends when all was told that was
// asked for, the caller leaves, or the node ends.
func (f *followers) Follow(req *nodepb.EventsRequest, stream grpc.ServerStreamingServer[nodepb.EventsReply]) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	go func() {
		select {
		case <-f.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := f.node.events(ctx, req, stream.Send)
	if ctx.Err() != nil {
		err = stream.Context().Err()
	}
	return controlError(err)
}

// events sends what happens. Where changes are missing it says so with an event
// of its own, and goes on.
func (n *Node) events(ctx context.Context, req *nodepb.EventsRequest, send func(*nodepb.EventsReply) error) error {
	from, skip, again, err := parsePosition(req.From)
	if err != nil {
		return err
	}
	under := strings.TrimPrefix(path.Clean("/"+string(req.Under)), "/")
	t := &teller{
		catalog: n.catalog, paths: newEventPaths(n.catalog), under: under, all: under == "", send: send,
		names: map[chunk.NodeID]string{}, holders: map[chunk.SetID]chunk.NodeID{},
	}
	s := &eventStream{t: t, from: from, skip: skip, again: again, past: !req.Follow}
	for pause := 200 * time.Millisecond; ; pause = min(2*pause, eventPauseMax) {
		s.began = false
		err := n.catalog.Follow(ctx, meta.FollowOptions{From: s.from, Again: s.again, Past: s.past}, func(position string, news []meta.News) error {
			pause = 100 * time.Millisecond
			return s.change(ctx, position, news)
		})
		if again, err := s.broke(ctx, err); !again {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// parsePosition reads a position as events have it. again: of the change there
// the first skip events were told, and no more.
func parsePosition(p string) (from string, skip int, again bool, err error) {
	from, rest, again := strings.Cut(p, ".")
	if again {
		if skip, err = strconv.Atoi(rest); err != nil || skip < 1 || from == "" {
			return "", 0, false, fmt.Errorf("position %q: want one that an event had, or %q: %w", p, meta.FromOldest, meta.ErrName)
		}
	}
	return from, skip, again, nil
}

// eventStream is where one follower is.
type eventStream struct {
	t     *teller
	from  string // to follow from when it has to begin again
	skip  int    // events of the next change that were told before
	again bool   // the next change is the one at from
	past  bool
	began bool // this Follow has told something
	ever  bool // any has
	down  bool // the store is out of reach, and that was told
}

// change tells what one change brought.
func (s *eventStream) change(ctx context.Context, position string, news []meta.News) error {
	if !s.began {
		s.began = true
		if err := s.up(); err != nil {
			return err
		}
	}
	s.t.begin(position, s.skip)
	for _, n := range news {
		if err := s.t.tell(ctx, n); err != nil {
			s.skip = s.t.told // they were sent, or will be with the rest
			return errors.Join(err, s.t.flush())
		}
	}
	if len(news) > 0 {
		s.skip, s.again = 0, false
	}
	if position != "" && (len(news) > 0 || s.from == "") {
		s.from = position
	}
	return s.t.end()
}

// up tells that the store can be followed (again), and that what happened
// meanwhile is not known if it has no positions.
func (s *eventStream) up() error {
	if s.down {
		if err := s.say(eventStoreUp, ""); err != nil {
			return err
		}
	}
	if s.ever && s.from == "" {
		if err := s.say(eventGap, "the connection to the store was lost, and it keeps no history of changes"); err != nil {
			return err
		}
	}
	s.down, s.ever = false, true
	return nil
}

// broke decides how to go on after Follow ended with err.
func (s *eventStream) broke(ctx context.Context, err error) (again bool, _ error) {
	var gap *meta.GapError
	switch {
	case err == nil, ctx.Err() != nil:
		return false, ctx.Err()
	case errors.As(err, &gap) && (s.ever || s.from == meta.FromOldest):
		s.from, s.skip, s.again = gap.Oldest, 0, false
		s.t.paths = newEventPaths(s.t.catalog)
		if !s.past || gap.Oldest != "" {
			return true, s.gap(gap)
		}
		return false, s.gap(gap)
	case errors.Is(err, meta.ErrUnavailable) && !s.past:
		if s.down {
			return true, nil
		}
		s.down = true
		return true, s.say(eventStoreDown, err.Error())
	}
	return false, err
}

func (s *eventStream) gap(g *meta.GapError) error { return s.say(eventGap, g.Error()) }

// say sends an event about the events themselves.
func (s *eventStream) say(kind, note string) error {
	return s.t.send(&nodepb.EventsReply{Events: []*nodepb.Event{{
		Type: kind, Note: note, Position: s.from, TimeUnixNs: time.Now().UnixNano(),
	}}})
}
