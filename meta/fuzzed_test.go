package meta_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// decoder is how functions are called that read bytes or text which a store, a disk
// or a person gave.
var decoder = regexp.MustCompile(`^([uU]nmarshal|decode|parse|fill$)`)

// Every decoder is reached by a fuzz target of its package: called by it, or by a
// function that is.
func TestEveryDecoderIsFuzzed(t *testing.T) {
	t.Parallel()
	found := 0
	for _, root := range []string{".", "../node/journal"} {
		err := filepath.WalkDir(root, func(dir string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() || d.Name() == "metapb" || d.Name() == "metatest" || d.Name() == "testdata" {
				return err
			}
			calls, fuzz := callsIn(t, dir)
			reached := map[string]bool{}
			var reach func(name string)
			reach = func(name string) {
				if reached[name] {
					return
				}
				reached[name] = true
				for callee := range calls[name] {
					reach(callee)
				}
			}
			for _, name := range fuzz {
				reach(name)
			}
			for name := range calls {
				if decoder.MatchString(name) {
					found++
					require.True(t, reached[name], "%s: no fuzz target reaches %s", dir, name)
				}
			}
			return nil
		})
		require.NoError(t, err)
	}
	require.Greater(t, found, 25, "the decoders were not found")
}

// callsIn returns what each function of a package calls, by names alone, and its fuzz
// targets.
func callsIn(t *testing.T, dir string) (calls map[string]map[string]bool, fuzz []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	calls = map[string]map[string]bool{}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			name := fn.Name.Name
			if calls[name] == nil {
				calls[name] = map[string]bool{}
			}
			if strings.HasPrefix(name, "Fuzz") {
				fuzz = append(fuzz, name)
			}
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				if c, ok := n.(*ast.CallExpr); ok {
					switch f := c.Fun.(type) {
					case *ast.Ident:
						calls[name][f.Name] = true
					case *ast.SelectorExpr:
						calls[name][f.Sel.Name] = true
					}
				}
				return true
			})
		}
	}
	return calls, fuzz
}
