package rdmatest

import (
	"context"
	"fmt"
	"testing"

	"github.com/p2pfs/p2pfs/chunk"
)

// Streamed is a System whose clients fetch by chunk.Streamer: every test of the
// suite then holds for blocks that come in pieces, too.
type Streamed struct{ System }

// Client implements System.
func (s Streamed) Client(t testing.TB, cfg ClientConfig) Client {
	c := s.System.Client(t, cfg)
	st, ok := c.(chunk.Streamer)
	if !ok {
		t.Fatalf("%T does not stream", c)
	}
	return streamedClient{c, st}
}

// streamedClient gathers the pieces of each block.
type streamedClient struct {
	Client
	streamer chunk.Streamer
}

// gathered is a lease on memory of its own.
type gathered []chunk.Received

func (g gathered) Blocks() []chunk.Received { return g }
func (gathered) Release()                   {}

// Fetch implements chunk.Transport.
func (c streamedClient) Fetch(ctx context.Context, from chunk.Peer, refs []chunk.BlockRef) (chunk.Lease, error) {
	var out gathered
	for _, ref := range refs {
		var data []byte
		b, err := c.streamer.FetchTo(ctx, from, ref, func(piece []byte) error {
			if len(data)%chunk.MinBlockSize != 0 {
				return fmt.Errorf("a piece after one of %d bytes, which is not whole pages", len(data))
			}
			data = append(data, piece...)
			return nil
		})
		if err != nil {
			return nil, err
		}
		b.Data = data
		out = append(out, b)
	}
	return out, nil
}
