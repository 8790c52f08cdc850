package verbs

// Lie has a provider break every answer: what grants say, and whether asks and
// returned leases are answered at all.
type Lie struct {
	Short, Endless, Elsewhere, OtherBlock, WrongSum, OtherNode, Break bool
	HangAsk, HangReturn, StaleKey                                     bool
}

// Lying makes h lie.
func Lying(h *Handler, lie Lie) {
	h.faults = faults{
		onAsk:    func(*served) bool { return !lie.HangAsk },
		onReturn: func(*served) bool { return !lie.HangReturn },
		onGrant: func(l *served, g *grant) {
			if lie.OtherNode {
				g.incarnation++
			}
			for i := range g.blocks {
				b := &g.blocks[i]
				switch {
				case lie.Short:
					b.len--
				case lie.Endless:
					b.len = 1 << 62
				case lie.Elsewhere:
					b.addr++
				case lie.OtherBlock:
					b.index++
				case lie.WrongSum:
					b.sum++
				case lie.StaleKey:
					b.key ^= 0x100
				}
			}
			if lie.Break {
				_ = l.queue.Fail()
			}
		},
	}
}

// Leases returns how many leases are out.
func Leases(h *Handler) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.links {
		l.mu.Lock()
		n += len(l.leases)
		l.mu.Unlock()
	}
	return n
}
