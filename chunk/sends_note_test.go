package chunk

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNotedSendsAreRemembered: blocks that were sent without Admit are told to
// those who follow, and to nobody else.
func TestNotedSendsAreRemembered(t *testing.T) {
	t.Parallel()
	var s Sends
	o := NewObjectID()
	s.Note(o, 1)
	done := s.Follow(o)
	s.Note(o, 7)
	s.Note(NewObjectID(), 8)
	s.Note(o, 3)
	blocks, next := s.Sent(o, 0)
	require.Equal(t, []int{7, 3}, blocks)
	s.Note(o, 9)
	blocks, _ = s.Sent(o, next)
	require.Equal(t, []int{9}, blocks)
	done()
	blocks, _ = s.Sent(o, 0)
	require.Empty(t, blocks)
}
