package integration

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"
)

// posixtests runs the cases in this process, which is a child of the test, and
// ends it: args is the directory.
func posixtests(args []string) error {
	os.Args = []string{os.Args[0], "-test.v", "-test.parallel=1"}
	var tests []testing.InternalTest
	for _, name := range slices.Sorted(maps.Keys(posixtest.All)) {
		tests = append(tests, testing.InternalTest{Name: name, F: func(t *testing.T) {
			dir := filepath.Join(args[0], name)
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			posixtest.All[name](t, dir)
		}})
	}
	testing.Main(func(_, _ string) (bool, error) { return true, nil }, tests, nil, nil)
	return nil
}
