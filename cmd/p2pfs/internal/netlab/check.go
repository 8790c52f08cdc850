package netlab

import (
	"errors"
	"fmt"
	"os/exec"
)

// check reports what a user, or the machine, lacks.
func check(uid int) error {
	if uid != 0 {
		return errors.New("making network namespaces and shaping their links needs root")
	}
	for _, tool := range []struct{ name, from string }{
		{"ip", "iproute2"}, {"tc", "iproute2"}, {"nsenter", "util-linux"}, {"sleep", "coreutils"},
	} {
		if _, err := exec.LookPath(tool.name); err != nil {
			return fmt.Errorf("the program %s is not here (it is in the package %s): %w", tool.name, tool.from, err)
		}
	}
	return nil
}
