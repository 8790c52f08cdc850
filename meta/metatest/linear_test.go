package metatest

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/memory"
)

// TestLinearModel: what histories made by hand may tell, and what not.
func TestLinearModel(t *testing.T) {
	type step struct {
		op  linOp
		out linOut
		// within: it begins and ends while the step before it is under way.
		within bool
	}
	at := func(dir, name int8) linPlace { return linPlace{dir, name} }
	a, b := at(1, 0), at(2, 0)
	f1, d3, d4 := linCell{file: 1, object: 1}, linCell{dir: 3}, linCell{dir: 4}
	ok := func(c linCell) linOut { return linOut{cell: c} }
	fails := func(err error) linOut { return linOut{err: err} }
	publish := step{op: linOp{kind: "publish", at: a, file: 1, object: 1}, out: ok(f1)}
	mkdir := func(p linPlace, c linCell) step { return step{op: linOp{kind: "mkdir", at: p, dir: c.dir}, out: ok(c)} }
	lookup := func(p linPlace, out linOut) step { return step{op: linOp{kind: "lookup", at: p}, out: out} }
	rename := func(out linOut) step { return step{op: linOp{kind: "rename", at: a, to: b}, out: out} }
	replace := func(out linOut) step { return step{op: linOp{kind: "replace", at: a, was: f1, object: 2}, out: out} }
	within := func(s step) step { s.within = true; return s }
	gone := fails(meta.ErrNotFound)

	for _, tc := range []struct {
		name  string
		steps []step
		want  porcupine.CheckResult
	}{
		{"seen at its new place, replaced at its old one",
			[]step{publish, rename(fails(errLost)), lookup(b, ok(f1)), replace(fails(meta.ErrConflict))}, porcupine.Illegal},
		{"seen at its new place, gone from its old one",
			[]step{publish, rename(fails(errLost)), lookup(b, ok(f1)), replace(gone)}, porcupine.Ok},
		{"perhaps moved, gone",
			[]step{publish, rename(fails(errLost)), replace(gone), lookup(b, ok(f1))}, porcupine.Ok},
		{"perhaps moved, replaced",
			[]step{publish, rename(fails(errLost)), replace(ok(linCell{file: 1, object: 2}))}, porcupine.Ok},
		{"perhaps moved, gone from both",
			[]step{publish, rename(fails(errLost)), replace(gone), lookup(b, gone)}, porcupine.Illegal},
		{"an empty directory gives way to one that is gone",
			[]step{mkdir(a, d3), mkdir(b, d4), rename(gone), within(step{op: linOp{kind: "rmdir", at: a}}), lookup(b, gone)}, porcupine.Ok},
		{"a file takes its place",
			[]step{mkdir(a, d3), mkdir(b, d4), rename(ok(f1)), within(step{op: linOp{kind: "rmdir", at: a}}), within(publish), lookup(b, ok(f1))}, porcupine.Illegal},
		{"a directory gives way to a file that is not moved",
			[]step{publish, mkdir(b, d4), rename(fails(meta.ErrIsDir)), lookup(b, gone)}, porcupine.Illegal},
		{"a directory gives way to a file",
			[]step{publish, mkdir(b, d4), rename(ok(f1))}, porcupine.Illegal},
		{"a directory gives way to nothing",
			[]step{mkdir(b, d4), rename(gone), lookup(b, gone)}, porcupine.Illegal},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := &history{}
			now := int64(0)
			for i, s := range tc.steps {
				op := porcupine.Operation{ClientId: i, Input: s.op, Output: s.out, Call: now, Return: now + 100}
				if s.within {
					op.Call, op.Return = now-190+int64(10*i), now-185+int64(10*i)
				} else {
					now += 200
				}
				if s.out.err == errLost {
					op.Return = int64(time.Hour)
				}
				h.note(op)
			}
			require.Equal(t, tc.want, h.search())
		})
	}
}

// TestLostFromTheStart: a history whose clients get no answers before the fault
// begins comes to an end all the same.
func TestLostFromTheStart(t *testing.T) {
	t.Parallel()
	shared := memory.New()
	var stores []*Faults
	h := newHistory(t, rand.Uint64(), func(int) meta.Slots {
		s := NewFaults(shared.Another())
		stores = append(stores, s)
		return s
	})
	each := func(do func(*Faults)) {
		for _, s := range stores {
			do(s)
		}
	}
	each((*Faults).Down)
	h.run(Fault{Name: "down", Begin: func() {}, End: func() { each((*Faults).Up) }})
	require.Equal(t, porcupine.Ok, h.search(), "seed %d", h.seed)
}
