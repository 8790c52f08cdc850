package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTablesKeepEveryByte(t *testing.T) {
	t.Parallel()
	var tab table
	tab.row("A", "PATH", "LAST")
	tab.row("long one", "x\xff\x1by", "a \xff b")
	tab.pair("ä", "%s", "\xff\xff")
	var b strings.Builder
	require.NoError(t, tab.print(&b))
	require.Equal(t, "A         PATH  LAST\n"+"long one  x\xff\x1by  a \xff b\n"+"ä         \xff\xff\n", b.String())
}
