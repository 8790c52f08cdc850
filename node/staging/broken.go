package staging

// Break implements fs.WriteFile.
func (f *file) Break() bool {
	f.pub.Lock()
	defer f.pub.Unlock()
	f.name.Lock()
	defer f.name.Unlock()
	if !f.breakOff() {
		return false
	}
	at, _ := f.place()
	f.a.cfg.Changed(at.Dir, at.Name)
	return true
}

// breakOff takes the file out of the tables; f.pub and f.name are held.
func (f *file) breakOff() bool {
	a := f.a
	a.mu.Lock()
	defer a.mu.Unlock()
	f.mu.Lock()
	private := !f.published && a.private(f.at.Name)
	unpublished := f.unpublishedLocked()
	f.mu.Unlock()
	if a.closed || f.removed || f.broken || private || !unpublished {
		return false
	}
	f.broken = true
	a.dropLocked(f)
	return true
}

// isBroken reports whether the file has given its name back.
func (f *file) isBroken() bool {
	f.a.mu.Lock()
	defer f.a.mu.Unlock()
	return f.broken
}

// leaveBroken keeps what a killed writer wrote to be recovered, if it wrote
// anything. Nobody uses the file any more.
func (f *file) leaveBroken() {
	f.mu.Lock()
	empty := f.sealed == nil && f.draft.Size() == 0
	f.mu.Unlock()
	if empty {
		f.discard()
		return
	}
	if err := f.abandon("who wrote it was killed", true); err != nil {
		at, _ := f.place()
		f.a.log.Error("a file whose writer was killed could not be noted for recovery", "name", at.Name, "err", err)
	}
}
