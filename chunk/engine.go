package chunk

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// Config is what an Engine is made of. Time is taken from package time.
type Config struct {
	Self      NodeID // never asked
	Zone      string // what a peer of the same zone has is not fetched from another one
	Store     Store
	Transport Transport
	Registry  Registry
	Scout     Scout
	Facts     Facts
	Limits    Limits
	// NoPrefetch fetches what is read and nothing else, but for FetchAll.
	NoPrefetch bool
	// OnComplete is called once when all blocks of an object that was
	// incomplete when it was opened are here. No lock is held; it must not
	// block, nor call Close of the Engine.
	OnComplete func(Object)
	// OnBlock is told of every request for a block when it has ended. No lock
	// is held; the object waits for it, so it must be quick.
	OnBlock func(BlockEvent)
	// OnWhole is told when enough of an object was read that all of it is
	// fetched. As OnBlock.
	OnWhole func(Object)
	// Seed makes the order of the rest and the choice of peers repeatable;
	// 0 takes a random one.
	Seed uint64
	Log  *slog.Logger // nil discards
}

// Engine brings blocks to this machine: what, from whom, in what order. Each
// object somebody reads has one swarm, shared by its readers. Safe for
// concurrent use.
type Engine struct {
	cfg    Config
	log    *slog.Logger
	gate   *gate
	ring   *ring
	herald *herald
	counts counts

	// The engine's own lifetime: all goroutines end with it.
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	closed bool
	swarms map[ObjectID]*swarm
}

// NewEngine returns an engine that has started nothing yet: goroutines come
// with the first Open and end with Close at the latest.
func NewEngine(cfg Config) *Engine {
	cfg.Limits = cfg.Limits.withDefaults()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Seed == 0 {
		cfg.Seed = rand.Uint64()
	}
	e := &Engine{
		cfg:    cfg,
		log:    cfg.Log,
		gate:   newGate(cfg.Limits),
		ring:   newRing(cfg.Limits.Uncached),
		swarms: map[ObjectID]*swarm{},
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.herald = newHerald(e.ctx, cfg.Registry, e.log)
	return e
}

// Close ends every read and fetch, closes every file and returns when all
// goroutines have ended, even while a peer hangs. Readers answer ErrClosed
// from then on.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.cancel()
	e.wg.Wait()
	e.herald.wait()
	return nil
}

// Open returns a reader of o, whose file is opened or made here; the network
// is not used before the first Read of an absent block. The caller closes the
// reader. Opening one object many times shares one swarm.
func (e *Engine) Open(ctx context.Context, o Object) (*Reader, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("open for reading: %w", err)
	}
	s, err := e.join(o)
	if err != nil {
		return nil, err
	}
	select {
	case <-s.opened:
	case <-ctx.Done():
		e.part(s)
		return nil, fmt.Errorf("open the file of object %s: %w", o.ID.Short(), context.Cause(ctx))
	}
	if s.openErr != nil {
		e.part(s)
		return nil, fmt.Errorf("open the file of object %s: %w", o.ID.Short(), s.openErr)
	}
	return newReader(s), nil
}

// join returns the swarm of o, made if there is none, with one reader more.
func (e *Engine) join(o Object) (*swarm, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, fmt.Errorf("open object %s: engine: %w", o.ID.Short(), ErrClosed)
	}
	s := e.swarms[o.ID]
	if s == nil {
		s = newSwarm(e, o)
		e.swarms[o.ID] = s
		e.wg.Add(1)
		go s.run()
	} else if s.o.Size != o.Size || s.o.BlockSize != o.BlockSize || s.o.ChunkSize != o.ChunkSize {
		return nil, fmt.Errorf("open object %s: described in two ways: %w", o.ID.Short(), ErrDamaged)
	}
	s.readers++
	return s, nil
}

// Introduce tells of a node that fetches an object too. Nothing happens unless
// that is fetched here.
func (e *Engine) Introduce(id ObjectID, p Peer) {
	e.mu.Lock()
	s := e.swarms[id]
	e.mu.Unlock()
	if s == nil {
		return
	}
	s.post(func(time.Time) {
		if s.board.left > 0 {
			s.board.followed(p, e.gate)
		}
	})
}

// part takes one reader off a swarm, which ends a while after its last.
func (e *Engine) part(s *swarm) {
	e.mu.Lock()
	s.readers--
	last := s.readers == 0
	if last {
		s.unread = time.Now()
	}
	e.mu.Unlock()
	if last {
		s.poke()
	}
}

// unread returns since when a swarm has had no readers; zero if it has some.
func (e *Engine) unread(s *swarm) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s.readers > 0 {
		return time.Time{}
	}
	return s.unread
}

// retire takes a swarm without readers out of the engine, so that the next
// Open makes another; false if it has readers.
func (e *Engine) retire(s *swarm) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s.readers > 0 {
		return false
	}
	e.drop(s)
	return true
}

// drop takes a swarm out of the table; e.mu is held.
func (e *Engine) drop(s *swarm) {
	if e.swarms[s.o.ID] == s {
		delete(e.swarms, s.o.ID)
	}
}

func (e *Engine) rng(o Object) *rand.Rand {
	var h uint64
	for _, b := range o.ID {
		h = h*1099511628211 + uint64(b)
	}
	return rand.New(rand.NewPCG(e.cfg.Seed, h))
}
