package meta

import (
	"errors"
	"fmt"
	"strings"
)

var errTooMany = errors.New("too many at once")

// CheckApply reports why no store can make such a change; stores call it
// before they send one. A field is changed at most once, and not all of a
// store's limits are known here.
func CheckApply(slot Slot, conds []If, sets []Set) error {
	if len(sets) > MaxSets || len(conds) > MaxSets+2 {
		return fmt.Errorf("change %s: %w: %d conditions and %d changes, the most is %d", slot, errTooMany, len(conds), len(sets), MaxSets)
	}
	for _, c := range conds {
		if !c.NoOthers {
			if err := checkField(slot, c.Field); err != nil {
				return err
			}
		}
		if c.Store && !c.Present {
			return fmt.Errorf("change %s: condition on field %q of the store is not that it is there", slot, c.Field)
		}
		if n := c.meanings(); n != 1 {
			return fmt.Errorf("change %s: condition on field %q means %d things, not one", slot, c.Field, n)
		}
	}
	for _, s := range sets {
		if err := checkField(slot, s.Field); err != nil {
			return err
		}
	}
	if f, ok := twice(sets); ok {
		return fmt.Errorf("change %s: field %q is changed twice", slot, f)
	}
	return nil
}

// twice returns a field that is changed twice. Most changes of many are in order,
// and need no table.
func twice(sets []Set) (field string, ok bool) {
	inOrder := true
	for i := 1; i < len(sets) && inOrder; i++ {
		inOrder = sets[i-1].Field < sets[i].Field
	}
	if inOrder {
		return "", false
	}
	seen := make(map[string]struct{}, len(sets))
	for _, s := range sets {
		if _, ok := seen[s.Field]; ok {
			return s.Field, true
		}
		seen[s.Field] = struct{}{}
	}
	return "", false
}

// meanings counts the conditions that c states.
func (c If) meanings() int {
	n := 0
	for _, b := range []bool{c.Absent, c.Present, c.NoOthers, c.Version != 0} {
		if b {
			n++
		}
	}
	return n
}

func checkField(slot Slot, field string) error {
	if field == "" || strings.IndexByte(field, 0) >= 0 {
		return fmt.Errorf("change %s: %q cannot be a field", slot, field)
	}
	return nil
}
