package metatest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
)

// Fault is what befalls a store while it is used.
type Fault struct {
	Name  string
	Begin func()
	End   func()
	// For is how long it lasts.
	For time.Duration
	// Unseen: clients need not notice anything.
	Unseen bool
	// Calm: no operation is under way when it begins.
	Calm bool
	// Once: one history is enough, since it takes long.
	Once bool
}

// NoFault is a history in which nothing befalls the store.
var NoFault = Fault{Name: "none", Begin: func() {}, End: func() {}, Unseen: true}

// LinkFaults are those of the links of clients, all at once or every second one.
func LinkFaults[L interface{ Set(Link) }](links ...L) []Fault {
	set := func(l Link, some bool) func() {
		return func() {
			for i, p := range links {
				if !some || i%2 == 0 {
					p.Set(l)
				}
			}
		}
	}
	fault := func(name string, l Link, some bool, d time.Duration) Fault {
		return Fault{Name: name, Begin: set(l, some), End: set(LinkOpen, false), For: d}
	}
	return []Fault{
		fault("slow", LinkSlow, false, 500*time.Millisecond),
		fault("reset", LinkReset, true, 300*time.Millisecond),
		fault("silent", LinkSilent, true, linPatience+500*time.Millisecond),
		fault("mute", LinkMute, true, linPatience+500*time.Millisecond),
		fault("half open", LinkHalfOpen, false, 100*time.Millisecond),
	}
}

// Links starts a proxy of a server for each client.
func Links(t testing.TB, target string) []*Proxy {
	t.Helper()
	var out []*Proxy
	for range linClients {
		out = append(out, NewProxy(t, target))
	}
	return out
}

const (
	linClients = 5
	// linSteps is how many operations a client makes in a history.
	linSteps = 16
	// linPatience is how long an operation waits for the store.
	linPatience = 1500 * time.Millisecond
	// linLate tells an operation that has noticed a fault.
	linLate = 90 * time.Millisecond
	// linCheck bounds the search for an order. Of 100 searches 99 take less than
	// a second on a machine without other work.
	linCheck = 20 * time.Second
	// linSearches is how many histories there may be for each that is wanted.
	linSearches = 5
)

// Linearizable makes random histories of changes of names by several clients,
// each with a store of its own, and checks that each has an order in which it
// could have happened one after the other: N1, W4, W7, W8 and N3. During each
// history one of faults befalls the store. open opens the store of a client, by
// its number, under a prefix of the history. An operation without an answer may
// have happened, or happen later, or not at all.
func Linearizable(t *testing.T, times int, open func(t *testing.T, prefix string, client int) meta.Slots, faults ...Fault) {
	for _, f := range faults {
		t.Run(f.Name, func(t *testing.T) {
			noticed, wanted := 0, times
			if f.Once {
				wanted = 1
			}
			for i, decided := 0, 0; decided < wanted; i++ {
				h := newHistory(t, uint64(time.Now().UnixNano()), func(client int) meta.Slots {
					return open(t, fmt.Sprintf("lin/%s/%d", linPrefix(f.Name), i), client)
				})
				h.run(f)
				noticed += h.noticed
				if h.check(f) {
					decided++
				} else {
					// Another one instead: what took too long says nothing.
					require.Less(t, i, linSearches*wanted, "the search for an order takes too long again and again")
				}
			}
			if !f.Unseen {
				require.Positive(t, noticed, "nobody noticed the fault")
			}
		})
	}
}

func linPrefix(name string) string {
	b := []byte(name)
	for i, c := range b {
		if c < 'a' || c > 'z' {
			b[i] = '-'
		}
	}
	return string(b)
}

// history is what clients did.
type history struct {
	t     *testing.T
	seed  uint64
	world *linWorld
	cats  []*meta.Catalog
	began time.Time
	done  atomic.Int64  // operations
	begun chan struct{} // closed when the fault has begun
	calm  chan struct{} // closed when it is over
	// resting is how many clients wait for that.
	resting atomic.Int64
	calls   [linClients]atomic.Int64 // when the operation under way began; 0: none is
	gate    sync.RWMutex             // held by operations, and by a fault that waits for their end

	mu      sync.Mutex
	ops     []porcupine.Operation
	noticed int
}

func newHistory(t *testing.T, seed uint64, open func(client int) meta.Slots) *history {
	h := &history{t: t, seed: seed, begun: make(chan struct{}), calm: make(chan struct{})}
	for i := range linClients {
		s := open(i)
		t.Cleanup(func() { _ = s.Close() })
		stalled := NewStalled(s, rand.New(rand.NewPCG(seed, uint64(100+i))), 40)
		h.cats = append(h.cats, meta.NewCatalog(stalled, meta.Options{}))
		require.Eventually(t, func() bool {
			_, err := h.cats[i].Join(t.Context(), meta.JoinOptions{Create: true})
			return err == nil
		}, soon, 10*time.Millisecond)
	}
	h.world = newLinWorld(sureDir(t, h.cats[0], "A"), sureDir(t, h.cats[0], "B"))
	return h
}

