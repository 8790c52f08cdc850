package chunk

import "math/bits"

// tally counts, over the peers of one object, who has what and what was sent
// to whom: a block that few have is fetched before one that many have, and one
// that a source has sent is on its way to somebody who can be asked for it.
// It is kept up as news come, so that choosing a block looks at no peer.
type tally struct {
	copies []uint16 // peers that have the block
	sent   []uint16 // times that peers said they began to send it
	unsent int      // blocks that nobody said so of
}

func newTally(blocks int) *tally {
	return &tally{copies: make([]uint16, blocks), sent: make([]uint16, blocks), unsent: blocks}
}

// add counts every block of a map, or takes it back; nil counts nothing.
func (t *tally) add(have Bitmap, n int) {
	if t == nil {
		return
	}
	for w := range have.words() {
		for x := have.word(w); x != 0; x &= x - 1 {
			t.copies[64*w+bits.TrailingZeros64(x)] += uint16(n)
		}
	}
}

// one counts one block of one peer, or takes it back.
func (t *tally) one(block, n int) {
	if t != nil {
		t.copies[block] += uint16(n)
	}
}

// send counts blocks that a peer began to send.
func (t *tally) send(block, n int) {
	if t == nil {
		return
	}
	if t.sent[block] == 0 {
		t.unsent--
	}
	if t.sent[block] += uint16(n); t.sent[block] == 0 {
		t.unsent++
	}
}
