package meta

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Consistency says how far a View may answer from memory while the store is up.
type Consistency string

const (
	// ConsistencyOpen: a lookup that finds nothing, and Confirm, are answered
	// by a read that begins after the question. A listing is checked so.
	ConsistencyOpen Consistency = "open"
	// ConsistencyWatch: what is known of a watched directory is answered
	// without asking; it lags by as long as the watch does.
	ConsistencyWatch Consistency = "watch"
)

// Defaults of ViewConfig.
const (
	DefaultTimeout    = 5 * time.Second
	DefaultMaxEntries = 500_000
	DefaultMaxDirs    = 2048
)

const (
	// namesBytes bounds the single names kept beside listings.
	namesBytes = 32 << 20
	// namesCounters is how many names their use is counted for.
	namesCounters = 500_000
	// nameCost is the memory of one such name without its bytes.
	nameCost = 400
	// loadTimeout bounds the reading of a whole directory.
	loadTimeout = time.Minute
	// catchUp bounds the wait for a watch to bring what the store has.
	catchUp = 250 * time.Millisecond
	// idleOpen and idleWatch are how long a View believes a silent store.
	idleOpen  = 5 * time.Second
	idleWatch = 2 * time.Second
)

// Change is news for whoever caches what a View told.
type Change struct {
	Dir  InodeID
	Name string
	Gap  bool // anything in Dir may have changed; Name is empty
}

// ViewConfig of a View.
type ViewConfig struct {
	Catalog     *Catalog
	Local       LocalTable    // nil: nothing outlives the process
	Consistency Consistency   // empty: ConsistencyOpen
	Timeout     time.Duration // bound of every answer; 0: DefaultTimeout
	MaxEntries  int           // entries of cached listings; 0: DefaultMaxEntries
	MaxDirs     int           // directories watched; 0: DefaultMaxDirs
	// OnChange is called after the View has taken a change in, from the
	// goroutine of the directory's watch or of Wrote, with no lock held. It may
	// call the View but should not wait for it. Nil: nobody is told.
	OnChange func(Change)
	Log      *slog.Logger // nil discards
}

// View is what a mount reads names through. It remembers listings and single
// names of the directories it watches, asks the store for the rest, and while
// the store is out of reach answers from memory and the LocalTable. Safe for
// concurrent use. Its goroutines end with Close.
//
// Locks, in this order: View.mu, dirCache.mu, health.mu.
type View struct {
	cfg    ViewConfig
	cat    *Catalog
	local  LocalTable
	log    *slog.Logger
	health *health
	names  *nameCache

	reads    *flights[question, answer]
	versions *flights[InodeID, uint64]
	loads    *flights[InodeID, []Entry]
	ways     *flights[string, struct{}]

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	dirs    map[InodeID]*dirCache
	lru     *list.List // of *dirCache; the front was used last
	entries int        // held by listings
}

// NewView returns a View. It starts the goroutines of its cache of names and,
// as directories are used, one for each; Close ends them.
func NewView(cfg ViewConfig) (*View, error) {
	switch cfg.Consistency {
	case "":
		cfg.Consistency = ConsistencyOpen
	case ConsistencyOpen, ConsistencyWatch:
	default:
		return nil, fmt.Errorf("consistency %q: want %s or %s", cfg.Consistency, ConsistencyOpen, ConsistencyWatch)
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.MaxEntries <= 0 {
		cfg.MaxEntries = DefaultMaxEntries
	}
	if cfg.MaxDirs <= 0 {
		cfg.MaxDirs = DefaultMaxDirs
	}
	if cfg.Local == nil {
		cfg.Local = noTable{}
	}
	if cfg.OnChange == nil {
		cfg.OnChange = func(Change) {}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	names, err := newNameCache()
	if err != nil {
		return nil, err
	}
	v := &View{
		cfg: cfg, cat: cfg.Catalog, local: cfg.Local, log: cfg.Log, names: names,
		dirs: make(map[InodeID]*dirCache), lru: list.New(),
	}
	v.ctx, v.stop = context.WithCancel(context.Background())
	v.reads = newFlights[question, answer](v.spawn)
	v.versions = newFlights[InodeID, uint64](v.spawn)
	v.loads = newFlights[InodeID, []Entry](v.spawn)
	v.ways = newFlights[string, struct{}](v.spawn)
	v.health = &health{
		patience: cfg.Timeout, probe: v.probe, spawn: v.spawn, ctx: v.ctx,
		state: StateStarting, since: time.Now(),
	}
	return v, nil
}

// Run watches over the store until ctx ends (nil): a store that went silent
// while nobody asked is found out, and a watch that went silent. A View works
// without it.
func (v *View) Run(ctx context.Context) error {
	limit := idleOpen
	if v.cfg.Consistency == ConsistencyWatch {
		limit = idleWatch
	}
	t := time.NewTicker(limit / 4)
	defer t.Stop()
	compare := time.NewTicker(compareEvery)
	defer compare.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-v.ctx.Done():
			return nil
		case <-compare.C:
			v.compareWatches(ctx)
		case <-t.C:
			if v.health.idle(limit) {
				v.health.report(v.probe(ctx))
			}
		}
	}
}