// sureDir makes a directory in a store that may not answer yet, or have answered
// nobody.
func sureDir(t *testing.T, c *meta.Catalog, name string) (id meta.InodeID) {
	t.Helper()
	require.Eventually(t, func() bool {
		e, err := c.Mkdir(t.Context(), meta.RootDir, name, meta.Attrs{Mode: 0o755})
		if errors.Is(err, meta.ErrExist) {
			e, err = c.Lookup(t.Context(), meta.RootDir, name)
		}
		id = e.Inode
		return err == nil
	}, soon, 10*time.Millisecond)
	return id
}

// run lets the clients go, and the fault come when some have begun, or wait: who
// got no answer before it waits for its end.
func (h *history) run(f Fault) {
	h.began = time.Now()
	var wg sync.WaitGroup
	for i := range h.cats {
		wg.Go(func() { h.client(i) })
	}
	for h.done.Load() < linClients*linSteps/4 && time.Since(h.began) < 2*linPatience && !h.t.Failed() {
		time.Sleep(time.Millisecond)
	}
	if f.Calm {
		h.gate.Lock()
	}
	f.Begin()
	before := h.noticedSoFar()
	if f.Calm {
		h.gate.Unlock()
	}
	close(h.begun)
	time.Sleep(f.For)
	h.awaitNotice(f, before)
	f.End()
	close(h.calm)
	wg.Wait()
	h.finalLook()
}

// awaitNotice lets a fault last until somebody has noticed it or is about to, or
// all clients wait for its end: the test may have stood still for as long as it
// was to last. before is how often something was noticed before it began.
func (h *history) awaitNotice(f Fault, before int) {
	for end := time.Now().Add(soon); !f.Unseen && time.Now().Before(end); time.Sleep(time.Millisecond) {
		if h.noticedSoFar() > before || h.resting.Load() == linClients || h.t.Failed() {
			return
		}
		for i := range h.calls {
			if call := h.calls[i].Load(); call > 0 && int64(time.Since(h.began))-call > int64(linLate) {
				return
			}
		}
	}
}

func (h *history) noticedSoFar() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.noticed
}

// client makes operations. After one without an answer it waits for the fault
// to be over: the search for an order takes time exponential in their number.
func (h *history) client(i int) {
	rnd := rand.New(rand.NewPCG(h.seed, uint64(i)))
	lost := false
	for step := range linSteps {
		if step == linSteps/2 {
			<-h.begun
		}
		if step == linSteps*3/4 || lost {
			h.resting.Add(1)
			<-h.calm
			h.resting.Add(-1)
			h.awaitStore(i)
			lost = false
		}
		h.gate.RLock()
		ctx, cancel := context.WithTimeout(h.t.Context(), linPatience)
		call := h.world.next(ctx, h.cats[i], rnd)
		h.calls[i].Store(int64(time.Since(h.began)))
		lost = h.record(ctx, i, call) || lost
		h.calls[i].Store(0)
		h.gate.RUnlock()
		cancel()
		h.done.Add(1)
	}
}

