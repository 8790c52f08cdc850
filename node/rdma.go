package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma/devices"
	"github.com/p2pfs/p2pfs/rdma/tcp"
	"github.com/p2pfs/p2pfs/rdma/verbs"
	"github.com/p2pfs/p2pfs/rdma/verbs/ib"
)

// Protocols that blocks may be moved by.
const (
	ProtocolAuto = "auto" // RDMA where both ends have it, else TCP
	ProtocolRDMA = "rdma" // the same, but a node without RDMA does not start
	ProtocolTCP  = "tcp"
)

// DefaultRDMAMemory is how many bytes RDMA may register if nothing else is said.
const DefaultRDMAMemory = 1 << 30

// DefaultRailStrategy is how a block finds its connection if nothing else is
// said.
const DefaultRailStrategy = string(verbs.RoundRobin)

// minRDMAMemory leaves room for some blocks here and some chunks that are served.
const minRDMAMemory = 64 << 20

// RDMAConfig is what a node is told of RDMA. Zero values mean the defaults.
type RDMAConfig struct {
	Devices []string // names of devices or ports, as in mlx5_0 or mlx5_0:1; none: all that work
	// Memory bounds the bytes that are registered: those that fetched blocks
	// land in, once for each device, and the parts of files that are served.
	Memory   int64
	Rails    int    // connections to one other node; 0: one for each pair of ports
	Strategy string // how a block finds its connection; see verbs.Strategy
	GIDIndex *int   // of the address to use on every port; nil: the best
}

func (c RDMAConfig) validate() error {
	if c.Memory != 0 && c.Memory < minRDMAMemory {
		return fmt.Errorf("--rdma-memory: %d bytes: want %d at least", c.Memory, minRDMAMemory)
	}
	if c.Rails < 0 || c.Rails > verbs.MaxRails {
		return fmt.Errorf("--rails %d: want 1 to %d", c.Rails, verbs.MaxRails)
	}
	if c.Strategy != "" {
		if _, err := verbs.ParseStrategy(c.Strategy); err != nil {
			return fmt.Errorf("--rail-strategy: %w", err)
		}
	}
	if c.GIDIndex != nil && *c.GIDIndex < 0 {
		return fmt.Errorf("--gid-index %d: a GID index is 0 or more", *c.GIDIndex)
	}
	return nil
}

// memory returns the bytes that may be registered.
func (c RDMAConfig) memory() int64 { return cmp.Or(c.Memory, DefaultRDMAMemory) }

// rdmaSide is what a node has of RDMA; nil: nothing.
type rdmaSide struct {
	host    *verbs.Host
	handler *verbs.Handler
	client  *verbs.Client
}

// startRDMA opens the devices and makes both sides, or says why blocks go over
// TCP.
func (n *Node) startRDMA() error {
	if n.cfg.Protocol == ProtocolTCP {
		n.noRDMA = "--protocol tcp"
		return nil
	}
	side, err := n.openRDMA()
	switch {
	case err == nil:
		n.rdma = side
		var names []string
		for _, r := range side.host.Rails() {
			names = append(names, r.Name()+" ("+r.GID().String()+")")
		}
		n.log.Info("blocks go by RDMA where the other node can be reached so", "rails", strings.Join(names, ", "))
		return nil
	case n.cfg.Protocol == ProtocolRDMA:
		return fmt.Errorf("--protocol rdma: %w", err)
	}
	n.noRDMA = err.Error()
	level := slog.LevelInfo
	if errors.Is(err, ib.ErrNotBuilt) {
		level = slog.LevelDebug // nobody who looks at this machine can change it
	}
	n.log.Log(context.Background(), level, "blocks go over TCP: RDMA cannot be used here ('p2pfs doctor' says more)", "why", err)
	return nil
}

