package meta

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/p2pfs/p2pfs/chunk"
)

const (
	// locateMax is the most providers Locate returns; peers tell of the rest.
	locateMax = 32
	// locatePage is how many provider records Locate looks at.
	locatePage = 1024
)

// Announce records that a node provides a set. A keeper stays one and a
// complete provider stays complete, until Withdraw.
func (c *Catalog) Announce(ctx context.Context, set chunk.SetID, node chunk.NodeID, keeper, complete bool) error {
	key := Key{setSlot(set), node.String()}
	_, err := c.rewrite(ctx, key, func(old Record) ([]byte, error) {
		p := providerRecord{keeper: keeper, complete: complete}
		if old.Value != nil {
			_, was, err := unmarshalProvider(key.Field, old.Value)
			if err != nil {
				return nil, err
			}
			p.keeper, p.complete = p.keeper || was.keeper, p.complete || was.complete
			if p == was {
				return nil, nil
			}
		}
		return marshalProvider(p, old.Value)
	})
	if err != nil {
		return fmt.Errorf("announce set %.8s: %w", set, err)
	}
	return nil
}

// Withdraw removes a node's word that it provides a set; none is no error.
func (c *Catalog) Withdraw(ctx context.Context, set chunk.SetID, node chunk.NodeID) error {
	if _, err := c.slots.Apply(ctx, setSlot(set), nil, []Set{{Field: node.String()}}); err != nil {
		return fmt.Errorf("withdraw set %.8s: %w", set, err)
	}
	return nil
}

// Locate returns at most 32 providers of a set whose node lives, in random
// order, with keepers among them if any live: they alone must hold it. Empty
// if there are none.
func (c *Catalog) Locate(ctx context.Context, set chunk.SetID) ([]chunk.Provider, error) {
	p, err := c.slots.List(ctx, setSlot(set), "", locatePage)
	if err != nil {
		return nil, fmt.Errorf("locate set %.8s: %w", set, err)
	}
	cands := keepersFirst(c.candidates(p.Records))
	var out []chunk.Provider
	for len(cands) > 0 && len(out) < locateMax {
		n := min(len(cands), MaxSets)
		alive, err := c.resolve(ctx, cands[:n])
		if err != nil {
			return nil, fmt.Errorf("locate set %.8s: %w", set, err)
		}
		for _, a := range alive {
			if a.Alive {
				out = append(out, a.Provider)
			}
		}
		cands = cands[n:]
	}
	if len(out) == 0 { // an emptied store says nothing of who holds what
		if err := c.CheckStore(ctx); err != nil {
			return nil, fmt.Errorf("locate set %.8s: %w", set, err)
		}
	}
	out = out[:min(len(out), locateMax)]
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out, nil
}

// keepersFirst returns the candidates in random order, a few keepers first.
func keepersFirst(cands []ProviderInfo) []ProviderInfo {
	const few = locateMax / 4
	rand.Shuffle(len(cands), func(i, j int) { cands[i], cands[j] = cands[j], cands[i] })
	first := 0
	for i := range cands {
		if cands[i].Keeper && first < few {
			cands[first], cands[i] = cands[i], cands[first]
			first++
		}
	}
	return cands
}

// ProviderInfo is a provider, dead or alive. Of a dead one only the node id is
// known.
type ProviderInfo struct {
	chunk.Provider
	Alive bool
}

// Providers returns every provider of a set, the dead as well, in no order.
func (c *Catalog) Providers(ctx context.Context, set chunk.SetID) ([]ProviderInfo, error) {
	var out []ProviderInfo
	next := ""
	for first := true; first || next != ""; first = false {
		p, err := c.slots.List(ctx, setSlot(set), next, locatePage)
		if err != nil {
			return nil, fmt.Errorf("list providers of set %.8s: %w", set, err)
		}
		infos, err := c.resolve(ctx, c.candidates(p.Records))
		if err != nil {
			return nil, fmt.Errorf("list providers of set %.8s: %w", set, err)
		}
		out = append(out, infos...)
		next = p.Next
	}
	return out, nil
}

// candidates reads provider records, without those that cannot be read.
func (c *Catalog) candidates(recs []Record) []ProviderInfo {
	out := make([]ProviderInfo, 0, len(recs))
	for _, r := range recs {
		id, p, err := unmarshalProvider(r.Field, r.Value)
		if err != nil {
			c.log.Warn("provider passed over", "err", err)
			continue
		}
		info := ProviderInfo{}
		info.Node, info.Keeper, info.Complete = id, p.keeper, p.complete
		out = append(out, info)
	}
	return out
}

// resolve fills in how to reach the candidates that live.
func (c *Catalog) resolve(ctx context.Context, cands []ProviderInfo) ([]ProviderInfo, error) {
	if len(cands) == 0 {
		return nil, nil
	}
	keys := make([]Key, len(cands))
	for i, p := range cands {
		keys[i] = Key{nodeSlot(p.Node), self}
	}
	recs, err := c.slots.Get(ctx, keys...)
	if err != nil {
		return nil, err
	}
	for i, r := range recs {
		if r.Value == nil {
			continue
		}
		n, err := unmarshalNode(cands[i].Node, r.Value)
		if err != nil {
			c.log.Warn("node passed over", "err", err)
			continue
		}
		cands[i].Peer, cands[i].Alive = n.Peer(), true
	}
	return cands, nil
}
