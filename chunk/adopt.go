package chunk

import "time"

// adopt takes in blocks that are in the file though no flight of this swarm
// brought them: it was made late, or somebody else puts blocks there. Blocks in
// flight are left to their flights unless those are not worth waiting for.
func (s *swarm) adopt(flying bool, now time.Time) {
	if s.complete.Load() {
		return
	}
	s.arrived(s.file.Have(), flying, now)
}

// arrived notes that all of these blocks are here.
func (s *swarm) arrived(blocks Bitmap, flying bool, now time.Time) {
	b := s.board
	for i := range blocks.Len() {
		if blocks.Has(i) && !b.have.Has(i) && (flying || !b.busy.Has(i)) {
			abort(b.arrived(i))
			delete(s.sums, i)
			s.present(i, nil, now)
		}
	}
	s.here.Store(b.bytes())
	if b.left == 0 {
		s.finish()
	}
}