func (n *Node) openRDMA() (*rdmaSide, error) {
	if !ib.Built {
		return nil, ib.ErrNotBuilt
	}
	if n.cfg.UploadLimit != 0 || n.cfg.DownloadLimit != 0 {
		return nil, errors.New("RDMA keeps to no --upload-limit or --download-limit; leave them out to use it")
	}
	rails, err := n.chooseRails()
	if err != nil {
		return nil, err
	}
	fetched, served, err := verbs.Share(n.cfg.RDMA.memory(), rails)
	if err != nil {
		return nil, fmt.Errorf("--rdma-memory: %w", err)
	}
	// Two parts of files at least have to fit in what may be served.
	host, err := verbs.Open(verbs.HostConfig{Rails: rails, MaxRegistration: uint64(served / 2), Log: n.log})
	if err != nil {
		return nil, err
	}
	side := &rdmaSide{host: host}
	side.client, err = verbs.NewClient(verbs.ClientConfig{
		Host: host, Auth: n.auth, Counters: &n.rdmaTraffic, Log: n.log,
		Memory: fetched, Rails: n.cfg.RDMA.Rails, Strategy: verbs.Strategy(n.cfg.RDMA.Strategy),
	})
	if err != nil {
		return nil, errors.Join(err, host.Close())
	}
	side.handler, err = verbs.NewHandler(verbs.HandlerConfig{
		Host: host, Source: n.cache, Auth: n.auth, Counters: &n.rdmaTraffic, Log: n.log, Admit: n.admit, Registered: served,
		Note: func(ref chunk.BlockRef) { n.sends.Note(ref.Object, ref.Index) },
	})
	if err != nil {
		return nil, errors.Join(err, side.client.Close(), host.Close())
	}
	n.onClose("the RDMA devices", plain(host.Close))
	n.onClose("what is served by RDMA", plain(side.handler.Close))
	n.onClose("the RDMA transport", plain(side.client.Close))
	return side, nil
}

// chooseRails finds the ports to use, and warns of what is not as it should be.
func (n *Node) chooseRails() ([]devices.Rail, error) {
	all, err := devices.Host().Devices()
	if err != nil {
		return nil, err
	}
	want := devices.Want{Devices: n.cfg.RDMA.Devices, GIDIndex: devices.AnyGID}
	if n.cfg.RDMA.GIDIndex != nil {
		want.GIDIndex = *n.cfg.RDMA.GIDIndex
	}
	choice := devices.Choose(all, want)
	if err := choice.Err(); err != nil {
		return nil, err
	}
	limit, err := devices.Memlock()
	if err != nil {
		return nil, err
	}
	if p, bad := devices.CheckMemlock(limit, uint64(n.cfg.RDMA.memory())); bad {
		return nil, p
	}
	for _, p := range choice.Problems {
		n.log.Warn("RDMA", "where", p.Where, "problem", p.What, "fix", p.Fix)
	}
	return choice.Rails, nil
}

// serveBlocks answers for blocks by the transport that is asked for.
func (n *Node) serveBlocks(tcp http.Handler) http.Handler {
	if n.rdma == nil {
		return tcp
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == verbs.Path {
			n.rdma.handler.ServeHTTP(w, r)
			return
		}
		tcp.ServeHTTP(w, r)
	})
}

// transport returns what blocks are fetched by.
func (n *Node) transport(t *tcp.Client) fetcher {
	if n.rdma == nil {
		return t
	}
	return &eitherWay{tcp: t, verbs: n.rdma.client, log: n.log}
}

// rdmaCounters are the figures of RDMA that only grow, by name.
func (n *Node) rdmaCounters(out map[string]uint64) {
	t := n.rdmaTraffic.Stats()
	out["rdma_received_bytes"], out["rdma_sent_bytes"] = t.ReceivedBytes, t.SentBytes
	if n.rdma == nil {
		return
	}
	r, s := n.rdma.client.Stats(), n.rdma.handler.Stats()
	out["rdma_messages"] = r.Messages + s.Messages
	out["rdma_pauses"] = r.Pauses
	out["rdma_leases"], out["rdma_leases_expired"] = s.Leases, s.Expired
	out["rdma_registrations"] = s.Registrations
	for name, rail := range r.Rails {
		name = "rdma_rail_" + strings.NewReplacer(":", "_", "-", "_", ".", "_").Replace(name)
		out[name+"_received_bytes"], out[name+"_fetches"] = rail.Bytes, rail.Fetches
	}
}
