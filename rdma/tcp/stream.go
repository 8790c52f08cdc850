package tcp

import (
	"context"
	"io"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma"
)

// streamPiece is how many bytes of a block are handed on at once. The page
// cache keeps a file in folios no larger than the writes that made it: 2 MiB is
// what a processor maps as one page, and a mapping of a file written in pieces
// of 512 KiB is walked at half the speed. Smaller pieces would stay in nearer
// caches, from the socket to the file.
const streamPiece = 2 << 20

// pieceTime is how long a piece may take to come before what is there of it is
// handed on: that is how a block on a slow link is seen to come.
const pieceTime = time.Second

var _ chunk.Streamer = (*Client)(nil)

// FetchTo implements chunk.Streamer. It waits for memory and its turn as Fetch
// does, and needs half of the memory.
func (c *Client) FetchTo(ctx context.Context, from chunk.Peer, ref chunk.BlockRef, put func(piece []byte) error) (chunk.Received, error) {
	var b chunk.Received
	err := c.during(ctx, from, []chunk.BlockRef{ref}, func(ctx context.Context) (err error) {
		b, err = c.fetchTo(ctx, from, ref, put)
		return err
	})
	return b, err
}

func (c *Client) fetchTo(ctx context.Context, from chunk.Peer, ref chunk.BlockRef, put func([]byte) error) (chunk.Received, error) {
	addr, err := rdma.Address(from, Protocol)
	if err != nil {
		return chunk.Received{}, err
	}
	if err := rdma.CheckRef(ref); err != nil {
		return chunk.Received{}, err
	}
	slot := ref
	slot.Len = min(ref.Len, streamPiece)
	l, err := c.arena.Lend(ctx, []chunk.BlockRef{slot})
	if err != nil {
		return chunk.Received{}, err
	}
	defer l.Release()
	b := chunk.Received{Ref: ref}
	t := target{peer: from, addr: addr, claim: c.cfg.Auth.Claim(from)}
	if err := c.fetchOne(ctx, t, &b, throughTo(l.Blocks()[0].Data, ref.Len, put)); err != nil {
		return chunk.Received{}, err
	}
	return b, nil
}

// throughTo returns a sink that hands n bytes on in pieces of len(p), or of
// fewer pages when those take longer than pieceTime. The time that put takes is
// not the peer's.
func throughTo(p []byte, n int64, put func([]byte) error) sink {
	return func(body io.Reader, w *watchdog) (done int64, sum uint32, err error) {
		kept := 0 // bytes of p that have come and are still to be handed on
		for done < n {
			piece := p[:min(int64(len(p)), int64(kept)+n-done)]
			var m int
			m, sum, err = readBody(body, piece[kept:], sum, time.Now().Add(pieceTime), w)
			done += int64(m)
			if err != nil {
				return done, sum, err
			}
			come := kept + m
			whole := come
			if done < n {
				whole -= come % chunk.MinBlockSize
			}
			if whole > 0 {
				w.pause()
				if err := put(piece[:whole]); err != nil {
					return done, sum, err
				}
				w.progress()
			}
			kept = copy(p, piece[whole:come])
		}
		return done, sum, nil
	}
}
