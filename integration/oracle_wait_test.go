package integration

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/p2pfs/p2pfs/integration/oracle"
)

// What nodes know of each other a moment later is waited for before a step that
// goes by it.

// settled waits until a node reaches the store again: it says for sure that a
// name is not there.
func (r *oracleRun) settled(n *oracleNode) {
	r.t.Helper()
	soon(r.t, storeBound, "node "+n.name+" is with the store again", func() bool {
		return n.agent.ask(agentRequest{Look: "no such name"}).wait().Names["no such name"].Err == "ENOENT"
	})
}

// gathered waits until all nodes that reach the store count as alive: one that was
// away from it for longer than its --provider-ttl is not chosen by others before it
// has said again that it lives.
func (r *oracleRun) gathered() {
	r.t.Helper()
	var all []*oracleNode
	for _, n := range r.nodes {
		if r.model.Connected().Has(n.self) {
			all = append(all, n)
		}
	}
	for _, asked := range all[:min(2, len(all))] { // who is asked says of itself that it lives
		eventually(r.t, storeBound, "all are known to live, on "+asked.name, func() bool {
			res := asked.p2pfs("peers", "--json")
			var list struct {
				Peers []struct {
					Node  string
					Alive bool
				}
			}
			if res.code != 0 || json.Unmarshal(res.out, &list) != nil {
				return false
			}
			alive := map[string]bool{}
			for _, p := range list.Peers {
				alive[p.Node] = p.Alive
			}
			return !slices.ContainsFunc(all, func(n *oracleNode) bool { return !alive[n.id] })
		})
	}
}

// announced waits until a node that gives its copy of a file up can know who else
// has all of it: whoever fetches says so later, behind its reader's back.
func (r *oracleRun) announced(n *oracleNode, path string) {
	e, ok := r.model.Certain(path)
	if !ok || e == nil || e.Kind != oracle.File || !e.Keepers.Has(n.self) || !r.model.Peers.Has(n.self) {
		return
	}
	others := e.Whole.Without(n.self) & r.model.Connected() & r.model.Peers
	if others == 0 || e.Keepers&others != 0 || !r.model.Connected().Has(n.self) {
		return
	}
	for deadline := time.Now().Add(quietBound); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		var whole oracle.Nodes
		for _, p := range r.providers(n.p2pfs("stat", n.path(path), "--json")) {
			if p.Complete {
				whole = whole.With(p.Node)
			}
		}
		if others&^whole == 0 {
			return
		}
	}
}
