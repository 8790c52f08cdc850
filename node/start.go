package node

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/p2pfs/p2pfs/cache"
	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/fs"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/node/running"
	"github.com/p2pfs/p2pfs/rdma"
	"github.com/p2pfs/p2pfs/rdma/tcp"
	"github.com/p2pfs/p2pfs/rdma/verbs"
)

// Start makes a node, joins the cluster and mounts; the mount is usable when
// it returns. ctx bounds the start; the node then lives until Close. On an
// error nothing is left running or mounted.
func Start(ctx context.Context, cfg Config) (*Node, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	// Checked again by Mount: here, so that nothing is made before it holds.
	if err := fs.CheckMountpoint(cfg.Mountpoint, append([]string{cfg.MetaDir}, cfg.CacheDirs...)); err != nil {
		return nil, err
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	work, life := errgroup.WithContext(life)
	n := &Node{
		cfg: cfg, log: cfg.Log, started: time.Now(),
		stop: stop, work: work, finished: make(chan struct{}),
		collection: newCollection(), relief: newRelief(), rest: newRest(),
	}
	if err := n.start(ctx, life); err != nil {
		stop()
		bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownBound)
		defer cancel()
		return nil, errors.Join(err, n.work.Wait(), n.closeParts(bound))
	}
	go n.run(life)
	return n, nil
}

// start makes the parts in the order they depend on each other.
func (n *Node) start(ctx, life context.Context) error {
	steps := []func(ctx, life context.Context) error{
		n.startCache, n.bindStatus, n.startMeta, n.startServing, n.startEngine, n.startRestorer, n.startView, n.startStaging, n.joinCluster, n.startMount, n.startControl,
	}
	for _, step := range steps {
		if err := step(ctx, life); err != nil {
			return err
		}
	}
	return nil
}

// goRun runs one part's loop for the node's life.
func (n *Node) goRun(life context.Context, what string, run func(context.Context) error) {
	n.work.Go(func() error {
		if err := run(life); err != nil && life.Err() == nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	})
}

func (n *Node) startCache(_, life context.Context) error {
	n.binder = newBinder(n.log)
	c, err := cache.Open(cache.Config{
		Roots: n.cfg.CacheDirs, Size: n.cfg.CacheSize, FreeSpace: n.cfg.FreeSpace,
		Withdraw: n.withdraw, Withdrawn: n.withdrawn,
		Bound:   n.binder.add,
		Damaged: n.binder.damage,
		Short:   n.relief.want,
		Relieve: n.relieve,
		Log:     n.log,
	})
	if err != nil {
		return err
	}
	n.onClose("the cache", plain(c.Close))
	n.cache = c
	n.id, _ = c.Identity()
	return nil
}

// bindStatus takes the port of the status page before anything is made in the
// store or mounted: it may be taken. The page is served when the node is whole.
func (n *Node) bindStatus(_, _ context.Context) error {
	if n.cfg.HTTP == "" {
		return nil
	}
	lis, err := listen("--http", n.cfg.HTTP)
	if err != nil {
		return err
	}
	n.httpListener = lis
	n.onClose("the port of the status page", func(context.Context) error {
		if err := lis.Close(); !errors.Is(err, net.ErrClosed) { // the page closed it
			return err
		}
		return nil
	})
	return nil
}

func (n *Node) startMeta(ctx, life context.Context) error {
	if err := n.openStorage(ctx, life); err != nil {
		return err
	}
	n.catalog = meta.NewCatalog(n.storage.slots, meta.Options{Log: n.log, Recorder: n.storage.journal})
	return n.joinStore(ctx)
}

// newIncarnation returns a number no earlier start of this node had.
func newIncarnation() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return binary.LittleEndian.Uint64(b[:]) | 1
}

