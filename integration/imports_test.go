package integration

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/p2pfs/p2pfs"

// layers says which of our top folders each top folder may import: itself
// always, and these. Generated record packages may be imported by all.
var layers = map[string][]string{
	"cmd":         {"node"},
	"node":        {"fs", "cache", "meta", "rdma", "chunk"},
	"fs":          {"cache", "meta", "rdma", "chunk"},
	"cache":       {"chunk"},
	"meta":        {"chunk"},
	"rdma":        {"chunk"},
	"chunk":       {},
	"integration": {},
	"bench":       {},
	"tools":       {},
}

// helpers are packages that tests alone may import.
var helpers = []string{"meta/metatest", "rdma/rdmatest", leaktest}

// leaktest ends the tests of every package, whatever layer it is in.
const leaktest = "chunk/leaktest"

type goPackage struct {
	ImportPath, Doc                    string
	Imports, TestImports, XTestImports []string
	GoFiles                            []string
}

func packages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Doc,Imports,TestImports,XTestImports,GoFiles", "./...")
	cmd.Dir = ".."
	r := runCmd(t, commandLimit, cmd)
	require.Zero(t, r.code, "%s", r)
	var all []goPackage
	for d := json.NewDecoder(bytes.NewReader(r.out)); d.More(); {
		var p goPackage
		require.NoError(t, d.Decode(&p))
		all = append(all, p)
	}
	return all
}

func inside(path string) (string, bool) {
	if path == module {
		return "", true
	}
	return strings.CutPrefix(path, module+"/")
}

func top(path string) string {
	t, _, _ := strings.Cut(path, "/")
	return t
}

func TestImportsGoOneWay(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		from, _ := inside(p.ImportPath)
		allowed, known := layers[top(from)]
		require.True(t, known, "%s is in no layer: add it to the table", from)
		check := func(imports []string, test bool) {
			for _, path := range imports {
				to, ours := inside(path)
				if !ours {
					continue
				}
				if top(to) != top(from) && !(test && to == leaktest) {
					require.Contains(t, allowed, top(to), "%s must not import %s", from, to)
				}
				if !test && !slices.Contains(helpers, from) {
					require.NotContains(t, helpers, to, "%s imports a test helper", from)
				}
			}
		}
		check(p.Imports, false)
		check(p.TestImports, true)
		check(p.XTestImports, true)
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		written := slices.ContainsFunc(p.GoFiles, func(f string) bool { return !strings.HasSuffix(f, ".pb.go") })
		if written {
			require.NotEmpty(t, p.Doc, "%s has no package comment", p.ImportPath)
		}
	}
}
