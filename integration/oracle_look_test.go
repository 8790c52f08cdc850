package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/integration/oracle"
)

// quietBound is how long the nodes may take to agree with the model, on a machine
// that is busy.
const quietBound = time.Minute

// check compares every node that runs with the model, until they agree.
func (r *oracleRun) check(s oracle.Step) error {
	plan := r.plan(s)
	var diff []string
	for deadline := time.Now().Add(quietBound); ; {
		views := r.views(plan)
		if diff = r.model.Look(views); diff == nil {
			return nil
		}
		if time.Now().After(deadline) {
			break
		}
		time.Sleep(50 * time.Millisecond) // between two looks
	}
	return errors.New("the nodes differ from what is allowed:\n  " + strings.Join(diff, "\n  ") + "\n" + r.asked(diff, plan))
}

// asked is what nodes say of files that differ: of some, if there are many.
func (r *oracleRun) asked(diff []string, plan []*lookPlan) string {
	var said []string
	for _, d := range diff[:min(4, len(diff))] {
		parts := strings.SplitN(d, `"`, 3)
		for _, n := range r.nodes {
			if len(parts) == 3 && parts[0] == n.name+": " {
				path := parts[1]
				said = append(said, fmt.Sprintf("%s of %s, read whole: %v, one byte: %v; %s", n.name, path, plan[n.self].whole[path], plan[n.self].some[path], n.p2pfs("stat", n.path(path), "--json")))
			}
		}
	}
	return strings.Join(said, "\n")
}

// plan says what of each node is read.
type lookPlan struct {
	whole, some map[string]bool
	list        bool     // what is here of each file is asked for
	collect     bool     // what has no name is removed first
	stat        []string // files whose holders are asked for
}

func (r *oracleRun) plan(s oracle.Step) []*lookPlan {
	rnd := rand.New(rand.NewPCG(s.Seed, 2))
	unreadable := 0
	if rnd.IntN(40) == 0 { // each costs the bound of a read without progress
		unreadable = 1
	}
	unsettled := r.model.Unsettled()
	var all []*lookPlan
	for _, n := range r.nodes {
		p := &lookPlan{whole: map[string]bool{}, some: map[string]bool{}, list: s.Mode > 0 || len(unsettled) > 0 || rnd.IntN(3) == 0, collect: s.Mode > 0 && r.model.Quiet()}
		all = append(all, p)
		if !r.model.Up.Has(n.self) {
			continue
		}
		connected, far := r.model.Connected().Has(n.self), 2
		for _, path := range r.model.Paths() {
			e, ok := r.model.Certain(path)
			switch dice := rnd.IntN(100); {
			case !ok || e == nil || e.Kind != oracle.File:
			case !connected && r.model.Readable(n.self, path) && far > 0:
				p.whole[path] = true
				far--
			case !connected:
			case r.model.Readable(n.self, path) && (s.Mode > 0 || dice < 40):
				p.whole[path] = true
			case r.model.Readable(n.self, path) && dice < 50:
				p.some[path] = true
			case unreadable > 0 && r.model.Unreadable(n.self, path):
				unreadable--
				p.whole[path] = true
			}
			if slices.Contains(unsettled, path) || ok && e != nil && e.Kind == oracle.File && connected && (s.Mode > 1 || rnd.IntN(100) < 3) {
				p.stat = append(p.stat, path)
			}
		}
		for path := range p.whole {
			r.model.Read(n.self, path)
		}
		for path := range p.some {
			r.model.Read(n.self, path)
		}
	}
	return all
}

// looking is what is asked of one node in one look, all at the same time.
type looking struct {
	walk      *pending
	list      *running
	collect   *running
	providers map[string]*running
}

// views looks at all nodes that run, at the same time. How long a look takes is
// how long its slowest question does: a node that others cannot reach is waited
// for once.
func (r *oracleRun) views(plan []*lookPlan) []oracle.View {
	all := make([]looking, len(r.nodes))
	for i, n := range r.nodes {
		p, l := plan[i], &all[i]
		if r.model.Up.Has(n.self) {
			l.walk = n.agent.ask(agentRequest{Walk: true, Whole: p.whole, Some: p.some})
		}
		if p.collect {
			l.collect = launch(r.t, n.command("gc", "--json", "--node", n.cache))
		}
		if !p.list || !r.model.Connected().Has(n.self) {
			continue
		}
		l.list = launch(r.t, n.command("ls", "-r", "--json", n.mnt, "--node", n.cache))
		l.providers = map[string]*running{}
		for _, path := range p.stat {
			l.providers[path] = launch(r.t, n.command("stat", n.path(path), "--json", "--node", n.cache))
		}
	}
	var views []oracle.View
	r.said = ""
	for i, n := range r.nodes {
		l := &all[i]
		if l.walk == nil {
			continue
		}
		a := l.walk.wait()
		v := oracle.View{Node: n.self, Names: a.Names, Err: a.Result}
		if l.collect != nil {
			v.Kept = r.kept(n, l.collect.finish(r.t, commandLimit))
		}
		if l.list != nil {
			v.Holds = r.holds(l.list.finish(r.t, commandLimit))
		}
		for path, res := range l.providers {
			res := res.finish(r.t, commandLimit)
			if h, ok := v.Holds[path]; ok {
				h.Providers = r.providers(res)
				v.Holds[path] = h
			}
		}
		views = append(views, v)
	}
	return views
}

// kept takes in that a node removed what no name stands for, and returns one
// more than it keeps then; 0 if that cannot be told.
func (r *oracleRun) kept(n *oracleNode, res result) int {
	if res.code != 0 {
		return 0
	}
	var c struct {
		Checked, Removed, Forgotten int
		Note                        string
	}
	require.NoError(r.t, json.Unmarshal(res.out, &c), "%s", res)
	r.said += n.name + ": " + res.String() + "\n"
	if c.Note != "" {
		return 0
	}
	return 1 + c.Checked - c.Removed - c.Forgotten
}

func (r *oracleRun) holds(listed result) map[string]oracle.Holding {
	r.t.Helper()
	if listed.code != 0 {
		return nil // what is wrong shows in the walk
	}
	var list struct {
		Entries []struct{ Name, Path, Kind, State string }
	}
	require.NoError(r.t, json.Unmarshal(listed.out, &list), "%s", listed)
	all := map[string]oracle.Holding{}
	for _, e := range list.Entries {
		if e.Kind == "file" {
			all[e.Name] = oracle.Holding{State: e.State}
		}
	}
	return all
}

// providers returns nil if the node cannot tell.
func (r *oracleRun) providers(res result) []oracle.Provider {
	if res.code != 0 {
		return nil
	}
	var st struct {
		Providers []struct {
			Node             string
			Complete, Keeper bool
		}
		Error string
	}
	require.NoError(r.t, json.Unmarshal(res.out, &st), "%s", res)
	if st.Error != "" {
		return nil
	}
	all := []oracle.Provider{}
	for _, p := range st.Providers {
		if self, ok := r.byID[p.Node]; ok {
			all = append(all, oracle.Provider{Node: self, Complete: p.Complete, Keeper: p.Keeper})
		}
	}
	slices.SortFunc(all, func(a, b oracle.Provider) int { return int(a.Node) - int(b.Node) })
	return all
}