func (n *Node) startServing(_, _ context.Context) error {
	lis, err := listen("--listen", n.cfg.Listen)
	if err != nil {
		return err
	}
	addr, err := advertised(n.cfg, lis.Addr())
	if err != nil {
		return errors.Join(err, lis.Close())
	}
	n.addrs = map[string]string{"tcp": addr}
	n.incarnation = newIncarnation()
	n.auth, err = rdma.NewAuth(rdma.Credentials{Cluster: n.store.Cluster, Secret: n.store.Secret, Self: n.id, Incarnation: n.incarnation})
	if err != nil {
		return errors.Join(err, lis.Close())
	}
	if err := n.startRDMA(); err != nil {
		return errors.Join(err, lis.Close())
	}
	if n.rdma != nil {
		n.addrs[verbs.Protocol] = addr // where connections are agreed on
	}
	blocks := tcp.NewHandler(tcp.HandlerConfig{
		Source: n.cache, Auth: n.auth, Counters: &n.traffic, Limit: tcp.NewLimiter(n.cfg.UploadLimit), Log: n.log,
		Admit: n.admit,
	})
	rpc := newPeerServer(n.auth, &peerService{name: n.cfg.Name, holdings: ownHoldings{n}, interest: &n.interest, sends: &n.sends, meet: n.meet})
	n.peers = newPeers(n.auth)
	n.peers.self = peerInfo(chunk.Peer{Node: n.id, Incarnation: n.incarnation, Name: n.cfg.Name, Zone: n.cfg.Zone, Addrs: n.addrs})
	n.onClose("connections to other nodes", plain(n.peers.Close))
	srv := newServer(lis, n.serveBlocks(blocks), rpc, n.log)
	serving, stopServing := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- srv.Run(serving) }()
	// Serving ends after the mount: others may read from here till then.
	n.onClose("the server for other nodes", func(context.Context) error {
		stopServing()
		return <-served
	})
	return nil
}

func (n *Node) startEngine(_, life context.Context) error {
	transport, err := tcp.NewClient(tcp.ClientConfig{Auth: n.auth, Counters: &n.traffic, Limit: tcp.NewLimiter(n.cfg.DownloadLimit), Log: n.log})
	if err != nil {
		return fmt.Errorf("start the tcp transport: %w", err)
	}
	n.onClose("the transport", plain(transport.Close))
	n.registry = &registry{
		catalog: n.catalog, self: n.id, timeout: n.cfg.MetaTimeout,
		recent: map[chunk.SetID]located{}, told: map[chunk.SetID]bool{},
	}
	n.facts = &facts{
		catalog: n.catalog, peers: n.peers, locate: n.registry.Locate, self: n.id, own: ownHoldings{n},
		timeout: n.cfg.MetaTimeout, objects: map[chunk.ObjectID]*boundSums{},
	}
	n.siblings = newSiblings(n)
	n.source = &sources{cache: n.cache, locate: n.registry.Locate, self: n.id}
	n.engine = chunk.NewEngine(chunk.Config{
		Self: n.id, Zone: n.cfg.Zone, Store: n.source, Transport: n.transport(transport), Registry: n.registry, Scout: n.peers,
		Facts:      n.facts,
		NoPrefetch: n.cfg.Prefetch == "off",
		OnComplete: func(o chunk.Object) {
			if m := n.mounted.Load(); m != nil {
				m.Completed(o)
			}
		},
		OnBlock: n.trace.add,
		OnWhole: n.siblings.whole,
		Log:     n.log,
	})
	n.fetching.Store(n.engine)
	n.onClose("the engine", plain(n.engine.Close))
	n.goRun(life, "cache upkeep", n.cache.Run)
	n.binder.store = n.catalog
	n.goRun(life, "checksum writer", n.binder.Run)
	return nil
}

func (n *Node) startView(ctx, life context.Context) error {
	view, err := meta.NewView(meta.ViewConfig{
		Catalog: n.catalog, Local: n.storage.table, Consistency: meta.Consistency(n.cfg.Consistency), Timeout: n.cfg.MetaTimeout,
		OnChange: n.learned,
		Log:      n.log,
	})
	if err != nil {
		return err
	}
	n.view = view
	// The root is listed now, so that the first ls does not wait and the
	// state of the store is known. Without the store, what is known will do.
	if _, err := view.List(ctx, meta.RootDir); err != nil {
		n.log.Warn("the mountpoint cannot be listed yet", "err", err)
	}
	n.onClose("the view of the names", plain(view.Close))
	n.goRun(life, "view of the names", view.Run)
	return nil
}

// joinCluster makes this node known. While the store is down it goes on
// trying; a node of the same id alive on another machine is refused.
func (n *Node) joinCluster(ctx, life context.Context) error {
	info := n.nodeInfo()
	member, err := n.joinNode(ctx, info)
	if err != nil && !errors.Is(err, meta.ErrUnavailable) {
		return fmt.Errorf("join the cluster: %w", err)
	}
	joined := make(chan *meta.Membership, 1) // for Leave, which comes after Run
	n.goRun(life, "membership", func(ctx context.Context) error {
		defer close(joined)
		if member == nil {
			if member, err = n.joinLater(ctx, info); err != nil || member == nil {
				return err
			}
		}
		joined <- member
		n.member.Store(member)
		return member.Run(ctx)
	})
	n.onClose("membership", func(ctx context.Context) error {
		if m := <-joined; m != nil {
			return n.leaveCluster(ctx, m)
		}
		return nil
	})
	n.goRun(life, "announce held sets", n.announceHeld)
	n.goRun(life, "restoration", n.restorer.Run)
	n.goRun(life, "rest of files that lost their names", n.runRest)
	if n.cfg.Prefetch != "off" {
		n.goRun(life, "other files of models that are read", n.siblings.Run)
	}
	n.goRun(life, "roll of the nodes", n.runRoll)
	if !n.cfg.ReadOnly {
		n.goRun(life, "collection", n.runCollection)
		n.goRun(life, "end of names", n.runExpiry)
		n.goRun(life, "room in a full cache", n.runRelief)
	}
	return nil
}

