package verbs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma/devices"
)

const (
	// maxRailsReply bounds a list of ports, in bytes.
	maxRailsReply = 64 << 10
	// maxGIDs bounds the addresses of a port that others are told of: a port
	// has one for each address of its interfaces, containers' included.
	maxGIDs = 8
)

// listed returns what others are told of ports: the best addresses of each.
func listed(rails []devices.Rail) []devices.Rail {
	out := make([]devices.Rail, len(rails))
	for i, r := range rails {
		r.GIDs = r.GIDs[:min(len(r.GIDs), maxGIDs)]
		out[i] = r
	}
	return out
}

// readRails reads a peer's list of ports. One that does not come whole, or is
// too long, is a failure to connect; only one that cannot be meant is
// chunk.ErrCorrupt.
func readRails(from io.Reader) ([]devices.Rail, error) {
	p, err := io.ReadAll(io.LimitReader(from, maxRailsReply+1))
	if err != nil {
		return nil, fmt.Errorf("%w: read the list of ports: %w", errLink, err)
	}
	if len(p) > maxRailsReply {
		return nil, fmt.Errorf("%w: the list of ports has more than %d bytes", errLink, maxRailsReply)
	}
	var out []devices.Rail
	if err := json.NewDecoder(bytes.NewReader(p)).Decode(&out); err != nil {
		kind := chunk.ErrCorrupt
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			kind = errLink // it was cut off
		}
		return nil, fmt.Errorf("%w: list of ports: %w", kind, err)
	}
	for _, r := range out {
		if len(r.GIDs) == 0 {
			return nil, fmt.Errorf("%w: a port without an address", chunk.ErrCorrupt)
		}
		for _, g := range r.GIDs {
			if !g.Addr.Is6() {
				return nil, fmt.Errorf("%w: a port's address is %v", chunk.ErrCorrupt, g.Addr)
			}
		}
	}
	return out, nil
}
