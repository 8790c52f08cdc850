package rdmatest

import "bytes"

// lendFault breaks the answer to a control call.
func (p *Provider) lendFault(r *reply) {
	for i := range r.blocks {
		d := &r.blocks[i]
		switch p.cfg.Fault {
		case ShortBody:
			d.len--
		case EndlessBody:
			d.len = 1 << 62
		case WrongBlock:
			d.ref.Index++
		case WrongSum:
			d.sum++
		}
	}
	switch p.cfg.Fault {
	case OtherNode:
		r.incarnation++
	case StaleKey:
		p.nic.register()
	}
}

// readFault returns what goes wrong while a READ runs, or nil.
func (p *Provider) readFault() func(q *pair, d descriptor, done int) {
	switch p.cfg.Fault {
	case Garbage:
		return func(_ *pair, d descriptor, done int) {
			if done == 0 {
				p.overwrite(d)
			}
		}
	case TornRead:
		return func(_ *pair, d descriptor, done int) {
			if done > 0 {
				p.overwrite(d)
			}
		}
	case ResetInBody:
		return func(q *pair, _ descriptor, done int) {
			if done > 0 {
				p.forget(q)
			}
		}
	case HangInBody, LeaseRunOut:
		return func(q *pair, _ descriptor, done int) {
			if done > 0 {
				<-q.dead
			}
		}
	}
	return nil
}

// overwrite changes a lent block under the reader's hands.
func (p *Provider) overwrite(d descriptor) {
	_ = p.nic.write(func() error {
		off := d.addr - p.nic.base
		copy(p.nic.mem[off:off+uint64(d.len)], bytes.Repeat([]byte{0xa5}, int(d.len)))
		return nil
	})
}