// nodeInfo is what this node tells the others of itself.
func (n *Node) nodeInfo() meta.NodeInfo {
	return meta.NodeInfo{
		Node: n.id, Incarnation: n.incarnation, Name: n.cfg.Name, Zone: n.cfg.Zone, Addrs: n.addrs,
		Host: hostID(), ProtoMin: protoMin, ProtoMax: protoMax, Kind: "daemon",
	}
}

// leaveBound is how long an ending node tries to say so.
const leaveBound = 3 * time.Second

// leaveCluster tells the others that this node ends. A store that is out of
// reach does not make the end a failure: the node's record runs out by itself.
func (n *Node) leaveCluster(ctx context.Context, m *meta.Membership) error {
	ctx, cancel := context.WithTimeout(ctx, leaveBound)
	defer cancel()
	err := m.Leave(ctx)
	if err == nil {
		err = n.enroll(ctx)
	}
	if errors.Is(err, meta.ErrUnavailable) {
		n.log.Warn("others will miss this node only when its record has run out", "err", err)
		return nil
	}
	return err
}

// joinLater joins when the store is back; nil when ctx ended first.
func (n *Node) joinLater(ctx context.Context, info meta.NodeInfo) (*meta.Membership, error) {
	for wait := time.Second; ; wait = min(2*wait, 5*time.Second) {
		select {
		case <-ctx.Done():
			return nil, nil
		case <-time.After(wait):
		}
		member, err := n.joinNode(ctx, info)
		if err == nil || !errors.Is(err, meta.ErrUnavailable) {
			return member, err
		}
	}
}

// announceHeld says again, at start, what this node holds: a record may have
// been lost with the store, or removed by a reader that found this node gone.
func (n *Node) announceHeld(ctx context.Context) error {
	wait := time.Second
	sets, err := n.cache.Sets(ctx)
	if err != nil {
		return fmt.Errorf("list what is held here: %w", err)
	}
	for _, s := range sets {
		for {
			// Into the store of our cluster only.
			err := n.catalog.CheckStore(ctx)
			if err == nil {
				err = n.catalog.Announce(ctx, s.Set, n.id, s.Keeper, s.Complete)
			}
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return nil
			}
			n.log.Warn("held set not announced yet", "set", s.Set, "err", err)
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(wait):
			}
			wait = min(2*wait, 30*time.Second)
		}
	}
	return nil
}

// hostID tells this machine from others: its machine id, else its host name,
// with the boot so that a cloned disk image does not pass for this machine.
func hostID() string {
	id, err := os.ReadFile("/etc/machine-id")
	if err != nil || len(id) == 0 {
		name, _ := os.Hostname()
		id = []byte(name)
	}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id)) + "/" + strings.TrimSpace(string(boot))
}

func (n *Node) startMount(ctx, _ context.Context) error {
	m, err := fs.Mount(ctx, n.mountConfig())
	if err != nil {
		return err
	}
	n.mount = m
	n.mounted.Store(m)
	n.onClose("the mount", func(ctx context.Context) error { return m.Unmount(ctx, true, true) })
	return nil
}

func (n *Node) startControl(_, life context.Context) error {
	if lis := n.httpListener; lis != nil {
		srv := &http.Server{Handler: n.statusHandler(), ReadHeaderTimeout: 5 * time.Second}
		n.goRun(life, "status page", func(ctx context.Context) error {
			stop := context.AfterFunc(ctx, func() { srv.Close() })
			defer stop()
			if err := srv.Serve(lis); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		})
	}
	if n.cfg.RuntimeSocket == "" {
		return nil
	}
	lis, err := running.Listen(n.cfg.RuntimeSocket)
	if err != nil {
		return err
	}
	n.controlListener = lis
	n.goRun(life, "control socket", n.serveControl)
	return nil
}
