package meta

// Wrote takes in an entry that this process has just written to a directory,
// with the version that Link, Mkdir or Replace returned: it is seen at once and
// outlives an outage, though the watch that tells of it may never come.
func (v *View) Wrote(dir InodeID, e Entry) {
	done := make(chan struct{})
	if !v.spawn(func() {
		defer close(done)
		v.learn(dir, e.Name, &e, e.Version)
	}) {
		return
	}
	<-done
	v.cfg.OnChange(Change{Dir: dir, Name: e.Name})
}
