package sim

import (
	"fmt"
	"math/bits"
	"runtime"
	"slices"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
)

// Config is the world of one run.
type Config struct {
	Receivers int
	Size      int64         // bytes of the object
	Block     int64         // bytes; 0: chunk.BlockSizeFor
	Rate      float64       // of each link, each way, bytes a second
	Latency   time.Duration // one way
	Zones     int           // the nodes are spread over so many zones; the source is in the first
	Cat       bool          // read in order; else all is wanted at once, as by warm
	Churn     float64       // share of the receivers that vanish once and return
	Slow      float64       // share with a tenth of the rate
	Dead      float64       // share that is listed and never answers anything
	Lying     float64       // share that sends wrong bytes
	Glance    float64       // share that reads the first block and no more
	Seed      uint64
	Limits    chunk.Limits
}

// Result is what came of a run.
type Result struct {
	Receivers        int     `json:"receivers"`
	SizeBytes        int64   `json:"size_bytes"`
	BlockBytes       int64   `json:"block_bytes"`
	SlowestOverFloor float64 `json:"slowest_over_floor"` // of the receivers that fetched it all, are not slow and did not come and go
	MedianOverFloor  float64 `json:"median_over_floor"`
	SourceCopies     float64 `json:"source_copies"`
	FloorSeconds     float64 `json:"floor_seconds"`
	CrossZoneCopies  float64 `json:"cross_zone_copies"` // that came into one zone from others, the most of any
	GlanceSeconds    float64 `json:"glance_seconds"`    // until the last of those that read the first block alone had it
	Received         float64 `json:"received_copies"`   // by a receiver, the mean; more than 1 came twice
	Refused          float64 `json:"refused_per_block"`
	Valid            bool    `json:"valid"` // every receiver has every block
	Seed             uint64  `json:"seed"`
}

// Floor is the least time in which one source and R receivers, all with links
// of one rate, can each have all k blocks: rate bytes a second each way.
func Floor(receivers int, size, block int64, rate float64) time.Duration {
	k := float64((size + block - 1) / block)
	rounds := float64(bits.Len(uint(max(receivers, 1))) - 1)
	return time.Duration(float64(size) / rate * (1 + rounds/k) * float64(time.Second))
}

// Run plays one run. An error says what of the Config makes no sense.
func Run(cfg Config) (Result, error) { return run(cfg, runtime.GOMAXPROCS(0)) }

func run(cfg Config, workers int) (Result, error) {
	if cfg.Block == 0 {
		cfg.Block = chunk.BlockSizeFor(chunk.DefaultChunkSize, cfg.Size)
	}
	switch {
	case cfg.Receivers < 1:
		return Result{}, fmt.Errorf("simulate %d receivers: at least one is needed", cfg.Receivers)
	case cfg.Size < 1 || cfg.Rate <= 0 || cfg.Latency < 0:
		return Result{}, fmt.Errorf("simulate %d bytes at %v bytes a second, %v away: none may be below zero", cfg.Size, cfg.Rate, cfg.Latency)
	case cfg.Churn+cfg.Slow+cfg.Dead+cfg.Lying+cfg.Glance > 1 || cfg.Zones < 0:
		return Result{}, fmt.Errorf("simulate: more nodes are unlike the others than there are, or fewer than no zones")
	}
	w := newWorld(cfg)
	if err := w.object.Validate(); err != nil {
		return Result{}, fmt.Errorf("simulate: %w", err)
	}
	w.play(workers)
	return w.result(), nil
}

// result sums up. The receivers that have something wrong with them count for
// Valid only.
func (w *world) result() Result {
	floor := Floor(w.cfg.Receivers, w.cfg.Size, w.cfg.Block, w.cfg.Rate)
	r := Result{
		Receivers: w.cfg.Receivers, SizeBytes: w.cfg.Size, BlockBytes: w.cfg.Block, FloorSeconds: floor.Seconds(),
		Seed: w.cfg.Seed, Valid: true,
	}
	var took []int64
	var received int64
	for _, n := range w.nodes[1:] {
		received += n.received
		if n.nature == dead {
			continue
		}
		if n.done == 0 {
			r.Valid = false
			continue
		}
		if n.nature == glancing {
			r.GlanceSeconds = max(r.GlanceSeconds, round(float64(n.done-n.began)/1e9))
		}
		if n.nature == sound || n.nature == lying {
			took = append(took, n.done-n.began)
		}
	}
	slices.Sort(took)
	if len(took) > 0 {
		r.SlowestOverFloor = round(float64(took[len(took)-1]) / float64(floor))
		r.MedianOverFloor = round(float64(took[len(took)/2]) / float64(floor))
	}
	size := float64(w.cfg.Size)
	r.SourceCopies = round(float64(w.nodes[0].sent) / size)
	cross := make([]float64, max(w.cfg.Zones, 1))
	for i, n := range w.nodes {
		cross[i%len(cross)] += float64(n.imported)
	}
	r.CrossZoneCopies = round(slices.Max(cross) / size)
	r.Received = round(float64(received) / size / float64(w.cfg.Receivers))
	r.Refused = round(float64(w.refused) / float64(w.object.Blocks()) / float64(w.cfg.Receivers))
	return r
}

func round(x float64) float64 { return float64(int64(x*10000+0.5)) / 10000 }