// Close ends every watch and read, and waits for them.
func (v *View) Close() error {
	v.mu.Lock()
	again := v.closed
	v.closed = true
	v.mu.Unlock()
	v.stop()
	v.wg.Wait()
	if !again {
		v.names.Close()
	}
	return nil
}

// State returns how the View and its store get on.
func (v *View) State() State {
	s := v.health.status()
	if s.State != StateDown && v.cat.Held() {
		s.State, s.Err = StateDown, errRestoring
	}
	return s
}

// spawn runs fn in a goroutine that Close waits for; false after Close.
func (v *View) spawn(fn func()) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return false
	}
	v.wg.Go(fn)
	return true
}

func (v *View) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, v.cfg.Timeout)
	defer cancel()
	return v.cat.CheckStore(ctx)
}

// Lookup returns the entry of a name: from memory if it is known there and
// kept right by a watch, else by a read that begins after the call.
// ErrNotFound: there is none, said by the store. ErrUnavailable: not known
// here, and the store cannot be asked.
func (v *View) Lookup(ctx context.Context, dir InodeID, name string) (Entry, error) {
	a, err := v.lookup(ctx, nil, dir, name)
	return a.entry, err
}

func (v *View) lookup(ctx context.Context, way Way, dir InodeID, name string) (answer, error) {
	e, know := v.recall(dir, name)
	switch {
	case know == present:
		if v.health.down() {
			v.health.stale.Add(1)
		}
		return answer{entry: e}, nil
	case know == absent && v.cfg.Consistency == ConsistencyWatch && !v.health.down():
		return answer{}, fmt.Errorf("look up %q: %w", name, ErrNotFound)
	}
	return v.confirm(ctx, way, dir, name)
}

// Confirm is Lookup that always asks the store, by a read that begins after
// the call: whatever was written before, anywhere, is seen. Calls that wait
// for a running read of the same name share the next one. While the store is
// down it answers from memory, as Lookup.
func (v *View) Confirm(ctx context.Context, dir InodeID, name string) (Entry, error) {
	a, err := v.confirm(ctx, nil, dir, name)
	return a.entry, err
}

// question is what one read of the store is about: a name, and the way to it.
type question struct {
	Key
	way string // Way.key
}

// answer is what it found.
type answer struct {
	entry Entry
	moved error // of the way: see ConfirmBy
}

func (v *View) confirm(ctx context.Context, way Way, dir InodeID, name string) (answer, error) {
	if err := CheckName(name); err != nil {
		return answer{}, err
	}
	if v.health.down() {
		if e, ok := v.remember(dir, name); ok {
			return answer{entry: e}, nil
		}
		if err := v.health.await(ctx); err != nil {
			return answer{}, fmt.Errorf("look up %q: %w", name, err)
		}
	}
	q := question{Key{dirSlot(dir), name}, way.key()}
	a, err := v.reads.do(ctx, q, func() (answer, error) { return v.read(way, dir, name) })
	if errors.Is(err, ErrUnavailable) || errors.Is(err, ErrDenied) {
		if e, ok := v.remember(dir, name); ok {
			return answer{entry: e}, nil
		}
	}
	return a, err
}

// read asks the store for one name and remembers what it says.
func (v *View) read(way Way, dir InodeID, name string) (answer, error) {
	ctx, cancel := context.WithTimeout(v.ctx, v.cfg.Timeout)
	defer cancel()
	d := v.known(dir)
	asked := v.ask(d)
	e, at, moved, err := v.cat.lookupBy(ctx, way, dir, name)
	if err == nil || errors.Is(err, ErrNotFound) {
		other := v.doubt(ctx, asked, at)
		if other == nil && v.contradicts(dir, name, e, err) {
			other = v.recheck(ctx)
		}
		if other != nil {
			return answer{}, fmt.Errorf("look up %q: %w", name, other)
		}
		moved = v.sure(ctx, moved)
	}
	v.health.report(err)
	switch {
	case err == nil:
		v.checkHistory(d, asked.told, at)
		v.learn(dir, name, &e, at)
	case errors.Is(err, ErrNotFound):
		v.checkHistory(d, asked.told, at)
		v.learn(dir, name, nil, at)
	}
	return answer{e, moved}, err
}

// remember answers for a store that is out of reach.
func (v *View) remember(dir InodeID, name string) (Entry, bool) {
	e, know := v.recall(dir, name)
	if know == unknown {
		var ok bool
		if e, ok = v.local.Entry(dir, name); ok && !e.Ended(time.Now()) {
			know = present
			v.watchLater(dir)
		}
	}
	if know != present {
		return Entry{}, false
	}
	v.health.stale.Add(1)
	return e, true
}
