package meta

// Forget lets go of all that is remembered of the store, and begins anew: it
// goes on in another epoch, whose versions are no later or earlier than those
// before. What the LocalTable holds of names stays for an outage.
func (v *View) Forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, d := range v.dirs {
		v.drop(d)
	}
}
