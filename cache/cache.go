package cache

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
)

// Cache is the bytes on this machine. Safe for concurrent use.
type Cache struct {
	cfg      Config
	log      *slog.Logger
	boot     [16]byte
	roots    []*root
	zeros    *zeroSums
	buffers  *bufferPool
	blocks   *blockPool
	places   *places // registered files
	kick     chan struct{}
	writeAt  func(f *os.File, b []byte, off int64) (int, error) // tests inject faults
	datasync func(f *os.File) error
	reflink  func(to, from *os.File) error
	step     func(name string) // called between the steps of a publish
	staged   *stagedTable
	pins     pins

	life   context.Context // ended by Close
	end    context.CancelFunc
	runs   sync.WaitGroup // of Run
	scanMu sync.Mutex     // one scan at a time
	evict  sync.Mutex     // one eviction at a time
	flush  sync.Mutex     // one flush at a time

	used      atomic.Int64 // bytes of object files, those of dropped ones still open included
	evictions atomic.Uint64
	evicted   atomic.Uint64 // bytes

	mu        sync.Mutex
	closed    bool
	scanned   bool
	node      chunk.NodeID
	cluster   chunk.ClusterID
	entries   map[chunk.ObjectID]*entry
	sets      map[chunk.SetID]int      // objects of a set here, of those whose facts are known
	lru       list.List                // *entry, unused ones, least recently used first
	idle      list.List                // *entry, unused and open, longest unused first
	evictable int64                    // bytes of the entries in lru
	owed      map[chunk.SetID]struct{} // sets whose records may not say what is here
	owedUntil time.Time                // none is tried before

	smu   sync.Mutex         // may be taken with file.mu held, and alone
	dirty map[*file]struct{} // have blocks that a power failure would lose
}

var (
	_ chunk.Store  = (*Cache)(nil)
	_ chunk.Source = (*Cache)(nil)
)

// Open locks the roots, agrees on who we are, and reads the names of the
// objects. The maps are read when they are needed, and in Run. It starts no
// goroutine. Errors: ErrInUse, ErrLayout, ErrOtherCluster.
func Open(cfg Config) (*Cache, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Cache{
		cfg:      cfg,
		log:      cfg.Log,
		boot:     bootBytes(cfg.BootID),
		zeros:    &zeroSums{},
		buffers:  &bufferPool{},
		blocks:   &blockPool{},
		kick:     make(chan struct{}, 1),
		writeAt:  (*os.File).WriteAt,
		datasync: fdatasync,
		reflink:  reflink,
		step:     func(string) {},
		staged:   &stagedTable{byID: make(map[uint64]*stagedEntry)},
		entries:  make(map[chunk.ObjectID]*entry),
		sets:     make(map[chunk.SetID]int),
		dirty:    make(map[*file]struct{}),
		owed:     make(map[chunk.SetID]struct{}),
	}
	c.life, c.end = context.WithCancel(context.Background())
	if err := c.openAll(); err != nil {
		c.end()
		for _, r := range c.roots {
			r.close()
		}
		return nil, err
	}
	return c, nil
}

func (c *Cache) openAll() error {
	for _, dir := range c.cfg.Roots {
		r, err := openRoot(dir, c.cfg)
		if err != nil {
			return err
		}
		c.roots = append(c.roots, r)
	}
	if err := c.agree(); err != nil {
		return err
	}
	c.readPins()
	for _, r := range c.roots {
		if err := c.readNames(r); err != nil {
			return err
		}
		if err := c.readStaging(r); err != nil {
			return err
		}
	}
	var err error
	c.places, err = openPlaces(c)
	return err
}

// agree finds the one identity of all roots and gives it to new ones.
func (c *Cache) agree() error {
	var id rootFile
	var nodeFrom, clusterFrom string
	for _, r := range c.roots {
		if !r.id.node.IsZero() {
			if nodeFrom == "" {
				id.node, nodeFrom = r.id.node, r.dir
			} else if id.node != r.id.node {
				return fmt.Errorf("open cache: %w: %s is of node %s and %s of node %s: give directories of one node", ErrLayout, nodeFrom, id.node, r.dir, r.id.node)
			}
		}
		if !r.id.cluster.IsZero() {
			if clusterFrom == "" {
				id.cluster, clusterFrom = r.id.cluster, r.dir
			} else if id.cluster != r.id.cluster {
				return fmt.Errorf("open cache: %w: %s is of cluster %s and %s of cluster %s: give directories of one cluster", ErrOtherCluster, clusterFrom, id.cluster, r.dir, r.id.cluster)
			}
		}
	}
	if id.node.IsZero() {
		id.node = chunk.NewNodeID()
	}
	for _, r := range c.roots {
		if err := r.adopt(id); err != nil {
			return err
		}
	}
	c.node, c.cluster = id.node, id.cluster
	return nil
}

// Identity returns who this node is. The cluster is zero before Bind.
func (c *Cache) Identity() (chunk.NodeID, chunk.ClusterID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.node, c.cluster
}

// Bind records, durably, the cluster that the roots belong to, or checks it
// against the recorded one: ErrOtherCluster. Not to be called concurrently.
func (c *Cache) Bind(cluster chunk.ClusterID) error {
	if cluster.IsZero() {
		return errors.New("bind cache: no cluster given")
	}
	node, have := c.Identity()
	if have == cluster {
		return nil
	}
	if !have.IsZero() {
		return fmt.Errorf("bind cache: %w: %s is of cluster %s, the metadata store is of cluster %s: give the other store, or another cache directory; removing the directory gives up what it holds", ErrOtherCluster, c.roots[0].dir, have, cluster)
	}
	for _, r := range c.roots {
		id := rootFile{node: node, cluster: cluster, layout: layoutVersion}
		if err := writeRoot(r.dir, id); err != nil {
			return fmt.Errorf("bind cache: %w", err)
		}
		r.id = id
	}
	c.mu.Lock()
	c.cluster = cluster
	c.mu.Unlock()
	return nil
}

// Close ends Run, makes what is here durable, and lets go of the roots. Files
// still open keep their bytes and their descriptors until they are closed.
func (c *Cache) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	c.mu.Unlock()
	c.end()
	c.runs.Wait()
	c.syncDirty(context.Background(), 0)
	c.closeIdle(0, true)
	err := c.places.close()
	for _, r := range c.roots {
		r.close()
	}
	return err
}
