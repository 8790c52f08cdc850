package staging

import (
	"fmt"
	"path"
)

// DefaultPrivate are the names of files that stay on their node until they are
// renamed: what rsync, safetensors and huggingface_hub write first.
func DefaultPrivate() []string { return []string{".*.??????", ".tmp??????", "*.incomplete"} }

// CheckPrivate reports the first pattern that cannot be matched.
func CheckPrivate(globs []string) error {
	for _, g := range globs {
		if _, err := path.Match(g, "x"); err != nil {
			return fmt.Errorf("pattern %q: %w", g, err)
		}
	}
	return nil
}

// private reports whether a file of that name is not published. An empty
// pattern matches nothing.
func (a *Area) private(name string) bool {
	for _, g := range a.cfg.Private {
		// A pattern that cannot be matched was refused at the start.
		if ok, err := path.Match(g, name); err == nil && ok {
			return true
		}
	}
	return false
}
