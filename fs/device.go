package fs

// Device returns the mount's device number as "major:minor", by which a file
// found elsewhere is known to be on this mount.
func (f *FS) Device() string { return f.dev }
