package meta

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPagesOfLargeRecordsAreShort(t *testing.T) {
	t.Parallel()
	value := make([]byte, 1<<20)
	for _, tc := range []struct{ limit, n, bytes, want int }{
		{listPage, listPage, 120, 2 * listPage},
		{listPageMost, listPageMost, 120, listPageMost},
		{listPage, listPage, XAttrsMax, listPageBytes/XAttrsMax - 1},
		{listPage, listPage, 4 << 10, 2047},
		{listPage, listPage, 1 << 20, listPageLeast},
		{listPageLeast, listPageLeast, 120, 2 * listPageLeast}, // small again: it grows
	} {
		recs := make([]Record, tc.n)
		for i := range recs {
			recs[i].Value = value[:tc.bytes]
		}
		require.Equal(t, tc.want, nextLimit(tc.limit, recs), "%+v", tc)
	}
}

func TestListingCountsLongEntriesAsMore(t *testing.T) {
	t.Parallel()
	var entries []Entry
	for i := range 100 {
		e := fileEntry()
		e.Name = fmt.Sprint(i)
		entries = append(entries, e)
	}
	l := newListing(entries, 1)
	require.Equal(t, 100, l.size)
	long := fileEntry()
	long.Name, long.XAttrs = "7", withXAttrs(t, "user.a", strings.Repeat("v", 10*nameCost))
	l.set("7", &long, 2, false)
	require.Len(t, l.all(2), 100)
	require.Equal(t, 110, l.size)
}
