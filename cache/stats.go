package cache

// Stats is a picture of the cache. Objects that the start's scan has not
// reached yet are missing from all but Objects.
type Stats struct {
	UsedBytes    int64 // on disk, those of dropped objects still open included
	LimitBytes   int64 // 0: none
	Objects      int   // fetched, complete or not
	Complete     int   // of those
	Kept         int   // of those
	KeptBytes    int64 // of UsedBytes
	StagedFiles  int   // being written, or left to be recovered
	StagedBytes  int64 // of UsedBytes
	InPlace      int   // registered files
	OpenFiles    int   // fetched objects whose files are open, used or not
	Evictions    uint64
	EvictedBytes uint64
	Roots        []RootStats
}

// RootStats is a picture of one root.
type RootStats struct {
	Dir       string
	UsedBytes int64
	Aside     int    // files that may be kept and cannot be believed, in Dir/aside
	FreeBytes int64  // that may still be written above the reserve; below 0: too many are
	State     string // "ok" or "failing"
	Error     string // of the disk, when failing
}

// Stats returns a picture of now.
func (c *Cache) Stats() Stats {
	s := Stats{
		UsedBytes: c.used.Load(), LimitBytes: c.cfg.Size,
		InPlace:   c.places.count(),
		Evictions: c.evictions.Load(), EvictedBytes: c.evicted.Load(),
	}
	s.StagedFiles, s.StagedBytes = c.staged.count(), c.staged.bytes.Load()
	for _, r := range c.roots {
		rs := RootStats{Dir: r.dir, UsedBytes: r.used.Load(), FreeBytes: r.askFree(), Aside: r.countAside(), State: "ok"}
		if err := r.trouble(); err != nil {
			rs.State, rs.Error = "failing", err.Error()
		}
		s.Roots = append(s.Roots, rs)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Objects = len(c.entries)
	for _, e := range c.entries {
		used := e.used
		if e.file != nil {
			used = e.file.used.Load()
		}
		if e.kept {
			s.Kept++
			s.KeptBytes += used
		}
		if e.file != nil {
			s.OpenFiles++
			if e.file.Complete() {
				s.Complete++
			}
		} else if e.complete {
			s.Complete++
		}
	}
	return s
}
