package integration

import (
	"bufio"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// outcome is what a case of someone else's suite came to.
type outcome struct {
	state  string // "pass", "fail" or "skip"
	detail string
}

// outcomes of a suite, by the name of the case.
type outcomes map[string]outcome

// loadSkips reads testdata/SUITE.skip: the cases that are not expected to
// pass. A line that begins with # is the reason of the names that follow it.
func loadSkips(t *testing.T, suite string) map[string]string {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", suite+".skip"))
	require.NoError(t, err)
	defer f.Close()
	skips, reason := map[string]string{}, ""
	for s := bufio.NewScanner(f); s.Scan(); {
		line := strings.TrimSpace(s.Text())
		switch {
		case line == "":
		case strings.HasPrefix(line, "#"):
			reason = strings.TrimSpace(line[1:])
		default:
			require.NotEmpty(t, reason, "%s.skip: %s has no reason", suite, line)
			require.NotContains(t, skips, line, "%s.skip", suite)
			skips[line] = reason
		}
	}
	return skips
}

// judge requires that the cases that did not pass are just those that
// testdata/SUITE.skip names.
func judge(t *testing.T, suite string, got outcomes) {
	t.Helper()
	require.NotEmpty(t, got, "%s ran no case", suite)
	skips, passed := loadSkips(t, suite), 0
	plain := os.Getenv(plainEnv) != ""
	if plain {
		skips = nil
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		o := got[name]
		_, listed := skips[name]
		switch {
		case o.state == "pass" && listed:
			t.Errorf("%s: %s passes: take it out of testdata/%s.skip", suite, name, suite)
		case o.state == "pass":
			passed++
		case plain && o.state == "skip": // the suite's own reason
		case !listed:
			t.Errorf("%s: %s: %s\n%s", suite, name, o.state, o.detail)
		}
	}
	for name := range skips {
		if _, ok := got[name]; !ok {
			t.Errorf("%s: testdata/%s.skip names %s, which there is not", suite, suite, name)
		}
	}
	report(t, "%s: %d cases, %d passed, %d as listed in testdata/%s.skip", suite, len(got), passed, len(skips), suite)
}

// suiteBinary is what tools/suites.sh has built.
func suiteBinary(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../build/suites/bin", name))
	require.NoError(t, err)
	require.FileExists(t, path, "run tools/setup.sh test")
	return path
}