// awaitStore waits until the store answers a client.
func (h *history) awaitStore(client int) {
	for {
		ctx, cancel := context.WithTimeout(h.t.Context(), linPatience)
		_, err := h.cats[client].DirVersion(ctx, meta.RootDir)
		cancel()
		if err == nil || time.Since(h.began) > soon || h.t.Context().Err() != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// record makes one operation and notes it; true if no answer came.
func (h *history) record(ctx context.Context, client int, call linCall) (lost bool) {
	op := porcupine.Operation{ClientId: client, Input: call.op, Call: int64(time.Since(h.began))}
	out := h.world.do(ctx, call)
	op.Return = int64(time.Since(h.began))
	h.mu.Lock()
	defer h.mu.Unlock()
	if op.Return-op.Call > int64(linLate) {
		h.noticed++
	}
	if lost = errors.Is(out.err, errLost); lost {
		h.noticed++
		if call.op.kind == "lookup" {
			return true // says nothing
		}
		out.err = errLost
		op.Return = int64(time.Hour)
	}
	op.Output = out
	h.note(op)
	return lost
}

// note adds an operation to the history. A rename is two: see linNext.
func (h *history) note(op porcupine.Operation) {
	h.ops = append(h.ops, op)
	in, out := op.Input.(linOp), op.Output.(linOut)
	if in.kind == "rename" && !in.excl && in.at != in.to && out.cell.file == 0 {
		op.Input, op.Output = linOp{kind: "clear", at: in.to, to: in.at}, linOut{}
		h.ops = append(h.ops, op)
	}
}

// finalLook looks up every name once the fault is over.
func (h *history) finalLook() {
	h.world.mu.Lock()
	dirs := len(h.world.dirs) - 1
	h.world.mu.Unlock()
	for d := range dirs {
		for n := range linNames {
			call := h.world.lookup(h.cats[n%len(h.cats)], linPlace{int8(d + 1), int8(n)})
			require.Eventually(h.t, func() bool {
				ctx, cancel := context.WithTimeout(h.t.Context(), 2*linPatience)
				defer cancel()
				return !h.record(ctx, n, call)
			}, soon, 10*time.Millisecond, "the store does not come back (seed %d)", h.seed)
		}
	}
}

// check looks for an order of what was done; false if that takes too long.
func (h *history) check(f Fault) (decided bool) {
	h.t.Helper()
	start := time.Now()
	result := h.search()
	lost := 0
	for _, op := range h.ops {
		if op.Output.(linOut).err == errLost {
			lost++
		}
	}
	h.t.Logf("seed %d: %d operations, %d without an answer, fault noticed %d times, checked in %v", h.seed, len(h.ops), lost, h.noticed, time.Since(start).Round(time.Millisecond))
	if result == porcupine.Illegal {
		model := linModel()
		_, info := porcupine.CheckOperationsVerbose(model, h.ops, linCheck) // takes longer
		file := filepath.Join(os.TempDir(), fmt.Sprintf("p2pfs-history-%d.html", h.seed))
		if err := porcupine.VisualizePath(model, info, file); err != nil {
			h.t.Log(err)
		}
		h.dump()
		h.t.Errorf("%s: no order of the operations explains what they told (seed %d): %s", f.Name, h.seed, file)
	}
	return result != porcupine.Unknown
}

// search looks for an order.
func (h *history) search() porcupine.CheckResult {
	h.ops = slices.DeleteFunc(slices.Clone(h.ops), h.idle)
	return porcupine.CheckOperationsTimeout(linModel(), h.ops, linCheck)
}

// idle reports whether an operation is a clear that cannot have removed anything:
// no directory can have been at the place that the rename was to take, or at the
// one that it was to leave. Without such, the search takes half the time.
func (h *history) idle(op porcupine.Operation) bool {
	clear := op.Input.(linOp)
	return clear.kind == "clear" && !(h.mayHold(clear.at, op.Return) && h.mayHold(clear.to, op.Return))
}

// mayHold reports whether a directory can have been at a place by some time.
func (h *history) mayHold(p linPlace, by int64) bool {
	return slices.ContainsFunc(h.ops, func(op porcupine.Operation) bool {
		in, out := op.Input.(linOp), op.Output.(linOut)
		lost := out.err == errLost
		puts := in.kind == "mkdir" && in.at == p && (out.err == nil || lost) ||
			in.kind == "rename" && in.to == p && (out.cell.dir != 0 || lost)
		return puts && op.Call < by
	})
}

// dump logs the first operation whose outcome no order of what came before
// explains, and what concerns the same names.
func (h *history) dump() {
	byReturn := slices.Clone(h.ops)
	slices.SortFunc(byReturn, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	n := sort.Search(len(byReturn), func(n int) bool {
		return porcupine.CheckOperationsTimeout(linModel(), upTo(byReturn, n), linCheck/4) == porcupine.Illegal
	})
	if n == len(byReturn) {
		return
	}
	last := byReturn[n]
	h.t.Logf("no order explains, by then: client %d: %v %v", last.ClientId, last.Input, last.Output)
	slices.SortFunc(h.ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	places := last.Input.(linOp).places()
	for _, op := range h.ops {
		if op.Call <= last.Return && slices.ContainsFunc(op.Input.(linOp).places(), func(p linPlace) bool { return slices.Contains(places, p) }) {
			h.t.Logf("  %d..%d us, client %d: %v %v", op.Call/1000, op.Return/1000, op.ClientId, op.Input, op.Output)
		}
	}
}

// upTo returns a history as it was when operation n of byReturn had returned.
func upTo(byReturn []porcupine.Operation, n int) []porcupine.Operation {
	out := slices.Clone(byReturn[:n+1])
	for _, op := range byReturn[n+1:] {
		if op.Call <= byReturn[n].Return {
			op.Return = int64(time.Hour)
			if op.Input.(linOp).kind != "clear" {
				op.Output = linOut{err: errLost}
			}
			out = append(out, op)
		}
	}
	return out
}
