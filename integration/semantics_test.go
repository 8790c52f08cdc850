package integration

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// SEMANTICS.md says nothing that no test claims to show.
func TestEveryStatementHasATest(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../SEMANTICS.md")
	require.NoError(t, err)
	stated := regexp.MustCompile(`(?m)^- \*\*([A-Z]\d+)\*\*`).FindAllStringSubmatch(string(text), -1)
	require.NotEmpty(t, stated)

	shown := map[string]bool{}
	comment := regexp.MustCompile(`(?m)//.*$`)
	number := regexp.MustCompile(`\b[A-Z]\d+\b`)
	err = filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		for _, c := range comment.FindAllString(string(b), -1) {
			for _, n := range number.FindAllString(c, -1) {
				shown[n] = true
			}
		}
		return err
	})
	require.NoError(t, err)
	for _, s := range stated {
		require.True(t, shown[s[1]], "SEMANTICS.md states %s, and no test has that number", s[1])
	}
}

// A5
func TestExtendedAttributesAreNotSupported(t *testing.T) {
	t.Parallel()
	n := newCluster(t).start("a")
	must(t, "cp", "/etc/hostname", n.path("f"))
	for _, do := range []string{"os.setxattr(p, 'user.a', b'1')", "os.getxattr(p, 'user.a')", "os.listxattr(p)", "os.removexattr(p, 'user.a')"} {
		said := must(t, world.python, "-c", "import os, sys\np = sys.argv[1]\ntry:\n    "+do+"\n    print('done')\nexcept OSError as e:\n    print(e.errno)", n.path("f"))
		require.Equal(t, "95\n", said, do) // ENOTSUP
	}
}
