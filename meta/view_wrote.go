package meta

// Wrote takes in an entry that this process has just written to a directory,
// with the version that Link, Mkdir, Replace, SetAttr or Publish returned: it
// is seen at once and outlives an outage, though the watch that tells of it may
// never come. Events that are older do not undo it.
func (v *View) Wrote(dir InodeID, e Entry) {
	v.did(dir, word{entry: e, at: e.Version}, e.Name)
}

// Removed takes in that this process has just removed a name, with the version
// that Unlink or Rmdir returned.
func (v *View) Removed(dir InodeID, name string, at uint64) {
	v.did(dir, word{gone: true, at: at}, name)
}

// Renamed takes in what a Rename of this process did.
func (v *View) Renamed(from, to Place, m Moved) {
	if from == to {
		return
	}
	v.Wrote(to.Dir, m.Entry)
	if m.GoneAt != 0 {
		v.Removed(from.Dir, from.Name, m.GoneAt)
	}
}

// did takes in what this process did to a name, and tells it.
func (v *View) did(dir InodeID, w word, name string) {
	done := make(chan struct{})
	if !v.spawn(func() {
		defer close(done)
		if !v.keep(dir, w, name) {
			_, _ = v.read(nil, dir, name)
		}
	}) {
		return
	}
	<-done
	v.cfg.OnChange(Change{Dir: dir, Name: name})
}

// keep remembers a word of this process until the watch has come as far. It
// returns false if only the store can tell whether the word still holds: the
// watch began after it.
func (v *View) keep(dir InodeID, w word, name string) bool {
	d := v.dir(dir)
	if d == nil {
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state == dirNew {
		v.startWatch(d, w.at)
	}
	if w.at < d.own[name].at {
		return true
	}
	if w.at < d.version && d.state == dirReady {
		return w.at > d.since // told by the watch, and perhaps more since
	}
	if w.at > d.version || d.state != dirReady {
		if d.own == nil {
			d.own = make(map[string]word)
		}
		d.own[name] = w
	}
	v.write(d, name, w)
	return true
}

// write puts a word where names are remembered. d.mu is held.
func (v *View) write(d *dirCache, name string, w word) {
	key := nameKey(d.id, name)
	d.heard = max(d.heard, w.at)
	var e *Entry
	if w.gone {
		v.names.Del(key)
		v.local.Remove(d.id, name)
	} else {
		e = &w.entry
		v.local.Put(d.id, w.entry)
	}
	switch {
	case d.listing != nil:
		d.listing.set(name, e, w.at, w.at > d.version)
	case !w.gone && d.state == dirReady:
		v.names.Set(key, known{d: d, gen: d.gen, entry: w.entry}, int64(nameCost+len(name)+len(w.entry.Target)+len(w.entry.XAttrs)))
	}
}

// reached drops the words of this process that the watch has come to. d.mu is
// held.
func (d *dirCache) reached() {
	for name, w := range d.own {
		if w.at <= d.version {
			delete(d.own, name)
		}
	}
}
