package meta

import (
	"context"
	"math/rand/v2"
	"time"
)

// moveGrace is how long a mover has, at least, before others end its move for
// it: the watch tells every node of every move.
const moveGrace = time.Second

// finishLater ends a move that a watch told of, if nothing has been told of the
// name for a while: its mover has died.
func (v *View) finishLater(d *dirCache, name string, at uint64) {
	v.spawn(func() {
		for {
			select {
			case <-d.ctx.Done():
				return
			case <-time.After(moveGrace + rand.N(moveGrace)):
			}
			d.mu.Lock()
			moving := d.moving[name] == at
			d.mu.Unlock()
			if !moving {
				return
			}
			ctx, cancel := context.WithTimeout(d.ctx, v.cfg.Timeout)
			err := v.cat.Finish(ctx, d.id, name)
			cancel()
			if err == nil {
				return // the watch tells how it ended
			}
			v.log.Debug("move not finished", "err", err)
		}
	})
}
