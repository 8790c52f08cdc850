package etcd

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzKey: what a watch brings of keys that others wrote, and that a key of ours is
// read as what it was made of. The version of a slot has no field.
func FuzzKey(f *testing.F) {
	for _, k := range []string{"p/d/0000000000000001/name", "p/store/.", "p/lock/dirs/.", "p/d/", "p/", "q/d/1/x", ""} {
		f.Add(k)
	}
	s := &Store{target: target{prefix: "p"}}
	f.Fuzz(func(t *testing.T, key string) {
		slot, field, ok := s.parseKey(key)
		if ok && field != "" {
			require.Equal(t, key, s.key(slot, field))
		}
	})
}
