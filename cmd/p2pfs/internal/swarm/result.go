package swarm

import (
	"math"
	"math/bits"
	"slices"
)

// LeastIdle is the part of the processors that a run must leave idle: a machine
// that is busier measures itself and not the nodes.
const LeastIdle = 0.25

// Result is what one run measured; also its JSON.
type Result struct {
	Receivers      int       `json:"receivers"`
	SizeBytes      int64     `json:"size_bytes"`
	Blocks         int64     `json:"blocks"`
	RateBits       int64     `json:"rate_bits"` // of every link, each way
	By             string    `json:"by"`
	CopySeconds    float64   `json:"copy_seconds"`    // of one plain copy
	LatencySeconds float64   `json:"latency_seconds"` // one way, on idle links
	FloorSeconds   float64   `json:"floor_seconds"`   // no swarm can be faster
	Seconds        []float64 `json:"seconds"`         // of every receiver, fastest first
	SlowestSeconds float64   `json:"slowest_seconds"`
	MedianSeconds  float64   `json:"median_seconds"`
	SlowestOver    float64   `json:"slowest_over_floor"`
	MedianOver     float64   `json:"median_over_floor"`
	SourceCopies   float64   `json:"source_copies"`     // bytes the source sent over the size
	ReceivedCopies float64   `json:"received_copies"`   // the most any receiver got over the size
	CPUIdle        float64   `json:"cpu_idle"`          // part of all processors, while it ran
	NodesCPU       float64   `json:"nodes_cpu_seconds"` // what all nodes took of the processors, while it ran
	Valid          bool      `json:"valid"`
	Peers          []Peer    `json:"peers,omitempty"`
}

// Peer is another way to bring the file to all receivers, over the same links.
type Peer struct {
	Name           string  `json:"name"`
	Note           string  `json:"note,omitempty"` // why there are no figures
	SlowestSeconds float64 `json:"slowest_seconds,omitempty"`
	MedianSeconds  float64 `json:"median_seconds,omitempty"`
	SlowestOver    float64 `json:"slowest_over_floor,omitempty"`
	MedianOver     float64 `json:"median_over_floor,omitempty"`
	SourceCopies   float64 `json:"source_copies,omitempty"` // 0: not known
	CPUIdle        float64 `json:"cpu_idle,omitempty"`
	Valid          bool    `json:"valid"`
}

// floor is the least time in which a file that takes copy seconds to send once
// reaches all receivers: it is in blocks, and each doubles who has one at most.
func floor(copySeconds float64, receivers int, blocks int64) float64 {
	doublings := float64(bits.Len(uint(receivers)) - 1)
	return copySeconds * (1 + doublings/float64(max(blocks, 1)))
}

// take fills in what follows from the seconds of the receivers.
func (r *Result) take(seconds []float64) {
	slices.Sort(seconds)
	r.Seconds = rounded(seconds)
	r.SlowestSeconds, r.MedianSeconds = slowest(seconds), median(seconds)
	r.SlowestOver, r.MedianOver = r.SlowestSeconds/r.FloorSeconds, r.MedianSeconds/r.FloorSeconds
}

func slowest(sorted []float64) float64 { return sorted[len(sorted)-1] }

func median(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// rounded returns milliseconds: more digits mean nothing.
func rounded(seconds []float64) []float64 {
	out := make([]float64, len(seconds))
	for i, s := range seconds {
		out[i] = math.Round(s*1000) / 1000
	}
	return out
}
